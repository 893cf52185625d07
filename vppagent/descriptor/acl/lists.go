package acl

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.fd.io/govpp/api"
	vppacl "go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/interface_types"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/proto/contiv/vpp/acl"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

const (
	interfaceACLsPrefix = "config/contiv/vpp/v1/interface-acls/"
	idACLLists          = "acl_interface_list_dump"
	maxLists            = 255 // acl_interface_set_acl_list.count is a u8
)

// accessLists are the lists of an interface: keys of ACLs, in order.
type accessLists struct {
	key, iface string
	in, out    []string
	why        string // the reason why it is invalid; "" if valid
	// keepIn and keepOut: the direction stays exactly as VPP has it; see reach.
	keepIn, keepOut bool
	// keepFront reports that an ACL of source ranges in front stays, even a stale one.
	keepFront bool
}

// listPart is the part of an ACL that names an interface itself.
type listPart struct {
	acl, iface string
	in, out    bool
}

// InterfaceACLs describes the ordered ACLs of an interface: first the ACL of source ranges, if any; then the ACLs of the value; then the ACLs that
// name the interface themselves, sorted by name; last the foreign ACLs, which the agent never touches and dumps before every write.
//
// The ACLs of a list are no condition for it; they are only made before it (Loose). If a wanted ACL cannot be had, the interface
// keeps its lists, and a direction without lists denies everything. A direction that names an ACL which nobody wants denies
// everything, too (Reach). Lists are attached without an ACL that the interface can do without (kv.InterimACL). An interface is never open because of
// a refusal or a missing ACL.
func InterfaceACLs() *descriptor.Descriptor {
	d := descriptor.Spec[*acl.InterfaceACLs, *accessLists]{
		Name: "interface-acls", Prefix: interfaceACLsPrefix, Tagged: true,
		Compile: compileLists, Message: (*accessLists).message,
		Equal: func(have, want *accessLists) bool {
			return slices.Equal(have.in, want.in) && slices.Equal(have.out, want.out) &&
				have.keepIn == want.keepIn && have.keepOut == want.keepOut && have.keepFront == want.keepFront
		},
		Dependencies: (*accessLists).dependencies,
		Create:       setLists,
		Update:       func(w *descriptor.World, _, want *accessLists) ([]descriptor.Op, error) { return setLists(w, want) },
		Delete: func(w *descriptor.World, l *accessLists) ([]descriptor.Op, error) {
			if _, ok := w.Interface(l.iface); !ok || listOwner(w, l) != l.key {
				return nil, nil
			}
			return setLists(w, &accessLists{key: l.key, iface: l.iface})
		},
		Dumps: func(*descriptor.World, descriptor.Candidates) []descriptor.Request {
			return []descriptor.Request{descriptor.DumpRequest(idACLLists, &vppacl.ACLInterfaceListDump{SwIfIndex: interface_types.InterfaceIndex(descriptor.None)})}
		},
		Retrieve: retrieveLists,
	}.Descriptor()
	d.Derived = func(state any) []descriptor.Derived {
		if l := state.(*accessLists); len(l.in)+len(l.out) == 0 {
			return nil
		}
		parts := []descriptor.Derived{{Key: denyKey, State: newDenyACL()}}
		if l := state.(*accessLists); l.opened() {
			parts = append(parts, descriptor.Derived{Key: permitKey, State: newPermitACL()})
		}
		return parts
	}
	d.Merge = mergeLists
	d.Ready = readyLists
	d.Stands, d.Nodes = standsOnACLs, aclNodes
	return d
}

var standsOnACLs = &descriptor.Stands{ // read only
	Reach: reachLists, Note: noteLists, Settled: settledLists, Torn: tornLists,
	Shut: func(state any) any {
		if l := state.(*accessLists); len(l.in)+len(l.out) > 0 {
			shut := closedLists(l.iface)
			shut.key = l.key
			return shut
		}
		return nil
	},
	Shuts: func(state any) bool { return state.(*accessLists).shut() },
}

