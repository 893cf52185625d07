package vpp

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/nat44_ed"
	"go.fd.io/govpp/binapi/nat_types"

	"github.com/contiv-agent/contiv-agent/vpp/draw"
)

const (
	maxLocals = 255 // nat44_ed.c counts locals in a u8
	maxWeight = 255 // nat44_ed.c adds up probabilities in a u8
)

// mappingKey is how VPP finds a static mapping: fib index 0 whatever the VRF (nat44_ed.c nat44_ed_sm_o2i_lookup, VPP
// 24.06). An address-only mapping has port and protocol 0.
type mappingKey struct {
	addr  [4]byte
	port  uint16
	proto uint8
}

func (k mappingKey) String() string {
	return fmt.Sprintf("%s:%d/%d", netip.AddrFrom4(k.addr), k.port, k.proto)
}

// local is one backend of an LB mapping.
type local struct {
	addr   [4]byte
	port   uint16
	weight uint8
	vrf    uint32
}

func (l local) same(o local) bool { return o.addr == l.addr && o.port == l.port && o.vrf == l.vrf }

// mappingKind is the kind of mapping that VPP has under a key.
type mappingKind uint8

const (
	unknownMapping mappingKind = iota // or no mapping, if the guard knows all mappings
	noMapping
	lbMapping
	singleMapping
	identityMapping
)

// mapping is the shadow of a static mapping.
type mapping struct {
	kind   mappingKind
	doubt  bool // an answer of VPP contradicted the shadow
	out2in bool
	locals []local // in the order of VPP's slots; never modified in place
	holes  []int   // the places of removed locals: VPP gives the next local the slot that was freed last
}

func (m mapping) nothing() bool { return m.kind == unknownMapping && !m.doubt }

func (m mapping) weight() int {
	sum := 0
	for _, l := range m.locals {
		sum += int(l.weight)
	}
	return sum
}

// mappingChange is the effect of a message on the mapping under its key, if VPP accepts it.
type mappingChange struct {
	local   *local  // not nil: add or remove this local
	add     bool    // with local
	becomes mapping // without local: the new mapping, whatever it was
}

func (c mappingChange) applyTo(m mapping) mapping {
	if c.local == nil {
		return c.becomes
	}
	if m.kind != lbMapping {
		return m
	}
	switch at := m.index(*c.local); {
	case c.add && at < 0:
		if at = len(m.locals); len(m.holes) > 0 {
			at, m.holes = m.holes[len(m.holes)-1], m.holes[:len(m.holes)-1]
		}
		m.locals = slices.Insert(slices.Clone(m.locals), at, *c.local)
	case !c.add && at >= 0:
		m.locals, m.holes = slices.Delete(slices.Clone(m.locals), at, at+1), append(slices.Clip(m.holes), at)
	}
	return m
}

// index finds a local by the fields that VPP compares: address, port, VRF.
func (m mapping) index(l local) int {
	return slices.IndexFunc(m.locals, l.same)
}

// mappingOp returns the effect of msg and its key; false: no effect.
func mappingOp(msg api.Message) (mappingKey, mappingChange, bool) {
	switch m := msg.(type) {
	case *nat44_ed.Nat44AddDelLbStaticMapping:
		key := mappingKey{m.ExternalAddr, m.ExternalPort, m.Protocol}
		if !m.IsAdd {
			return key, mappingChange{becomes: mapping{kind: noMapping}}, true
		}
		o2i := m.Flags&nat_types.NAT_IS_OUT2IN_ONLY != 0
		return key, mappingChange{becomes: mapping{kind: lbMapping, out2in: o2i, locals: localsOf(m.Locals)}}, true
	case *nat44_ed.Nat44LbStaticMappingAddDelLocal:
		l := localOf(m.Local)
		return mappingKey{m.ExternalAddr, m.ExternalPort, m.Protocol}, mappingChange{local: &l, add: m.IsAdd}, true
	case *nat44_ed.Nat44AddDelStaticMapping, *nat44_ed.Nat44AddDelStaticMappingV2, *nat44_ed.Nat44AddDelIdentityMapping:
		v := viewMapping(msg)
		if !v.add {
			v.kind = noMapping
		}
		return v.storedKey(), mappingChange{becomes: mapping{kind: v.kind}}, v.external
	}
	return mappingKey{}, mappingChange{}, false
}

