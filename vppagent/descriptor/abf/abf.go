package abf

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	vppabf "go.fd.io/govpp/binapi/abf"
	"go.fd.io/govpp/binapi/fib_types"
	"go.fd.io/govpp/binapi/interface_types"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/abf"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/acl"
)

const (
	idForwardings = "abf_policy_dump"
	idAttachments = "abf_itf_attach_dump"
)

// forwarding is a policy of ABF: packets that an ACL permits take the paths of the policy. Its attachments are derived values.
type forwarding struct {
	id    uint32
	acl   string           // name; "": the ACL found in VPP has no name here, or no longer that name
	paths []forwardingPath // sorted, each next hop and interface once
	at    []*attachment    // wanted; a dump shows them as separate values
}

// forwardingPath is one path. VPP distinguishes paths of a policy by next hop and interface alone.
type forwardingPath struct {
	next         netip.Addr // invalid: any destination on the interface
	iface        string     // "": lookup in table 0
	v6           bool
	weight, pref uint8
	dvr          bool
	index        uint32 // of iface, as found; 0: not found
}

// ABF describes ligato's ABF. Paths are added and removed in place. A change of the access list, or of a path's attributes,
// recreates the policy, because VPP aborts if it receives a path twice. Like a route, a path stays dead after its interface was
// deleted and added again, so the policy is recreated then, too.
func ABF() *descriptor.Descriptor {
	return descriptor.Spec[*abf.ABF, *forwarding]{
		Name: "abf", Prefix: "config/vpp/abfs/v2/abf/",
		Compile: compileForwarding, Message: (*forwarding).policyMessage,
		Equal: func(have, want *forwarding) bool {
			return have.acl == want.acl && slices.EqualFunc(have.paths, want.paths, forwardingPath.samePath)
		},
		Dependencies: func(f *forwarding) []descriptor.Dependency {
			deps := []descriptor.Dependency{{Key: kv.ACLKey(f.acl)}}
			for _, p := range f.paths {
				if d := (descriptor.Dependency{Key: kv.InterfaceKey(p.iface), Bond: descriptor.Dies}); p.iface != "" && !slices.Contains(deps, d) {
					deps = append(deps, d)
				}
			}
			return deps
		},
		Derived: func(f *forwarding) []descriptor.Derived {
			out := make([]descriptor.Derived, 0, len(f.at))
			for _, a := range f.at {
				out = append(out, descriptor.Derived{Key: kv.ABFInterfaceKey(f.id, a.iface), State: a})
			}
			return out
		},
		Recreate: recreateForwarding,
		Create:   createForwarding, Update: updateForwarding, Delete: deleteForwarding,
		Dumps:    func(*descriptor.World, descriptor.Candidates) []descriptor.Request { return forwardingRequests() },
		Retrieve: retrieveForwardings,
	}.Descriptor()
}

// forwardingRequests are sent together: the guard must know both answers before it passes a change.
func forwardingRequests() []descriptor.Request {
	return []descriptor.Request{descriptor.DumpRequest(idForwardings, &vppabf.AbfPolicyDump{}), descriptor.DumpRequest(idAttachments, &vppabf.AbfItfAttachDump{})}
}

func compileForwarding(_ string, m *abf.ABF) (*forwarding, error) {
	f := &forwarding{id: m.GetIndex(), acl: m.GetAclName()}
	switch n := len(m.GetForwardingPaths()); {
	case f.id == descriptor.None:
		return nil, fmt.Errorf("index: %d is VPP's word for none", f.id)
	case f.acl == "":
		return nil, errors.New("acl_name: empty")
	case n == 0:
		return nil, errors.New("forwarding_paths: empty")
	case n > 255:
		return nil, fmt.Errorf("forwarding_paths: %d, VPP takes at most 255", n)
	}
	if err := f.compileAttachments(m.GetAttachedInterfaces()); err != nil {
		return nil, err
	}
	for n, p := range m.GetForwardingPaths() {
		path, err := compileForwardingPath(p)
		if err != nil {
			return nil, fmt.Errorf("forwarding_paths[%d].%w", n, err)
		}
		if !path.next.IsValid() && len(f.at) > 0 {
			path.v6 = f.at[0].v6
		}
		f.paths = append(f.paths, path)
	}
	slices.SortFunc(f.paths, forwardingPath.compare)
	for n := range f.paths {
		if n > 0 && f.paths[n].compare(f.paths[n-1]) == 0 {
			return nil, fmt.Errorf("forwarding_paths: %s twice", f.paths[n])
		}
		if len(f.at) > 0 && f.paths[n].v6 != f.at[0].v6 {
			return nil, fmt.Errorf("attached_interfaces[0].is_ipv6: %t, and a path leads to %s", f.at[0].v6, f.paths[n])
		}
	}
	return f, nil
}