func compileLists(key string, m *acl.InterfaceACLs) (*accessLists, error) {
	if m.GetInterface() == "" {
		return nil, errors.New("interface: empty")
	}
	l := &accessLists{key: key, iface: m.GetInterface()}
	for _, side := range []struct {
		field string
		names []string
		keys  *[]string
	}{{"input", m.GetInput(), &l.in}, {"output", m.GetOutput(), &l.out}} {
		for i, name := range side.names {
			k := kv.ACLKey(name)
			switch {
			case name == "":
				l.why = fmt.Sprintf("%s[%d]: empty", side.field, i)
			case slices.Contains(*side.keys, k): // VPP would apply half of it and answer 1
				l.why = fmt.Sprintf("%s[%d]: %q twice", side.field, i, name)
			}
			*side.keys = append(*side.keys, k)
		}
	}
	l.misplaced()
	return l, nil
}

// mergeLists denies everything if no part names an access list and a closedPart exists. Otherwise it appends the ACLs that name the interface
// themselves to the lists of the value (nil: none), and puts the ACL of source ranges in front.
func mergeLists(own any, parts []any) any {
	l := &accessLists{}
	if own != nil {
		*l = *own.(*accessLists)
	}
	l.in, l.out = slices.Clone(l.in), slices.Clone(l.out)
	front := false
	for _, part := range parts {
		if c, ok := part.(closedPart); ok {
			if own == nil && !slices.ContainsFunc(parts, func(p any) bool { _, names := p.(listPart); return names }) {
				return closedLists(string(c))
			}
			continue
		}
		if f, ok := part.(frontPart); ok {
			front, l.iface, l.key = true, string(f), kv.InterfaceACLsKey(string(f))
			continue
		}
		p := part.(listPart)
		l.iface, l.key = p.iface, kv.InterfaceACLsKey(p.iface)
		if p.in && !slices.Contains(l.in, p.acl) {
			l.in = append(l.in, p.acl)
		}
		if p.out && !slices.Contains(l.out, p.acl) {
			l.out = append(l.out, p.acl)
		}
	}
	if front {
		l.in = withFront(l.in)
	}
	l.misplaced()
	if n := len(l.in) + len(l.out); n > maxLists && l.why == "" {
		l.why = fmt.Sprintf("input, output: %d ACLs, VPP takes at most %d on an interface", n, maxLists)
	}
	return l
}

// misplaced finds an ACL that is in a list but relies on an SCTP filter of another interface or direction.
func (l *accessLists) misplaced() {
	for i, list := range [][]string{l.in, l.out} {
		for _, k := range list {
			if filter := needsFilter(k); filter != "" && filter != kv.SCTPFilterKey(l.iface, i == 0) {
				l.why = fmt.Sprintf("acl %q is of another place", strings.TrimPrefix(k, aclPrefix))
			}
		}
	}
}

func (l *accessLists) dependencies() []descriptor.Dependency {
	deps := []descriptor.Dependency{{Key: kv.InterfaceKey(l.iface), Bond: descriptor.Outlives, Pods: true}, {Without: RestrictedClaim}, {Without: NATClaim(l.iface)}}
	if len(l.in)+len(l.out) > 0 {
		deps = append(deps, descriptor.Dependency{Key: denyKey, Loose: true})
	}
	for _, list := range [][]string{l.in, l.out} {
		for _, k := range list {
			for _, k := range []string{k, needsFilter(k)} {
				if d := (descriptor.Dependency{Key: k, Loose: true}); k != "" && !slices.Contains(deps, d) {
					deps = append(deps, d)
				}
			}
		}
	}
	return deps
}

func (l *accessLists) message() *acl.InterfaceACLs {
	m := &acl.InterfaceACLs{Interface: l.iface}
	for _, k := range l.in {
		m.Input = append(m.Input, strings.TrimPrefix(k, aclPrefix))
	}
	for _, k := range l.out {
		m.Output = append(m.Output, strings.TrimPrefix(k, aclPrefix))
	}
	return m
}

func settledLists(w *descriptor.World, has any) bool {
	have := has.(*accessLists)
	i, ok := w.Interface(have.iface)
	if !ok || listOwner(w, have) != have.key {
		return true
	}
	if !hasFilters(w, have.in) || !hasFilters(w, have.out) {
		return false
	}
	v := factsOf(w).lists[i.Index]
	in, errIn := aclIndices(w, have.in, v.in, have.keepIn, have.keepFront)
	out, errOut := aclIndices(w, have.out, v.out, have.keepOut, false)
	return errIn == nil && errOut == nil && slices.Equal(in, v.in) && slices.Equal(out, v.out)
}

