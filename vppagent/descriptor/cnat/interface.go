package cnat

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	binapi "go.fd.io/govpp/binapi/cnat"
	"go.fd.io/govpp/binapi/feature"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/vlib"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/proto/contiv/vpp/cnat"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

const (
	cnatInterfacePrefix = "config/contiv/vpp/v1/cnat-interface/"

	cnatTables  = 4 // cnat_snat_policy_table of cnat.api: include IPv4, include IPv6, pod, host
	cnatNodes   = 4 // cnatNode
	newerNodes  = 4
	allFeatures = cnatNodes + newerNodes
)

// cnatNode is a feature node of cnat: those of IPv4 and then of IPv6, input and then output; then the nodes that VPP has from 26.06
// on, and that the first ones need beside them.
func cnatNode(n int) (arc, node string) {
	family := [2]string{"ip4", "ip6"}[n/2%2]
	names := [2]string{"cnat-input-", "cnat-output-"}
	if n >= cnatNodes {
		names = [2]string{"cnat-lookup-", "cnat-writeback-"}
	}
	return family + [2]string{"-unicast", "-output"}[n%2], names[n%2] + family
}

// cnatInterface is cnat on an interface: the number of times that each node is on its arc, and the tables that have the interface.
type cnatInterface struct {
	name   string
	nodes  [cnatNodes]uint8
	newer  [newerNodes]uint8 // as VPP showed them; zero if VPP did not show them or lacks them: then their counts follow nodes, where VPP has them
	tables [cnatTables]bool
}

// CnatInterface describes our Interface. Its nodes are features. VPP adds a node as often as it is asked to, and a packet then meets
// the node twice (feature_enable_disable, VPP 24.06): the agent adds only missing nodes. No message shows the nodes; a command does.
func CnatInterface() *descriptor.Descriptor {
	d := descriptor.Spec[*cnat.Interface, *cnatInterface]{
		Name: "cnat-interface", Prefix: cnatInterfacePrefix,
		Compile: compileCnatInterface, Message: (*cnatInterface).interfaceMessage,
		Equal: func(have, want *cnatInterface) bool {
			return have.nodes == want.nodes && have.tables == want.tables && (have.newer == [newerNodes]uint8{} || have.newer == have.nodes)
		},
		Dependencies: func(i *cnatInterface) []descriptor.Dependency {
			return []descriptor.Dependency{{Key: kv.InterfaceKey(i.name), Pods: true}, {Key: kv.SnatPolicyKey, Loose: true}}
		},
		Create: createCnatInterface,
		Update: changeCnatInterface,
		Delete: func(w *descriptor.World, i *cnatInterface) ([]descriptor.Op, error) {
			return changeCnatInterface(w, i, &cnatInterface{name: i.name})
		},
		Dumps:    cnatInterfaceDumps,
		Retrieve: retrieveCnatInterfaces,
	}.Descriptor()
	d.Rest = &descriptor.Rest{Key: cnatInterfacePrefix, Suspect: func(w *descriptor.World) bool { return factsOf(w).suspects(w) }}
	d.Ready = func(w *descriptor.World, _, want any, _ func(string) any) error {
		i, ok := w.Interface(want.(*cnatInterface).name)
		if !ok || i.Nameable() {
			return nil
		}
		return fmt.Errorf("name: VPP's command line takes %s for a sub-interface, so that nothing shows whether cnat is on it: "+
			"give the interface a name that does not end in a dot and digits", i.VPPName)
	}
	return d
}

func compileCnatInterface(_ string, m *cnat.Interface) (*cnatInterface, error) {
	i := &cnatInterface{name: m.GetName(), tables: [cnatTables]bool{m.GetIncludeIpv4(), m.GetIncludeIpv6(), m.GetPod(), m.GetHost()}}
	for n, on := range []bool{m.GetIpv4(), m.GetIpv4(), m.GetIpv6(), m.GetIpv6()} {
		if on {
			i.nodes[n] = 1
		}
	}
	switch {
	case i.name == "":
		return nil, errors.New("name: empty")
	case i.nodes == [cnatNodes]uint8{} && i.tables == [cnatTables]bool{}:
		return nil, errors.New("ipv4: neither this nor anything else is set")
	}
	return i, nil
}