// compileAttachments refuses an interface that is named twice, even for both families: VPP has room for one attachment.
func (f *forwarding) compileAttachments(list []*abf.ABF_AttachedInterface) error {
	for n, a := range list {
		at := &attachment{policy: f.id, iface: a.GetInputInterface(), priority: a.GetPriority(), v6: a.GetIsIpv6()}
		switch {
		case at.iface == "":
			return fmt.Errorf("attached_interfaces[%d].input_interface: empty", n)
		case slices.ContainsFunc(f.at, func(o *attachment) bool { return o.iface == at.iface }):
			return fmt.Errorf("attached_interfaces[%d].input_interface: %q twice", n, at.iface)
		case n > 0 && at.v6 != f.at[0].v6:
			return fmt.Errorf("attached_interfaces[%d].is_ipv6: %t, and that of the first is %t", n, at.v6, f.at[0].v6)
		}
		f.at = append(f.at, at)
	}
	return nil
}

func compileForwardingPath(m *abf.ABF_ForwardingPath) (p forwardingPath, err error) {
	p = forwardingPath{iface: m.GetInterfaceName(), weight: uint8(max(m.GetWeight(), 1)), pref: uint8(m.GetPreference()), dvr: m.GetDvr()}
	switch {
	case m.GetWeight() > 255:
		return p, fmt.Errorf("weight: %d is above 255", m.GetWeight())
	case m.GetPreference() > 255:
		return p, fmt.Errorf("preference: %d is above 255", m.GetPreference())
	case m.GetNextHopIp() == "" && p.iface == "":
		return p, errors.New("next_hop_ip: neither this nor interface_name is set")
	case p.dvr && (p.iface == "" || m.GetNextHopIp() != ""): // VPP ignores the next hop
		return p, errors.New("dvr: goes with interface_name, and without next_hop_ip")
	}
	if m.GetNextHopIp() != "" {
		if p.next, err = descriptor.ParseAddr("next_hop_ip", m.GetNextHopIp()); err != nil {
			return p, err
		}
		p.v6 = p.next.Is6()
	}
	return p, nil
}

// compare returns 0 for paths that VPP cannot distinguish.
func (p forwardingPath) compare(o forwardingPath) int {
	return cmp.Or(p.next.Compare(o.next), strings.Compare(p.iface, o.iface))
}

func (p forwardingPath) samePath(o forwardingPath) bool {
	return p.compare(o) == 0 && p.v6 == o.v6 && p.weight == o.weight && p.pref == o.pref && p.dvr == o.dvr
}

func (p forwardingPath) String() string {
	if !p.next.IsValid() {
		return p.iface
	}
	return strings.TrimSpace(p.next.String() + " " + p.iface)
}

func (f *forwarding) policyMessage() *abf.ABF {
	m := &abf.ABF{Index: f.id, AclName: f.acl}
	for _, a := range f.at {
		m.AttachedInterfaces = append(m.AttachedInterfaces, &abf.ABF_AttachedInterface{InputInterface: a.iface, Priority: a.priority, IsIpv6: a.v6})
	}
	for _, p := range f.paths {
		path := &abf.ABF_ForwardingPath{InterfaceName: p.iface, Weight: uint32(p.weight), Preference: uint32(p.pref), Dvr: p.dvr}
		if p.next.IsValid() {
			path.NextHopIp = p.next.String()
		}
		m.ForwardingPaths = append(m.ForwardingPaths, path)
	}
	return m
}

// recreateForwarding reports changes that cannot be made in place: the access list of a policy is fixed, VPP cannot have a path
// beside an otherwise equal one, and the last path cannot be removed before another is added.
func recreateForwarding(have, want *forwarding) bool {
	if have.acl != want.acl {
		return true
	}
	for _, p := range want.paths {
		if i, ok := slices.BinarySearchFunc(have.paths, p, forwardingPath.compare); ok && !have.paths[i].samePath(p) {
			return true
		}
	}
	return false
}

func createForwarding(w *descriptor.World, f *forwarding) ([]descriptor.Op, error) {
	ops, err := f.sendPaths(w, true, f.paths)
	if err == nil {
		ops[0].Then = func(vpp.Reply) []descriptor.Op { policiesOf(w)[f.id] = true; return nil }
	}
	return ops, err
}

