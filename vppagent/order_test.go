package vppagent_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	vppacl "go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip_types"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	contivacl "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/acl"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/acl"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vpp/describe"
	"github.com/contiv-agent/contiv-agent/vppagent"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
	aclvalues "github.com/contiv-agent/contiv-agent/vppagent/descriptor/acl"
)

// witness passes calls to VPP one by one, and dumps its access lists after every write.
type witness struct {
	conn *vpp.Conn
	seen []moment
}

// moment has the verdict of every interface for every packet of the universe, after a message.
type moment struct {
	after   string
	verdict map[place]bool
}

// place is a packet at an interface.
type place struct {
	iface  string
	output bool
	packet probe
}

type probe struct {
	src, dst netip.Addr
	port     uint32 // of TCP, the destination's
}

func (w *witness) Do(ctx context.Context, calls ...vpp.Call) []vpp.Reply {
	out := make([]vpp.Reply, len(calls))
	for i, c := range calls {
		out[i] = w.conn.Do(ctx, c)[0]
		name := c.Msg.GetMessageName()
		if name == "acl_add_replace" || name == "acl_del" || name == "acl_interface_set_acl_list" {
			if v, err := w.look(ctx); err == nil {
				w.seen = append(w.seen, moment{describe.Request(c.Msg, nil), v})
			}
		}
	}
	return out
}

// universe is the packets.
func universe() (out []probe) {
	for _, hosts := range [][]string{{"10.0.0.1", "10.0.0.2"}, {"2001:db8::1"}} {
		for _, src := range hosts {
			for _, dst := range hosts {
				for _, port := range []uint32{80, 81} {
					out = append(out, probe{netip.MustParseAddr(src), netip.MustParseAddr(dst), port})
				}
			}
		}
	}
	return out
}

var orderInterfaces = []string{"tap1", "tap2", "tap3"} // sw_if_index 1 to 3

// look evaluates VPP's access lists by definition: the first rule that matches, in the lists one after the other; a packet
// without a match is dropped, and every packet passes where no list exists.
func (w *witness) look(ctx context.Context) (map[place]bool, error) {
	replies := w.conn.Do(ctx, vpp.Call{Dump: true, Msg: &vppacl.ACLDump{ACLIndex: ^uint32(0)}},
		vpp.Call{Dump: true, Msg: &vppacl.ACLInterfaceListDump{SwIfIndex: ^interface_types.InterfaceIndex(0)}})
	if err := errors.Join(replies[0].Err, replies[1].Err); err != nil {
		return nil, err
	}
	acls := map[uint32]*vppacl.ACLDetails{}
	for _, m := range replies[0].Details {
		acls[m.(*vppacl.ACLDetails).ACLIndex] = m.(*vppacl.ACLDetails)
	}
	out := map[place]bool{}
	lists := map[uint32]*vppacl.ACLInterfaceListDetails{}
	for _, m := range replies[1].Details {
		lists[uint32(m.(*vppacl.ACLInterfaceListDetails).SwIfIndex)] = m.(*vppacl.ACLInterfaceListDetails)
	}
	for i, name := range orderInterfaces {
		var in, out2 []uint32
		if l := lists[uint32(i+1)]; l != nil {
			in, out2 = l.Acls[:l.NInput], l.Acls[l.NInput:]
		}
		for _, p := range universe() {
			out[place{name, false, p}] = passes(acls, in, p)
			out[place{name, true, p}] = passes(acls, out2, p)
		}
	}
	return out, nil
}

func passes(acls map[uint32]*vppacl.ACLDetails, list []uint32, p probe) bool {
	if len(list) == 0 {
		return true
	}
	for _, index := range list {
		for _, r := range acls[index].R {
			src := netip.PrefixFrom(addrOf(r.SrcPrefix.Address), int(r.SrcPrefix.Len))
			dst := netip.PrefixFrom(addrOf(r.DstPrefix.Address), int(r.DstPrefix.Len))
			if src.Contains(p.src) && dst.Contains(p.dst) && (r.Proto == 0 || r.Proto == 6) &&
				uint32(r.DstportOrIcmpcodeFirst) <= p.port && p.port <= uint32(r.DstportOrIcmpcodeLast) {
				return r.IsPermit != 0
			}
		}
	}
	return false
}

