package sctp

import (
	"errors"
	"fmt"
	"slices"

	"github.com/contiv-agent/contiv-agent/classifier"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/proto/contiv/vpp/acl"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

// Ports of SCTP: VPP's ACL plugin does not know them, but its classifier compares bytes. An interface has a separate chain of
// tables per direction and family. The chain decides about the packets that associations begin with, and an access list of a
// reserved name permits SCTP up to the chain.
//
//	SCTPPorts ─ derives ─▶ filter, one per direction ◀─ needed by ─ the ACL of a reserved name ◀─ InterfaceACLs
//
// So a filter is added before that ACL and removed when no list has the ACL any more. The requests for a filter:
//
//	interface ─▶ root ─▶ table ─▶ … ─▶ last      new rules: a chain beside this one, then root leads to it, and the old goes
//
// VPP aborts if a table is removed while packets meet it, so the agent never removes anything from a chain in use.
const (
	sctpPortsPrefix = "config/contiv/vpp/v1/sctp-ports/"
	// sctpLeftKey is the key of our tables that no interface leads to, from unfinished work. No value wants them.
	sctpLeftKey = kv.SCTPFilterPrefix + "left"
)

// Ports describes which SCTP associations may begin across an interface. VPP has no such object: see Filter.
func Ports() *descriptor.Descriptor {
	return descriptor.Spec[*acl.SCTPPorts, *classifier.Ports]{
		Name: "sctp-ports", Prefix: sctpPortsPrefix, Tagged: true,
		Compile: func(_ string, m *acl.SCTPPorts) (*classifier.Ports, error) { return classifier.Compile(m) },
		Message: (*classifier.Ports).Message,
		Equal: func(have, want *classifier.Ports) bool {
			return equalDirections(have.Input, want.Input) && equalDirections(have.Output, want.Output)
		},
		Dependencies: func(p *classifier.Ports) []descriptor.Dependency {
			return []descriptor.Dependency{{Key: kv.InterfaceKey(p.Interface), Pods: true}}
		},
		Derived: func(p *classifier.Ports) (out []descriptor.Derived) {
			for _, d := range []*classifier.Direction{p.Input, p.Output} {
				if d != nil {
					f := &sctpFilter{iface: p.Interface, input: d == p.Input, v4: d.V4, v6: d.V6}
					out = append(out, descriptor.Derived{Key: f.key(), State: f})
				}
			}
			return out
		},
		Create: func(*descriptor.World, *classifier.Ports) ([]descriptor.Op, error) { return nil, nil },
		Update: func(*descriptor.World, *classifier.Ports, *classifier.Ports) ([]descriptor.Op, error) {
			return nil, nil
		},
		Delete: func(*descriptor.World, *classifier.Ports) ([]descriptor.Op, error) { return nil, nil },
		Dumps:  func(*descriptor.World, descriptor.Candidates) []descriptor.Request { return nil },
		Retrieve: func(w *descriptor.World, _ *descriptor.Dump, c descriptor.Candidates) (out []descriptor.Found, _ error) {
			c.Each(func(key string, state any, wanted bool) {
				if _, there := w.Interface(state.(*classifier.Ports).Interface); wanted && there {
					out = append(out, descriptor.Found{Key: key, State: state, Ours: true})
				}
			})
			return out, nil
		},
	}.Descriptor()
}

func equalDirections(have, want *classifier.Direction) bool {
	if have == nil || want == nil {
		return have == want
	}
	return slices.Equal(have.Rules, want.Rules)
}

// sctpFilter is the filter of one direction of an interface. A program is nil if VPP lacks it, or packets do not meet it.
type sctpFilter struct {
	iface  string
	input  bool
	v4, v6 classifier.Program
	left   []uint32     // tables; only sctpLeftKey has left and dead
	dead   []classPlace // places of deleted interfaces
}

func (f *sctpFilter) key() string { return kv.SCTPFilterKey(f.iface, f.input) }

// program returns the program of a family.
func (f *sctpFilter) program(v6 bool) classifier.Program {
	if v6 {
		return f.v6
	}
	return f.v4
}

// Filter describes the filter that an SCTPPorts derives for each direction. The filter outlives the access lists that rely on
// it, even after their interface is deleted.
func Filter() *descriptor.Descriptor {
	d := descriptor.Spec[*acl.SCTPPorts, *sctpFilter]{
		Name: "sctp-filter", Prefix: kv.SCTPFilterPrefix, Tagged: true,
		Compile: descriptor.NoMessage[*acl.SCTPPorts, *sctpFilter], Message: (*sctpFilter).portsMessage,
		Equal:        func(have, want *sctpFilter) bool { return have.v4.Equal(want.v4) && have.v6.Equal(want.v6) },
		Dependencies: (*sctpFilter).dependencies,
		Create:       func(w *descriptor.World, f *sctpFilter) ([]descriptor.Op, error) { return f.put(w, &sctpFilter{}) },
		Update:       func(w *descriptor.World, have, want *sctpFilter) ([]descriptor.Op, error) { return want.put(w, have) },
		Delete:       deleteFilter,
		Retrieve:     retrieveFilters,
	}.Descriptor()
	d.Dumps = func(w *descriptor.World, _ descriptor.Candidates, known *descriptor.Dump) []descriptor.Request {
		return classDumps(w, known)
	}
	d.Rest = &descriptor.Rest{Key: sctpLeftKey, Suspect: func(w *descriptor.World) bool { return factsOf(w).class.inherits(w) }}
	return d
}

func (f *sctpFilter) dependencies() []descriptor.Dependency {
	if f.iface == "" {
		return nil
	}
	return []descriptor.Dependency{{Key: kv.InterfaceKey(f.iface), Bond: descriptor.Outlives, Pods: true}}
}

// message returns the rules in VPP, as far as they can be decoded.
func (f *sctpFilter) portsMessage() *acl.SCTPPorts {
	p := &classifier.Ports{Interface: f.iface}
	d := &classifier.Direction{}
	d.Rules, _ = classifier.Rules(f.v4, f.v6)
	if f.input {
		p.Input = d
	} else {
		p.Output = d
	}
	return p.Message()
}

// put makes the actual filter equal to the desired one, for both families.
func (f *sctpFilter) put(w *descriptor.World, have *sctpFilter) (ops []descriptor.Op, _ error) {
	i, ok := w.Interface(f.iface)
	if !ok {
		return nil, fmt.Errorf("interface %q is not in VPP", f.iface)
	}
	factsOf(w).class.swIf[f.key()] = i.Index
	for _, v6 := range []bool{false, true} {
		at := classPlace{i.Index, f.input, v6}
		has, want := have.program(v6), f.program(v6)
		switch {
		case has.Equal(want):
		case len(has) == 0: // or packets do not meet it: remove the present tables
			ops = append(ops, attachProgram(w, at, i.VPPName, want)...)
		default:
			swap, err := swapProgram(w, at, has, want)
			if err != nil {
				return nil, err
			}
			ops = append(ops, swap...)
		}
	}
	return ops, nil
}

// attachProgram dumps the place, lays the tables and attaches them. It removes the tables of an earlier interface with that index.
func attachProgram(w *descriptor.World, at classPlace, vppName string, p classifier.Program) []descriptor.Op {
	attach := func(root uint32, stale *uint32) []descriptor.Op {
		ops := []descriptor.Op{{Call: at.set(root, true), Then: func(vpp.Reply) []descriptor.Op {
			factsOf(w).class.at[at], factsOf(w).class.live[at] = root, true
			return append(verifyAttached(w, at, vppName, root), dropChain(w, stale)...)
		}}}
		if stale == nil {
			return ops
		}
		return descriptor.InTurn(append([]descriptor.Op{{Call: at.set(*stale, false), Then: func(vpp.Reply) []descriptor.Op { delete(factsOf(w).class.at, at); return nil }}}, ops...))
	}
	var stale *uint32
	return []descriptor.Op{{
		Asks: true, Call: vpp.Call{Msg: at.show()}, Preview: addTable(p[len(p)-1], descriptor.None),
		Refuses: func(r vpp.Reply) error {
			index, there, err := at.shown(r)
			if err != nil || !there {
				return err
			}
			switch _, ours := factsOf(w).class.tables[index]; {
			case !ours:
				return fmt.Errorf("%s has classify table %d of somebody else", at, index)
			case factsOf(w).class.live[at]:
				return fmt.Errorf("%s has the rules another name of the interface was given", at)
			}
			stale = &index
			return nil
		},
		Then: func(vpp.Reply) []descriptor.Op {
			return layTables(w, p, descriptor.None, func(root uint32) []descriptor.Op { return attach(root, stale) })
		},
	}}
}

// verifyAttached checks that packets meet the table: VPP skips an attachment that its records already have.
func verifyAttached(w *descriptor.World, at classPlace, vppName string, root uint32) []descriptor.Op {
	ops := []descriptor.Op{{Asks: true, Call: vpp.Call{Msg: at.show()}, Refuses: func(r vpp.Reply) error {
		if index, there, err := at.shown(r); err != nil || !there || index != root {
			return errors.Join(fmt.Errorf("%s does not have classify table %d", at, root), err)
		}
		return nil
	}}}
	if vppName != "" { // the name of an interface made a moment ago is not known; that interface had no table before
		ops = append(ops, descriptor.Op{Asks: true, Call: vpp.Call{Msg: descriptor.ShowFeatures(vppName)}, Refuses: func(r vpp.Reply) error {
			if on, err := at.enabled(r); err != nil || !on {
				return errors.Join(fmt.Errorf("%s does not ask classify table %d", at, root), err)
			}
			return nil
		}})
	}
	return ops
}

// swapProgram lays a second chain, and leads the root to it.
func swapProgram(w *descriptor.World, at classPlace, have, want classifier.Program) ([]descriptor.Op, error) {
	root, ok := factsOf(w).class.at[at]
	if !ok || have[0].Mask != want[0].Mask {
		return nil, fmt.Errorf("%s: classify table %d is not as it was made", at, root)
	}
	repair := repairRoot(root, have[0], want[0])
	if have[1:].Equal(want[1:]) {
		return repair, nil
	}
	return append(repair, layTables(w, want[1:], descriptor.None, func(head uint32) []descriptor.Op {
		old := factsOf(w).class.tables[root].next
		return []descriptor.Op{leadTo(w, root, head, want[0], func() []descriptor.Op { return dropChain(w, &old) })}
	})...), nil
}

// leadTo makes head the table after root.
func leadTo(w *descriptor.World, root, head uint32, t classifier.Table, then func() []descriptor.Op) descriptor.Op {
	m := addTable(t, head)
	m.TableIndex = root
	return descriptor.Op{
		Call: descriptor.Write(m), Refuses: func(r vpp.Reply) error { return sameTable(r, root) },
		Then: func(vpp.Reply) []descriptor.Op {
			has := factsOf(w).class.tables[root]
			has.next = head
			factsOf(w).class.tables[root] = has
			return then()
		},
	}
}

// repairRoot repairs a root that another program changed.
func repairRoot(root uint32, have, want classifier.Table) (ops []descriptor.Op) {
	for _, e := range want.Entries {
		if !slices.Contains(have.Entries, e) {
			ops = append(ops, descriptor.Op{Call: descriptor.Write(session(root, e, true))})
		}
	}
	for _, e := range have.Entries {
		if !slices.ContainsFunc(want.Entries, func(o classifier.Entry) bool { return o.Match == e.Match }) {
			ops = append(ops, descriptor.Op{Call: descriptor.Write(session(root, e, false))})
		}
	}
	return ops
}

// deleteFilter detaches and then removes the tables.
func deleteFilter(w *descriptor.World, f *sctpFilter) (ops []descriptor.Op, _ error) {
	if f.left != nil || f.dead != nil {
		ops = dropLeft(w)
		for _, at := range f.dead {
			ops = append(ops, stripPlace(w, at)...)
		}
		return ops, nil
	}
	i, ok := w.Interface(f.iface)
	if !ok {
		if swIf, known := factsOf(w).class.swIf[f.key()]; known {
			ops = append(stripPlace(w, classPlace{swIf, f.input, false}), stripPlace(w, classPlace{swIf, f.input, true})...)
		}
		return ops, nil
	}
	for _, v6 := range []bool{false, true} {
		at := classPlace{i.Index, f.input, v6}
		root, there := factsOf(w).class.at[at]
		if _, ours := factsOf(w).class.tables[root]; !there || !ours {
			continue
		}
		ops = append(ops, descriptor.Op{Call: at.set(root, false), Then: func(vpp.Reply) []descriptor.Op {
			delete(factsOf(w).class.at, at)
			delete(factsOf(w).class.live, at)
			return dropChain(w, &root)
		}})
	}
	return ops, nil
}

// stripPlace removes the tables of a place whose interface was deleted, except the root: VPP's records still have the root, and cannot
// be changed until another interface gets the index.
func stripPlace(w *descriptor.World, at classPlace) []descriptor.Op {
	if !factsOf(w).class.dead(w, at) {
		return nil
	}
	root := factsOf(w).class.at[at]
	t := factsOf(w).class.tables[root]
	return []descriptor.Op{leadTo(w, root, descriptor.None, t.Table, func() []descriptor.Op { return dropChain(w, &t.next) })}
}

// dropChain removes a table that nothing leads to, and the tables behind it.
func dropChain(w *descriptor.World, from *uint32) (ops []descriptor.Op) {
	if from == nil {
		return nil
	}
	for _, index := range factsOf(w).class.chain(*from) {
		ops = append(ops, dropTable(w, index))
	}
	if len(ops) == 0 {
		return nil
	}
	return descriptor.InTurn(ops)
}

func dropTable(w *descriptor.World, index uint32) descriptor.Op {
	return descriptor.Op{Gone: true, Call: descriptor.Write(delTable(index)), Then: func(vpp.Reply) []descriptor.Op {
		delete(factsOf(w).class.tables, index)
		return nil
	}}
}

// Lacks reports that VPP is known not to have a filter.
func Lacks(w *descriptor.World, filterKey string) bool {
	c := factsOf(w).class
	return c.known && !c.decides(filterKey)
}