// mappingView is the mapping that a message concerns, before and after the message.
type mappingView struct {
	known         bool // the message concerns one
	key           mappingKey
	op            mappingChange
	before, after mapping
}

func (g *Guard) mappingViewOf(msg api.Message) (v mappingView) {
	if v.key, v.op, v.known = mappingOp(msg); v.known {
		v.before = g.mappings.expectedState(v.key)
		v.after = v.op.applyTo(v.before)
	}
	return v
}

func localOf(l nat44_ed.Nat44LbAddrPort) local {
	return local{addr: l.Addr, port: l.Port, weight: l.Probability, vrf: l.VrfID}
}

func localsOf(in []nat44_ed.Nat44LbAddrPort) []local {
	out := make([]local, len(in))
	for i, l := range in {
		out[i] = localOf(l)
	}
	return out
}

// settleMapping records an answer. An answer that contradicts the shadow puts the key in doubt until the next dump.
func (g *Guard) settleMapping(key mappingKey, msg api.Message, err error) {
	was, _ := g.mappings.flying(key)
	g.mappings.settleOp(key, err == nil)
	contradicted := false
	switch m := msg.(type) {
	case *nat44_ed.Nat44AddDelLbStaticMapping:
		contradicted = m.IsAdd && errors.Is(err, api.VALUE_EXIST) && was.kind != lbMapping
	case *nat44_ed.Nat44LbStaticMappingAddDelLocal:
		contradicted = err == nil && was.kind != lbMapping
	}
	if contradicted {
		g.mappings.setState(key, mapping{doubt: true})
	}
}

// dumpedMappings records the dumped mappings of one kind.
func (g *Guard) dumpedMappings(req api.Message, details []api.Message) {
	kind := singleMapping
	switch req.(type) {
	case *nat44_ed.Nat44LbStaticMappingDump:
		kind = lbMapping
		g.allLB = true
	case *nat44_ed.Nat44IdentityMappingDump:
		kind = identityMapping
	}
	dumped := make(map[mappingKey]mapping, len(details))
	for _, d := range details {
		if key, m, ok := detailed(d); ok {
			dumped[key] = m
		}
	}
	g.mappings.replace(func(m mapping) bool { return m.kind == kind || m.doubt && kind == lbMapping }, dumped)
}

// detailed returns a dumped mapping; false: its address is an interface's, so its key is unknown.
func detailed(d api.Message) (mappingKey, mapping, bool) {
	switch d := d.(type) {
	case *nat44_ed.Nat44LbStaticMappingDetails:
		m := mapping{kind: lbMapping, out2in: d.Flags&nat_types.NAT_IS_OUT2IN_ONLY != 0, locals: localsOf(d.Locals)}
		return mappingKey{d.ExternalAddr, d.ExternalPort, d.Protocol}, m, true
	case *nat44_ed.Nat44StaticMappingDetails:
		v := anyMapping{kind: singleMapping, flags: d.Flags, addr: d.ExternalIPAddress, port: d.ExternalPort, proto: d.Protocol}
		return v.storedKey(), mapping{kind: v.kind}, d.ExternalSwIfIndex == noInterface
	case *nat44_ed.Nat44IdentityMappingDetails:
		v := anyMapping{kind: identityMapping, flags: d.Flags, addr: d.IPAddress, port: d.Port, proto: d.Protocol}
		return v.storedKey(), mapping{kind: v.kind}, d.SwIfIndex == noInterface
	}
	return mappingKey{}, mapping{}, false
}

const (
	lbMessage    = "nat44_add_del_lb_static_mapping"
	localMessage = "nat44_lb_static_mapping_add_del_local"
)