// wanted evaluates values by definition: an interface has the ACLs of its lists, behind them by name the ACLs that name it, and
// behind those the foreign ACL, if any. A direction that names a missing ACL lets nothing pass.
func wanted(v kv.Values, foreign bool) map[place]bool {
	out := map[place]bool{}
	for _, iface := range orderInterfaces {
		m, _ := v[kv.InterfaceACLsKey(iface)].(*contivacl.InterfaceACLs)
		in, out2 := slices.Clone(m.GetInput()), slices.Clone(m.GetOutput())
		for _, key := range v.Keys() {
			if a, ok := v[key].(*acl.ACL); ok {
				if slices.Contains(a.GetInterfaces().GetIngress(), iface) && !slices.Contains(in, a.GetName()) {
					in = append(in, a.GetName())
				}
				if slices.Contains(a.GetInterfaces().GetEgress(), iface) && !slices.Contains(out2, a.GetName()) {
					out2 = append(out2, a.GetName())
				}
			}
		}
		for _, p := range universe() {
			out[place{iface, false, p}] = allowed(v, in, p, foreign && iface == "tap1")
			out[place{iface, true, p}] = allowed(v, out2, p, foreign && iface == "tap1")
		}
	}
	return out
}

// foreignRule is the rule of the foreign ACL.
func foreignRule() *acl.ACL_Rule { return rule(acl.ACL_Rule_PERMIT, "", "", "10.0.0.1/32") }

func allowed(v kv.Values, names []string, p probe, foreign bool) bool {
	for _, n := range names {
		if v[kv.ACLKey(n)] == nil {
			return false
		}
	}
	var rules []*acl.ACL_Rule
	for _, n := range names {
		rules = append(rules, v[kv.ACLKey(n)].(*acl.ACL).GetRules()...)
	}
	if foreign {
		rules = append(rules, foreignRule())
	}
	for _, r := range rules {
		ip := r.GetIpRule()
		in := func(network string, a netip.Addr) bool {
			return network == "" || netip.MustParsePrefix(network).Contains(a)
		}
		ports := ip.GetTcp().GetDestinationPortRange()
		if in(ip.GetIp().GetSourceNetwork(), p.src) && in(ip.GetIp().GetDestinationNetwork(), p.dst) &&
			(ip.GetTcp() == nil || ports.GetLowerPort() <= p.port && p.port <= ports.GetUpperPort()) {
			return r.GetAction() != acl.ACL_Rule_DENY
		}
	}
	return len(names) == 0 && !foreign
}

// policies draws a set of access lists.
func policies(t *rapid.T) kv.Values {
	v := kv.Values{}
	upto := func(n int, label string) int { return rapid.IntRange(0, n).Draw(t, label) }
	names := []string{"a", "b", "c", "d"}
	for _, name := range names {
		if upto(7, "no acl") == 0 {
			continue
		}
		m := accessList(name)
		for range upto(3, "rules") {
			r := rule(acl.ACL_Rule_Action(upto(2, "action")), []string{"", "tcp"}[upto(1, "proto")], "", []string{"", "10.0.0.1/32", "10.0.0.2/32"}[upto(2, "dst")])
			if tcp := r.GetIpRule().GetTcp(); tcp != nil {
				tcp.DestinationPortRange = &acl.ACL_Rule_IpRule_PortRange{LowerPort: uint32(80 + upto(1, "from")), UpperPort: 81}
			}
			m.Rules = append(m.Rules, r)
		}
		if upto(5, "own") == 0 {
			attach(m, []string{"tap3"}, []string{"tap2"})
		}
		v.Put(m)
	}
	for _, iface := range orderInterfaces {
		if upto(4, "no lists") == 0 {
			continue
		}
		m := lists(iface, nil, nil)
		for _, n := range rapid.Permutation(names).Draw(t, "order") {
			if upto(1, "input") == 0 {
				m.Input = append(m.Input, n)
			}
			if upto(1, "output") == 0 {
				m.Output = append(m.Output, n)
			}
		}
		v.Put(m)
	}
	return v
}

// TestOrderLaw: for every set of simultaneous changes, an interface gets from before to after in one moment, or over moments that
// equal one or the other for each packet. If VPP refuses requests or the connection is lost, no packet passes that neither passed
// before nor is wanted to.
func TestOrderLaw(t *testing.T) {
	for name, tr := range map[string]trouble{"calm": {}, "agent restarts": {agentRestarts: true}, "faults": {faults: true}, "faults and restarts": {faults: true, agentRestarts: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(r *rapid.T) { orderWalk(t, r, tr) })
		})
	}
}

