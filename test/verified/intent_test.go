package verified

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/space"
	"github.com/contiv-agent/contiv-agent/test/oracle"
	"github.com/contiv-agent/contiv-agent/test/oracle/hear"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy/generate"
	"github.com/contiv-agent/contiv-agent/test/pace"
	"github.com/contiv-agent/contiv-agent/verify/intent"
	"github.com/contiv-agent/contiv-agent/verify/intent/ask"
	"github.com/contiv-agent/contiv-agent/verify/intent/class"
	"github.com/contiv-agent/contiv-agent/verify/meaning"
)

// asked is a random cluster with three opinions about it: that of classes, that of meaning for every pod, and the specifications.
type asked struct {
	*testing.T
	seed    uint64
	rand    *rand.Rand
	cluster *intent.Cluster
	space   *space.Space
	whole   *meaning.Cluster
	spec    *policy.Cluster
	flows   []policy.Flow
	pods    map[netip.Addr]*meaning.Pod
	figures map[string]int
}

// TestAssertions asks random questions about random clusters. An assertion that holds is contradicted by no flow, and the packet that
// violates one is between its sides and confirmed by the specifications.
func TestAssertions(t *testing.T) {
	figures := map[string]int{}
	first := oracle.Setting(t, "CONTIV_SEED", 1)
	for seed := first; seed < first+oracle.Setting(t, "CONTIV_CASES", pace.Fewer[uint64](25, 5)) && !t.Failed(); seed++ {
		a := newAsked(t, seed, figures)
		a.classesAgree()
		if len(a.pods) == 0 || len(a.flows) == 0 {
			continue
		}
		for range 40 {
			a.question()
		}
	}
	t.Log(figures)
	for _, what := range []string{"never holds", "never violated", "always holds", "always violated", "flows between the sides", "packets confirmed"} {
		if figures[what] == 0 {
			t.Errorf("no case of: %s", what)
		}
	}
}

func newAsked(t *testing.T, seed uint64, figures map[string]int) *asked {
	w := generate.NewWorld(seed, generate.AllKinds())
	raw, twins := withTwins(w)
	var all []generate.Change
	for _, o := range raw {
		all = append(all, generate.Change{Key: policy.KeyOf(o), Object: o})
	}
	heard, err := hear.All(all)
	if err != nil {
		t.Fatal(err)
	}
	objects := objectsOf(heard)
	a := &asked{T: t, seed: seed, rand: rand.New(rand.NewPCG(seed, 7)), cluster: intent.Read(objects), space: space.New(), pods: map[netip.Addr]*meaning.Pod{}, figures: figures}
	a.whole = meaning.Read(a.space, class.Complete(objects))
	if a.spec, err = policy.Read(raw); err != nil {
		t.Fatal(err)
	}
	for _, f := range w.Flows(2) {
		for _, end := range []*netip.Addr{&f.Src, &f.Dst} {
			if twin, has := twins[*end]; has && a.rand.IntN(2) == 0 {
				*end = twin
			}
		}
		a.flows = append(a.flows, f)
	}
	for _, p := range a.whole.Pods {
		for _, addr := range p.IPs {
			a.pods[addr] = p
		}
	}
	return a
}

// withTwins returns the objects of a world and for most pods a second one with the same labels, and the addresses of those by the address
// of the first. Policies rarely distinguish them.
func withTwins(w *generate.World) (all []policy.Object, twins map[netip.Addr]netip.Addr) {
	all, twins = w.Objects(), map[netip.Addr]netip.Addr{}
	for _, o := range w.Objects() {
		p, isPod := o.(*corev1.Pod)
		if !isPod || p.Spec.HostNetwork || len(p.Status.PodIPs) == 0 || len(p.Name) > 40 {
			continue
		}
		twin := p.DeepCopy()
		twin.Name += "-twin"
		for i, ip := range twin.Status.PodIPs {
			bytes := netip.MustParseAddr(ip.IP).AsSlice()
			bytes[len(bytes)-1] ^= 128
			addr, _ := netip.AddrFromSlice(bytes)
			twin.Status.PodIPs[i].IP = addr.String()
			twins[netip.MustParseAddr(ip.IP)] = addr
		}
		twin.Status.PodIP = twin.Status.PodIPs[0].IP
		all = append(all, twin)
	}
	return all, twins
}

