package simulate

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy"
)

// frontend is what clients of a Service dial.
type frontend struct {
	netip.AddrPort
	proto model.Protocol
}

// dialled is a connection of a pod, or of a client outside, with a Service or a pod. Its first packets have passed in both directions.
type dialled struct {
	from, to *node
	in, out  string // interfaces of both ends
	request  sim.Packet
	answer   sim.Packet  // the endpoint's last one, as it leaves the endpoint
	flow     policy.Flow // from the client to the endpoint
	direct   bool        // no Service translates it
	seen     netip.Addr  // the source that the endpoint sees
	steady   bool        // allowed all the time, and with its endpoint
	last     *version    // the last version that steady considers
}

// perNode bounds the connections with Services, and with pods, that a node's pods begin after each round, and those that clients outside begin.
const perNode = 3

// firstPort is the lowest source port of these connections. Each has another one.
const firstPort = 41000

// afterPort is added to the source port of a connection for the next one of the same client.
const afterPort = 10000

// shortPauses are below the timeouts of VPP's sessions, as the agent sets them for NAT44, and as cnat has them.
var shortPauses = map[model.Protocol][]time.Duration{
	model.TCP: {0, time.Second, 119 * time.Second, 121 * time.Second, 301 * time.Second, 3599 * time.Second},
	model.UDP: {0, time.Second, 10 * time.Second, 29 * time.Second},
}

// cnatAges is longer than cnat keeps any idle session.
const cnatAges = 3601 * time.Second

// setting is what happened in a round, as far as connections that continue depend on it.
type setting struct {
	versions  []int
	empty     bool           // the API server had no objects for a time
	back      bool           // clients saw earlier objects again
	disturbed map[*node]bool // VPP lost its state, another program changed it, or dumps lost details
}

// settingOf is the setting that actions make.
func (r *run) settingOf(versions []int, actions []Action) setting {
	s := setting{versions: versions, disturbed: map[*node]bool{}}
	for _, a := range actions {
		switch a.Kind {
		case KillVPP, BareVPP, LosePower, DriftVPP, LoseDumps:
			s.disturbed[r.nodes[a.Node%len(r.nodes)]] = true
		case StaleAPI, BackAPI:
			s.back = true
		case EmptyAPI:
			s.empty = true
		}
	}
	return s
}

// checkDialled sends the next request of each connection, and begins others.
func (r *run) checkDialled(v *version) error {
	rng := rand.New(rand.NewPCG(r.Seed, 31+uint64(r.dialled)))
	var left []*dialled
	for _, c := range r.talks {
		stays, err := r.nextRequest(v, c, rng)
		if err != nil {
			return err
		}
		if stays {
			left = append(left, c)
		}
	}
	r.talks = left
	var begun []*dialled
	for _, n := range r.nodes {
		begun = append(begun, r.dial(v, n, rng)...)
	}
	r.round = setting{versions: []int{r.now}}
	for _, c := range begun { // at once: the next round may end it
		if _, err := r.nextRequest(v, c, rng); err != nil {
			return err
		}
	}
	r.talks = append(r.talks, begun...)
	return nil
}

// nextRequest checks one connection. false: one of its ends has no interface any more.
func (r *run) nextRequest(v *version, c *dialled, rng *rand.Rand) (stays bool, err error) {
	at, _ := localPods(v, c.from.name)
	if c.in != cni.Uplink && at[c.request.Src] != c.in {
		return false, nil
	}
	c.steady = c.steady && r.staysSteady(c)
	verdict := c.judge(v)
	serves := c.direct || slices.Contains(v.frontends()[c.frontend()], c.endpoint())
	switch {
	case !serves, !verdict.Allowed:
		pause := pauses[rng.IntN(len(pauses))]
		if !serves && c.request.Dst.Is6() {
			pause = cnatAges // cnat ends no session of a removed endpoint
		}
		r.Revoked++
		if r.passes(v, c, c.request, pause, c.request.Proto == model.SCTP) == "" {
			why := verdict.Why
			if !serves {
				why = "the Service does not have this endpoint any more"
			}
			return true, fmt.Errorf("%s of a revoked connection reaches %s after a pause of %s: %s", &c.request, c.endpoint(), pause, why)
		}
	case c.steady && c.hidden():
		r.Hidden++
	case c.steady:
		pause := pauses[rng.IntN(len(pauses))]
		if !c.direct {
			short := shortPauses[c.request.Proto]
			pause = short[rng.IntN(len(short))]
		}
		r.Continued++
		if c.request.Proto == model.SCTP {
			r.Lasting++
		}
		next := c.later()
		why := r.passes(v, c, next, pause, true)
		if next.Proto == model.SCTP && untracked(why) {
			r.Untracked++
			c.steady = false
			break
		}
		if why == "" && v.sticky[c.frontend()] {
			why = r.nextConnection(v, c, pause)
		}
		if why != "" {
			return true, fmt.Errorf("%s of a connection with %s that is allowed all the time, after a pause of %s: %s", &next, c.endpoint(), pause, why)
		}
		if rng.IntN(2) == 0 { // the connection continues
			r.exchange(v, c, next)
		}
	}
	return true, nil
}

