package verified

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/acl_types"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip_types"

	"github.com/contiv-agent/contiv-agent/space"
	"github.com/contiv-agent/contiv-agent/test/oracle"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy/generate"
	"github.com/contiv-agent/contiv-agent/test/pace"
	"github.com/contiv-agent/contiv-agent/verify"
	"github.com/contiv-agent/contiv-agent/verify/dump"
	"github.com/contiv-agent/contiv-agent/verify/meaning"
	"github.com/contiv-agent/contiv-agent/vpp"
)

// perWorld is how many changes of correct access lists one cluster gets, one after the other and each undone.
const perWorld = 50

// lab is a node of a cluster whose VPP is right, and a connection that changes its access lists.
type lab struct {
	*testing.T
	rand    *rand.Rand
	space   *space.Space
	cluster *meaning.Cluster
	cfg     verify.Config
	do      dump.Do
	pods    []*meaning.Pod
	before  *dump.State
	raw     map[uint32]*acl.ACLDetails
	vectors map[uint32]*acl.ACLInterfaceListDetails
	unknown []string // checks that are not compared
}

// TestMutations changes rules and attachments of pods' access lists in VPP. Verify finds each change, or no packet of those that it compares
// shows it.
func TestMutations(t *testing.T) {
	figures := map[string]map[string]int{}
	made, first := 0, oracle.Setting(t, "CONTIV_SEED", 1000)
	for seed := first; seed < first+oracle.Setting(t, "CONTIV_CASES", pace.Fewer[uint64](3, 3)) && !t.Failed(); seed++ {
		w := generate.NewWorld(seed, generate.AllKinds())
		changes := changesOf(t, w)
		c := start(t, changes, seed)
		for _, name := range c.Nodes() {
			l := newLab(t, c.Sim(name).Dial, name, changes, seed)
			if l == nil {
				continue
			}
			for range perWorld / len(c.Nodes()) {
				kind, result := l.mutate()
				if kind == "" {
					continue
				}
				made++
				if figures[kind] == nil {
					figures[kind] = map[string]int{}
				}
				figures[kind][result]++
			}
		}
		c.Close()
	}
	found := 0
	for _, kind := range slices.Sorted(keys(figures)) {
		t.Logf("%-28s %v", kind, figures[kind])
		found += figures[kind]["found"] + figures[kind]["found, and by no packet that was tried"]
	}
	t.Logf("%d mutations, %d found", made, found)
	if found == 0 || found < made/5 {
		t.Errorf("only %d of %d mutations are found", found, made)
	}
}

func newLab(t *testing.T, dial dialer, node string, changes changes, seed uint64) *lab {
	l := &lab{T: t, rand: rand.New(rand.NewPCG(seed, uint64(len(node)))), space: space.New(), cfg: verify.Config{Node: node}}
	l.cluster = meaning.Read(l.space, objectsOf(changes))
	for _, p := range l.cluster.Pods {
		if p.NodeName == node && len(p.IPs) > 0 {
			l.pods = append(l.pods, p)
		}
	}
	do, stop, err := dump.Open(context.Background(), "", dial)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	l.do = do
	l.before = l.read()
	for _, c := range verify.Compare(l.space, l.cluster, l.before, l.cfg).Checks {
		switch c.Verdict {
		case verify.Different:
			t.Fatalf("seed %d, %s: %+v before any mutation", seed, node, c.Difference)
		case verify.Unknown:
			l.unknown = append(l.unknown, c.Pod+" "+c.Packets)
		}
	}
	l.raw, l.vectors = map[uint32]*acl.ACLDetails{}, map[uint32]*acl.ACLInterfaceListDetails{}
	for _, r := range l.send(vpp.Call{Dump: true, Msg: &acl.ACLDump{ACLIndex: ^uint32(0)}}, vpp.Call{Dump: true, Msg: &acl.ACLInterfaceListDump{SwIfIndex: ^interface_types.InterfaceIndex(0)}}) {
		for _, m := range r.Details {
			switch m := m.(type) {
			case *acl.ACLDetails:
				l.raw[m.ACLIndex] = m
			case *acl.ACLInterfaceListDetails:
				l.vectors[uint32(m.SwIfIndex)] = m
			}
		}
	}
	l.pods = slices.DeleteFunc(l.pods, func(p *meaning.Pod) bool {
		v := l.vectors[l.before.Behind[p.IPs[0]]]
		return v == nil || len(v.Acls) == 0
	})
	if len(l.pods) == 0 {
		return nil
	}
	return l
}

