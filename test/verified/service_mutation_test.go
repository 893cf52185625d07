package verified

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/cnat"
	"go.fd.io/govpp/binapi/feature"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip_types"
	"go.fd.io/govpp/binapi/nat44_ed"
	"go.fd.io/govpp/binapi/nat_types"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/test/oracle"
	"github.com/contiv-agent/contiv-agent/test/pace"
	"github.com/contiv-agent/contiv-agent/test/verified/mutation"
	"github.com/contiv-agent/contiv-agent/trace"
	"github.com/contiv-agent/contiv-agent/verify"
	"github.com/contiv-agent/contiv-agent/verify/dump"
	"github.com/contiv-agent/contiv-agent/verify/serving"
	"github.com/contiv-agent/contiv-agent/vpp"
)

// perCluster is how many changes of what VPP translates are made to one cluster, each on a new cluster with the same objects: not every change of
// NAT can be undone.
const perCluster = 30

// translator is a node whose VPP translates correctly, and a connection that changes it.
type translator struct {
	*testing.T
	rand    *rand.Rand
	config  trace.Config
	cluster *trace.Cluster
	world   *oracle.World
	name    string
	says    serving.Config
	do      dump.Do
	stop    func()
	raw     []api.Message // what VPP shows
	ask     []trace.Question
	before  []string // the answers of a correct VPP
}

// changed is a change of a VPP.
type changed struct {
	kind  string
	calls []vpp.Call
}

// TestServiceMutations changes mappings, translations, roles, graph nodes and routes in VPP. Verify finds each change, or no packet of those that
// the trace command sends shows it.
func TestServiceMutations(t *testing.T) {
	first := oracle.Setting(t, "CONTIV_SEED", 1)
	for _, a := range []served{arrangements()[0], arrangements()[2], arrangements()[3]} {
		t.Run(a.String(), func(t *testing.T) {
			results := map[string]map[string]int{}
			for seed := first; seed < first+oracle.Setting(t, "CONTIV_CASES", pace.Fewer[uint64](3, 1)); seed++ {
				l := newTranslator(t, a, seed)
				for range pace.Fewer(perCluster, 4) {
					kind, result := l.mutate()
					if kind != "" {
						if results[kind] == nil {
							results[kind] = map[string]int{}
						}
						results[kind][result]++
					}
				}
				l.closeCluster()
			}
			found := 0
			for _, kind := range sortedKeys(results) {
				t.Logf("%-32s %v", kind, results[kind])
				found += results[kind]["found"]
			}
			if found == 0 {
				t.Error("no change was found")
			}
		})
	}
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(keys(m)) }

func newTranslator(t *testing.T, a served, seed uint64) *translator {
	t.Helper()
	w := oracle.NewWorldWithExtras(seed, a.families)
	for range 12 {
		w.Step()
	}
	l := &translator{T: t, rand: rand.New(rand.NewPCG(seed, 7)), world: w}
	l.config, l.says = a.configs(seed, w)
	l.renew()
	if found := l.differences(); len(found) > 0 {
		t.Fatalf("seed %d: %v before any change", seed, found)
	}
	l.raw = l.read()
	for _, f := range serving.Read(l.name, l.says, w.Objects()).Frontends {
		l.ask = append(l.ask, l.questions(f)...)
	}
	l.before = l.answers()
	return l
}

// renew begins with a new cluster.
func (l *translator) renew() {
	l.closeCluster()
	l.cluster = trace.NewCluster(l.config)
	var changes []event.Change
	for _, o := range l.world.Objects() {
		changes = append(changes, event.Change{Ref: o.Ref(), Object: o})
	}
	if err := l.cluster.Apply(context.Background(), changes); err != nil {
		l.Fatal(err)
	}
	l.name = l.cluster.Nodes()[0]
	var err error
	if l.do, l.stop, err = dump.Open(context.Background(), "", l.cluster.Sim(l.name).Dial); err != nil {
		l.Fatal(err)
	}
}

func (l *translator) closeCluster() {
	if l.cluster != nil {
		l.stop()
		l.cluster.Close()
	}
}

