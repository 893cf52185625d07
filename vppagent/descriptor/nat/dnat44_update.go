package nat

import (
	"slices"

	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/nat/drain"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/nat44_ed"
	"go.fd.io/govpp/binapi/nat_types"
)

// represent returns the list of locals that VPP gets for backends: see pads. With several NAT workers a worker may own only pads,
// and would divide by their weight; then the agent sends the only backend twice (VPP 24.06 checks neither).
func represent(padded bool, backends []local) []local {
	if len(backends) == 0 {
		backends = []local{dropPad}
	}
	switch {
	case padded:
		return append(pads[:], backends...)
	case len(backends) == 1:
		b := backends[0]
		b.weight = 1 // the only backend is chosen regardless of its weight
		return []local{b, b}
	}
	return backends
}

// inVPP returns the actual locals of a mapping found or made.
func (m mapping) inVPP(w *descriptor.World) []local {
	if m.raw != nil {
		return m.raw
	}
	if l := m.layout(w); l != nil {
		return allFromDrain(l)
	}
	return represent(padded(w), m.locals)
}

// updateDNat returns the requests that turn have into want: changed and new mappings first, because they do not disturb each
// other and nothing waits for the removals.
func updateDNat(w *descriptor.World, have, want *dnat) ([]descriptor.Op, error) {
	var ops, removals []descriptor.Op
	h := have.mappings
	for _, m := range want.mappings {
		for len(h) > 0 && h[0].id < m.id {
			removals = append(removals, removeMapping(w, h[0])...)
			h = h[1:]
		}
		if len(h) == 0 || h[0].id != m.id {
			ops = append(ops, m.create(w))
			continue
		}
		ops = append(ops, updateMapping(w, h[0], m)...)
		h = h[1:]
	}
	for _, m := range h {
		removals = append(removals, removeMapping(w, m)...)
	}
	ids, err := updateIdentities(w, have.identities, want.identities)
	return append(append(ops, ids...), removals...), err
}

// updateMapping changes one mapping: in place if every step can leave it a backend to choose.
func updateMapping(w *descriptor.World, have, want mapping) []descriptor.Op {
	if equalMapping(have, want) {
		return nil
	}
	if ops, ok := changeInPlace(w, have, want); ok {
		return ops
	}
	return want.anew(w, have)
}

// anew returns the requests that remove a mapping and make it again.
func (m mapping) anew(w *descriptor.World, have mapping) []descriptor.Op {
	made := m.create(w)
	if l := have.layout(w); l != nil && made.Then == nil {
		lost := drain.Common(toDrain(m.drained), l)
		made.Then = func(vpp.Reply) []descriptor.Op {
			w.NATDrained(0, lost)
			return nil
		}
	}
	return append(removeMapping(w, have), made)
}

// changeInPlace returns the requests that change the locals of a mapping. False: it must be made anew.
func changeInPlace(w *descriptor.World, have, want mapping) ([]descriptor.Op, bool) {
	if have.flags != want.flags || have.tag != want.tag || have.single != want.single || want.single {
		return nil, false
	}
	if l := have.layout(w); l != nil {
		return want.from(w, have, l)
	}
	if slices.ContainsFunc(have.raw, local.drains) { // a change was cut off
		if ops, ok := want.resume(w, have.raw); ok {
			return ops, true
		}
		return want.adopt(w, have)
	}
	if want.keepsFlows(w, have) {
		if ops, ok := want.adopt(w, have); ok {
			return ops, true
		}
	}
	steps, ok := changeLocals(have.inVPP(w), represent(padded(w), want.locals), want.affinity != 0)
	return want.addDelLocals(w, steps), ok
}

// step adds or removes one local.
type step struct {
	add bool
	l   local
}

