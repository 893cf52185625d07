// Package mutation turns a VPP whose access lists are right into many that are slightly wrong, one after the other, and compares what verify finds with
// what packets show.
//
// Invariant: each change is undone before the next one. A change that a packet shows and verify does not is an error.
package mutation

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"

	"go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/acl_types"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip_types"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/space"
	"github.com/contiv-agent/contiv-agent/verify"
	"github.com/contiv-agent/contiv-agent/verify/dump"
	"github.com/contiv-agent/contiv-agent/verify/meaning"
	"github.com/contiv-agent/contiv-agent/vpp"
)

// Lab is a node of a cluster whose VPP is right, and a connection that changes its access lists.
type Lab struct {
	rand    *rand.Rand
	space   *space.Space
	cluster *meaning.Cluster
	cfg     verify.Config
	do      dump.Do
	stop    func()
	pods    []*meaning.Pod
	before  *dump.State
	raw     map[uint32]*acl.ACLDetails
	vectors map[uint32]*acl.ACLInterfaceListDetails
	unknown []string // checks that are not compared
}

// New returns a lab, which the caller has to Close. It is an error if verify finds a difference before any change.
func New(ctx context.Context, seed uint64, node string, objects []model.Object, dial func(context.Context) (net.Conn, error)) (*Lab, error) {
	l := &Lab{rand: rand.New(rand.NewPCG(seed, uint64(len(node)))), space: space.New(), cfg: verify.Config{Node: node}}
	l.cluster = meaning.Read(l.space, objects)
	for _, p := range l.cluster.Pods {
		if p.NodeName == node && len(p.IPs) > 0 {
			l.pods = append(l.pods, p)
		}
	}
	var err error
	if l.do, l.stop, err = dump.Open(ctx, "", dial); err != nil {
		return nil, err
	}
	if err = l.look(ctx); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// Close ends the connection.
func (l *Lab) Close() { l.stop() }

// Empty: no pod of the node has an access list, and nothing can be changed.
func (l *Lab) Empty() bool { return len(l.pods) == 0 }

// Right returns an error if verify finds a difference now.
func (l *Lab) Right(ctx context.Context) (err error) {
	if l.before, err = l.readState(ctx); err != nil {
		return err
	}
	l.unknown = nil
	for _, c := range verify.Compare(l.space, l.cluster, l.before, l.cfg).Checks {
		switch c.Verdict {
		case verify.Different:
			return fmt.Errorf("%s, %s: %+v without a mutation", c.Pod, c.Packets, c.Difference)
		case verify.Unknown:
			l.unknown = append(l.unknown, c.Pod+" "+c.Packets)
		}
	}
	return nil
}

// look reads VPP as it is without a change.
func (l *Lab) look(ctx context.Context) error {
	if err := l.Right(ctx); err != nil {
		return err
	}
	l.raw, l.vectors = map[uint32]*acl.ACLDetails{}, map[uint32]*acl.ACLInterfaceListDetails{}
	for _, r := range l.do(ctx, vpp.Call{Dump: true, Msg: &acl.ACLDump{ACLIndex: ^uint32(0)}}, vpp.Call{Dump: true, Msg: &acl.ACLInterfaceListDump{SwIfIndex: ^interface_types.InterfaceIndex(0)}}) {
		if r.Err != nil {
			return r.Err
		}
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
	return nil
}

func (l *Lab) readState(ctx context.Context) (*dump.State, error) {
	var addrs []netip.Addr
	for _, p := range l.cluster.Pods {
		if p.NodeName == l.cfg.Node {
			addrs = append(addrs, p.IPs...)
		}
	}
	return dump.Read(ctx, l.do, addrs)
}

// The results of a mutation.
const (
	Found     = "found"
	FoundOnly = "found, and by no packet that was tried"
	Alike     = "no packet differs"
)

// Mutate makes one change, asks verify, and undoes it. No kind: nothing was changed. The error is a change that a packet shows and verify does not.
func (l *Lab) Mutate(ctx context.Context) (kind, result string, err error) {
	p := l.pods[l.rand.IntN(len(l.pods))]
	swIf := l.before.Behind[p.IPs[0]]
	v := l.vectors[swIf]
	at := l.rand.IntN(len(v.Acls))
	list := l.raw[v.Acls[at]]
	var call, undo vpp.Call
	if l.rand.IntN(3) == 0 {
		acls, n := slices.Clone(v.Acls), v.NInput
		kind, acls, n = l.attachment(acls, n, at)
		call.Msg, undo.Msg = Attach(swIf, acls, n), Attach(swIf, v.Acls, v.NInput)
	} else {
		if len(list.R) == 0 {
			return "", "", nil
		}
		rules := slices.Clone(list.R)
		kind, rules = l.rules(rules)
		call.Msg, undo.Msg = Replace(list, rules), Replace(list, list.R)
	}
	if kind == "" {
		return "", "", nil
	}
	if r := l.do(ctx, call); r[0].Err != nil {
		return "", "", nil // VPP, or the guard, refuses such a list
	}
	after, err := l.readState(ctx)
	err = errors.Join(err, l.do(ctx, undo)[0].Err)
	if err != nil {
		return kind, "", err
	}
	report := verify.Compare(l.space, l.cluster, after, l.cfg)
	found := slices.ContainsFunc(report.Checks, func(c verify.Check) bool { return c.Verdict == verify.Different })
	shown := l.packet(after)
	switch {
	case found && shown == "":
		return kind, FoundOnly, nil
	case found:
		return kind, Found, nil
	case shown == "":
		return kind, Alike, nil
	}
	return kind, "missed", fmt.Errorf("%s of list %d of %s is not found: %s", kind, at, p.ID, shown)
}

// Attach is the request that gives an interface its lists, the inputs first.
func Attach(swIf uint32, acls []uint32, inputs uint8) *acl.ACLInterfaceSetACLList {
	return &acl.ACLInterfaceSetACLList{SwIfIndex: interface_types.InterfaceIndex(swIf), NInput: inputs, Acls: acls}
}

// Replace is the request that gives a list other rules.
func Replace(list *acl.ACLDetails, rules []acl_types.ACLRule) *acl.ACLAddReplace {
	return &acl.ACLAddReplace{ACLIndex: list.ACLIndex, Tag: list.Tag, R: rules}
}

// attachment changes a vector of lists.
func (l *Lab) attachment(acls []uint32, inputs uint8, at int) (string, []uint32, uint8) {
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
		all := slices.Sorted(maps.Keys(l.raw))
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
func (l *Lab) rules(rules []acl_types.ACLRule) (string, []acl_types.ACLRule) {
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

func (l *Lab) prefix(rules []acl_types.ACLRule, p *ip_types.Prefix) (string, []acl_types.ACLRule) {
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
func (l *Lab) otherRule() acl_types.ACLRule {
	all := slices.Sorted(maps.Keys(l.raw))
	for {
		if list := l.raw[all[l.rand.IntN(len(all))]]; len(list.R) > 0 {
			return list.R[l.rand.IntN(len(list.R))]
		}
	}
}

// packet returns what a packet shows of a mutation among the packets that verify compares; "": nothing. It tries the ends of the ranges of
// all rules, without diagrams: one rule after the other.
func (l *Lab) packet(after *dump.State) string {
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
