package sim

import (
	"errors"
	"net/netip"
	"os"
	"strings"
	"testing"

	cnatapi "go.fd.io/govpp/binapi/cnat"
	"go.fd.io/govpp/binapi/fib_types"
	"go.fd.io/govpp/binapi/ip"
)

// TestLostEntries: some orders of adding and removing routes under an address of cnat crash VPP. TestVPPInterposedRoute runs them on
// a real one.
func TestLostEntries(t *testing.T) {
	text, err := os.ReadFile("testdata/lost_entries.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		verdict, steps, _ := strings.Cut(strings.TrimSpace(line), ":")
		dies := verdict == "dies"
		t.Run(steps, func(t *testing.T) {
			v := node(t, Config{})
			cl := dial(t, v)
			ids, next := map[string]uint32{}, uint32(0)
			update := func(name string, m *cnatapi.CnatTranslationUpdate) {
				cl.must(m)
				ids[name], next = next, next+1
			}
			addr, host := netip.MustParseAddr("10.7.7.5"), "10.7.7.5/32"
			for _, step := range strings.Fields(steps) {
				var err error
				switch step {
				case "neighbour":
					err = v.AddNeighbor(Neighbor{Interface: "pod-a", Addr: addr, MAC: [6]byte{2, 0, 0, 0, 0, 5}})
				case "unneighbour":
					_ = v.survives(func() { v.delNeighbor(neighborKey{swIf: v.ifs.byName["pod-a"].index, addr: addr}) })
				case "route":
					err = v.AddRoute(Route{Prefix: netip.MustParsePrefix(host), Paths: []Path{{Interface: "pod-a", Via: addr}}})
				case "unroute":
					v.RemoveRoute(0, netip.MustParsePrefix(host))
				case "unpath":
					cl.must(&ip.IPRouteAddDel{IsMultipath: true, Route: ip.IPRoute{Prefix: toPrefix(netip.MustParsePrefix(host)), NPaths: 1, Paths: []fib_types.FibPath{
						path{swIf: v.ifs.byName["pod-a"].index, via: addr, weight: 1}.encodePath(ip4),
					}}})
				case "translate":
					update(step, translation("10.7.7.5:80", "10.1.1.3:8080"))
				case "endpoint":
					update(step, translation("10.96.0.10:80", "10.7.7.5:8080"))
				case "untranslate", "unendpoint":
					cl.must(&cnatapi.CnatTranslationDel{ID: ids[strings.TrimPrefix(step, "un")]})
				case "between":
					err = v.AddRoute(Route{Prefix: netip.MustParsePrefix("10.7.7.0/24"), Paths: []Path{{Interface: "overlay"}}})
				case "cover":
					err = v.AddRoute(Route{Prefix: netip.MustParsePrefix("0.0.0.0/0"), Paths: []Path{{Interface: "overlay"}}})
				default:
					t.Fatal(step)
				}
				if err != nil && !dies {
					t.Fatalf("%s: %v", step, err)
				}
			}
			if died := v.Crashed(); errors.Is(died, trapLostEntry) != dies || !dies && died != nil {
				t.Errorf("crashed: %v, want %t", died, dies)
			}
		})
	}
}