// questions are first packets of connections to a frontend: of each pod of the node, and from outside.
func (l *translator) questions(f *serving.Frontend) (out []trace.Question) {
	if f.Protocol != model.TCP && f.Protocol != model.UDP {
		return nil
	}
	outside := "198.51.100.7"
	if f.Addr.Is6() {
		outside = "2001:db8:51::7"
	}
	own := slices.ContainsFunc(l.world.Nodes, func(n *model.Node) bool { return slices.Contains(n.Addrs(), f.Addr) })
	ask := func(from string) {
		for _, port := range []uint16{f.Port, f.Port + 1, f.Port + 7} {
			if own && (port != f.Port || f.Fate == serving.Rejected) {
				continue // the node itself gets such packets
			}
			out = append(out, trace.Question{From: from, To: netip.AddrPortFrom(f.Addr, port).String(), Protocol: f.Protocol.String()})
		}
	}
	ask(fmt.Sprintf("external:%s@%s", outside, l.name))
	for _, p := range l.world.Pods {
		if p.NodeName == l.name {
			ask("pod:" + p.ID.String())
		}
	}
	return out
}

// read is everything that VPP shows and that changes begin with.
func (l *translator) read() (all []api.Message) {
	for _, r := range l.do(context.Background(),
		vpp.Call{Dump: true, Msg: &nat44_ed.Nat44LbStaticMappingDump{}}, vpp.Call{Dump: true, Msg: &nat44_ed.Nat44InterfaceDump{}},
		vpp.Call{Dump: true, Msg: &nat44_ed.Nat44IdentityMappingDump{}}, vpp.Call{Msg: &nat44_ed.Nat44ShowRunningConfig{}},
		vpp.Call{Dump: true, Msg: &nat44_ed.Nat44AddressDump{}}, vpp.Call{Dump: true, Msg: &cnat.CnatTranslationDump{}},
		vpp.Call{Msg: &nat44_ed.Nat44EdOutputInterfaceGet{}}, vpp.Call{Dump: true, Msg: &acl.ACLDump{ACLIndex: ^uint32(0)}},
		vpp.Call{Dump: true, Msg: &acl.ACLInterfaceListDump{SwIfIndex: ^interface_types.InterfaceIndex(0)}}, vpp.Call{Msg: &cnat.CnatGetSnatAddresses{}},
		vpp.Call{Dump: true, Msg: &ip.IPRouteDump{}}, vpp.Call{Dump: true, Msg: &ip.IPRouteDump{Table: ip.IPTable{IsIP6: true}}},
	) {
		if r.Err != nil {
			l.Fatal(r.Err)
		}
		all = append(all, r.Details...)
		switch m := r.Msg.(type) {
		case *cnat.CnatGetSnatAddressesReply:
			all = append(all, m)
		case *nat44_ed.Nat44ShowRunningConfigReply:
			all = append(all, m)
		}
	}
	for i := range all { // cnat's nodes are on the same interfaces as roles of NAT44
		if m, is := all[i].(*nat44_ed.Nat44InterfaceDetails); is && l.says.EngineOf(netip.IPv6Unspecified()) == serving.CNAT {
			all = append(all, &feature.FeatureIsEnabled{SwIfIndex: m.SwIfIndex})
		}
	}
	return all
}

// differences are the checks of Services that differ.
func (l *translator) differences() (out []string) {
	r, err := verify.Run(context.Background(), verify.Config{Dial: l.cluster.Sim(l.name).Dial, Node: l.name, Timeout: time.Minute, Services: l.says}, l.world.Objects())
	if err != nil {
		l.Fatal(err)
	}
	for _, k := range r.Services {
		for _, d := range k.Differences {
			out = append(out, fmt.Sprintf("%s: %+v", k.Of, d))
		}
	}
	return out
}

// answers are what packets to frontends meet, as text.
func (l *translator) answers() (out []string) {
	for _, q := range l.ask {
		a := l.cluster.Answer(q)
		text := fmt.Sprintf("%s %s to %s: %s", q.Protocol, q.From, q.To, a.Verdict)
		var to []string
		for _, o := range a.Outcomes {
			to = append(to, fmt.Sprintf("%s from %s %s", o.Address, o.Source, o.Verdict))
		}
		slices.Sort(to)
		out = append(out, text+" "+strings.Join(slices.Compact(to), ", "))
	}
	return out
}