// updateForwarding adds the new paths before it removes the old ones.
func updateForwarding(w *descriptor.World, have, want *forwarding) ([]descriptor.Op, error) {
	add, err := want.sendPaths(w, true, missingPaths(want.paths, have.paths))
	if err != nil {
		return nil, err
	}
	gone, err := have.sendPaths(w, false, missingPaths(have.paths, want.paths))
	return append(add, gone...), err
}

func deleteForwarding(w *descriptor.World, f *forwarding) ([]descriptor.Op, error) {
	return f.sendPaths(w, false, f.paths)
}

// missingPaths returns the paths of list that other lacks.
func missingPaths(list, other []forwardingPath) []forwardingPath {
	return slices.DeleteFunc(slices.Clone(list), func(p forwardingPath) bool {
		_, ok := slices.BinarySearchFunc(other, p, forwardingPath.compare)
		return ok
	})
}

// sendPaths adds paths to the policy or removes them; the first path creates the policy, the removal of the last deletes it.
func (f *forwarding) sendPaths(w *descriptor.World, add bool, paths []forwardingPath) ([]descriptor.Op, error) {
	if len(paths) == 0 {
		return nil, nil
	}
	m := &vppabf.AbfPolicyAddDel{IsAdd: add, Policy: vppabf.AbfPolicy{PolicyID: f.id}}
	if add {
		index, ok := acl.Index(w, kv.ACLKey(f.acl))
		if !ok {
			return nil, fmt.Errorf("acl %q is not in VPP", f.acl)
		}
		m.Policy.ACLIndex = index
	}
	for _, p := range paths {
		path := fib_types.FibPath{SwIfIndex: descriptor.None, Weight: p.weight, Preference: p.pref}
		if p.v6 {
			path.Proto = fib_types.FIB_API_PATH_NH_PROTO_IP6
		}
		if p.dvr {
			path.Type = fib_types.FIB_API_PATH_TYPE_DVR
		}
		path.Nh.Address = descriptor.ToUnion(p.next)
		if idx, err := w.Index(p.iface); err == nil {
			path.SwIfIndex = uint32(idx)
		} else if p.index != 0 && !add {
			path.SwIfIndex = p.index
		} else if p.iface != "" {
			return nil, err
		}
		m.Policy.Paths = append(m.Policy.Paths, path)
	}
	return []descriptor.Op{{Call: descriptor.Write(m), Gone: !add}}, nil
}

// retrieveForwardings finds the policies of the candidates, because VPP keeps no name.
func retrieveForwardings(w *descriptor.World, d *descriptor.Dump, c descriptor.Candidates) ([]descriptor.Found, error) {
	all, err := descriptor.Details[*vppabf.AbfPolicyDetails](d, idForwardings)
	if descriptor.Optional(err) != nil {
		return nil, err
	}
	inVPP := map[uint32]vppabf.AbfPolicy{}
	for _, m := range all {
		inVPP[m.Policy.PolicyID] = m.Policy
	}
	clear(policiesOf(w))
	var out []descriptor.Found
	c.Each(func(key string, state any, wanted bool) {
		f := state.(*forwarding)
		p, ok := inVPP[f.id]
		if !ok || !wanted && c.Wanted(key) != nil {
			return
		}
		policiesOf(w)[f.id] = true
		out = append(out, descriptor.Found{Key: key, State: f.found(w, p)})
	})
	return out, nil
}

// found is the actual state, with the names of f.
func (f *forwarding) found(w *descriptor.World, m vppabf.AbfPolicy) *forwarding {
	out := &forwarding{id: f.id}
	if index, ok := acl.Index(w, kv.ACLKey(f.acl)); ok && index == m.ACLIndex {
		out.acl = f.acl
	}
	for _, p := range m.Paths {
		v6 := p.Proto == fib_types.FIB_API_PATH_NH_PROTO_IP6
		path := forwardingPath{next: descriptor.FromUnion(p.Nh.Address, v6), v6: v6, weight: p.Weight, pref: p.Preference, dvr: p.Type == fib_types.FIB_API_PATH_TYPE_DVR}
		if path.next.IsUnspecified() {
			path.next = netip.Addr{}
		}
		if p.SwIfIndex != descriptor.None {
			path.index, path.iface = p.SwIfIndex, w.Name(p.SwIfIndex)
			for _, o := range f.paths {
				if path.iface != "" && w.Canonical(o.iface) == path.iface {
					path.iface = o.iface
				}
			}
			if path.iface == "" { // it was deleted; the path is still to be removed
				path.iface = goneName(p.SwIfIndex)
			}
		}
		out.paths = append(out.paths, path)
	}
	slices.SortFunc(out.paths, forwardingPath.compare)
	return out
}

