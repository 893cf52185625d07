package acl

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	vppacl "go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/acl_types"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/acl"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

const (
	aclPrefix = "config/vpp/acls/v2/acl/"
	// denyKey is the ACL that denies everything. VPP has it while any interface has lists: see InterfaceACLs.
	denyKey = "vpp/acl/deny-all"
	idACLs  = "acl_dump"
)

// accessList is a compiled ACL. Its slices are never changed after Compile or Retrieve.
type accessList struct {
	key, name string
	rules     []acl_types.ACLRule // in VPP's form; unused bytes are 0
	tag       string
	// ingress and egress are the interfaces that the value itself names, sorted. A state found in VPP has none: see InterfaceACLs.
	ingress, egress []string
	// stale are other ACLs of VPP with our tag and this name: replaced, and not yet removed.
	stale []uint32
	// asked is the last answer of wayFrom.
	asked struct {
		from  *accessList
		alike bool
		way   ways
	}
	// said is what the rules mean for sessions; nil: not computed yet.
	said *sessions
}

// ACL describes ligato's ACL with IP rules. The tag has the name and a fingerprint of the rules.
//
// Usually new rules replace the old ones in place: one message changes all interfaces that have the ACL at the same moment. If
// that would show an interface a state that is neither before nor after, the new rules become a second ACL beside the first
// (Replace), the lists of the interfaces switch to it, and the first ACL is removed last (Sweep).
func ACL() *descriptor.Descriptor {
	d := descriptor.Spec[*acl.ACL, *accessList]{
		Name: "acl", Prefix: aclPrefix, Tagged: true,
		Compile: compileNamedACL, Message: (*accessList).message, Equal: sameRules,
		Derived: (*accessList).parts,
		Dependencies: func(l *accessList) []descriptor.Dependency {
			if filter := needsFilter(l.key); filter != "" {
				return []descriptor.Dependency{{Key: filter}}
			}
			return nil
		},
		Create: createACL, Update: replaceACL, Delete: deleteACL,
		Dumps: func(*descriptor.World, descriptor.Candidates) []descriptor.Request {
			return []descriptor.Request{descriptor.DumpRequest(idACLs, &vppacl.ACLDump{ACLIndex: descriptor.None})}
		},
		Retrieve: retrieveACLs,
	}.Descriptor()
	d.Replace, d.Ready = replaceBeside, readyFilter
	return d
}

// newDenyACL is the state of DenyACL.
func newDenyACL() *accessList {
	l := &accessList{key: denyKey, name: "deny-all", tag: descriptor.NewTag("d", "", "all")}
	for _, any := range []netip.Prefix{any4(), any6()} {
		r := acl_types.ACLRule{SrcPrefix: descriptor.ToPrefix(any), DstPrefix: descriptor.ToPrefix(any)}
		r.SrcportOrIcmptypeLast, r.DstportOrIcmpcodeLast = maxPort, maxPort
		l.rules = append(l.rules, r)
	}
	return l
}

// compileNamedACL returns, beside an error, an access list without rules that still names its interfaces: they stay closed.
func compileNamedACL(key string, m *acl.ACL) (*accessList, error) {
	l, err := compileACL(key, m)
	if err != nil {
		i := m.GetInterfaces()
		return &accessList{key: key, ingress: i.GetIngress(), egress: i.GetEgress()}, err
	}
	return l, nil
}

func compileACL(key string, m *acl.ACL) (*accessList, error) {
	if m.GetName() == "" {
		return nil, errors.New("name: empty")
	}
	l := &accessList{key: key, name: m.GetName(), rules: make([]acl_types.ACLRule, 0, len(m.GetRules()))}
	var c compiler
	for i, r := range m.GetRules() {
		var err error
		if l.rules, err = c.appendRule(l.rules, r); err != nil {
			return nil, fmt.Errorf("rules[%d].%w", i, err)
		}
	}
	var err error
	if l.ingress, err = interfaceNames("interfaces.ingress", m.GetInterfaces().GetIngress()); err != nil {
		return nil, err
	}
	if l.egress, err = interfaceNames("interfaces.egress", m.GetInterfaces().GetEgress()); err != nil {
		return nil, err
	}
	l.tag = descriptor.NewTag("a", rulesPrint(l.rules), l.name)
	return l, nil
}