// mutate makes one change of a new cluster, and asks verify.
func (l *translator) mutate() (kind, result string) {
	ch := l.change(l.drawShown())
	if ch == nil {
		return "", ""
	}
	l.renew()
	for _, call := range ch.calls {
		if r := l.do(context.Background(), call); r[0].Err != nil {
			return "", "" // VPP, or the guard, refuses such a change
		}
	}
	found := l.differences()
	shown, after := "", l.answers()
	for i, was := range l.before {
		if was != after[i] && shown == "" {
			shown = fmt.Sprintf("was %s, is %s", was, after[i])
		}
	}
	switch {
	case len(found) > 0 && shown == "":
		return ch.kind, "found, and by no packet that was tried"
	case len(found) > 0:
		return ch.kind, "found"
	case shown == "":
		return ch.kind, "no packet differs"
	}
	l.Errorf("%s on %s is not found: %s", ch.kind, l.name, shown)
	return ch.kind, "missed"
}

// drawShown is something that VPP shows: first its kind is drawn.
func (l *translator) drawShown() api.Message {
	kinds := map[string][]api.Message{}
	for _, m := range l.raw {
		kinds[m.GetMessageName()] = append(kinds[m.GetMessageName()], m)
	}
	names := sortedKeys(kinds)
	list := kinds[names[l.rand.IntN(len(names))]]
	return list[l.rand.IntN(len(list))]
}

// change is a change of something that VPP shows.
func (l *translator) change(shown api.Message) *changed {
	switch m := shown.(type) {
	case *nat44_ed.Nat44LbStaticMappingDetails:
		return l.mapping(m)
	case *cnat.CnatTranslationDetails:
		return l.translation(&m.Translation)
	case *nat44_ed.Nat44InterfaceDetails:
		return l.role(m)
	case *nat44_ed.Nat44AddressDetails:
		kind := "twice-nat address removed"
		if m.Flags&nat_types.NAT_IS_TWICE_NAT == 0 {
			kind = "address of senders removed"
		}
		address := func(add bool) vpp.Call {
			return vpp.Call{Msg: &nat44_ed.Nat44AddDelAddressRange{FirstIPAddress: m.IPAddress, LastIPAddress: m.IPAddress, VrfID: m.VrfID, IsAdd: add, Flags: m.Flags}}
		}
		return &changed{kind: kind, calls: []vpp.Call{address(false)}}
	case *nat44_ed.Nat44IdentityMappingDetails:
		one := &nat44_ed.Nat44AddDelIdentityMapping{IPAddress: m.IPAddress, Port: m.Port, Protocol: m.Protocol, SwIfIndex: ^interface_types.InterfaceIndex(0), VrfID: m.VrfID, Tag: m.Tag}
		return &changed{kind: "identity mapping removed", calls: []vpp.Call{{Dump: true, Msg: &nat44_ed.Nat44IdentityMappingDump{}}, {Msg: one}}}
	case *nat44_ed.Nat44ShowRunningConfigReply:
		t := &nat44_ed.NatSetTimeouts{UDP: m.Timeouts.UDP, TCPEstablished: m.Timeouts.TCPEstablished, TCPTransitory: m.Timeouts.TCPTransitory, ICMP: m.Timeouts.ICMP}
		*[]*uint32{&t.UDP, &t.TCPEstablished, &t.TCPTransitory, &t.ICMP}[l.rand.IntN(4)]++
		return &changed{kind: "timeout", calls: []vpp.Call{{Msg: t}}}
	case *ip.IPRouteDetails:
		return l.route(m)
	case *nat44_ed.Nat44EdOutputInterfaceDetails:
		return &changed{"output feature removed", []vpp.Call{{Msg: &nat44_ed.Nat44EdAddDelOutputInterface{SwIfIndex: m.SwIfIndex}}}}
	case *cnat.CnatGetSnatAddressesReply:
		if m.SnatIP6 == (ip_types.IP6Address{}) {
			return nil
		}
		m2 := &cnat.CnatSetSnatAddresses{SwIfIndex: ^interface_types.InterfaceIndex(0), SnatIP4: m.SnatIP4, SnatIP6: m.SnatIP6}
		m2.SnatIP6[15]++
		return &changed{"address for sources", []vpp.Call{{Msg: &cnat.CnatSetSnatPolicy{Policy: cnat.CNAT_POLICY_K8S}}, {Msg: m2}}}
	case *feature.FeatureIsEnabled:
		node := []string{"ip6-unicast", "cnat-input-ip6", "ip6-output", "cnat-output-ip6"}[2*l.rand.IntN(2):]
		return &changed{"node " + node[1] + " removed", []vpp.Call{{Msg: &feature.FeatureEnableDisable{SwIfIndex: m.SwIfIndex, ArcName: node[0], FeatureName: node[1]}}}}
	case *acl.ACLDetails:
		if strings.HasPrefix(m.Tag, "ca1:s:") && len(m.R) > 0 {
			at := l.rand.IntN(len(m.R))
			return &changed{"rule of source ranges removed", []vpp.Call{{Msg: mutation.Replace(m, slices.Delete(slices.Clone(m.R), at, at+1))}}}
		}
	case *acl.ACLInterfaceListDetails:
		if m.NInput > 0 {
			return &changed{"first list detached", []vpp.Call{{Msg: mutation.Attach(uint32(m.SwIfIndex), m.Acls[1:], m.NInput-1)}}}
		}
	}
	return nil
}

