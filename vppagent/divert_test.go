package vppagent_test

import (
	"path/filepath"
	"strings"
	"testing"

	"go.fd.io/govpp/binapi/fib_types"
	"go.fd.io/govpp/binapi/ip"
	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	contivacl "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/acl"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/abf"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/acl"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/punt"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

// forwarded is a policy that applies an access list to an interface and sends the permitted packets to another.
func forwarded(list, from, to string) *abf.ABF {
	return &abf.ABF{
		Index: 1, AclName: list, ForwardingPaths: []*abf.ABF_ForwardingPath{{NextHopIp: "10.5.0.1", InterfaceName: to, Weight: 1}},
		AttachedInterfaces: []*abf.ABF_AttachedInterface{{InputInterface: from}},
	}
}

func redirected(rx, tx, next string) *punt.IPRedirect {
	return &punt.IPRedirect{L3Protocol: punt.L3Protocol_IPV4, RxInterface: rx, TxInterface: tx, NextHop: next}
}

// The removal of an object that a policy stands on also removes the policy, in an order that VPP survives; the object's return brings the
// policy back.
func TestForwardingGoesBeforeWhatItStandsOn(t *testing.T) {
	for _, gone := range []proto.Message{loopback("a"), loopback("b"), accessList("web")} {
		l := newLab(t, vppagent.Config{})
		m := forwarded("web", "a", "b")
		l.allConfigured(l.put(loopback("a"), loopback("b"), accessList("web"), m))
		before := l.sim.Dump()
		c := l.del(kv.Key(gone))
		waits := kv.ABFKey(1)
		if kv.Key(gone) == kv.InterfaceKey("a") {
			waits = kv.ABFInterfaceKey(1, "a") // the policy itself does not need it
		}
		if s := status(c, waits); s.State != event.Pending {
			t.Errorf("without %s: %+v", kv.Key(gone), s)
		}
		if dump := l.sim.Dump(); strings.Contains(dump, "abf 1 on") {
			t.Errorf("without %s:\n%s", kv.Key(gone), dump)
		}
		l.allConfigured(l.put(gone))
		if got := l.sim.Dump(); got != before {
			t.Errorf("there and back:\n%s\nbefore\n%s", got, before)
		}
	}
}

// An access list that is replaced beside is replaced for the policies that use it, too.
func TestForwardingFollowsItsAccessList(t *testing.T) {
	l := newLab(t, vppagent.Config{})
	permit, deny := rule(acl.ACL_Rule_REFLECT, "tcp", "", "", 80, 80), rule(acl.ACL_Rule_DENY, "tcp", "", "", 80, 80)
	l.allConfigured(l.put(
		loopback("a"), loopback("b"), accessList("one", permit), accessList("two", deny), forwarded("one", "a", "b"),
		&contivacl.InterfaceACLs{Interface: "b", Input: []string{"one", "two"}}))
	l.allConfigured(l.put(accessList("one", deny), accessList("two", permit)))
	l.writes()
	l.allConfigured(l.resync())
	l.quiet("resync")
	if dump := l.sim.Dump(); strings.Count(dump, "\nacl ") > 3 || !strings.Contains(dump, "abf 1 on") {
		t.Errorf("more lists than before, or no policy:\n%s", dump)
	}
}

// The journal identifies objects without a tag, and foreign objects stay.
func TestDivertedIsRemembered(t *testing.T) {
	l := newLab(t, vppagent.Config{Journal: filepath.Join(t.TempDir(), "journal")})
	l.sim.AddInterface(sim.Interface{Name: "tap1"})
	l.put(loopback("a"), loopback("b"), accessList("web"))
	foreign := &ip.AddDelIPPuntRedirectV2{IsAdd: true, Punt: ip.PuntRedirectV2{RxSwIfIndex: 1, Paths: []fib_types.FibPath{{SwIfIndex: 1, Weight: 1}}}}
	if r := l.conn.Do(t.Context(), vpp.Call{Msg: foreign})[0]; r.Err != nil {
		t.Fatal(r.Err)
	}
	before := l.sim.Dump()
	for _, m := range []proto.Message{
		forwarded("web", "a", "b"), redirected("a", "b", "10.5.0.1"), redirected("", "b", "10.5.0.1"),
		&punt.ToHost{L3Protocol: punt.L3Protocol_ALL, L4Protocol: punt.L4Protocol_UDP, Port: 53, SocketPath: "/run/dns"},
		&punt.Exception{Reason: "ipsec4-no-such-tunnel", SocketPath: "/run/ike"},
	} {
		l.allConfigured(l.put(m))
		if l.sim.Dump() == before {
			t.Fatalf("%T changed nothing", m)
		}
		delete(l.want, kv.Key(m))
		l.restartAgent()
		l.allConfigured(l.resync())
		if got := l.sim.Dump(); got != before {
			t.Errorf("%T is still there:\n%s", m, got)
		}
	}
	c := l.put(redirected("tap1", "b", "10.5.0.1"))
	if s := status(c, "config/vpp/v2/ipredirect/l3/IPV4/tx/b"); s.State != event.Retrying || !strings.Contains(s.Err, "the redirect exists already") {
		t.Errorf("the place of somebody else's: %+v", s)
	}
	l.del("config/vpp/v2/ipredirect/l3/IPV4/tx/b")
	if got := l.sim.Dump(); got != before {
		t.Errorf("somebody else's is gone:\n%s", got)
	}
}

// The place of a redirect passes from one value to another.
func TestRedirectChangesHands(t *testing.T) {
	l := newLab(t, vppagent.Config{})
	l.allConfigured(l.put(loopback("a"), loopback("b"), redirected("", "a", "10.5.0.1")))
	first := redirected("", "a", "10.5.0.1")
	l.allConfigured(l.commit(kv.Values{kv.Key(first): nil, kv.Key(redirected("", "b", "10.5.0.2")): redirected("", "b", "10.5.0.2")}))
	if dump := l.sim.Dump(); strings.Count(dump, "punt-redirect") != 1 || !strings.Contains(dump, "rx any via 10.5.0.2 loop1") {
		t.Errorf("in VPP:\n%s", dump)
	}
}

// An interface that is deleted and added again under a policy leaves VPP with records that only look like the policy.
func TestForwardingOnAnInterfaceThatWentAndCame(t *testing.T) {
	l := newLab(t, vppagent.Config{})
	for _, n := range []string{"tap1", "tap2"} {
		l.sim.AddInterface(sim.Interface{Name: n})
	}
	l.resync()
	l.allConfigured(l.put(accessList("web"), forwarded("web", "tap1", "tap2"), redirected("tap1", "tap2", "10.5.0.1")))
	before := l.sim.Dump()
	for _, n := range []string{"tap1", "tap2"} {
		l.sim.RemoveInterface(n)
		l.resync()
		if dump := l.sim.Dump(); strings.Contains(dump, "abf 1 on") {
			t.Errorf("without %s:\n%s", n, dump)
		}
		l.sim.AddInterface(sim.Interface{Name: n})
		l.allConfigured(l.resync())
		if got := l.sim.Dump(); got != before {
			t.Errorf("%s is back:\n%s\nbefore\n%s", n, got, before)
		}
	}
	// Deleted and added again before a dump: every object in the dump is unchanged, and dead.
	l.sim.RemoveInterface("tap1")
	l.sim.AddInterface(sim.Interface{Name: "tap1"})
	l.writes()
	l.agent.InterfaceGone(1)
	l.allConfigured(l.note(l.agent.Interfaces(t.Context())))
	sent := strings.Join(l.writes(), "\n")
	for _, want := range []string{"abf_itf_attach_add_del attach", "abf_itf_attach_add_del is_add=true", "add_del_ip_punt_redirect_v2 punt", "add_del_ip_punt_redirect_v2 is_add=true"} {
		if !strings.Contains(sent, want) {
			t.Errorf("without %s:\n%s", want, sent)
		}
	}
	if got := l.sim.Dump(); got != before {
		t.Errorf("made anew:\n%s\nbefore\n%s", got, before)
	}
}

// VPP's event about a deleted interface may arrive when another interface already has its name and number. The agent recreates the
// dependent values completely, and removes them when they are no longer wanted.
func TestForwardingAfterLateWord(t *testing.T) {
	for index, name := range map[uint32]string{1: "a", 2: "b"} {
		l := newLab(t, vppagent.Config{})
		l.allConfigured(l.put(accessList("web")))
		bare := l.sim.Dump()
		m := forwarded("web", "a", "b")
		l.allConfigured(l.put(loopback("a"), loopback("b"), m))
		before := l.sim.Dump()
		l.writes()
		l.agent.InterfaceGone(index)
		l.allConfigured(l.note(l.agent.Interfaces(t.Context())))
		if sent := strings.Join(l.writes(), "\n"); !strings.Contains(sent, "abf_itf_attach_add_del is_add=true") {
			t.Errorf("%s: not made anew:\n%s", name, sent)
		}
		if got := l.sim.Dump(); got != before {
			t.Errorf("%s: made anew:\n%s\nbefore\n%s", name, got, before)
		}
		l.agent.InterfaceGone(index)
		l.del(kv.Key(loopback("b")), kv.Key(loopback("a")), kv.Key(m))
		if got := l.sim.Dump(); got != bare {
			t.Errorf("%s: left:\n%s\nbefore\n%s", name, got, bare)
		}
	}
}

// The deletion of a foreign interface removes the values that lead to it, although VPP would keep them; the values need not be wanted for
// that.
func TestForwardingDoesNotOutliveItsInterface(t *testing.T) {
	l := newLab(t, vppagent.Config{})
	l.sim.AddInterface(sim.Interface{Name: "tap1"})
	l.resync()
	l.allConfigured(l.put(loopback("a"), accessList("web")))
	m := forwarded("web", "a", "tap1")
	l.allConfigured(l.put(m))
	l.sim.RemoveInterface("tap1")
	l.agent.InterfaceGone(1)
	if s := status(l.note(l.agent.Interfaces(t.Context())), kv.ABFKey(1)); s.State != event.Pending {
		t.Errorf("without its interface: %+v", s)
	}
	l.del(kv.Key(m), kv.Key(accessList("web")))
	for _, word := range []string{"abf", "acl"} {
		if got := l.sim.Dump(); strings.Contains(got, word) {
			t.Errorf("there is an %s:\n%s", word, got)
		}
	}
}

func TestDivertRefuses(t *testing.T) {
	l := newLab(t, vppagent.Config{})
	policy := func(change func(*abf.ABF)) *abf.ABF {
		m := forwarded("web", "a", "b")
		change(m)
		return m
	}
	path := func(change func(*abf.ABF_ForwardingPath)) *abf.ABF {
		return policy(func(m *abf.ABF) { change(m.ForwardingPaths[0]) })
	}
	for want, m := range map[string]proto.Message{
		"acl_name: empty":                                  policy(func(m *abf.ABF) { m.AclName = "" }),
		"forwarding_paths: empty":                          policy(func(m *abf.ABF) { m.ForwardingPaths = nil }),
		"forwarding_paths: 256, VPP takes at most 255":     policy(func(m *abf.ABF) { m.ForwardingPaths = make([]*abf.ABF_ForwardingPath, 256) }),
		"index: 4294967295 is VPP's word for none":         policy(func(m *abf.ABF) { m.Index = ^uint32(0) }),
		"forwarding_paths[0].weight: 256 is above 255":     path(func(p *abf.ABF_ForwardingPath) { p.Weight = 256 }),
		"forwarding_paths[0].preference: 256 is above 255": path(func(p *abf.ABF_ForwardingPath) { p.Preference = 256 }),
		"forwarding_paths[0].next_hop_ip: neither this nor interface_name is set": path(func(p *abf.ABF_ForwardingPath) {
			p.NextHopIp, p.InterfaceName = "", ""
		}),
		"forwarding_paths[0].dvr: goes with interface_name, and without next_hop_ip": path(func(p *abf.ABF_ForwardingPath) { p.Dvr = true }),
		"forwarding_paths: 10.5.0.1 b twice": policy(func(m *abf.ABF) {
			m.ForwardingPaths = append(m.ForwardingPaths, &abf.ABF_ForwardingPath{NextHopIp: "10.5.0.1", InterfaceName: "b", Preference: 1})
		}),
		"attached_interfaces[0].is_ipv6: true, and a path leads to 10.5.0.1 b": policy(func(m *abf.ABF) { m.AttachedInterfaces[0].IsIpv6 = true }),
		`attached_interfaces[1].input_interface: "a" twice`: policy(func(m *abf.ABF) {
			m.AttachedInterfaces = append(m.AttachedInterfaces, &abf.ABF_AttachedInterface{InputInterface: "a", IsIpv6: true})
		}),
		"attached_interfaces[1].input_interface: empty": policy(func(m *abf.ABF) { m.AttachedInterfaces = append(m.AttachedInterfaces, nil) }),
		"attached_interfaces[1].is_ipv6: true, and that of the first is false": policy(func(m *abf.ABF) {
			m.AttachedInterfaces = append(m.AttachedInterfaces, &abf.ABF_AttachedInterface{InputInterface: "c", IsIpv6: true})
		}),
		"l3_protocol: ALL is not one family, as next_hop is": &punt.IPRedirect{L3Protocol: punt.L3Protocol_ALL, TxInterface: "a", NextHop: "10.5.0.1"},
		"next_hop: 10.5.0.1 is not IPV6":                     &punt.IPRedirect{L3Protocol: punt.L3Protocol_IPV6, TxInterface: "a", NextHop: "10.5.0.1"},
		"tx_interface: empty":                                &punt.IPRedirect{L3Protocol: punt.L3Protocol_IPV4, NextHop: "10.5.0.1"},
		"l4_protocol: TCP is not supported: VPP hands on UDP alone": &punt.ToHost{
			L3Protocol: punt.L3Protocol_IPV4, L4Protocol: punt.L4Protocol_TCP, Port: 53, SocketPath: "/run/a",
		},
		"port: 0 is not in 1-65534": &punt.ToHost{L3Protocol: punt.L3Protocol_IPV4, L4Protocol: punt.L4Protocol_UDP, SocketPath: "/run/a"},
		"socket_path: empty, and not supported: VPP would not tell what it hands to the host's stack": &punt.ToHost{
			L3Protocol: punt.L3Protocol_IPV4, L4Protocol: punt.L4Protocol_UDP, Port: 53,
		},
		"socket_path: longer than 107 bytes": &punt.Exception{Reason: "r", SocketPath: strings.Repeat("a", 108)},
		"l3_protocol: UNDEFINED_L3 is none":  &punt.ToHost{L4Protocol: punt.L4Protocol_UDP, Port: 53, SocketPath: "/run/a"},
	} {
		if s := status(l.put(m), kv.Key(m)); s.State != event.Invalid || s.Err != want {
			t.Errorf("%s: %+v", want, s)
		}
	}
	m := &punt.Exception{Reason: "boredom", SocketPath: "/run/a"}
	if s := status(l.put(m), kv.Key(m)); s.State != event.Retrying || s.Err != `reason: VPP has none of the name "boredom"` {
		t.Errorf("%+v", s)
	}
}