// classesAgree compares what policies allow to classes with what they allow to every pod.
func (a *asked) classesAgree() {
	standsFor := map[netip.Addr]netip.Addr{}
	classOf := map[model.PodID]*intent.Class{}
	for _, k := range a.cluster.Classes {
		for _, m := range k.Members {
			classOf[m.ID] = k
			for i, addr := range m.Addrs {
				standsFor[addr] = k.Addrs()[i]
			}
		}
		if len(k.Members) > 1 {
			a.figures["classes of several pods"]++
		}
	}
	for i := range a.flows {
		h := headerOf(&a.flows[i])
		moved := h
		for _, end := range []*netip.Addr{&moved.Src, &moved.Dst} {
			if to, isPod := standsFor[*end]; isPod {
				*end = to
			}
		}
		for egress, p := range map[bool]*meaning.Pod{true: a.pods[h.Src], false: a.pods[h.Dst]} {
			if p == nil {
				continue
			}
			want, _ := a.whole.Allowed(p, egress)
			got, _ := a.cluster.Allowed(classOf[p.ID], egress)
			if a.figures["flows of classes"]++; a.cluster.Space.Contains(got, moved) != a.space.Contains(want, h) {
				a.Fatalf("seed %d: %s, egress %v: not the same for the class, as %s", a.seed, h, egress, moved)
			}
		}
	}
}

func headerOf(f *policy.Flow) space.Header {
	h := space.Header{Src: f.Src, Dst: f.Dst, Protocol: uint8(f.Proto), SrcPort: f.SrcPort, DstPort: f.DstPort}
	switch f.Proto {
	case policy.TCP:
		h.Flags = space.SYN
	case policy.ICMP, policy.ICMPv6:
		h.SrcPort, h.DstPort = uint16(f.Type), uint16(f.Code)
	}
	return h
}

func flowOf(h space.Header) *policy.Flow {
	f := &policy.Flow{Src: h.Src, Dst: h.Dst, Proto: policy.Protocol(h.Protocol), SrcPort: h.SrcPort, DstPort: h.DstPort}
	if f.Proto == policy.ICMP || f.Proto == policy.ICMPv6 {
		f.Type, f.Code = uint8(h.SrcPort), uint8(h.DstPort)
	}
	return f
}

// allowed is the verdict of the specifications about the pods at both ends.
func (a *asked) allowed(f *policy.Flow) (bool, string) {
	out, in := a.spec.JudgeEgress(f), a.spec.JudgeIngress(f)
	return out.Allowed && in.Allowed, out.Why + "; " + in.Why
}

// question asks one question as never and as always.
func (a *asked) question() {
	from, to := a.side(false), a.side(true)
	for _, kind := range []ask.Kind{ask.Never, ask.Always} {
		q, err := ask.Parse(kind, from+" -> "+to)
		if err != nil {
			a.Fatal(err)
		}
		r := a.cluster.Check([]ask.Assertion{q}).Results[0]
		a.figures[fmt.Sprintf("%s %s", kind, r.Verdict)]++
		if r.Verdict == intent.Undecided {
			continue
		}
		for i := range a.flows {
			f := &a.flows[i]
			if !a.between(&q, headerOf(f)) {
				continue
			}
			a.figures["flows between the sides"]++
			if allowed, why := a.allowed(f); r.Verdict == intent.Holds && allowed == (kind == ask.Never) {
				a.Fatalf("seed %d: %s %s holds, and %s is allowed: %v: %s", a.seed, kind, r.Demand, f, allowed, why)
			}
		}
		if r.Verdict == intent.Violated {
			a.confirm(&q, &r)
		}
	}
}