// changeLocals returns the steps from one list of locals to another. After each step VPP has 2 to 255 locals, and a sum of
// weights in 1..255: VPP refuses or crashes on anything else. ok is false if no such sequence exists.
func changeLocals(have, want []local, affinity bool) (steps []step, ok bool) {
	c := changer{adds: without(want, have), dels: without(have, want)}
	c.n, c.sum = len(have), weights(have)
	if hasDuplicate(want) { // only a create message may contain a duplicate
		return nil, len(c.adds) == 0 && len(c.dels) == 0
	}
	c.takeReweighted()
	if len(c.reweights) > 0 && hasDuplicate(have) { // VPP would refuse it beside the other copy
		return nil, false
	}
	if affinity {
		return c.keepingClients(without(want, c.adds))
	}
	return c.addingFirst()
}

// without returns the locals of a that are not in b, counted with their multiplicity.
func without(a, b []local) []local {
	rest := slices.Clone(b)
	var out []local
	for _, l := range a {
		if i := slices.Index(rest, l); i >= 0 {
			rest = slices.Delete(rest, i, i+1)
		} else {
			out = append(out, l)
		}
	}
	return out
}

func weights(ls []local) (sum int) {
	for _, l := range ls {
		sum += int(l.weight)
	}
	return sum
}

func hasDuplicate(ls []local) bool {
	for i, l := range ls {
		if slices.ContainsFunc(ls[:i], l.sameLocal) {
			return true
		}
	}
	return false
}

// changer makes the steps from one list of locals to another.
type changer struct {
	adds, dels []local
	reweights  [][2]local // from, to: VPP cannot change a weight
	n, sum     int        // VPP's present number and sum
	steps      []step
}

func (c *changer) takeReweighted() {
	for i := 0; i < len(c.adds); {
		j := slices.IndexFunc(c.dels, c.adds[i].sameLocal)
		if j < 0 {
			i++
			continue
		}
		c.reweights = append(c.reweights, [2]local{c.dels[j], c.adds[i]})
		c.dels = slices.Delete(c.dels, j, j+1)
		c.adds = slices.Delete(c.adds, i, i+1)
	}
}

// do adds and removes in the given order, all or nothing.
func (c *changer) do(steps ...step) bool {
	n, sum := c.n, c.sum
	for _, s := range steps {
		if s.add {
			n, sum = n+1, sum+int(s.l.weight)
		} else {
			n, sum = n-1, sum-int(s.l.weight)
		}
		if n < 2 || n > maxLocals || sum < 1 || sum > maxWeights {
			return false
		}
	}
	c.n, c.sum = n, sum
	c.steps = append(c.steps, steps...)
	return true
}

// addingFirst removes a backend only after its replacement is added, unless the mapping has no room.
func (c *changer) addingFirst() ([]step, bool) {
	for len(c.adds)+len(c.reweights)+len(c.dels) > 0 {
		switch {
		case len(c.adds) > 0 && c.do(step{true, c.adds[0]}):
			c.adds = c.adds[1:]
		case len(c.reweights) > 0 && c.do(step{false, c.reweights[0][0]}, step{true, c.reweights[0][1]}):
			c.reweights = c.reweights[1:]
		case len(c.dels) > 0 && c.do(step{false, c.dels[0]}):
			c.dels = c.dels[1:]
		default:
			return nil, false
		}
	}
	return c.steps, true
}

// keepingClients makes the steps for clients that are pinned to backends. VPP pins clients to a slot, gives a freed slot to the
// next added local, and does not unpin on removal: clients of a removed backend would be sent to it for ever. So every freed slot
// is reused at once, by a new backend or by one that stays (z), which takes over the clients (nat44_ed_affinity.c, VPP 24.06).
// stay are the locals of both lists, in their new form.
func (c *changer) keepingClients(stay []local) ([]step, bool) {
	for _, r := range c.reweights {
		if !c.do(step{false, r[0]}, step{true, r[1]}) {
			return nil, false
		}
	}
	for len(c.dels) > 0 && len(c.adds) > 0 {
		if !c.do(step{false, c.dels[0]}, step{true, c.adds[0]}) {
			return nil, false
		}
		c.dels, c.adds = c.dels[1:], c.adds[1:]
	}
	for _, l := range c.adds {
		if !c.do(step{true, l}) {
			return nil, false
		}
	}
	// The backend that takes over loses its sessions: the last of the backends with clients is chosen, so that it is the same one each
	// time.
	z := -1
	for i, l := range stay {
		if l.weight > 0 {
			z = i
		}
	}
	for _, l := range c.dels {
		if z < 0 || !c.do(step{false, stay[z]}, step{false, l}, step{true, stay[z]}) {
			return nil, false
		}
	}
	return c.steps, true
}