// lbAdd makes a rule of a check of LB mappings to be made.
func lbAdd(name, source, harm string, judge func(m *nat44_ed.Nat44AddDelLbStaticMapping) string) Rule {
	return Rule{
		Name: name, Messages: []string{lbMessage}, Source: source, Harm: harm,
		judge: func(_ *Guard, msg api.Message) string {
			if m := msg.(*nat44_ed.Nat44AddDelLbStaticMapping); m.IsAdd {
				return judge(m)
			}
			return ""
		},
	}
}

func lbRules() []Rule {
	const add = "nat44_ed.c nat44_ed_add_lb_static_mapping, VPP 24.06"
	return []Rule{
		lbAdd("lb-few-locals", add, "refused (-7): the service would be missing", func(m *nat44_ed.Nat44AddDelLbStaticMapping) string {
			if n := len(m.Locals); n < 2 {
				return fmt.Sprintf("%d locals, at least 2", n)
			}
			return ""
		}),
		lbAdd("lb-many-locals", "nat44_ed_api.c unformat_nat44_lb_addr_port (u8 counter), VPP 24.06",
			"the loop over locals never ends: VPP eats all memory and aborts", func(m *nat44_ed.Nat44AddDelLbStaticMapping) string {
				if n := len(m.Locals); n > maxLocals {
					return fmt.Sprintf("%d locals, at most %d", n, maxLocals)
				}
				return ""
			}),
		lbAdd("lb-weight-zero", "nat44_ed.c snat_static_mapping_match (random modulo last prefix), VPP 24.06",
			"division by zero: VPP dies at the first packet", func(m *nat44_ed.Nat44AddDelLbStaticMapping) string {
				return when(len(m.Locals) > 0 && sum(m.Locals) == 0, "probabilities add up to 0")
			}),
		lbAdd("lb-weight-sum", "nat44_ed.c nat44_lb_addr_port_t.prefix (u8), VPP 24.06",
			"the sum wraps: a multiple of 256 kills VPP at the first packet, any other balances wrongly", func(m *nat44_ed.Nat44AddDelLbStaticMapping) string {
				if s := sum(m.Locals); s > maxWeight {
					return fmt.Sprintf("probabilities add up to %d, at most %d", s, maxWeight)
				}
				return ""
			}),
		lbAdd("lb-out2in-only", add, "refused (-6) unless the address is in the NAT pool; then backends' own connections are translated too",
			func(m *nat44_ed.Nat44AddDelLbStaticMapping) string {
				return when(m.Flags&nat_types.NAT_IS_OUT2IN_ONLY == 0, "without OUT2IN_ONLY")
			}),
		{
			Name: "lb-weightless-workers", Messages: []string{lbMessage, localMessage}, Stateful: true,
			Source: "nat44_ed.c snat_static_mapping_match (only the worker's own locals), VPP 24.06",
			Harm:   "a worker that owns nothing but locals of weight 0 divides by zero: VPP dies at the first packet it gets",
			judge: func(g *Guard, _ api.Message) string {
				weightless := func(l local) bool { return l.weight == 0 }
				add := g.view.op.local != nil && g.view.op.add && weightless(*g.view.op.local)
				return when(g.workers > 1 && (add || slices.ContainsFunc(g.view.op.becomes.locals, weightless)), "local of weight 0 with %d NAT workers", g.workers)
			},
		},
		{
			Name: "lb-delete-flags", Messages: []string{lbMessage}, Stateful: true,
			Source: "nat44_ed.c nat44_ed_del_lb_static_mapping (uses the request's flags), VPP 24.06",
			Harm:   "other flags than at creation delete keys of other mappings, or leave keys behind",
			judge: func(g *Guard, msg api.Message) string {
				m := msg.(*nat44_ed.Nat44AddDelLbStaticMapping)
				if m.IsAdd {
					return ""
				}
				have := g.view.before
				want := have.kind != lbMapping || have.out2in
				if got := m.Flags&nat_types.NAT_IS_OUT2IN_ONLY != 0; got != want {
					return fmt.Sprintf("OUT2IN_ONLY is %t here and %t in the mapping", got, want)
				}
				return ""
			},
		},
	}
}

func sum(locals []nat44_ed.Nat44LbAddrPort) int { return mapping{locals: localsOf(locals)}.weight() }