// confirm checks a counterexample.
func (a *asked) confirm(q *ask.Assertion, r *intent.Result) {
	h := parseHeader(a.T, r.Example.Packet)
	if !a.between(q, h) {
		a.Fatalf("seed %d: %s %s: %s is not between the sides", a.seed, q.Kind, r.Demand, r.Example.Packet)
	}
	if class.IsPlaceholder(h.Src) || class.IsPlaceholder(h.Dst) {
		a.figures["packets of pods without address"]++
		return
	}
	a.figures["packets confirmed"]++
	if allowed, why := a.allowed(flowOf(h)); allowed != (q.Kind == ask.Never) {
		a.Fatalf("seed %d: %s %s is violated by %s, which is allowed: %v: %s; %+v", a.seed, q.Kind, r.Demand, r.Example.Packet, allowed, why, r.Example)
	}
}

// side is a random side.
func (a *asked) side(right bool) string {
	p := pick(a.rand, a.whole.Pods)
	var text string
	switch a.rand.IntN(9) {
	case 0:
		text = "any"
	case 1:
		text = "outside"
	case 2:
		text = "pod:" + p.ID.String()
	case 3, 4:
		text = "ns:" + p.ID.Namespace
		if k, v, ok := a.label(p.Pod.Labels); ok && a.rand.IntN(2) == 0 {
			text += "," + k + pick(a.rand, []string{"=", "!="}) + v
		}
	case 5:
		text = "ns:" + p.ID.Namespace
		if k, v, ok := a.label(p.Pod.Labels); ok {
			text = "pods:" + k + "=" + v
		}
	case 6:
		if len(a.whole.Services) > 0 {
			o := pick(a.rand, a.whole.Services)
			text = "service:" + o.ID.String()
			if right && a.rand.IntN(2) == 0 && len(o.Ports) > 0 {
				text += fmt.Sprintf(":%d/%s", o.Ports[0].Port, o.Ports[0].Protocol)
			}
			return text
		}
		text = "any"
	default:
		f := pick(a.rand, a.flows)
		addr := pick(a.rand, []netip.Addr{f.Src, f.Dst})
		prefix, _ := addr.Prefix(max(addr.BitLen()-pick(a.rand, []int{0, 1, 2, 8, 16, 32}), 0))
		text = "cidr:" + prefix.String()
	}
	if right && a.rand.IntN(2) == 0 {
		text += ":" + pick(a.rand, []string{"TCP", "UDP", "ICMP", "80", fmt.Sprintf("%d/TCP", max(pick(a.rand, a.flows).DstPort, 1)), "1-1000/UDP,443", "SCTP"})
	}
	return text
}

func (a *asked) label(labels map[string]string) (k, v string, ok bool) {
	if len(labels) == 0 {
		return "", "", false
	}
	k = pick(a.rand, slices.Sorted(keys(labels)))
	return k, labels[k], true
}

// between restates docs/verify.md: whether a packet begins a connection from one side of an assertion to the other.
func (a *asked) between(q *ask.Assertion, h space.Header) bool {
	from, to := a.pods[h.Src], a.pods[h.Dst]
	if from == nil && to == nil || from == to || a.isNode(h.Src) {
		return false
	}
	switch h.Protocol {
	case space.TCP:
		if h.Flags != space.SYN {
			return false
		}
	case space.ICMP:
		if h.Src.Is6() || slices.Contains([]uint16{0, 3, 11, 12}, h.SrcPort) {
			return false
		}
	case space.ICMPv6:
		if h.Src.Is4() || slices.Contains([]uint16{1, 2, 3, 4, 129, 133, 134, 135, 136, 137}, h.SrcPort) {
			return false
		}
	}
	return a.in(&q.From, h.Src, h, false) && a.in(&q.To, h.Dst, h, true)
}

func (a *asked) isNode(addr netip.Addr) bool {
	return slices.ContainsFunc(a.whole.Nodes, func(n *model.Node) bool { return slices.Contains(n.Addrs(), addr) })
}