// listOwner returns the key of the value that decides the lists of l's interface. Lists may be wanted under several names of the
// interface: then our name takes precedence over VPP's, and VPP's over the tag.
func listOwner(w *descriptor.World, l *accessLists) string {
	i, ok := w.Interface(l.iface)
	if !ok {
		return l.key
	}
	for _, name := range []string{i.Name, i.VPPName, i.Tag} {
		if !w.Answers(name, i) {
			continue
		}
		if key := kv.InterfaceACLsKey(name); key == l.key || w.Wanted(key) != nil {
			return key
		}
	}
	return l.key
}

// attached are the actual lists of an interface: indices of ACLs.
type attached struct{ in, out []uint32 }

// isAttached reports that an ACL is in the lists of an interface.
func isAttached(w *descriptor.World, index uint32) bool {
	for _, a := range factsOf(w).lists {
		if slices.Contains(a.in, index) || slices.Contains(a.out, index) {
			return true
		}
	}
	return false
}

// aclIndices returns the list that a direction gets in VPP, given its present list: our ACLs, and behind them the foreign ones.
func aclIndices(w *descriptor.World, keys []string, has []uint32, keep, keepFront bool) (out []uint32, err error) {
	if keep {
		return has, nil
	}
	others, ours := foreignACLs(w, has), factsOf(w).acls.index
	for _, k := range keys {
		if k == permitKey && len(others) > 0 { // the foreign ACLs decide, as without any of ours
			continue
		}
		index, ok := ours[k]
		if !ok {
			return nil, fmt.Errorf("acl %q is not in VPP", strings.TrimPrefix(k, aclPrefix))
		}
		if k == rangesKey && keepFront && len(has) > 0 && Front(w, has[0]) {
			index = has[0]
		}
		out = append(out, index)
	}
	return append(out, others...), nil
}

// setLists dumps the lists of the interface and changes them with one message, unless they are already as wanted. An interface without lists loses its
// sessions first.
func setLists(w *descriptor.World, l *accessLists) ([]descriptor.Op, error) {
	idx, err := w.Index(l.iface)
	if err != nil || listOwner(w, l) != l.key {
		return nil, err
	}
	var want attached
	resolve := func(has attached) (err error) {
		if want.in, err = aclIndices(w, l.in, has.in, l.keepIn, l.keepFront); err != nil {
			return err
		}
		if want.out, err = aclIndices(w, l.out, has.out, l.keepOut, false); err != nil {
			return err
		}
		if n := len(want.in) + len(want.out); n > maxLists {
			return fmt.Errorf("%d ACLs with those others attached, VPP takes at most %d on an interface", n, maxLists)
		}
		return nil
	}
	var has attached
	var end sessionsEnd
	op := descriptor.Op{
		Asks: true, Call: vpp.Call{Dump: true, Msg: &vppacl.ACLInterfaceListDump{SwIfIndex: idx}},
		Refuses: func(r vpp.Reply) error { has = attachedTo(r.Details, idx); return resolve(has) },
		Then: func(vpp.Reply) []descriptor.Op {
			factsOf(w).lists[uint32(idx)] = has
			if slices.Equal(has.in, want.in) && slices.Equal(has.out, want.out) {
				return nil
			}
			set := descriptor.Op{Call: want.set(idx), Cost: costOfSwitch(w, has, want), Then: func(vpp.Reply) []descriptor.Op { factsOf(w).lists[uint32(idx)] = want; return nil }}
			if len(has.in)+len(has.out) == 0 {
				return append(end.requests(w, want), set)
			}
			return []descriptor.Op{set}
		},
	}
	if resolve(factsOf(w).lists[uint32(idx)]) == nil {
		op.Preview, op.Follows = want.set(idx).Msg, costOfSwitch(w, factsOf(w).lists[uint32(idx)], want)
	}
	if had := factsOf(w).lists[uint32(idx)]; len(had.in)+len(had.out) == 0 {
		return []descriptor.Op{end.askEthertypes(idx), op}, nil
	}
	return []descriptor.Op{op}, nil
}

func (a attached) set(idx interface_types.InterfaceIndex) vpp.Call {
	all := slices.Concat(a.in, a.out)
	return descriptor.Write(&vppacl.ACLInterfaceSetACLList{SwIfIndex: idx, Count: uint8(len(all)), NInput: uint8(len(a.in)), Acls: all})
}

