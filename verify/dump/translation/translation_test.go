package translation

import (
	"fmt"
	"net/netip"
	"testing"

	"go.fd.io/govpp/binapi/cnat"
	"go.fd.io/govpp/binapi/fib_types"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip_types"
	"go.fd.io/govpp/binapi/nat44_ed"
	"go.fd.io/govpp/binapi/nat_types"

	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

// text is a mapping in one line.
func text(m *Mapping) string {
	out := fmt.Sprintf("%s %s:", m.Engine, m.At)
	for _, t := range m.Targets {
		out += fmt.Sprintf(" %s=%d", t.At, t.Share)
		if t.Odd != "" {
			out += "(" + t.Odd + ")"
		}
		if t.Pad() {
			out += "(pad)"
		}
	}
	for _, flag := range []struct {
		name string
		is   bool
	}{{"ends", m.Ends}, {"one way", m.OneWay}, {"hides", m.Hides}, {"loops", m.Loops}, {"maglev", m.Maglev}} {
		if flag.is {
			out += ", " + flag.name
		}
	}
	return out
}

func local(last, weight uint8, vrf uint32) nat44_ed.Nat44LbAddrPort {
	return nat44_ed.Nat44LbAddrPort{Addr: ip_types.IP4Address{10, 1, 1, last}, Port: 8080, Probability: weight, VrfID: vrf}
}

func pad(slot uint16, weight uint8) nat44_ed.Nat44LbAddrPort {
	return nat44_ed.Nat44LbAddrPort{Addr: ip_types.IP4Address{192, 0, 2, 5}, Port: slot, Probability: weight}
}

func TestNAT44Mappings(t *testing.T) {
	const out2in, self = nat_types.NAT_IS_OUT2IN_ONLY, nat_types.NAT_IS_SELF_TWICE_NAT
	for name, tc := range map[string]struct {
		flags  nat_types.NatConfigFlags
		locals []nat44_ed.Nat44LbAddrPort
		want   string
	}{
		"even":         {out2in | self, []nat44_ed.Nat44LbAddrPort{local(2, 2, 0), local(3, 2, 0)}, " 10.1.1.2:8080=2 10.1.1.3:8080=2, one way, loops"},
		"with pads":    {nat_types.NAT_IS_TWICE_NAT, []nat44_ed.Nat44LbAddrPort{pad(1, 0), local(2, 3, 0), pad(3, 0)}, " 192.0.2.5:1=0(pad) 10.1.1.2:8080=3 192.0.2.5:3=0(pad), hides"},
		"drained":      {out2in, []nat44_ed.Nat44LbAddrPort{pad(1, 0), pad(2, 0), pad(3, 0), local(2, 2, 0), pad(5, 0), pad(6, 0), local(3, 2, 0), pad(8, 254), pad(9, 0), local(4, 2, 0), pad(11, 0)}, " 192.0.2.5:1=0(pad) 192.0.2.5:2=0(pad) 192.0.2.5:3=0(pad) 10.1.1.2:8080=2 192.0.2.5:5=0(pad) 192.0.2.5:6=0(pad) 10.1.1.3:8080=0 192.0.2.5:8=0(pad) 192.0.2.5:9=0(pad) 10.1.1.4:8080=2 192.0.2.5:11=0(pad), one way"},
		"sum 0":        {out2in, []nat44_ed.Nat44LbAddrPort{local(2, 128, 0), local(3, 128, 0)}, " 10.1.1.2:8080=0 10.1.1.3:8080=0, ends, one way"},
		"in a table":   {out2in, []nat44_ed.Nat44LbAddrPort{local(2, 1, 7)}, " 10.1.1.2:8080=1(in table 7), one way"},
		"without pads": {out2in, nil, ", ends, one way"},
	} {
		m := balanced(&nat44_ed.Nat44LbStaticMappingDetails{
			ExternalAddr: ip_types.IP4Address{10, 96, 0, 10}, ExternalPort: 80, Protocol: 6, Flags: tc.flags, Locals: tc.locals, Tag: "ca1:n:ABC:default/web\x00\x00",
		})
		if got := text(&m); got != "nat44 tcp 10.96.0.10:80:"+tc.want || m.Tag != "ca1:n:ABC:default/web" {
			t.Errorf("%s: got %q tag %q", name, got, m.Tag)
		}
	}
	one := single(&nat44_ed.Nat44StaticMappingDetails{
		Flags: out2in, LocalIPAddress: ip_types.IP4Address{10, 1, 1, 2}, ExternalIPAddress: ip_types.IP4Address{10, 96, 0, 10}, Protocol: 17, LocalPort: 53, ExternalPort: 53,
	})
	if got, want := text(&one), "nat44 udp 10.96.0.10:53: 10.1.1.2:53=1, one way"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	whole := single(&nat44_ed.Nat44StaticMappingDetails{Flags: nat_types.NAT_IS_ADDR_ONLY, Protocol: 6, ExternalPort: 9})
	if whole.Port != 0 || whole.Protocol != 0 {
		t.Errorf("a mapping of a whole address is of %s", whole.At)
	}
}

func TestTranslations(t *testing.T) {
	at := func(text string) cnat.CnatEndpoint {
		p := netip.MustParseAddrPort(text)
		return cnat.CnatEndpoint{Addr: descriptor.ToAddress(p.Addr()), Port: p.Port(), SwIfIndex: interface_types.InterfaceIndex(descriptor.None)}
	}
	path := func(text string) cnat.CnatEndpointTuple {
		return cnat.CnatEndpointTuple{DstEp: at(text), SrcEp: cnat.CnatEndpoint{Addr: descriptor.ToAddress(netip.IPv6Unspecified()), SwIfIndex: interface_types.InterfaceIndex(descriptor.None)}}
	}
	kept, sourced, named := path("[fd00::2]:80"), path("[fd00::2]:80"), path("[fd00::2]:80")
	kept.Flags, sourced.SrcEp, named.DstEp.SwIfIndex = 2, at("[fd00::9]:7"), 3
	for name, tc := range map[string]struct {
		paths []cnat.CnatEndpointTuple
		kind  cnat.CnatLbType
		want  string
	}{
		"two":           {[]cnat.CnatEndpointTuple{path("[fd00::2]:80"), path("[fd00::3]:80")}, 0, " [fd00::2]:80=1 [fd00::3]:80=1, one way"},
		"repeated":      {[]cnat.CnatEndpointTuple{path("[fd00::2]:80"), path("[fd00::3]:80"), path("[fd00::2]:80")}, cnat.CNAT_LB_TYPE_MAGLEV, " [fd00::2]:80=2 [fd00::3]:80=1, one way, maglev"},
		"none":          {nil, 0, ", ends, one way"},
		"kept":          {[]cnat.CnatEndpointTuple{kept}, 0, " [fd00::2]:80=1(without translation), one way"},
		"with a source": {[]cnat.CnatEndpointTuple{sourced}, 0, " [fd00::2]:80=1(from source [fd00::9]:7), one way"},
		"an interface":  {[]cnat.CnatEndpointTuple{named}, 0, " [fd00::2]:80=1(an address of interface 3), one way"},
	} {
		m := translated(&cnat.CnatTranslation{Vip: at("[fd00:96::10]:80"), IPProto: 6, LbType: tc.kind, Paths: tc.paths})
		if got := text(&m); got != "cnat tcp [fd00:96::10]:80:"+tc.want {
			t.Errorf("%s: got %q", name, got)
		}
	}
}

func TestRoutes(t *testing.T) {
	path := func(kind fib_types.FibPathType, iface uint32, via string) fib_types.FibPath {
		p := fib_types.FibPath{Type: kind, SwIfIndex: iface}
		if via != "" {
			p.Nh.Address = descriptor.ToAddress(netip.MustParseAddr(via)).Un
		}
		return p
	}
	none := descriptor.None
	for name, tc := range map[string]struct {
		paths []fib_types.FibPath
		want  Route
	}{
		"drop":        {[]fib_types.FibPath{path(fib_types.FIB_API_PATH_TYPE_DROP, none, "")}, Route{Kind: Drops}},
		"no path":     {nil, Route{Kind: Drops}},
		"unreachable": {[]fib_types.FibPath{path(fib_types.FIB_API_PATH_TYPE_ICMP_UNREACH, none, "")}, Route{Kind: Rejects}},
		"prohibit":    {[]fib_types.FibPath{path(fib_types.FIB_API_PATH_TYPE_ICMP_PROHIBIT, none, "")}, Route{Kind: Rejects}},
		"attached":    {[]fib_types.FibPath{path(fib_types.FIB_API_PATH_TYPE_NORMAL, 3, "")}, Route{Kind: Forwards, Interface: 3, Known: true}},
		"recursive":   {[]fib_types.FibPath{path(fib_types.FIB_API_PATH_TYPE_NORMAL, none, "10.0.0.1")}, Route{Kind: Forwards, Via: netip.MustParseAddr("10.0.0.1")}},
		"local":       {[]fib_types.FibPath{path(fib_types.FIB_API_PATH_TYPE_LOCAL, 2, "")}, Route{Kind: Local, Interface: 2, Known: true}},
	} {
		if got := routeOf(&ip.IPRouteLookupReply{Route: ip.IPRoute{Paths: tc.paths}}); got != tc.want {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}

func TestHairpins(t *testing.T) {
	s := &State{Hairpins: map[string]bool{}}
	s.readHairpins("Source NAT\n\nIncluded v6 interfaces:\n  tap1\n\nk8s pod interfaces:\n  tap2\n  tap3\n\nk8s host interfaces:\n  tap4\n")
	if got := s.Hairpins; len(got) != 2 || !got["tap2"] || !got["tap3"] {
		t.Errorf("got %v", got)
	}
}
