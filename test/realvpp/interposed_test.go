package realvpp

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"regexp"
	"strings"
	"testing"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/cnat"
	"go.fd.io/govpp/binapi/fib_types"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip_types"

	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/vpp"
)

var coveredText, entryText = regexp.MustCompile(`covered:\[([^\]]*)\]`), regexp.MustCompile(`entry:(\d+)`)

// covers is an error if an entry of VPP's FIB is twice among those that a shorter prefix covers, or no longer exists and still is. VPP
// dies of the latter as soon as the shorter prefix changes, or another one comes in between (TestVPPInterposedRoute).
func (l *lab) covers() error {
	if isSimulated(l.path) {
		return nil // it ends where VPP would die
	}
	exists := map[string]string{}
	for line := range strings.Lines(l.cli("show fib entry")) {
		if number, prefix, is := strings.Cut(strings.TrimSpace(line), "@"); is {
			exists[number] = prefix
		}
	}
	if len(exists) == 0 {
		return errors.New("show fib entry shows no entries")
	}
	var errs []error
	for number, prefix := range exists {
		for _, covered := range coveredText.FindAllStringSubmatch(l.cli("show fib entry "+number), -1) {
			seen := map[string]bool{}
			for _, e := range entryText.FindAllStringSubmatch(covered[1], -1) {
				switch {
				case exists[e[1]] == "":
					errs = append(errs, fmt.Errorf("%s covers entry %s of the FIB, which no longer exists", prefix, e[1]))
				case seen[e[1]]:
					errs = append(errs, fmt.Errorf("%s covers %s twice", prefix, exists[e[1]]))
				}
				seen[e[1]] = true
			}
		}
	}
	return errors.Join(errs...)
}

// TestVPPInterposedRoute plays orders of requests about an address that cnat translates, and looks which of them VPP dies of. If it lives
// where it is said to die, VPP has been mended, and the simulated one and docs/operations.md have to follow.
func TestVPPInterposedRoute(t *testing.T) {
	path := realVPP(t, "finds out what VPP dies of, and reads its FIB by its command line")
	text, err := os.ReadFile("../../sim/testdata/lost_entries.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		verdict, steps, _ := strings.Cut(strings.TrimSpace(line), ":")
		t.Run(steps, func(t *testing.T) {
			l, err := openLab(path)
			defer l.close()
			if err != nil {
				t.Fatal(err)
			}
			p := &interposed{lab: l, t: t, ids: map[string]uint32{}}
			p.AddInterface(sim.Interface{Name: "loop7", Addresses: []netip.Prefix{netip.MustParsePrefix("10.99.0.1/24")}})
			p.route(true, spare, "10.99.0.2")
			p.route(true, "0.0.0.0/0", "10.99.0.3")
			for _, step := range strings.Fields(steps) {
				p.play(step)
			}
			death := l.alive()
			if died := death != nil; died != (verdict == "dies") {
				t.Errorf("died %t, want %s: %v", died, verdict, death)
			}
			if death != nil && !strings.Contains(death.Error(), cause(death.Error())) {
				t.Errorf("died of something else: %v", death)
			}
		})
	}
}

// cause is what VPP has to report of its end: the function that it ended in. A VPP that was built without libunwind reports no calls, but the signal.
func cause(report string) string {
	if callText.MatchString(report) {
		return "fib_entry_src_action_reactivate"
	}
	return "received signal SIGSEGV"
}

var callText = regexp.MustCompile(`(?m)#\d+ +0x[0-9a-f]+`)

// interposed is a VPP with an address that routes, neighbours and translations come and go for.
type interposed struct {
	*lab
	t   *testing.T
	ids map[string]uint32 // of translations
}

// spare is a route that goes before others come: the next one takes its entry, and not that of the address.
const spare = "10.88.0.1/32"

var interposedAddr = netip.MustParseAddr("10.7.7.5")

// play makes one step. VPP's death is no failure here.
func (p *interposed) play(step string) {
	host := netip.PrefixFrom(interposedAddr, 32).String()
	switch name := strings.TrimPrefix(step, "un"); step {
	case "neighbour", "unneighbour":
		p.ask(neighbor(step == name, p.index["loop7"], 7, interposedAddr))
	case "route":
		p.route(true, host, interposedAddr.String())
	case "unroute":
		p.route(false, host, "")
	case "unpath":
		p.route(false, host, interposedAddr.String())
	case "translate":
		p.translate(step, interposedAddr, netip.MustParseAddr("10.99.0.77"))
	case "endpoint":
		p.translate(step, netip.MustParseAddr("10.96.0.10"), interposedAddr)
	case "untranslate", "unendpoint":
		p.ask(&cnat.CnatTranslationDel{ID: p.ids[name]})
	case "between":
		p.route(false, spare, "")
		p.route(true, "10.7.7.0/24", "10.99.0.4")
	case "cover":
		p.route(true, "0.0.0.0/0", "10.99.0.5")
	default:
		p.t.Fatal(step)
	}
}

func (p *interposed) ask(m api.Message) []vpp.Reply {
	replies, err := p.do(m)
	if err != nil && !errors.Is(err, vpp.ErrDisconnected) {
		p.t.Fatal(err)
	}
	return replies
}

// route adds or replaces a route, or removes its path by via, or it with all paths.
func (p *interposed) route(add bool, to, via string) {
	m := &ip.IPRouteAddDel{IsAdd: add, IsMultipath: !add && via != "", Route: ip.IPRoute{Prefix: prefix(netip.MustParsePrefix(to))}}
	if via != "" {
		hop := fib_types.FibPath{SwIfIndex: uint32(p.index["loop7"]), Weight: 1}
		hop.Nh.Address = ip_types.NewAddress(netip.MustParseAddr(via).AsSlice()).Un
		m.Route.Paths = []fib_types.FibPath{hop}
	}
	p.ask(m)
}

func (p *interposed) translate(name string, frontend, endpoint netip.Addr) {
	end := func(a netip.Addr, port uint16) cnat.CnatEndpoint {
		return cnat.CnatEndpoint{Addr: ip_types.NewAddress(a.AsSlice()), SwIfIndex: interface_types.InterfaceIndex(^uint32(0)), Port: port}
	}
	from := end(netip.IPv4Unspecified(), 0)
	m := &cnat.CnatTranslationUpdate{Translation: cnat.CnatTranslation{
		Vip: end(frontend, 80), IPProto: ip_types.IP_API_PROTO_TCP, IsRealIP: 1, NPaths: 1,
		Paths: []cnat.CnatEndpointTuple{{DstEp: end(endpoint, 8080), SrcEp: from}},
	}}
	if r, is := p.ask(m)[0].Msg.(*cnat.CnatTranslationUpdateReply); is {
		p.ids[name] = r.ID
	}
}