func lbAddrPort(l local) nat44_ed.Nat44LbAddrPort {
	return nat44_ed.Nat44LbAddrPort{Addr: l.addr, Port: l.port, Probability: l.weight, VrfID: l.vrf}
}

func (m mapping) create(w *descriptor.World) descriptor.Op {
	if m.single {
		return descriptor.Op{Takes: descriptor.Claim{ID: uint64(m.id)}, Call: descriptor.Write(m.singleMessage(true))}
	}
	locals := m.fresh(w)
	msg := &nat44_ed.Nat44AddDelLbStaticMapping{
		IsAdd: true, Flags: m.flags, ExternalAddr: m.id.addr(), ExternalPort: m.id.externalPort(), Protocol: m.id.proto(),
		Affinity: m.affinity, Tag: m.tag, LocalNum: uint32(len(locals)), Locals: make([]nat44_ed.Nat44LbAddrPort, len(locals)),
	}
	for i, l := range locals {
		msg.Locals[i] = lbAddrPort(l)
	}
	return descriptor.Op{Takes: descriptor.Claim{ID: uint64(m.id)}, Call: descriptor.Write(msg)}
}

func (m mapping) singleMessage(add bool) *nat44_ed.Nat44AddDelStaticMappingV2 {
	l := m.locals[0]
	return &nat44_ed.Nat44AddDelStaticMappingV2{
		IsAdd: add, Flags: m.flags, LocalIPAddress: l.addr, ExternalIPAddress: m.id.addr(), VrfID: l.vrf, Tag: m.tag,
		ExternalSwIfIndex: interface_types.InterfaceIndex(descriptor.None), MatchPool: m.pool != [4]byte{}, PoolIPAddress: m.pool,
	}
}

// updateIdentities removes first: VPP takes an identity whose tag alone changes for the same one.
func updateIdentities(w *descriptor.World, have, want []identity) (ops []descriptor.Op, err error) {
	for _, i := range have {
		if slices.Contains(want, i) {
			continue
		}
		op, err := i.identityRequest(w, false)
		if err != nil {
			continue // VPP removed it with its interface
		}
		op.Gone = true
		ops = append(ops, op)
	}
	for _, i := range want {
		if slices.Contains(have, i) {
			continue
		}
		op, err := i.identityRequest(w, true)
		if err != nil {
			return nil, err
		}
		ops = append(ops, op)
	}
	return ops, nil
}

func (i identity) identityRequest(w *descriptor.World, add bool) (descriptor.Op, error) {
	msg := &nat44_ed.Nat44AddDelIdentityMapping{
		IsAdd: add, IPAddress: i.addr, Protocol: i.proto, Port: i.port, VrfID: i.vrf, Tag: i.tag,
		SwIfIndex: interface_types.InterfaceIndex(descriptor.None),
	}
	if i.port == 0 {
		msg.Flags = nat_types.NAT_IS_ADDR_ONLY
	}
	if i.iface != "" {
		idx, err := w.Index(i.iface)
		if err != nil {
			return descriptor.Op{}, err
		}
		msg.SwIfIndex = idx
	}
	claim := descriptor.Claim{ID: uint64(newNATID(i.addr, i.port, i.proto))}
	if add {
		return descriptor.Op{Call: descriptor.Write(msg), Takes: claim}, nil
	}
	return descriptor.Op{Call: descriptor.Write(msg), Frees: claim}, nil
}