func orderWalk(t *testing.T, r *rapid.T, tr trouble) {
	tt := &rapidTB{TB: t, r: r}
	defer tt.done()
	now := time.Unix(1_700_000_000, 0)
	l := newLab(tt, vppagent.Config{Now: func() time.Time { return now }})
	for i, name := range orderInterfaces {
		addPod(l, name, fmt.Sprintf("10.1.1.%d", 2+i))
	}
	w := &witness{conn: l.conn}
	l.cfg.Caller = w
	restart := func() { l.agent = vppagent.New(l.cfg) }
	restart()
	foreign, slow := rapid.Bool().Draw(r, "foreign"), rapid.Bool().Draw(r, "slow")
	if foreign {
		w.attachForeign(l)
	}
	if tr.faults {
		l.fail(rapid.Uint64().Draw(r, "fault seed"))
	}
	for range rapid.IntRange(2, 5).Draw(r, "steps") {
		next := policies(r)
		before := w.must(l)
		w.seen = nil
		fresh := tr.agentRestarts && rapid.Bool().Draw(r, "restart")
		if fresh {
			restart()
		}
		want := next
		values, kind := changes(l.want, next), event.NoResync
		if fresh {
			values, kind = map[string]proto.Message(next), event.Full
		}
		l.want = next
		l.slow = slow
		l.txn(kind, values)
		for tries := 0; tr.faults && tries < 3; tries++ {
			l.reconnect()
			now = now.Add(10 * time.Second)
			l.step()
		}
		l.reconnect()
		final := w.must(l)
		if !tr.faults {
			if diff := differ(final, wanted(want, foreign)); diff != "" {
				r.Fatalf("in the end: %s\nwant: %v\n%s", diff, want, l.sim.Dump())
			}
		}
		if !tr.faults {
			w.steps(r, before, final)
		}
		for i, m := range w.seen {
			for at, pass := range m.verdict {
				if pass && !before[at] && !wanted(want, foreign)[at] {
					r.Fatalf("moment %d of %d: %+v passes, though neither before nor wanted\n%s", i, len(w.seen), at, w.story())
				}
			}
		}
	}
	l.sim.Fail(nil)
	for range 20 {
		now = now.Add(2 * time.Minute)
		l.reconnect()
		if !l.agent.Snapshot().Connected {
			l.txn(event.Downstream, nil)
		} else if !l.step() {
			break
		}
	}
	if diff := differ(w.must(l), wanted(l.want, foreign)); diff != "" {
		r.Fatalf("in the end: %s\n%s\n%s", diff, l.sim.Dump(), l.agent.Snapshot().History)
	}
	l.writes()
	restart()
	l.resync()
	l.quiet("restart of the agent")
}

// steps fails unless every moment is before or final, for each packet.
func (w *witness) steps(r *rapid.T, before, final map[place]bool) {
	for i, m := range w.seen {
		for at, pass := range m.verdict {
			if pass != before[at] && pass != final[at] {
				r.Fatalf("moment %d of %d: %+v passes %t, before %t, in the end %t\n%s", i, len(w.seen), at, pass, before[at], final[at], w.story())
			}
		}
	}
}

// attachForeign puts a foreign ACL into both lists of tap1.
func (w *witness) attachForeign(l *lab) {
	state, err := aclvalues.ACL().Compile(kv.ACLKey("x"), accessList("x", foreignRule()))
	if err != nil {
		l.t.Fatal(err)
	}
	ops, err := aclvalues.ACL().Create(descriptor.NewWorld(descriptor.Options{}, nil), state)
	if err != nil {
		l.t.Fatal(err)
	}
	m := ops[0].Call.Msg.(*vppacl.ACLAddReplace)
	m.Tag = "somebody else's"
	r := l.conn.Do(context.Background(), vpp.Call{Msg: m})[0]
	if r.Err != nil {
		l.t.Fatal(r.Err)
	}
	index := r.Msg.(*vppacl.ACLAddReplaceReply).ACLIndex
	list := &vppacl.ACLInterfaceSetACLList{SwIfIndex: 1, Count: 2, NInput: 1, Acls: []uint32{index, index}}
	if r := l.conn.Do(context.Background(), vpp.Call{Msg: list})[0]; r.Err != nil {
		l.t.Fatal(r.Err)
	}
}

func differ(got, want map[place]bool) string {
	for _, at := range slices.SortedFunc(maps.Keys(got), func(a, b place) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) }) {
		if got[at] != want[at] {
			return fmt.Sprintf("%+v passes %t", at, got[at])
		}
	}
	return ""
}

func (w *witness) must(l *lab) map[place]bool {
	v, err := w.look(context.Background())
	if err != nil {
		l.t.Fatal(err)
	}
	return v
}

func (w *witness) story() string {
	var b strings.Builder
	for i, m := range w.seen {
		fmt.Fprintf(&b, "%d %s\n", i, m.after)
	}
	return b.String()
}

func addrOf(a ip_types.Address) netip.Addr {
	if a.Af == ip_types.ADDRESS_IP6 {
		return netip.AddrFrom16(a.Un.GetIP6())
	}
	return netip.AddrFrom4(a.Un.GetIP4())
}