func (a *asked) in(s *ask.Side, addr netip.Addr, h space.Header, dialled bool) bool {
	if s.Form == ask.Service {
		return a.serves(s, addr, h, dialled)
	}
	if len(s.Ports) > 0 && !slices.ContainsFunc(s.Ports, func(p ask.Port) bool {
		if p.Protocol == space.ICMP {
			return h.Protocol == space.ICMP || h.Protocol == space.ICMPv6
		}
		return uint16(h.Protocol) == p.Protocol && p.First <= h.DstPort && h.DstPort <= p.Last
	}) {
		return false
	}
	p := a.pods[addr]
	switch s.Form {
	case ask.Any:
		return p != nil || a.outside(addr)
	case ask.Outside:
		return a.outside(addr)
	case ask.CIDR:
		return s.Prefix.Contains(addr)
	case ask.Pod:
		return p != nil && p.ID.String() == s.Namespace+"/"+s.Name
	case ask.Namespace, ask.Pods:
		if p == nil || s.Form == ask.Namespace && p.ID.Namespace != s.Namespace {
			return false
		}
		_, wanted, _ := strings.Cut(s.Text, ",")
		if s.Form == ask.Pods {
			wanted = strings.TrimPrefix(s.Text, "pods:")
		}
		wanted, _, _ = strings.Cut(wanted, ":")
		k, v, _ := strings.Cut(wanted, "=")
		if without, not := strings.CutSuffix(k, "!"); not {
			return p.Pod.Labels[without] != v
		}
		return wanted == "" || p.Pod.Labels[k] == v
	}
	return false
}

func (a *asked) outside(addr netip.Addr) bool {
	inside := a.pods[addr] != nil || a.isNode(addr) || !addr.IsGlobalUnicast() || class.IsPlaceholder(addr) || addr.Is4() && (addr.As4()[0] == 0 || addr.As4()[0] >= 240)
	for _, n := range a.whole.Nodes {
		inside = inside || slices.ContainsFunc(n.PodCIDRs, func(p netip.Prefix) bool { return p.Contains(addr) })
	}
	for _, o := range a.whole.Services {
		inside = inside || slices.Contains(o.ClusterIPs, addr) || slices.Contains(o.ExternalIPs, addr)
		inside = inside || slices.ContainsFunc(o.LoadBalancerIPs, func(l model.LoadBalancerIP) bool { return l.Addr == addr })
	}
	return !inside && !slices.ContainsFunc(a.whole.Ranges, func(p netip.Prefix) bool { return p.Contains(addr) })
}

func (a *asked) serves(s *ask.Side, addr netip.Addr, h space.Header, dialled bool) bool {
	for _, slice := range a.whole.Slices {
		if slice.Service.String() != s.Namespace+"/"+s.Name {
			continue
		}
		for _, o := range a.whole.Services {
			for _, port := range o.Ports {
				wanted := len(s.Ports) == 0 || s.Ports[0].First == port.Port && s.Ports[0].Protocol == uint16(port.Protocol)
				for _, target := range slice.Ports {
					at := slices.ContainsFunc(slice.Endpoints, func(e model.Endpoint) bool { return e.Addr == addr })
					fits := target.Name == port.Name && target.Protocol == port.Protocol
					hit := !dialled || h.DstPort == target.Port && h.Protocol == uint8(target.Protocol)
					if o.ID == slice.Service && wanted && at && fits && hit {
						return true
					}
				}
			}
		}
	}
	return false
}

// parseHeader reads the text of a header.
func parseHeader(t *testing.T, text string) (h space.Header) {
	t.Helper()
	f := strings.Fields(text)
	number := func(s string) uint16 {
		n, err := strconv.ParseUint(s, 10, 16)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		return uint16(n)
	}
	numbers := map[string]uint8{"tcp": space.TCP, "udp": space.UDP, "sctp": space.SCTP, "icmp": space.ICMP, "icmpv6": space.ICMPv6}
	switch h.Protocol = numbers[f[0]]; f[0] {
	case "tcp", "udp", "sctp":
		src, dst := netip.MustParseAddrPort(f[1]), netip.MustParseAddrPort(f[3])
		h.Src, h.SrcPort, h.Dst, h.DstPort = src.Addr(), src.Port(), dst.Addr(), dst.Port()
		if len(f) == 5 && f[4] == "SYN" {
			h.Flags = space.SYN
		}
	case "protocol":
		h.Protocol, h.Src, h.Dst = uint8(number(f[1])), netip.MustParseAddr(f[2]), netip.MustParseAddr(f[4])
	default:
		h.Src, h.Dst, h.SrcPort, h.DstPort = netip.MustParseAddr(f[1]), netip.MustParseAddr(f[3]), number(f[5]), number(f[7])
	}
	return h
}
