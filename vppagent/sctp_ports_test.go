package vppagent_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"go.fd.io/govpp/binapi/classify"
	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	contivacl "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/acl"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/acl"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/interfaces"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/test/pace"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

// sctpRule matches all source ports and one destination port, or all.
func sctpRule(permit bool, source, destination string, port uint32) *contivacl.SCTPPorts_Rule {
	r := &contivacl.SCTPPorts_Rule{Permit: permit, SourceNetwork: source, DestinationNetwork: destination}
	if port > 0 {
		r.Destination = &contivacl.SCTPPorts_Ports{Lower: port, Upper: port}
	}
	return r
}

// in are rules that let 10.0.0.0/8 begin associations with ports of 10.1.1.2.
func in(ports ...uint32) (out []*contivacl.SCTPPorts_Rule) {
	for _, p := range ports {
		out = append(out, sctpRule(true, "10.0.0.0/8", "10.1.1.2/32", p))
	}
	return out
}

func sctpPorts(iface string, input, output []*contivacl.SCTPPorts_Rule) *contivacl.SCTPPorts {
	return &contivacl.SCTPPorts{Interface: iface, Input: input, Output: output}
}

// companion permits SCTP from 10.0.0.0/8 to 10.1.1.2 up to an SCTPPorts.
func companion(iface string, input bool) *acl.ACL {
	return accessList(kv.SCTPPortsACL(iface, input), rule(acl.ACL_Rule_REFLECT, "", "10.0.0.0/8", "10.1.1.2/32"))
}

// mayBegin are pairs of a client's last byte and a port of 10.1.1.2.
type mayBegin map[[2]int]bool

// sctpWalker changes at random which clients may begin associations with ports of 10.1.1.2. After each write to VPP it checks that
// no association begins that neither the state before nor the desired state permits.
type sctpWalker struct {
	*lab
	rng        *rand.Rand
	now        time.Time
	was        map[string]map[bool]mayBegin // by interface and whether it is input; nil: unchecked, lists deny
	wants      map[string]map[bool]mayBegin
	passed     []string
	writesSeen int
	fresh      map[string]bool // new interfaces in VPP that had no lists yet
}

var sctpTaps = []string{"tap1", "tap2"} // read only

// entries of tables without an attachment are most of the writes: the walker checks one in sixteen.
func (w *sctpWalker) look(r sim.Record) {
	if w.writesSeen++; r.Name == "classify_add_del_session" && w.writesSeen%16 > 0 {
		return
	}
	mark := w.sim.Snapshot()
	for _, tap := range sctpTaps {
		if w.fresh[tap] = w.fresh[tap] && w.listOf(tap, "output") == ""; w.fresh[tap] {
			continue
		}
		for _, input := range []bool{true, false} {
			for host := 2; host <= 3; host++ {
				for port := 80; port <= 81; port++ {
					if w.begins(tap, input, host, port) && !w.was[tap][input][[2]int{host, port}] && !w.wants[tap][input][[2]int{host, port}] {
						w.passed = append(w.passed, fmt.Sprintf("%s input %t: 10.0.0.%d to port %d begins after %s", tap, input, host, port, r.String()))
					}
				}
			}
		}
	}
	w.sim.Restore(mark)
	w.sim.Release()
}

// begins examines one interface alone: its packets leave by another, which has no lists.
func (w *sctpWalker) begins(tap string, input bool, host, port int) bool {
	from, to := tap, "out"
	if !input {
		from, to = "out", tap
	}
	dst := netip.MustParseAddr(map[string]string{"out": "10.1.9.2", "tap1": "10.1.1.2", "tap2": "10.1.2.2"}[to])
	p := sim.Packet{Src: netip.AddrFrom4([4]byte{10, 0, 0, byte(host)}), Dst: dst, Proto: 132, SrcPort: 4000, DstPort: uint16(port), Chunk: 1}
	fate := w.sim.Send(from, p)
	return len(outs(fate)) > 0
}

