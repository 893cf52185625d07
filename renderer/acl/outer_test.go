package acl

import (
	"maps"
	"net/netip"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	contivacl "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/acl"
	vppacl "github.com/contiv-agent/contiv-agent/proto/ligato/vpp/acl"
	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// Outer addresses: the node's own, one outside, and one in a range of cluster IPs.
var outerAddrs = addrs("192.168.0.1", "8.8.8.8", "198.51.100.1", "10.96.0.77")

// drawOuter draws ports of Services at outer addresses.
func drawOuter(t *rapid.T) []dataplane.Outer {
	var out []dataplane.Outer
	for _, a := range outerAddrs {
		for _, proto := range []uint8{match.TCP, match.UDP} {
			for _, port := range []uint16{80, 30080} {
				if rapid.IntRange(0, 2).Draw(t, "absent") == 0 {
					continue
				}
				o := dataplane.Outer{Addr: a, Proto: proto, Port: port, Hides: rapid.IntRange(0, 3).Draw(t, "hides") > 0}
				for range rapid.IntRange(1, 2).Draw(t, "backends") {
					b := pick(t, "backend", append(addrs("10.1.1.1", "10.1.1.2", "10.1.1.3"), remotes[:3]...))
					o.Backends = append(o.Backends, netip.AddrPortFrom(b, pick(t, "port", []uint16{80, 443, 8080})))
				}
				out = append(out, o)
			}
		}
	}
	return out
}

// checkOuter checks a pod that dials an outer address, and a hidden client at a pod.
func (s *scene) checkOuter(t *rapid.T) {
	exposed := map[netip.AddrPort][]uint8{}
	for _, o := range s.r.pods.Node.Outer {
		for i, from := range pods {
			s.checkDialled(t, from, podIPs[i][match.V4], o)
		}
		for _, b := range o.Backends {
			if o.Hides {
				exposed[b] = append(exposed[b], o.Proto)
			}
		}
	}
	for i, to := range pods {
		for _, p := range flows(hairpin[0], podIPs[i][match.V4]) {
			e := s.w.eps[to]
			free := p.translated() && e != nil && e.GetState() == "active" && !slices.Contains(exposed[netip.AddrPortFrom(p.dst, p.dport)], p.proto)
			want := free || e != nil && s.w.allows(e, false, p)
			if p.proto == match.SCTP && s.withoutSCTP(to, true) {
				continue
			}
			if got := s.b.on("if-"+to, true, p); want != got && !s.excused(got) {
				t.Fatalf("hidden: %s to %q: want %v got %v\n%s", p, to, want, got, s)
			}
		}
	}
}

// checkDialled compares the input's verdict: all backends must be allowed if the address hides, and the output decides last if it
// does not. A port without a Service is evaluated as dialled.
func (s *scene) checkDialled(t *rapid.T, from string, src netip.Addr, o dataplane.Outer) {
	e := s.w.eps[from]
	for _, sport := range []uint16{80, 40000} {
		want, some := e != nil, true
		for _, b := range o.Backends {
			ok := e != nil && s.w.sends(e, packet{src, b.Addr(), o.Proto, sport, b.Port()})
			want = want && ok
			for _, other := range []uint16{0, 80, 90, 443, 500, 1010, 40000} { // one of each kind that rules distinguish
				some = some && ok == (e != nil && s.w.sends(e, packet{src, b.Addr(), o.Proto, other, b.Port()}))
			}
		}
		if !o.Hides {
			want = e != nil && e.GetState() == "active"
		}
		p := packet{src, o.Addr, o.Proto, sport, o.Port}
		if got := s.b.on("if-"+from, false, p); want != got && (got || some) && !s.excused(got) { // verdicts that depend on the client's port may be denials
			t.Fatalf("%s from %q by %+v: want %v got %v\n%s", p, from, o, want, got, s)
		}
		p.dport = 7
		want, got := e != nil && s.w.sends(e, p), s.b.on("if-"+from, false, p)
		if want != got && o.Addr != outerAddrs[3] && !s.excused(got) {
			t.Fatalf("%s from %q: want %v\n%s", p, from, want, s)
		}
	}
}

// For every history of policies and Services: policies evaluate hidden clients, and a client that dials an address that would hide
// it is evaluated before.
func TestOuterVerdicts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newScene(testNode(dataplane.PreDNAT))
		s.send(start()...)
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0:
				n := testNode(dataplane.PreDNAT)
				n.Outer = drawOuter(t)
				s.r.SetNode(n)
			case 1:
				s.settle(t)
			default:
				s.send(drawMessage(t, s.w))
			}
		}
		s.settle(t)
		s.checkOuter(t)
		fresh := newScene(s.r.pods.Node.Node)
		fresh.send(s.w.all()...)
		fresh.settle(t)
		if !maps.EqualFunc(fresh.b.acls, s.b.acls, func(a, b *vppacl.ACL) bool { return proto.Equal(a, b) }) ||
			!maps.EqualFunc(fresh.b.lists, s.b.lists, func(a, b *contivacl.InterfaceACLs) bool { return proto.Equal(a, b) }) {
			t.Fatalf("grown\n%s\nfresh\n%s", s, fresh)
		}
	})
}
