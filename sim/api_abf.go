package sim

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.fd.io/govpp/binapi/abf"
	"go.fd.io/govpp/binapi/fib_types"
)

// Traps of ABF, executed on 24.06 and 25.10. The sim crashes at once, VPP at the next change of the policy.
const (
	trapABFPath   trap = "abf_policy_add_del: a policy is given a path it has, or changed after its last path went while it was attached"
	trapABFAttach trap = "abf_itf_attach_add_del: a policy there is not, or one that is attached for the other family"
)

// forwardings is the state of ABF. The sim does not forward packets by it.
type forwardings struct {
	policies map[uint32]*abfPolicy
	attached map[abfPlace]abf.AbfItfAttach
}

// abfPolicy without paths is invalid: its last path was removed while it was attached.
type abfPolicy struct {
	acl   uint32
	paths []fib_types.FibPath
}

type abfPlace struct{ policy, swIf uint32 }

func (f *forwardings) init() {
	f.policies, f.attached = map[uint32]*abfPolicy{}, map[abfPlace]abf.AbfItfAttach{}
}

func abfMessages(t *apiTable) {
	onWrite(t, func(q *call, m *abf.AbfPolicyAddDel) *abf.AbfPolicyAddDelReply {
		return &abf.AbfPolicyAddDelReply{Retval: q.abfPolicyAddDel(m)}
	})
	onDump(t, func(q *call, _ *abf.AbfPolicyDump, send func(*abf.AbfPolicyDetails)) {
		for _, id := range slices.Sorted(maps.Keys(q.abf.policies)) {
			p := q.abf.policies[id]
			send(&abf.AbfPolicyDetails{Policy: abf.AbfPolicy{PolicyID: id, ACLIndex: p.acl, NPaths: uint8(len(p.paths)), Paths: p.paths}})
		}
	})
	onWrite(t, func(q *call, m *abf.AbfItfAttachAddDel) *abf.AbfItfAttachAddDelReply {
		return &abf.AbfItfAttachAddDelReply{Retval: q.abfAttach(m)}
	})
	onDump(t, func(q *call, _ *abf.AbfItfAttachDump, send func(*abf.AbfItfAttachDetails)) {
		for _, k := range q.abf.places() {
			send(&abf.AbfItfAttachDetails{Attach: q.abf.attached[k]})
		}
	})
}

func (f *forwardings) places() []abfPlace {
	return slices.SortedFunc(maps.Keys(f.attached), func(a, b abfPlace) int {
		return cmp.Or(cmp.Compare(a.policy, b.policy), cmp.Compare(a.swIf, b.swIf))
	})
}

// usesACL reports whether an attached policy refers to the ACL: before that, VPP has no reference (abf_setup_acl_lc).
func (f *forwardings) usesACL(index uint32) bool {
	for k := range f.attached {
		if p := f.policies[k.policy]; p != nil && p.acl == index {
			return true
		}
	}
	return false
}

func (f *forwardings) isAttached(policy uint32) bool {
	for k := range f.attached {
		if k.policy == policy {
			return true
		}
	}
	return false
}

// samePath compares paths as VPP does.
func samePath(a, b fib_types.FibPath) bool {
	return a.Proto == b.Proto && a.SwIfIndex == b.SwIfIndex && a.Nh.Address == b.Nh.Address && (a.SwIfIndex != noIndex || a.TableID == b.TableID)
}

func (v *VPP) abfPolicyAddDel(m *abf.AbfPolicyAddDel) int32 {
	if len(m.Policy.Paths) == 0 {
		return rvInvalidValue
	}
	for i := range m.Policy.Paths {
		p := &m.Policy.Paths[i]
		if rv := v.checkPath(decodePath(p), fam6(p.Proto == fib_types.FIB_API_PATH_NH_PROTO_IP6)); rv != 0 && m.IsAdd {
			return rv
		}
	}
	p := v.abf.policies[m.Policy.PolicyID]
	switch {
	case p != nil && len(p.paths) == 0:
		panic(trapABFPath)
	case !m.IsAdd && p == nil, m.IsAdd && p != nil && p.acl != m.Policy.ACLIndex:
		return rvInvalidValue
	case !m.IsAdd:
		p.paths = slices.DeleteFunc(p.paths, func(o fib_types.FibPath) bool {
			return slices.ContainsFunc(m.Policy.Paths, func(n fib_types.FibPath) bool { return samePath(o, n) })
		})
		if len(p.paths) == 0 && !v.abf.isAttached(m.Policy.PolicyID) {
			delete(v.abf.policies, m.Policy.PolicyID)
		}
		return 0
	case p == nil:
		p = &abfPolicy{acl: m.Policy.ACLIndex}
		v.abf.policies[m.Policy.PolicyID] = p
	}
	for _, n := range m.Policy.Paths {
		if slices.ContainsFunc(p.paths, func(o fib_types.FibPath) bool { return samePath(o, n) }) {
			panic(trapABFPath)
		}
		n.Weight = max(n.Weight, 1)
		p.paths = append(p.paths, n)
	}
	return 0
}

// abfAttach does not check the interface.
func (v *VPP) abfAttach(m *abf.AbfItfAttachAddDel) int32 {
	k := abfPlace{m.Attach.PolicyID, uint32(m.Attach.SwIfIndex)}
	have, is := v.abf.attached[k]
	switch {
	case m.IsAdd && v.abf.policies[k.policy] == nil:
		panic(trapABFAttach)
	case m.IsAdd && is:
		return rvEntryAlreadyExists
	case m.IsAdd:
		v.abf.attached[k] = m.Attach
	case !is:
		return rvNoSuchEntry
	case have.IsIPv6 != m.Attach.IsIPv6:
		panic(trapABFAttach)
	default:
		delete(v.abf.attached, k)
	}
	return 0
}

func (v *VPP) dumpABF(b *strings.Builder) {
	for _, id := range slices.Sorted(maps.Keys(v.abf.policies)) {
		p := v.abf.policies[id]
		fmt.Fprintf(b, "abf %d acl %q\n", id, v.acl.Tag(p.acl))
		var lines []string
		for i := range p.paths {
			d := decodePath(&p.paths[i])
			if p.paths[i].Type == fib_types.FIB_API_PATH_TYPE_DVR {
				d.swIf, d.via = p.paths[i].SwIfIndex, nextHop(&p.paths[i])
			}
			lines = append(lines, fmt.Sprintf("  %s type %d weight %d preference %d\n", d.normalText(v.ifs.name), p.paths[i].Type, d.weight, d.pref))
		}
		slices.Sort(lines)
		b.WriteString(strings.Join(lines, ""))
	}
	for _, k := range v.abf.places() {
		a := v.abf.attached[k]
		fmt.Fprintf(b, "abf %d on %s priority %d ip6 %t\n", k.policy, v.ifs.name(uint32(a.SwIfIndex)), a.Priority, a.IsIPv6)
	}
}