// judge is the verdict of a version's policies. They do not know a client whose address VPP replaces.
func (c *dialled) judge(v *version) policy.Verdict {
	if c.seen != c.flow.Src && c.flow.Src != c.flow.Dst {
		return v.spec.JudgeHidden(&c.flow, c.seen)
	}
	return v.spec.JudgePods(&c.flow)
}

func (c *dialled) frontend() frontend {
	return frontend{netip.AddrPortFrom(c.request.Dst, c.request.DstPort), c.request.Proto}
}

// later is the next packet of the connection from its client.
func (c *dialled) later() sim.Packet {
	if c.request.Proto == model.SCTP { // its request is the INIT of another association
		return c.request.GoingOn()
	}
	return c.request
}

// untracked reports whether a packet of SCTP was lost at a pod whose policies restrict the other direction, and none of which names ports of SCTP. No association begins or continues
// in this direction, whatever policies say (ADR 11).
func untracked(why string) bool { return strings.Contains(why, ":no-sctp)") }

// hidden reports whether nat44 changes the addresses of an association. It takes those of any session with the receiver, and translates what the receiver sends to them: such an
// association may end, or begin, by sessions of others (renderer/nat44/README.md).
func (c *dialled) hidden() bool { return c.request.Proto == model.SCTP && c.request.Dst.Is4() }

func (c *dialled) endpoint() netip.AddrPort { return netip.AddrPortFrom(c.flow.Dst, c.flow.DstPort) }

// staysSteady reports whether the connection is allowed in all versions of a round, and whether nothing of the round ends it.
func (r *run) staysSteady(c *dialled) bool {
	if r.round.empty || r.round.disturbed[c.from] || r.round.disturbed[c.to] {
		return false
	}
	for _, i := range r.round.versions {
		v := r.history[i]
		if !r.serves(v, c) || c.last != nil && !c.direct && r.endsSessions(c.last, v, c) {
			return false
		}
		c.last = v
	}
	return true
}

// serves reports whether a version allows the connection, and has its ends and its endpoint.
func (r *run) serves(v *version, c *dialled) bool {
	at, _ := localPods(v, c.from.name)
	ends, _ := localPods(v, c.to.name)
	if c.in != cni.Uplink && at[c.request.Src] != c.in || ends[c.flow.Dst] != c.out || !c.judge(v).Allowed {
		return false
	}
	if c.flow.Src == c.flow.Dst && r.exposes(v, c.endpoint()) && !v.spec.JudgeHidden(&c.flow, c.seen).Allowed {
		return false
	}
	return c.direct || slices.Contains(v.frontends()[c.frontend()], c.endpoint())
}

// exposes reports whether clients outside reach an endpoint by a node port. A pod that is its own endpoint cannot be distinguished from them there, and needs a rule that
// allows them (renderer/acl/README.md).
func (r *run) exposes(v *version, endpoint netip.AddrPort) bool {
	for f, list := range v.frontends() {
		if r.owner(v, f.Addr()) != nil && slices.Contains(list, endpoint) {
			return true
		}
	}
	return false
}

// endsSessions reports whether a change of versions may end sessions with an endpoint that stays: NAT44 ends those of all Services with the endpoint when one of
// them is removed, and when one with affinity loses an endpoint. cnat's clients with affinity may get another endpoint by any change.
func (r *run) endsSessions(was, now *version, c *dialled) bool {
	before, after := was.frontendsOf(c.endpoint()), now.frontendsOf(c.endpoint())
	if !maps.Equal(before, after) {
		return true
	}
	for f := range after {
		a, b := was.frontends()[f], now.frontends()[f]
		switch {
		case !now.sticky[f]:
		case f.Addr().Is6() && !slices.Equal(a, b), len(b) < len(a), len(a) != len(b) && r.round.back:
			return true
		}
	}
	return false
}

// nextConnection begins another connection of the client after a pause, without a trace, and returns why it does not reach the same endpoint.
func (r *run) nextConnection(v *version, c *dialled, pause time.Duration) string {
	next := *c
	next.request = c.request.Opening()
	next.request.SrcPort += afterPort
	next.flow.SrcPort += afterPort
	if !next.judge(v).Allowed {
		return ""
	}
	if why := r.passes(v, &next, next.request, pause, true); why != "" {
		return "another connection of the client: " + why
	}
	return ""
}

