package sim

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/contiv-agent/contiv-agent/model"
)

// Translation is an address and port that stands for others, translated where VPP's cnat plugin does it (API 0.3.0, VPP 24.06):
//
//	request  in  ─▶ cnat-input ─▶ acl-in ─▶ lookup ─▶ acl-out ─▶ cnat-output ─▶ out
//	                VIP → backend                                 (client → Self)
//	reply    in  ─▶ cnat-input ─▶ acl-in ─▶ lookup ─▶ acl-out ─▶ cnat-output ─▶ out
//	                (Self → client)                               backend → VIP
//
// so ACLs see the client and the backend in both directions. It takes the place of the plugin, which the sim does not have.
type Translation struct {
	VIP      netip.AddrPort
	Proto    model.Protocol
	Backends []netip.AddrPort // of the VIP's family; none: the packet is dropped
	// Self is the source a client gets that is sent to itself, so that its reply comes back; invalid: it keeps its own.
	Self netip.Addr
}

// The idle times of cnat's sessions.
const (
	cnatIdle    = 30 * time.Second
	cnatTCPIdle = time.Hour
)

// Translate makes these the only translations, on all interfaces and for both families. Flows that have a backend keep it. Dump
// does not show them; Restart leaves them, without their flows. The backend is chosen as SetChoice says.
func (v *VPP) Translate(list ...Translation) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.foreign.translations = map[frontend]Translation{}
	for _, t := range list {
		t.Backends = slices.Clone(t.Backends)
		v.foreign.translations[frontend{t.VIP, t.Proto}] = t
	}
}

type frontend struct {
	vip   netip.AddrPort
	proto model.Protocol
}

// flowKey is one direction of a flow at one of the nodes.
type flowKey struct {
	src, dst netip.AddrPort
	proto    model.Protocol
	output   bool
}

func (f *flow) flowKey(output bool) flowKey {
	return flowKey{netip.AddrPortFrom(f.p.Src, f.p.SrcPort), netip.AddrPortFrom(f.p.Dst, f.p.DstPort), f.p.Proto, output}
}

// translated is a flow with its backend.
type translated struct {
	client, vip, backend netip.AddrPort
	proto                model.Protocol
	self                 netip.AddrPort // the client as its backend sees it; the client itself unless they are one
	seen                 time.Duration
}

// translator is the dynamic part: what each flow looks like at each node.
type translator struct {
	flows     map[flowKey]*translated
	recording bool
	journal   []func()
}

func (t *translator) init() { *t = translator{flows: map[flowKey]*translated{}} }

func (t *translator) undo(f func()) {
	if t.recording {
		t.journal = append(t.journal, f)
	}
}

func (t *translator) restore(at int) {
	for i := len(t.journal) - 1; i >= at; i-- {
		t.journal[i]()
	}
	t.journal = t.journal[:at]
}

func addTranslations(a *arcs, v *VPP) {
	on := func(uint32) bool { return len(v.foreign.translations)+len(v.cnat.flows) > 0 }
	for _, n := range []struct {
		id  arcID
		fam int
	}{{ip4Unicast, 4}, {ip6Unicast, 6}} {
		a.add(n.id, feature{name: fmt.Sprintf("cnat-input-ip%d", n.fam), on: on, run: (*flow).cnatInput})
	}
	a.add(ip4Output, feature{name: "cnat-output-ip4", on: on, run: (*flow).cnatOutput})
	a.add(ip6Output, feature{name: "cnat-output-ip6", on: on, run: (*flow).cnatOutput})
}

// known is a flow that has not been idle for too long.
func (f *flow) known(k flowKey) *translated {
	t := f.v.cnat.flows[k]
	if t == nil {
		return nil
	}
	idle := cnatIdle
	if t.proto == model.TCP {
		idle = cnatTCPIdle
	}
	now := f.v.now.Sub(f.v.booted)
	if now-t.seen >= idle {
		return nil
	}
	old := t.seen
	f.v.cnat.undo(func() { t.seen = old })
	t.seen = now
	return t
}