// attachedTo are the lists of one interface in a dump.
func attachedTo(dump []api.Message, idx interface_types.InterfaceIndex) attached {
	for _, m := range dump {
		if m, ok := m.(*vppacl.ACLInterfaceListDetails); ok && m.SwIfIndex == idx {
			return newAttached(m)
		}
	}
	return attached{}
}

func newAttached(m *vppacl.ACLInterfaceListDetails) attached {
	n := min(int(m.NInput), len(m.Acls))
	return attached{in: m.Acls[:n:n], out: m.Acls[n:]}
}

// retrieveLists uses the candidates, because an interface may have several names. An attachment is ours if its ACL is.
func retrieveLists(w *descriptor.World, d *descriptor.Dump, c descriptor.Candidates) ([]descriptor.Found, error) {
	all, err := descriptor.Details[*vppacl.ACLInterfaceListDetails](d, idACLLists)
	if err != nil {
		return nil, err
	}
	clear(factsOf(w).lists)
	for _, m := range all {
		if len(m.Acls) > 0 {
			factsOf(w).lists[uint32(m.SwIfIndex)] = newAttached(m)
		}
	}
	var out []descriptor.Found
	seen := map[uint32]bool{}
	found := func(key, iface string, index uint32, empty bool) {
		if seen[index] {
			return
		}
		a := factsOf(w).lists[index]
		l := &accessLists{key: key, iface: iface, in: aclKeys(w, a.in), out: aclKeys(w, a.out)}
		if len(l.in)+len(l.out) > 0 || empty {
			seen[index] = true
			out = append(out, descriptor.Found{Key: key, State: l, Ours: true})
		}
	}
	for _, wantedOnes := range []bool{true, false} {
		c.Each(func(key string, state any, wanted bool) {
			l := state.(*accessLists)
			if i, ok := w.Interface(l.iface); ok && wanted == wantedOnes && listOwner(w, l) == key {
				found(key, l.iface, i.Index, wanted && len(l.in)+len(l.out) == 0)
			}
		})
	}
	for _, i := range w.Interfaces() {
		found(kv.InterfaceACLsKey(i.Name), i.Name, i.Index, false)
		if text := foreignListsText(w, i); text != "" {
			out = append(out, descriptor.Found{Foreign: true, Text: text})
		}
	}
	return out, nil
}

// aclKeys returns the keys of the ACLs that are ours.
func aclKeys(w *descriptor.World, indices []uint32) (keys []string) {
	known := factsOf(w).acls.key
	for _, index := range indices {
		if k, ours := known[index]; ours {
			keys = append(keys, k)
		}
	}
	return keys
}

// foreignListsText describes the attachments of other clients to an interface; "" if none.
func foreignListsText(w *descriptor.World, i *descriptor.Iface) string {
	a := factsOf(w).lists[i.Index]
	in, out := foreignACLs(w, a.in), foreignACLs(w, a.out)
	if len(in)+len(out) == 0 {
		return ""
	}
	return fmt.Sprintf("interface %s: acls input %d output %d", i.Name, in, out)
}

// foreignACLs returns the ACLs that are not ours.
func foreignACLs(w *descriptor.World, indices []uint32) (out []uint32) {
	known := factsOf(w).acls.key
	for _, index := range indices {
		if _, ours := known[index]; !ours {
			out = append(out, index)
		}
	}
	return out
}

// aclNodes are the graph nodes of the lists that an interface has (acl_fa_enable_disable, VPP 25.10).
func aclNodes(w *descriptor.World, have any) (out []descriptor.Node) {
	idx, err := w.Index(have.(*accessLists).iface)
	if err != nil {
		return nil
	}
	has := factsOf(w).lists[uint32(idx)]
	if len(has.in) > 0 {
		out = append(out, descriptor.Node{Arc: "ip4-unicast", Name: "acl-plugin-in-ip4-fa"}, descriptor.Node{Arc: "ip6-unicast", Name: "acl-plugin-in-ip6-fa"})
	}
	if len(has.out) > 0 {
		out = append(out, descriptor.Node{Arc: "ip4-output", Name: "acl-plugin-out-ip4-fa"}, descriptor.Node{Arc: "ip6-output", Name: "acl-plugin-out-ip6-fa"})
	}
	return out
}