func interfaceNames(field string, names []string) ([]string, error) {
	if len(names) == 0 {
		return nil, nil
	}
	out := slices.Clone(names)
	slices.Sort(out)
	for i, n := range out {
		if n == "" {
			return nil, fmt.Errorf("%s: an empty name", field)
		}
		if i > 0 && n == out[i-1] {
			return nil, fmt.Errorf("%s: %q twice", field, n)
		}
	}
	return out, nil
}

// rulesPrint is 40 bits of SHA-256 of rules.
func rulesPrint(rules []acl_types.ACLRule) string {
	h := sha256.New()
	var b [64]byte
	for i := range rules {
		r := &rules[i]
		p := append(b[:0], byte(r.IsPermit), byte(r.SrcPrefix.Address.Af), r.SrcPrefix.Len, r.DstPrefix.Len, byte(r.Proto), r.TCPFlagsMask, r.TCPFlagsValue)
		p = append(append(p, r.SrcPrefix.Address.Un.XXX_UnionData[:]...), r.DstPrefix.Address.Un.XXX_UnionData[:]...)
		p = binary.BigEndian.AppendUint16(p, r.SrcportOrIcmptypeFirst)
		p = binary.BigEndian.AppendUint16(p, r.SrcportOrIcmptypeLast)
		p = binary.BigEndian.AppendUint16(p, r.DstportOrIcmpcodeFirst)
		h.Write(binary.BigEndian.AppendUint16(p, r.DstportOrIcmpcodeLast))
	}
	return descriptor.TagEncoding.EncodeToString(h.Sum(nil)[:5])
}

// sameRules reports that have has the effect of want; stale ACLs do not count.
func sameRules(have, want *accessList) bool {
	return have.tag == want.tag && slices.Equal(have.rules, want.rules)
}

// parts are the places in the lists of interfaces that the ACL itself asks for.
func (l *accessList) parts() (out []descriptor.Derived) {
	for _, i := range l.ingress {
		out = append(out, descriptor.Derived{Key: kv.InterfaceACLsKey(i), State: listPart{acl: l.key, iface: i, in: true, out: slices.Contains(l.egress, i)}})
	}
	for _, i := range l.egress {
		if !slices.Contains(l.ingress, i) {
			out = append(out, descriptor.Derived{Key: kv.InterfaceACLsKey(i), State: listPart{acl: l.key, iface: i, out: true}})
		}
	}
	return out
}

func (l *accessList) message() *acl.ACL {
	m := &acl.ACL{Name: l.name}
	for i := range l.rules {
		m.Rules = append(m.Rules, ruleMessage(&l.rules[i]))
	}
	if len(l.ingress)+len(l.egress) > 0 {
		m.Interfaces = &acl.ACL_Interfaces{Ingress: l.ingress, Egress: l.egress}
	}
	return m
}

// write is the request that makes (index none) or replaces the ACL.
func (l *accessList) write(index uint32) vpp.Call {
	return descriptor.Write(&vppacl.ACLAddReplace{ACLIndex: index, Tag: l.tag, Count: uint32(len(l.rules)), R: l.rules})
}

func createACL(w *descriptor.World, l *accessList) ([]descriptor.Op, error) {
	return []descriptor.Op{{Call: l.write(descriptor.None), Cost: w.Cost.Write(len(l.rules)), Then: func(r vpp.Reply) []descriptor.Op {
		index := r.Msg.(*vppacl.ACLAddReplaceReply).ACLIndex
		factsOf(w).acls.set(l.key, index)
		factsOf(w).acls.count(index, len(l.rules))
		factsOf(w).acls.has(l)
		return nil
	}}}, nil
}