// values are a renderer's values for the mayBegin of a place.
func (w *sctpWalker) values(tap string) map[string]proto.Message {
	out := map[string]proto.Message{}
	m := &contivacl.SCTPPorts{Interface: tap}
	l := lists(tap, nil, nil)
	for _, input := range []bool{true, false} {
		name := kv.SCTPPortsACL(tap, input)
		out[kv.ACLKey(name)] = nil
		a := w.wants[tap][input]
		if a == nil {
			continue
		}
		var list []*contivacl.SCTPPorts_Rule
		var pairs []*acl.ACL_Rule
		for host := 2; host <= 3; host++ {
			from := fmt.Sprintf("10.0.0.%d/32", host)
			for port := 80; port <= 81; port++ {
				if a[[2]int{host, port}] {
					list = append(list, sctpRule(true, from, "10.1.0.0/16", uint32(port)))
				}
			}
			if a[[2]int{host, 80}] || a[[2]int{host, 81}] {
				pairs = append(pairs, rule(acl.ACL_Rule_REFLECT, "", from, "10.1.0.0/16"))
			}
		}
		if len(list) == 0 {
			list = append(list, sctpRule(false, "0.0.0.0/0", "0.0.0.0/0", 0))
		}
		out[kv.ACLKey(name)] = accessList(name, pairs...)
		if input {
			m.Input, l.Input = list, []string{name}
		} else {
			m.Output, l.Output = list, []string{name}
		}
	}
	l.Input, l.Output = append(l.Input, "deny"), append(l.Output, "deny")
	if out[kv.Key(m)] = nil; len(m.Input)+len(m.Output) > 0 {
		out[kv.Key(m)] = m
	}
	out[kv.Key(l)] = l
	return out
}

func (w *sctpWalker) draw() map[bool]mayBegin {
	out := map[bool]mayBegin{}
	for _, input := range []bool{true, false} {
		if w.rng.IntN(3) == 0 {
			continue
		}
		a := mayBegin{}
		for host := 2; host <= 3; host++ {
			for port := 80; port <= 81; port++ {
				a[[2]int{host, port}] = w.rng.IntN(2) == 0
			}
		}
		out[input] = a
	}
	return out
}

func (w *sctpWalker) change() {
	values := map[string]proto.Message{}
	for _, tap := range sctpTaps[w.rng.IntN(2):] {
		if w.rng.IntN(5) == 0 {
			w.sim.RemoveInterface(tap)
			w.agent.Interfaces(w.t.(*testing.T).Context())
			w.pod(tap)
			w.fresh[tap] = true
			w.agent.Interfaces(w.t.(*testing.T).Context())
		}
		// VPP may still have what it refused to remove: everything that was permitted since the last rest
		for input, a := range w.wants[tap] {
			if w.was[tap][input] == nil {
				w.was[tap][input] = mayBegin{}
			}
			for k, v := range a {
				w.was[tap][input][k] = w.was[tap][input][k] || v
			}
		}
		w.wants[tap] = w.draw()
		maps.Copy(values, w.values(tap))
	}
	w.commit(values)
}

// rest waits until VPP has the desired state; from then on nothing else is excused.
func (w *sctpWalker) rest() {
	for range 6 {
		w.now = w.now.Add(time.Hour)
		w.agent.Retry(w.t.(*testing.T).Context())
	}
	w.allConfigured(w.resync())
	for _, tap := range sctpTaps {
		w.was[tap] = map[bool]mayBegin{}
	}
	mark := w.sim.Snapshot()
	for _, tap := range sctpTaps {
		for _, input := range []bool{true, false} {
			for host := 2; host <= 3; host++ {
				for port := 80; port <= 81; port++ {
					if got, want := w.begins(tap, input, host, port), w.wants[tap][input][[2]int{host, port}]; got != want {
						w.t.Fatalf("at rest, %s input %t: 10.0.0.%d to port %d begins: %t, want %t", tap, input, host, port, got, want)
					}
				}
			}
		}
	}
	w.sim.Restore(mark)
	w.sim.Release()
}

func (w *sctpWalker) pod(tap string) {
	addPod(w.lab, tap, map[string]string{"tap1": "10.1.1.2", "tap2": "10.1.2.2", "out": "10.1.9.2"}[tap])
}