func (l *lab) send(calls ...vpp.Call) []vpp.Reply {
	out := l.do(context.Background(), calls...)
	for i, r := range out {
		if r.Err != nil {
			l.Fatalf("%s: %v", calls[i].Msg.GetMessageName(), r.Err)
		}
	}
	return out
}

func (l *lab) read() *dump.State {
	var addrs []netip.Addr
	for _, p := range l.cluster.Pods {
		if p.NodeName == l.cfg.Node {
			addrs = append(addrs, p.IPs...)
		}
	}
	s, err := dump.Read(context.Background(), l.do, addrs)
	if err != nil {
		l.Fatal(err)
	}
	return s
}

func (l *lab) different() bool {
	r := verify.Compare(l.space, l.cluster, l.read(), l.cfg)
	return slices.ContainsFunc(r.Checks, func(c verify.Check) bool { return c.Verdict == verify.Different })
}

// mutate makes one change, asks verify, and undoes it.
func (l *lab) mutate() (kind, result string) {
	p := l.pods[l.rand.IntN(len(l.pods))]
	swIf := l.before.Behind[p.IPs[0]]
	v := l.vectors[swIf]
	at := l.rand.IntN(len(v.Acls))
	list := l.raw[v.Acls[at]]
	var call, undo vpp.Call
	if l.rand.IntN(3) == 0 {
		acls, n := slices.Clone(v.Acls), v.NInput
		kind, acls, n = l.attachment(acls, n, at)
		call.Msg, undo.Msg = attach(swIf, acls, n), attach(swIf, v.Acls, v.NInput)
	} else {
		if len(list.R) == 0 {
			return "", ""
		}
		rules := slices.Clone(list.R)
		kind, rules = l.rules(rules)
		call.Msg, undo.Msg = replace(list, rules), replace(list, list.R)
	}
	if kind == "" {
		return "", ""
	}
	if r := l.do(context.Background(), call); r[0].Err != nil {
		return "", "" // VPP, or the guard, refuses such a list
	}
	found := l.different()
	after := l.read()
	l.send(undo)
	if found {
		if l.packet(after) == "" {
			return kind, "found, and by no packet that was tried"
		}
		return kind, "found"
	}
	if missed := l.packet(after); missed != "" {
		l.Errorf("%s, %s of list %d of %s is not found: %s", l.Name(), kind, at, p.ID, missed)
		return kind, "missed"
	}
	return kind, "no packet differs"
}

func attach(swIf uint32, acls []uint32, inputs uint8) *acl.ACLInterfaceSetACLList {
	return &acl.ACLInterfaceSetACLList{SwIfIndex: interface_types.InterfaceIndex(swIf), NInput: inputs, Acls: acls}
}

func replace(list *acl.ACLDetails, rules []acl_types.ACLRule) *acl.ACLAddReplace {
	return &acl.ACLAddReplace{ACLIndex: list.ACLIndex, Tag: list.Tag, R: rules}
}