// mapping changes a mapping of nat44: it is removed, and another is made.
func (l *translator) mapping(was *nat44_ed.Nat44LbStaticMappingDetails) *changed {
	now := *was
	now.Locals = slices.Clone(was.Locals)
	kind := ""
	var backends []int
	for i, b := range now.Locals {
		if b.Addr[0] != 192 || b.Addr[1] != 0 {
			backends = append(backends, i)
		}
	}
	if len(backends) == 0 {
		return nil
	}
	b := &now.Locals[backends[l.rand.IntN(len(backends))]]
	remove := true
	switch l.rand.IntN(12) {
	case 0:
		kind, b.Port = "backend's port", b.Port+1
	case 1:
		kind, b.Addr[3] = "backend's address", b.Addr[3]+1
	case 2:
		if len(backends) < 2 {
			return nil
		}
		kind = "backend off"
		now.Locals = slices.DeleteFunc(now.Locals, func(o nat44_ed.Nat44LbAddrPort) bool { return o == *b })
	case 3:
		if len(backends) < 2 {
			return nil
		}
		kind, b.Probability = "backend's weight", b.Probability+1
	case 4:
		kind, now.Protocol = "protocol", 23-now.Protocol
	case 5:
		kind, now.ExternalPort = "frontend's port", now.ExternalPort+1
	case 6:
		kind, remove = "additional mapping", false
		now.ExternalPort += 7
	case 7:
		kind, now.Flags = "twice-nat", now.Flags^nat_types.NAT_IS_TWICE_NAT
		now.Flags &^= nat_types.NAT_IS_SELF_TWICE_NAT
	case 8:
		kind, now.Flags = "self-twice-nat", now.Flags^nat_types.NAT_IS_SELF_TWICE_NAT
		now.Flags &^= nat_types.NAT_IS_TWICE_NAT
	case 9:
		return &changed{kind: "mapping removed", calls: []vpp.Call{lb(was, false)}}
	case 10:
		kind, now.Flags = "not out2in only", now.Flags&^nat_types.NAT_IS_OUT2IN_ONLY
	case 11:
		one := &nat44_ed.Nat44AddDelStaticMapping{
			IsAdd: true, Flags: was.Flags, LocalIPAddress: b.Addr, LocalPort: b.Port, ExternalIPAddress: was.ExternalAddr, ExternalPort: was.ExternalPort,
			Protocol: was.Protocol, ExternalSwIfIndex: ^interface_types.InterfaceIndex(0),
		}
		return &changed{"mapping with one endpoint", []vpp.Call{lb(was, false), {Msg: one}}}
	}
	if !remove {
		return &changed{kind: kind, calls: []vpp.Call{lb(&now, true)}}
	}
	return &changed{kind: kind, calls: []vpp.Call{lb(was, false), lb(&now, true)}}
}