func walkSCTP(t *testing.T, seed uint64, faults bool) {
	w := &sctpWalker{rng: rand.New(rand.NewPCG(seed, 11)), now: time.Unix(0, 0), was: map[string]map[bool]mayBegin{}, wants: map[string]map[bool]mayBegin{}, fresh: map[string]bool{}}
	w.lab = newLab(t, vppagent.Config{Now: func() time.Time { return w.now }})
	first := []proto.Message{accessList("deny")}
	for _, tap := range append([]string{"out"}, sctpTaps...) {
		w.pod(tap)
		w.was[tap], w.wants[tap] = map[bool]mayBegin{}, map[bool]mayBegin{}
		if tap != "out" {
			first = append(first, lists(tap, []string{"deny"}, []string{"deny"}))
		}
	}
	w.allConfigured(w.put(first...))
	w.sim.After(w.look)
	defer w.sim.After(nil)
	for n := range 12 {
		if faults {
			w.sim.Fail(func(name string) (int32, bool) {
				changes := strings.Contains(name, "add") || strings.Contains(name, "set_") || strings.HasPrefix(name, "acl_del")
				if changes && w.rng.IntN(8) == 0 {
					return -1, false
				}
				return 0, false
			})
		}
		switch w.rng.IntN(12) {
		case 0:
			w.restartAgent()
			w.resync()
		case 1:
			w.fresh = map[string]bool{"tap1": true, "tap2": true}
			w.restartVPP()
			w.resync()
		case 2:
			w.resync()
		case 3:
			w.now = w.now.Add(time.Hour)
			w.agent.Retry(t.Context())
		case 4:
			w.sim.Fail(nil)
			w.rest()
		default:
			w.change()
		}
		if len(w.passed) > 0 {
			t.Fatalf("seed %d step %d: %s", seed, n, w.passed[0])
		}
	}
	w.sim.Fail(nil)
	w.rest()
	w.writes()
	w.resync()
	w.quiet(fmt.Sprintf("seed %d: resync in the end", seed))
}

// TestNothingElseBegins changes which clients may begin, with deleted and new interfaces, and fresh agents and VPPs.
func TestNothingElseBegins(t *testing.T) {
	for seed := range pace.Fewer(uint64(3), 3) {
		walkSCTP(t, seed, false)
	}
}

// TestNothingElseBeginsWithRefusals is the same while VPP refuses every eighth request.
func TestNothingElseBeginsWithRefusals(t *testing.T) {
	for seed := range pace.Fewer(uint64(4), 2) {
		walkSCTP(t, seed, true)
	}
}

// sctpNode is an interface of ours that lets SCTP from 10.0.0.0/8 to port 80 of 10.1.1.2 enter.
func sctpNode() []proto.Message {
	return []proto.Message{
		&interfaces.Interface{Name: "ours", Type: interfaces.Interface_SOFTWARE_LOOPBACK, Enabled: true}, accessList("deny"),
		sctpPorts("ours", in(80), nil), companion("ours", true), lists("ours", []string{kv.SCTPPortsACL("ours", true), "deny"}, []string{"deny"}),
	}
}

// TestSCTPOrder: the filter precedes the access list that relies on it, and is removed after the list.
func TestSCTPOrder(t *testing.T) {
	l := newLab(t, vppagent.Config{})
	l.allConfigured(l.put(sctpNode()...))
	made := l.writes()
	_, attached := among(t, made, "input_acl_set_interface")
	permits, _ := among(t, made, "acl_add_replace", "sctp-ports")
	listed, _ := among(t, made, "acl_interface_set_acl_list")
	if attached > permits || permits > listed {
		t.Errorf("attached %d, permitted %d, listed %d of\n%s", attached, permits, listed, strings.Join(made, "\n"))
	}
	l.allConfigured(l.del(kv.SCTPPortsKey("ours"), kv.ACLKey(kv.SCTPPortsACL("ours", true)), kv.InterfaceACLsKey("ours")))
	gone := l.writes()
	_, listed = among(t, gone, "acl_interface_set_acl_list")
	permits, _ = among(t, gone, "acl_del")
	attached, _ = among(t, gone, "input_acl_set_interface")
	if listed > permits || permits > attached {
		t.Errorf("listed %d, permitted %d, attached %d of\n%s", listed, permits, attached, strings.Join(gone, "\n"))
	}
	if dump := l.sim.Dump(); strings.Contains(dump, "classify") {
		t.Errorf("what is left:\n%s", dump)
	}
}

// TestSCTPInterfaceGoes: an interface of ours is removed with everything on it, and nothing is open before.
func TestSCTPInterfaceGoes(t *testing.T) {
	l := newLab(t, vppagent.Config{})
	l.allConfigured(l.put(sctpNode()...))
	l.writes()
	l.allConfigured(l.del(l.want.Keys()...))
	gone := l.writes()
	deleted, _ := among(t, gone, "delete_loopback")
	if first := slices.IndexFunc(gone, func(r string) bool { return strings.Contains(r, "acl") || strings.Contains(r, "classify") }); first < deleted {
		t.Errorf("%d is before %d of\n%s", first, deleted, strings.Join(gone, "\n"))
	}
	l.allConfigured(l.put(sctpNode()...)) // with the same index, of which VPP's records have tables
	if !strings.Contains(strings.Join(l.writes(), "\n"), "is_add=true") {
		t.Error("nothing was attached")
	}
	l.allConfigured(l.del(kv.SCTPPortsKey("ours"), kv.ACLKey(kv.SCTPPortsACL("ours", true)), kv.InterfaceACLsKey("ours")))
	if dump := l.sim.Dump(); strings.Contains(dump, "classify") {
		t.Errorf("what is left:\n%s", dump)
	}
}