// passes sends a packet of a connection's client after a pause, without a trace in sessions or in VPPs' clocks. It returns why it does not reach the connection's endpoint,
// or, if that is asked for, why the answer does not reach the client.
func (r *run) passes(v *version, c *dialled, p sim.Packet, pause time.Duration, both bool) string {
	for _, n := range r.nodes {
		m := n.sim.Snapshot()
		defer func() {
			n.sim.Restore(m)
			n.sim.Release()
		}()
		n.sim.Advance(pause)
	}
	to, packet, why := r.carry(v, c.from, c.in, p)
	if why != "" && !both && p.Proto == model.TCP { // the endpoint sends its last answer again, and the client its request (ADR 12)
		_, _, _ = r.carry(v, c.to, c.out, c.answer)
		to, packet, why = r.carry(v, c.from, c.in, p)
	}
	switch {
	case why != "":
		return "the request: " + why
	case netip.AddrPortFrom(packet.Dst, packet.DstPort) != c.endpoint():
		return fmt.Sprintf("the request arrives as %s", &packet)
	case !both:
		return ""
	}
	return r.answers(v, c, to, packet)
}

// answers sends the answer to a packet that has arrived, and returns why it does not reach the client with the source that the client dialled.
func (r *run) answers(v *version, c *dialled, at place, packet sim.Packet) string {
	end, answer, why := r.carry(v, at.node, at.iface, packet.Reply())
	switch {
	case why != "":
		return "the answer: " + why
	case end != place{c.from, c.in} || answer.Src != c.request.Dst || answer.SrcPort != c.request.DstPort || answer.Dst != c.request.Src || answer.DstPort != c.request.SrcPort:
		return fmt.Sprintf("the answer arrives at %s as %s", end.iface, &answer)
	}
	return ""
}

// exchange sends a packet and its answer.
func (r *run) exchange(v *version, c *dialled, p sim.Packet) (to place, arrived sim.Packet, why string) {
	to, arrived, why = r.carry(v, c.from, c.in, p)
	if why == "" {
		why = r.answers(v, c, to, arrived)
	}
	return to, arrived, why
}

// place is an interface of a node.
type place struct {
	node  *node
	iface string
}

// carry sends a packet by an interface of a node, and from node to node. It returns where it arrives, or why it does not.
func (r *run) carry(v *version, n *node, in string, p sim.Packet) (at place, arrived sim.Packet, why string) {
	for range len(r.nodes) + 1 {
		fate := n.sim.Send(in, p)
		i := slices.IndexFunc(fate.Out, func(o sim.Output) bool { return o.Origin == sim.Forwarded })
		if i < 0 {
			return at, p, fmt.Sprintf("%s: %s", n.name, fate.Hops[len(fate.Hops)-1].Text)
		}
		out := fate.Out[i]
		next := r.owner(v, out.Packet.Dst)
		if out.Interface != cni.Overlay && (out.Interface != cni.Uplink || next == nil) {
			return place{n, out.Interface}, out.Packet, ""
		}
		if next == nil || next == n {
			return at, p, fmt.Sprintf("%s: no other node has %s", n.name, out.Packet.Dst)
		}
		n, in, p = next, out.Interface, out.Packet
	}
	return at, p, "it is forwarded in a circle"
}

// owner is the node that has an address, or its pod.
func (r *run) owner(v *version, a netip.Addr) *node {
	for _, o := range v.list {
		if o, ok := o.(*model.Node); ok && (slices.Contains(o.Addrs(), a) || slices.ContainsFunc(o.PodCIDRs, func(p netip.Prefix) bool { return p.Contains(a) })) {
			i := slices.IndexFunc(r.nodes, func(n *node) bool { return n.name == o.Name })
			return r.nodes[i]
		}
	}
	return nil
}

// frontends are those of all Services with their endpoints.
func (v *version) frontends() map[frontend][]netip.AddrPort {
	if v.fronts != nil {
		return v.fronts
	}
	v.fronts, v.sticky = map[frontend][]netip.AddrPort{}, map[frontend]bool{}
	owners := map[frontend]string{} // two Services of the generator may have one cluster IP, which no API server gives them: the first name has it
	add := func(svc *model.Service, port model.ServicePort, a netip.Addr, number uint16) {
		f := frontend{netip.AddrPortFrom(a, number), port.Protocol}
		if by, owned := owners[f]; owned && by < svc.ID.String() {
			return
		}
		owners[f] = svc.ID.String()
		v.fronts[f], v.sticky[f] = v.endpoints(svc, port, a.Is6()), svc.SessionAffinityTimeout > 0
	}
	for _, o := range v.list {
		svc, ok := o.(*model.Service)
		if !ok {
			continue
		}
		for _, port := range svc.Ports {
			for _, a := range svc.ClusterIPs {
				add(svc, port, a, port.Port)
			}
			for _, o := range v.list {
				if n, ok := o.(*model.Node); ok && port.NodePort != 0 {
					for _, a := range n.Addrs() {
						add(svc, port, a, port.NodePort)
					}
				}
			}
		}
	}
	return v.fronts
}