// cnatInput turns requests to their backend, and replies that came to Self to the client.
func (f *flow) cnatInput() bool {
	node := fmt.Sprintf("cnat-input-ip%d", version(f.p.Dst))
	if t := f.known(f.flowKey(false)); t != nil {
		to := t.backend
		if f.p.Src == t.backend.Addr() && f.p.SrcPort == t.backend.Port() && f.flowKey(false).dst == t.self {
			to = t.client
		}
		f.hop(node, "%s is %s, known flow", netip.AddrPortFrom(f.p.Dst, f.p.DstPort), to)
		f.p.Dst, f.p.DstPort = to.Addr(), to.Port()
		return true
	}
	s, ok := f.v.foreign.translations[frontend{netip.AddrPortFrom(f.p.Dst, f.p.DstPort), f.p.Proto}]
	if !ok || !f.p.HasPorts() {
		return true
	}
	if len(s.Backends) == 0 {
		return f.drop(node, "%s has no backends", s.VIP)
	}
	t := f.translate(s)
	f.hop(node, "%s is %s, new flow", s.VIP, t.backend)
	f.p.Dst, f.p.DstPort = t.backend.Addr(), t.backend.Port()
	return true
}

// translate makes a flow.
func (f *flow) translate(s Translation) *translated {
	n := 0
	switch {
	case f.v.choice != nil:
		n = f.v.choice(len(s.Backends))
	case len(s.Backends) > 1:
		n = int(f.v.rand() % uint32(len(s.Backends)))
	}
	client := netip.AddrPortFrom(f.p.Src, f.p.SrcPort)
	t := &translated{client: client, vip: s.VIP, backend: s.Backends[n], proto: s.Proto, self: client, seen: f.v.now.Sub(f.v.booted)}
	f.v.remember(flowKey{client, t.vip, t.proto, false}, t)
	f.v.remember(flowKey{t.backend, client, t.proto, true}, t)
	if t.backend.Addr() == client.Addr() && s.Self.IsValid() {
		t.self = netip.AddrPortFrom(s.Self, client.Port())
		f.v.remember(flowKey{client, t.backend, t.proto, true}, t)
		f.v.remember(flowKey{t.backend, t.self, t.proto, false}, t)
	}
	return t
}

func (v *VPP) remember(k flowKey, t *translated) {
	old, had := v.cnat.flows[k]
	v.cnat.flows[k] = t
	v.cnat.undo(func() {
		if had {
			v.cnat.flows[k] = old
		} else {
			delete(v.cnat.flows, k)
		}
	})
}

// cnatOutput turns replies' source to the VIP, and the source of who is sent to itself to Self. An ICMP error about a request quotes
// it as the client sent it.
func (f *flow) cnatOutput() bool {
	node := fmt.Sprintf("cnat-output-ip%d", version(f.p.Dst))
	if in := f.p.Inner; in != nil {
		asked := flowKey{netip.AddrPortFrom(in.Dst, in.DstPort), netip.AddrPortFrom(in.Src, in.SrcPort), in.Proto, true}
		if t := f.known(asked); t != nil {
			c := in.Clone()
			c.Dst, c.DstPort = t.vip.Addr(), t.vip.Port()
			f.p.Inner = &c
			f.hop(node, "the packet complained about went to %s", t.vip)
		}
		return true
	}
	t := f.known(f.flowKey(true))
	if t == nil {
		return true
	}
	from := t.vip
	if f.flowKey(true).src == t.client && f.flowKey(true).dst == t.backend {
		from = t.self
	}
	f.hop(node, "%s is %s", netip.AddrPortFrom(f.p.Src, f.p.SrcPort), from)
	f.p.Src, f.p.SrcPort = from.Addr(), from.Port()
	return true
}