func (i *cnatInterface) interfaceMessage() *cnat.Interface {
	return &cnat.Interface{
		Name: i.name, Ipv4: i.nodes[0] > 0 && i.nodes[1] > 0, Ipv6: i.nodes[2] > 0 && i.nodes[3] > 0,
		IncludeIpv4: i.tables[0], IncludeIpv6: i.tables[1], Pod: i.tables[2], Host: i.tables[3],
	}
}

// createCnatInterface also removes the interface from the tables that must not have it (inherit). VPP 26.06 has no tables without a policy.
func createCnatInterface(w *descriptor.World, i *cnatInterface) ([]descriptor.Op, error) {
	before := &cnatInterface{name: i.name}
	if factsOf(w).newer && w.Wanted(kv.SnatPolicyKey) == nil {
		return changeCnatInterface(w, before, i)
	}
	for n, in := range i.tables {
		before.tables[n] = !in
	}
	return changeCnatInterface(w, before, i)
}

// changeCnatInterface adds the interface to tables before packets meet cnat, and removes it after. The nodes of VPP 26.06 begin
// before the nodes that rely on their results, and end after them.
func changeCnatInterface(w *descriptor.World, have, want *cnatInterface) ([]descriptor.Op, error) {
	idx, err := w.Index(want.name)
	if err != nil {
		return nil, err
	}
	if want.tables != [cnatTables]bool{} {
		factsOf(w).tabled[uint32(idx)] = want.name
	}
	var join, leave, first, on, off []descriptor.Op
	for n, in := range want.tables {
		if in == have.tables[n] {
			continue
		}
		m := &binapi.CnatSnatPolicyAddDelIf{SwIfIndex: idx, Table: binapi.CnatSnatPolicyTable(n)}
		if in {
			m.IsAdd = 1
			join = append(join, descriptor.Op{Call: descriptor.Write(m)})
		} else {
			leave = append(leave, descriptor.Op{Gone: true, Call: descriptor.Write(m)})
		}
	}
	for n := range allFeatures {
		has, wants := have.nodes[n%cnatNodes], want.nodes[n%cnatNodes]
		if n >= cnatNodes && !factsOf(w).newer {
			break
		}
		if n >= cnatNodes && have.newer != [newerNodes]uint8{} { // as VPP showed it; in nodes alone the newer ones are absent
			has = have.newer[n-cnatNodes]
		}
		for ; has < wants; has++ {
			if n < cnatNodes {
				on = append(on, switchFeature(idx, n, true))
			} else {
				first = append(first, switchFeature(idx, n, true))
			}
		}
		for ; has > wants; has-- {
			off = append(off, switchFeature(idx, n, false))
		}
	}
	if on = append(first, on...); len(on) > 0 {
		return append(append(append(join, leave...), on...), off...), nil
	}
	return append(append(join, off...), leave...), nil
}

// joinTables puts interfaces back into their tables, which VPP 26.06 loses with its policy.
func joinTables(w *descriptor.World) (ops []descriptor.Op) {
	if w.Having == nil {
		return nil
	}
	states := w.Having(cnatInterfacePrefix)
	slices.SortFunc(states, func(a, b any) int { return strings.Compare(a.(*cnatInterface).name, b.(*cnatInterface).name) })
	for _, state := range states {
		i := state.(*cnatInterface)
		idx, err := w.Index(i.name)
		for n, in := range i.tables {
			if in && err == nil { // VPP has the interface
				ops = append(ops, descriptor.Op{Call: descriptor.Write(&binapi.CnatSnatPolicyAddDelIf{SwIfIndex: idx, IsAdd: 1, Table: binapi.CnatSnatPolicyTable(n)})})
			}
		}
	}
	return ops
}