// localRule makes a rule of a check of a mapping before and after the message; it runs only if both are known.
func localRule(name, source, harm string, judge func(add bool, before, after mapping) string) Rule {
	return Rule{
		Name: name, Messages: []string{localMessage}, Source: source, Harm: harm, Stateful: true,
		judge: func(g *Guard, _ api.Message) string {
			if g.view.before.kind != lbMapping {
				return ""
			}
			return judge(g.view.op.add, g.view.before, g.view.after)
		},
	}
}

func localRules() []Rule {
	const source = "nat44_ed.c nat44_ed_add_del_lb_static_mapping_local, VPP 24.06"
	return []Rule{
		{
			Name: "local-unknown-mapping", Messages: []string{localMessage}, Source: source, Stateful: true,
			Harm: "depends on VPP's locals, which are not known: any of the rules below may apply",
			judge: func(g *Guard, _ api.Message) string {
				if have := g.view.before; have.doubt || have.kind == unknownMapping && !g.allLB {
					return "mapping " + g.view.key.String() + " is not known: dump the LB mappings first"
				}
				return ""
			},
			hinges: localHinges,
		},
		localRule("local-many", source, "more than 255 locals: the sum of weights wraps and VPP dies at the first packet",
			func(add bool, _, after mapping) string {
				n := len(after.locals)
				return when(add && n > maxLocals, "would make %d locals, at most %d", n, maxLocals)
			}),
		localRule("local-weight-sum", source, "the sum wraps: a multiple of 256 kills VPP at the first packet, any other balances wrongly",
			func(add bool, _, after mapping) string {
				w := after.weight()
				wraps := add && w > maxWeight && !draw.Drains(after.locals, func(l local) ([4]byte, uint8) { return l.addr, l.weight })
				return when(wraps, "would make probabilities add up to %d, at most %d", w, maxWeight)
			}),
		localRule("local-few", source, "refused (-1): the backend would stay", func(add bool, before, after mapping) string {
			if n := len(after.locals); !add && n < len(before.locals) && n < 2 {
				return fmt.Sprintf("would leave %d locals, at least 2: delete the mapping instead", n)
			}
			return ""
		}),
		localRule("local-weight-zero", "nat44_ed.c snat_static_mapping_match (random modulo last prefix), VPP 24.06",
			"division by zero: VPP dies at the first packet", func(add bool, before, after mapping) string {
				return when(!add && len(after.locals) < len(before.locals) && after.weight()%(maxWeight+1) == 0, "would leave probabilities that add up to 0: delete the mapping instead")
			}),
	}
}

// localHinges reports whether a change of locals, harmless if all outstanding messages succeed, may do harm if some fail.
func localHinges(g *Guard, _ api.Message) bool {
	op := g.view.op
	base, ops := g.mappings.flying(g.view.key)
	if len(ops) == 0 {
		return false
	}
	if sure := base.kind == noMapping || base.kind == unknownMapping && g.allLB && !base.doubt; sure && ops[0].local == nil {
		base, ops = ops[0].becomes, ops[1:] // if that fails no mapping exists, and VPP refuses the rest
	}
	if slices.ContainsFunc(base.locals, func(l local) bool { return l.addr == draw.PadAddr }) && ops[0].local != nil {
		return false // VPP refuses to add a local that it has and to remove one that it lacks, and the guard knows which it has
	}
	count, most := len(base.locals), base.weight()
	least := most
	for i, o := range ops {
		switch {
		case o.local == nil:
			return true
		case o.add:
			count, most = count+1, most+int(o.local.weight)
		default:
			least -= heaviest(base, ops[:i], *o.local)
		}
	}
	if op.add {
		return count >= maxLocals || most+int(op.local.weight) > maxWeight
	}
	return least-heaviest(base, ops, *op.local) <= 0
}

// heaviest returns the greatest weight that local l may have.
func heaviest(base mapping, ops []mappingChange, l local) int {
	w := 0
	if at := base.index(l); at >= 0 {
		w = int(base.locals[at].weight)
	}
	for _, o := range ops {
		if o.add && o.local.same(l) {
			w = max(w, int(o.local.weight))
		}
	}
	return w
}