// replaceACL replaces the rules in place.
func replaceACL(w *descriptor.World, _, want *accessList) ([]descriptor.Op, error) {
	index, ok := factsOf(w).acls.index[want.key]
	if !ok {
		return nil, fmt.Errorf("acl %q is not in VPP", want.name)
	}
	return []descriptor.Op{{Call: want.write(index), Cost: costOfReplace(w, index, len(want.rules)), Then: func(vpp.Reply) []descriptor.Op {
		factsOf(w).acls.count(index, len(want.rules))
		factsOf(w).acls.has(want)
		return nil
	}}}, nil
}

func deleteACL(w *descriptor.World, l *accessList) (ops []descriptor.Op, _ error) {
	for _, index := range factsOf(w).acls.of(l.key) {
		ops = append(ops, delACL(w, index))
	}
	return ops, nil
}

func delACL(w *descriptor.World, index uint32) descriptor.Op {
	return descriptor.Op{Gone: true, Call: descriptor.Write(&vppacl.ACLDel{ACLIndex: index}), Then: func(vpp.Reply) []descriptor.Op {
		factsOf(w).acls.forget(index)
		return nil
	}}
}

// replaceBeside makes a second ACL of new rules, and removes ACLs that no list has any more.
var replaceBeside = &descriptor.Replace{ // read only
	Cost: costOfACL,
	Make: func(w *descriptor.World, have, want any) ([]descriptor.Op, any) {
		h, l := have.(*accessList), *want.(*accessList)
		l.stale = slices.Clone(h.stale)
		if index, ok := factsOf(w).acls.index[l.key]; ok {
			l.stale = append(l.stale, index)
		}
		ops, _ := createACL(w, &l)
		return ops, &l
	},
	Stale: func(have any) bool { return len(have.(*accessList).stale) > 0 },
	Carry: func(have, want any) any {
		l := *want.(*accessList)
		l.stale = have.(*accessList).stale
		return &l
	},
	Sweep: func(w *descriptor.World, have any) (ops []descriptor.Op, _ any) {
		l := *have.(*accessList)
		l.stale = nil
		for _, index := range have.(*accessList).stale {
			if isAttached(w, index) {
				l.stale = append(l.stale, index)
			} else {
				ops = append(ops, delACL(w, index))
			}
		}
		return ops, &l
	},
}

// aclTable has the handles of our ACLs.
type aclTable struct {
	index map[string]uint32 // the current ACL, by key
	key   map[uint32]string // all
	tag   map[string]string // tags of the fixed ACLs, by key
	rules map[uint32]int    // number of rules of each ACL, foreign ones too
}

func (t *aclTable) clone() aclTable {
	return aclTable{maps.Clone(t.index), maps.Clone(t.key), maps.Clone(t.tag), maps.Clone(t.rules)}
}

// count records the number of rules that VPP has in an ACL.
func (t *aclTable) count(index uint32, rules int) {
	if t.rules == nil {
		t.rules = map[uint32]int{}
	}
	t.rules[index] = rules
}

// has records the actual state of an ACL that others use.
func (t *aclTable) has(l *accessList) {
	if !fixed(l.key) {
		return
	}
	if t.tag == nil {
		t.tag = map[string]string{}
	}
	t.tag[l.key] = l.tag
}

func (t *aclTable) set(key string, index uint32) {
	if t.index == nil {
		t.index, t.key = map[string]uint32{}, map[uint32]string{}
	}
	t.index[key], t.key[index] = index, key
}

func (t *aclTable) forget(index uint32) {
	if key := t.key[index]; t.index[key] == index {
		delete(t.index, key)
	}
	delete(t.key, index)
	delete(t.rules, index)
}

// of returns all ACLs of a key, in order.
func (t *aclTable) of(key string) (out []uint32) {
	for index, k := range t.key {
		if k == key {
			out = append(out, index)
		}
	}
	slices.Sort(out)
	return out
}