func lb(m *nat44_ed.Nat44LbStaticMappingDetails, add bool) vpp.Call {
	return vpp.Call{Msg: &nat44_ed.Nat44AddDelLbStaticMapping{
		IsAdd: add, Flags: m.Flags, ExternalAddr: m.ExternalAddr, ExternalPort: m.ExternalPort, Protocol: m.Protocol, Affinity: m.Affinity, Tag: m.Tag,
		Locals: m.Locals,
	}}
}

// translation changes a translation of cnat in place, removes it, or adds one.
func (l *translator) translation(was *cnat.CnatTranslation) *changed {
	now := *was
	now.Paths = slices.Clone(was.Paths)
	p := &now.Paths[l.rand.IntN(len(now.Paths))]
	kind := ""
	switch l.rand.IntN(5) {
	case 0:
		kind, p.DstEp.Port = "path's port", p.DstEp.Port+1
	case 1:
		if p.DstEp.Addr.Af == ip_types.ADDRESS_IP6 {
			a := p.DstEp.Addr.Un.GetIP6()
			a[15]++
			p.DstEp.Addr.Un.SetIP6(a)
		} else {
			a := p.DstEp.Addr.Un.GetIP4()
			a[3]++
			p.DstEp.Addr.Un.SetIP4(a)
		}
		kind = "path's address"
	case 2:
		if len(now.Paths) < 2 {
			return nil
		}
		kind, now.Paths = "path off", now.Paths[1:]
	case 3:
		kind, now.Paths = "path twice", append(now.Paths, now.Paths[0])
	case 4:
		return &changed{kind: "translation removed", calls: []vpp.Call{{Msg: &cnat.CnatTranslationDel{ID: was.ID}}}}
	}
	return &changed{kind: kind, calls: []vpp.Call{{Msg: &cnat.CnatTranslationUpdate{Translation: now}}}}
}

// role changes a role of nat44, or a graph node.
func (l *translator) role(m *nat44_ed.Nat44InterfaceDetails) *changed {
	role := func(flag nat_types.NatConfigFlags, add bool) vpp.Call {
		return vpp.Call{Msg: &nat44_ed.Nat44InterfaceAddDelFeature{IsAdd: add, Flags: flag, SwIfIndex: m.SwIfIndex}}
	}
	node := func(add bool) vpp.Call {
		return vpp.Call{Msg: &feature.FeatureEnableDisable{SwIfIndex: m.SwIfIndex, Enable: add, ArcName: "ip4-unicast", FeatureName: "nat44-ed-classify"}}
	}
	inside, outside := m.Flags&nat_types.NAT_IS_INSIDE != 0, m.Flags&nat_types.NAT_IS_OUTSIDE != 0
	switch {
	case inside && outside && l.rand.IntN(2) == 0:
		return &changed{kind: "role outside removed", calls: []vpp.Call{role(nat_types.NAT_IS_OUTSIDE, false)}}
	case inside && outside:
		return &changed{kind: "role inside removed", calls: []vpp.Call{role(nat_types.NAT_IS_INSIDE, false)}}
	case inside && l.rand.IntN(2) == 0:
		return &changed{kind: "node of both roles removed", calls: []vpp.Call{node(false)}}
	}
	return &changed{kind: "node of both roles twice", calls: []vpp.Call{node(true)}}
}

// route removes a route of an address that rejects.
func (l *translator) route(m *ip.IPRouteDetails) *changed {
	if len(m.Route.Paths) != 1 || m.Route.Paths[0].Type == 0 || m.Route.Paths[0].Type == 1 {
		return nil
	}
	change := func(add bool) vpp.Call { return vpp.Call{Msg: &ip.IPRouteAddDel{IsAdd: add, Route: m.Route}} }
	return &changed{kind: fmt.Sprintf("route of type %d removed", m.Route.Paths[0].Type), calls: []vpp.Call{change(false)}}
}