// attachment changes a vector of lists.
func (l *lab) attachment(acls []uint32, inputs uint8, at int) (string, []uint32, uint8) {
	input := at < int(inputs)
	switch l.rand.IntN(5) {
	case 0:
		acls = slices.Delete(acls, at, at+1)
		if input {
			inputs--
		}
		return "list detached", acls, inputs
	case 1:
		other := l.rand.IntN(len(acls))
		if other == at || (other < int(inputs)) != input || acls[at] == acls[other] {
			return "", nil, 0
		}
		acls[at], acls[other] = acls[other], acls[at]
		return "lists swapped", acls, inputs
	case 2:
		all := slices.Sorted(keys(l.raw))
		with := all[l.rand.IntN(len(all))]
		if slices.Contains(acls, with) {
			return "", nil, 0
		}
		acls[at] = with
		return "list replaced", acls, inputs
	case 3:
		return "outputs detached", acls[:inputs], inputs
	}
	return "inputs detached", acls[inputs:], 0
}

// rules changes a list.
func (l *lab) rules(rules []acl_types.ACLRule) (string, []acl_types.ACLRule) {
	at := l.rand.IntN(len(rules))
	r := &rules[at]
	port := func(p *uint16) { *p += uint16(l.rand.IntN(2)*2) - 1 }
	switch l.rand.IntN(10) {
	case 0:
		if r.IsPermit == 0 {
			r.IsPermit = acl_types.ACLAction(1 + l.rand.IntN(2))
			return "rule permits", rules
		}
		r.IsPermit = 0
		return "rule denies", rules
	case 1:
		if r.IsPermit == 2 {
			r.IsPermit = 1
			return "rule does not reflect", rules
		}
	case 2:
		if other := l.rand.IntN(len(rules)); rules[other] != rules[at] {
			rules[at], rules[other] = rules[other], rules[at]
			return "rules swapped", rules
		}
	case 3:
		if len(rules) > 1 {
			return "rule removed", slices.Delete(rules, at, at+1)
		}
	case 4:
		return "rule inserted", slices.Insert(rules, l.rand.IntN(len(rules)+1), l.otherRule())
	case 5:
		return l.prefix(rules, &r.SrcPrefix)
	case 6:
		return l.prefix(rules, &r.DstPrefix)
	case 7:
		port(&r.DstportOrIcmpcodeLast)
		return "ports changed", rules
	case 8:
		port(&r.SrcportOrIcmptypeFirst)
		return "ports changed", rules
	case 9:
		if r.Proto == 6 || r.Proto == 17 {
			r.Proto, r.TCPFlagsMask, r.TCPFlagsValue = 23-r.Proto, 0, 0
			return "protocol changed", rules
		}
	}
	return "", nil
}

func (l *lab) prefix(rules []acl_types.ACLRule, p *ip_types.Prefix) (string, []acl_types.ACLRule) {
	if p.Len == 0 {
		return "", nil
	}
	p.Len--
	whole := netip.PrefixFrom(netip.AddrFrom4(p.Address.Un.GetIP4()), int(p.Len))
	if p.Address.Af == 1 {
		whole = netip.PrefixFrom(netip.AddrFrom16(p.Address.Un.GetIP6()), int(p.Len))
		p.Address.Un.SetIP6(whole.Masked().Addr().As16())
	} else {
		p.Address.Un.SetIP4(whole.Masked().Addr().As4())
	}
	return "network widened", rules
}

// otherRule is a rule of any list.
func (l *lab) otherRule() acl_types.ACLRule {
	all := slices.Sorted(keys(l.raw))
	for {
		if list := l.raw[all[l.rand.IntN(len(all))]]; len(list.R) > 0 {
			return list.R[l.rand.IntN(len(list.R))]
		}
	}
}

// packet returns what a packet shows of a mutation among the packets that verify compares; "": nothing. It tries the ends of the ranges of
// all rules, without diagrams: one rule after the other.
func (l *lab) packet(after *dump.State) string {
	values := l.corners(after)
	for range 4000 {
		h := values.header(l.rand)
		if !l.compared(h) {
			continue
		}
		was, is := l.walk(l.before, h), l.walk(after, h)
		if was != is {
			return fmt.Sprintf("%s was %s, is %s", h, was, is)
		}
	}
	return ""
}