func switchFeature(idx interface_types.InterfaceIndex, n int, on bool) descriptor.Op {
	arc, node := cnatNode(n)
	return descriptor.Op{Gone: !on, Call: descriptor.Write(&feature.FeatureEnableDisable{SwIfIndex: idx, Enable: on, ArcName: arc, FeatureName: node})}
}

func featuresID(vppName string) string { return "show interface features " + vppName }

// cnatInterfaceDumps ask for the features of candidate interfaces, and for the tables that have them.
func cnatInterfaceDumps(w *descriptor.World, c descriptor.Candidates) []descriptor.Request {
	var out []descriptor.Request
	asked := map[string]bool{}
	ask := func(name string) {
		i, ok := w.Interface(name)
		if ok && i.Nameable() && !asked[i.VPPName] {
			asked[i.VPPName] = true
			out = append(out, descriptor.AskRequest(featuresID(i.VPPName), &vlib.CliInband{Cmd: featuresID(i.VPPName)}))
		}
	}
	c.Each(func(_ string, state any, _ bool) { ask(state.(*cnatInterface).name) })
	for _, name := range factsOf(w).returned(w) {
		ask(name)
	}
	if len(out) > 0 || isLost(w, c) {
		out = append(out, descriptor.AskRequest(idSnatShown, &vlib.CliInband{Cmd: idSnatShown}))
	}
	return out
}

func retrieveCnatInterfaces(w *descriptor.World, d *descriptor.Dump, c descriptor.Candidates) ([]descriptor.Found, error) {
	var out []descriptor.Found
	var failed error
	r := reader{w: w, d: d}
	c.Each(func(key string, state any, wanted bool) {
		name := state.(*cnatInterface).name
		i, ok := w.Interface(name)
		if facts := factsOf(w); !ok && len(facts.missed) < mostMissed {
			facts.missed[name] = true
		}
		if !ok || !i.Nameable() || !wanted && c.Wanted(key) != nil {
			return
		}
		got, err := r.readInterface(name)
		switch {
		case err != nil:
			failed = err
		case *got != (cnatInterface{name: name}):
			out = append(out, descriptor.Found{Key: key, State: got})
		}
	})
	if failed == nil {
		out, failed = r.appendReturned(out, c)
	}
	if failed == nil && isLost(w, c) {
		out = appendInherited(out, w, d, c)
	}
	return out, failed
}

// reader reads interfaces from answers.
type reader struct {
	w     *descriptor.World
	d     *descriptor.Dump
	shown *snatShown // nil: not read yet
}

// readInterface returns the nodes and tables of an interface that VPP's list has.
func (r *reader) readInterface(name string) (*cnatInterface, error) {
	if r.shown == nil {
		s, err := shownSnat(r.d)
		if err != nil {
			return nil, err
		}
		r.shown = &s
	}
	i, _ := r.w.Interface(name)
	got := &cnatInterface{name: name}
	if err := got.readFeatures(r.d, i.VPPName); err != nil {
		return nil, err
	}
	for n := range got.tables {
		got.tables[n] = r.shown.tables[n][i.VPPName]
	}
	if got.tables != [cnatTables]bool{} {
		factsOf(r.w).tabled[i.Index] = name
	}
	return got, nil
}

// readFeatures counts the nodes that `show interface features` lists (VPP 24.06): arcs, each followed by its nodes on separate lines.
func (i *cnatInterface) readFeatures(d *descriptor.Dump, vppName string) error {
	r, err := d.Reply(featuresID(vppName))
	if err != nil {
		return err
	}
	m, ok := r.Msg.(*vlib.CliInbandReply)
	if !ok {
		return fmt.Errorf("%s: got %T", featuresID(vppName), r.Msg)
	}
	counts := map[string]uint8{}
	for line := range strings.Lines(m.Reply) {
		counts[strings.TrimSpace(line)]++
	}
	for n := range cnatNodes {
		_, node := cnatNode(n)
		i.nodes[n] = counts[node]
		_, node = cnatNode(n + cnatNodes)
		i.newer[n] = counts[node]
	}
	return nil
}