// TestSCTPLeavesNothing: after another client deletes an interface, VPP's records keep a table in each place until the index is used
// again, and then nothing.
func TestSCTPLeavesNothing(t *testing.T) {
	l := newLab(t, vppagent.Config{})
	addPod(l, "tap0", "10.1.1.2")
	l.agent.Interfaces(t.Context())
	l.allConfigured(l.put(sctpPorts("tap0", in(80), in(90)), companion("tap0", true), lists("tap0", []string{kv.SCTPPortsACL("tap0", true)}, nil)))
	tables := func() int {
		r := l.conn.Do(t.Context(), vpp.Call{Msg: &classify.ClassifyTableIds{}})[0]
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		return len(r.Msg.(*classify.ClassifyTableIdsReply).Ids)
	}
	if n := tables(); n < 12 {
		t.Fatalf("%d tables", n)
	}
	l.sim.RemoveInterface("tap0")
	l.agent.Interfaces(t.Context())
	if n := tables(); n != 4 {
		t.Errorf("%d tables after the interface went, want a root in each place", n)
	}
	l.del(l.want.Keys()...)
	addPod(l, "tap1", "10.1.2.2")
	l.agent.Interfaces(t.Context())
	if n := tables(); n != 0 {
		t.Errorf("%d tables when the index had come back", n)
	}
	l.writes()
	l.allConfigured(l.resync())
	l.quiet("resync")
}

// TestSCTPRefused: without the filter the lists do not get the access list that relies on it.
func TestSCTPRefused(t *testing.T) {
	for _, refused := range []string{"classify_add_del_table", "classify_add_del_session", "input_acl_set_interface"} {
		now := time.Unix(0, 0)
		l := newLab(t, vppagent.Config{Now: func() time.Time { return now }})
		skip := 0
		l.sim.Fail(func(name string) (int32, bool) {
			if name != refused {
				return 0, false
			}
			if skip++; skip == 1 { // VPP accepts one family
				return 0, false
			}
			return -1, false
		})
		l.put(sctpNode()...)
		l.wantList("loop0", "input", "all")
		if strings.Contains(l.sim.Dump(), kv.SCTPPortsACL("ours", true)) {
			t.Errorf("%s refused: the access list is there", refused)
		}
		l.resync()
		l.wantList("loop0", "input", "all")
		l.sim.Fail(nil)
		now = now.Add(time.Hour)
		l.agent.Retry(t.Context())
		now = now.Add(time.Hour)
		l.agent.Retry(t.Context())
		l.wantList("loop0", "input", kv.SCTPPortsACL("ours", true)+" deny")
		l.writes()
		l.allConfigured(l.resync())
		l.quiet("resync after " + refused)
	}
}

// TestSCTPInvalid: invalid rules keep the earlier state; at the beginning nothing is permitted.
func TestSCTPInvalid(t *testing.T) {
	l := newLab(t, vppagent.Config{})
	node := sctpNode()
	node[2] = sctpPorts("ours", []*contivacl.SCTPPorts_Rule{sctpRule(true, "10.0.0.0/8", "nonsense", 80)}, nil)
	l.put(node...)
	l.wantState(kv.SCTPPortsKey("ours"), event.Invalid)
	l.wantState(kv.ACLKey(kv.SCTPPortsACL("ours", true)), event.Pending)
	l.wantList("loop0", "input", "all")
	l.allConfigured(l.put(sctpNode()...))
	l.wantList("loop0", "input", kv.SCTPPortsACL("ours", true)+" deny")
	l.put(node[2])
	l.wantList("loop0", "input", kv.SCTPPortsACL("ours", true)+" deny")
	if !strings.Contains(l.sim.Dump(), "classify") {
		t.Error("the filter went, and the list is as it was")
	}
	l.allConfigured(l.put(sctpNode()...))
	l.put(lists("ours", nil, []string{kv.SCTPPortsACL("ours", true)}))
	l.wantState(kv.InterfaceACLsKey("ours"), event.Invalid)
	l.wantList("loop0", "output", "all")
}