func (v *version) endpoints(svc *model.Service, port model.ServicePort, six bool) (out []netip.AddrPort) {
	for _, o := range v.list {
		s, ok := o.(*model.EndpointSlice)
		if !ok || s.Service != svc.ID || s.IPv6 != six {
			continue
		}
		for _, p := range s.Ports {
			if p.Name != port.Name || p.Protocol != port.Protocol {
				continue
			}
			for _, e := range s.Endpoints {
				if e.Ready {
					out = append(out, netip.AddrPortFrom(e.Addr, p.Port))
				}
			}
		}
	}
	return out
}

// frontendsOf are the frontends with an endpoint.
func (v *version) frontendsOf(endpoint netip.AddrPort) map[frontend]bool {
	out := map[frontend]bool{}
	for f, list := range v.frontends() {
		if slices.Contains(list, endpoint) {
			out[f] = true
		}
	}
	return out
}

// dial begins connections of a node's pods with Services and with pods, and of clients outside with node ports.
func (r *run) dial(v *version, n *node, rng *rand.Rand) (out []*dialled) {
	at, inside := localPods(v, n.name)
	clients := slices.SortedFunc(maps.Keys(at), netip.Addr.Compare)
	fronts := slices.SortedFunc(maps.Keys(v.frontends()), func(a, b frontend) int { return a.Compare(b.AddrPort) })
	rng.Shuffle(len(fronts), func(i, j int) { fronts[i], fronts[j] = fronts[j], fronts[i] })
	rng.Shuffle(len(clients), func(i, j int) { clients[i], clients[j] = clients[j], clients[i] })
	begin := func(limit int, in string, p sim.Packet, direct bool) {
		if len(out) < limit && p.Src.Is4() == p.Dst.Is4() {
			if c := r.dialFrom(v, n, in, p, direct); c != nil {
				out = append(out, c)
			}
		}
	}
	for _, f := range fronts {
		p := sim.Packet{Dst: f.Addr(), Proto: f.proto, DstPort: f.Port()}
		if r.owner(v, p.Dst) == n {
			p.Src = outsider(p.Dst)
			begin(perNode, cni.Uplink, p, false)
		}
		for _, p.Src = range clients {
			if !inside[p.Dst] {
				begin(2*perNode, at[p.Src], p, false)
			}
		}
	}
	served := len(out)
	for _, f := range v.flows {
		if at[f.Src] != "" && f.Src != f.Dst && inside[f.Dst] && f.Proto.Ports() && !f.Undeclared() && v.spec.JudgePods(&f).Allowed {
			begin(served+perNode, at[f.Src], packetOf(&f), true)
		}
	}
	return out
}

// outsider is a client outside the cluster of an address's family.
func outsider(a netip.Addr) netip.Addr {
	if a.Is4() {
		return netip.MustParseAddr("198.51.100.7")
	}
	return netip.MustParseAddr("2001:db8::7")
}

// dialFrom begins a connection from a new port; nil: no pod answered.
func (r *run) dialFrom(v *version, n *node, in string, p sim.Packet, direct bool) *dialled {
	r.dialled++
	p.SrcPort = firstPort + uint16(r.dialled)
	c := &dialled{from: n, in: in, request: p.Opening(), direct: direct, steady: true}
	to, first, why := r.exchange(v, c, c.request)
	local, _ := localPods(v, to.nodeName())
	if why != "" || local[first.Dst] != to.iface {
		return nil
	}
	last := first
	if p.Proto == model.TCP { // SCTP's next request is the INIT of another association, and its next packet another one
		c.request = p.GoingOn()
		if _, last, why = r.exchange(v, c, c.request); why != "" {
			return nil
		}
	}
	c.to, c.out, c.answer = to.node, to.iface, last.Reply()
	c.flow = policy.Flow{Node: n.name, Src: p.Src, Dst: first.Dst, Proto: policy.Protocol(p.Proto), SrcPort: p.SrcPort, DstPort: first.DstPort}
	c.seen = first.Src
	return c
}

func (p place) nodeName() string {
	if p.node == nil {
		return ""
	}
	return p.node.name
}