// goneName is the name of a deleted interface that an object of ours still refers to.
func goneName(index uint32) string { return fmt.Sprintf("(interface %d)", index) }

// attachment is an interface whose input packets pass a policy of ours: derived, with the policy as its base.
type attachment struct {
	policy   uint32
	iface    string
	priority uint32
	v6       bool
	index    uint32 // of iface, as found; 0: not found
}

func (a *attachment) sameAttachment(o *attachment) bool {
	return a.policy == o.policy && a.iface == o.iface && a.priority == o.priority && a.v6 == o.v6
}

// ABFInterface describes the attachment that an ABF derives for each of its interfaces. VPP keeps an attachment when its interface
// is deleted; dumps then show it on the next interface with that index, although it has no effect there. So the agent removes an
// attachment before an interface of ours, and recreates it after a foreign interface was added again.
func ABFInterface() *descriptor.Descriptor {
	return descriptor.Spec[*abf.ABF, *attachment]{
		Name: "abf-interface", Prefix: "vpp/abf/*/interface/", Tagged: true,
		Compile: descriptor.NoMessage[*abf.ABF, *attachment], Message: func(*attachment) *abf.ABF { return nil },
		Equal: (*attachment).sameAttachment,
		Dependencies: func(a *attachment) []descriptor.Dependency {
			return []descriptor.Dependency{{Key: kv.InterfaceKey(a.iface), Bond: descriptor.Dies}}
		},
		Create:   func(w *descriptor.World, a *attachment) ([]descriptor.Op, error) { return a.sendAttach(w, true) },
		Delete:   func(w *descriptor.World, a *attachment) ([]descriptor.Op, error) { return a.sendAttach(w, false) },
		Dumps:    func(*descriptor.World, descriptor.Candidates) []descriptor.Request { return forwardingRequests() },
		Retrieve: retrieveAttachments,
	}.Descriptor()
}

func (a *attachment) sendAttach(w *descriptor.World, add bool) ([]descriptor.Op, error) {
	idx, err := w.Index(a.iface)
	if err != nil && (add || a.index == 0) {
		return nil, err
	} else if err != nil {
		idx = interface_types.InterfaceIndex(a.index)
	}
	return []descriptor.Op{{Gone: !add, Call: descriptor.Write(&vppabf.AbfItfAttachAddDel{IsAdd: add, Attach: vppabf.AbfItfAttach{
		PolicyID: a.policy, SwIfIndex: idx, Priority: a.priority, IsIPv6: a.v6,
	}})}}, nil
}

// retrieveAttachments finds all attachments of our policies.
func retrieveAttachments(w *descriptor.World, d *descriptor.Dump, c descriptor.Candidates) ([]descriptor.Found, error) {
	all, err := descriptor.Details[*vppabf.AbfItfAttachDetails](d, idAttachments)
	if descriptor.Optional(err) != nil {
		return nil, err
	}
	type place struct {
		policy uint32
		swIf   interface_types.InterfaceIndex
	}
	called := map[place]string{} // names of interfaces in the candidates
	c.Each(func(_ string, state any, _ bool) {
		a := state.(*attachment)
		if idx, err := w.Index(a.iface); err == nil {
			called[place{a.policy, idx}] = a.iface
		}
	})
	var out []descriptor.Found
	for _, m := range all {
		if !policiesOf(w)[m.Attach.PolicyID] {
			continue
		}
		name := cmp.Or(called[place{m.Attach.PolicyID, m.Attach.SwIfIndex}], w.Name(uint32(m.Attach.SwIfIndex)), goneName(uint32(m.Attach.SwIfIndex)))
		a := &attachment{policy: m.Attach.PolicyID, iface: name, priority: m.Attach.Priority, v6: m.Attach.IsIPv6, index: uint32(m.Attach.SwIfIndex)}
		out = append(out, descriptor.Found{Key: kv.ABFInterfaceKey(a.policy, name), Base: kv.ABFKey(a.policy), State: a, Ours: true})
	}
	slices.SortFunc(out, func(a, b descriptor.Found) int { return strings.Compare(a.Key, b.Key) })
	return out, nil
}

// policies returns the ABF policies in VPP that are wanted or ours.
type policies map[uint32]bool

func policiesOf(w *descriptor.World) policies {
	return descriptor.FactsOf(w, func() policies { return policies{} })
}

// Clone implements Facts.
func (p policies) Clone() descriptor.Facts { return maps.Clone(p) }
