package closed

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"

	"github.com/contiv-agent/contiv-agent/budget"
	"github.com/contiv-agent/contiv-agent/renderer/acl/denial"
	"github.com/contiv-agent/contiv-agent/renderer/acl/endpoint"
	"github.com/contiv-agent/contiv-agent/renderer/acl/group"
	"github.com/contiv-agent/contiv-agent/renderer/acl/lists"
	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/acl/table"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// A closed pod C has policies in both directions. C's input lets pass what is for a Service. A later list may drop that packet, but it made two
// sessions: one of NAT44, and one at C's interface. By these sessions a packet from the endpoint E reaches C under the Service's address, and no
// list behind NAT44 sees E's address. So E's input decides:
//
//	C ──▶ input of C: to a Service ──▶ NAT44 (session) ──▶ output of E: drop
//	E ──▶ input of E: refused, unless C's ingress admits it, or C's egress admits E at that source port ──▶ NAT44 ──▶ output of C (session)
//
// A refused packet is one that C's own list would drop without these sessions. For one sender only ports remain, as with residues: the refusal
// is the part of the ingress denials that the egress denials, with ports exchanged, cover too.

// closedPods are the pods with one pair of programs that restrict both directions.
type closedPods struct {
	key     string
	in, out *endpoint.Program
	addrs   []netip.Addr // of the pods, where the input hook sees Services; sorted
	blind   bool         // a refusal is equal for all of addrs
	part    int          // of group.Parts
	stale   bool         // refusals have to be computed again
	moved   bool         // addrs differ from those in tables
	refused string       // why refusals are short: exact ones exceed a limit; "": they are exact
}

// refusal has the packets to closed pods that one sender may not send.
type refusal struct {
	lines []refusalLine
	sig   string // equal for refusals with equal lines
}

// refusalLine is for one sender's address and one closed pod's. from is invalid if the source check admits no other address; to is
// invalid if the line is for all of the closed pods.
type refusalLine struct {
	from, to netip.Addr
	rects    []denial.Rect
}

// refusalGroup is one table of refusals, at all senders where they are equal.
type refusalGroup = group.Group[*closedPods, *refusal]

// GroupKey is the name of closed pods.
func (c *closedPods) GroupKey() string { return c.key }

// Part is the part of the closed pods' tables.
func (c *closedPods) Part() int { return c.part }

// renote has the notes about refused copies made again: they name the closed pods' addresses.
func (c *closedPods) renote(pods *endpoint.Pods) { pods.Leaving = pods.Leaving || c.refused != "" }

// Signature is equal for refusals with equal lines.
func (res *refusal) Signature() string { return res.sig }

// sender has the refusals at the input of one interface.
type sender struct {
	refusals map[*closedPods]*refusal
	asks     map[*closedPods]ask // sizes of the exact ones
	groups   []*refusalGroup
	regroup  bool
	own      bool // its source check admits only its addresses
}

// Refuser evaluates what other pods may not send to closed pods.
type Refuser struct {
	pods    *endpoint.Pods
	packs   *lists.Packs
	denials Denials
	checks  Checks
	limits  budget.Limits // of refusals: rules and tables
	resized bool          // refusals may have other sizes than at the last verdict
	closed  map[[2]*endpoint.Program]*closedPods
	senders map[*endpoint.Iface]*sender
	groups  *group.Groups[*closedPods, *refusal]
	invitations
}

// Denials has the result of egress programs at local pods.
type Denials interface {
	// Denies reports whether a program denies packets to a pod.
	Denies(i *endpoint.Iface, p *endpoint.Program) bool
}

// Checks has the source checks of pods' interfaces.
type Checks interface {
	// SendsOwn reports whether the check of an interface admits the pod's addresses only.
	SendsOwn(i *endpoint.Iface) bool
}

// New returns a refuser without closed pods. Limits bound the rules and the tables of refusals; zero: nothing does.
func New(pods *endpoint.Pods, packs *lists.Packs, denials Denials, checks Checks, limits budget.Limits) *Refuser {
	return &Refuser{
		pods: pods, packs: packs, denials: denials, checks: checks, limits: limits,
		closed: map[[2]*endpoint.Program]*closedPods{}, senders: map[*endpoint.Iface]*sender{},
		groups: group.New(table.ClosedPrefix, pods.Store, refusalTable), invitations: newInvitations(),
	}
}

// mostRects bounds the rules for one sender and one closed pod. The largest remain: the rest is let pass, and C's own list drops it unless C invited it.
const mostRects = 256

// Evaluate updates the refusals and the invitations. It runs after residues are known, and before their marks are removed.
func (g *Refuser) Evaluate() {
	d := &g.pods.Marks
	if !g.pods.Senders && len(d.Changed)+len(d.Moved)+len(d.Members) == 0 {
		return
	}
	gone := g.locateClosed()
	g.pods.Senders = false
	if len(g.closed)+len(gone) == 0 {
		return
	}
	g.invite()
	for _, i := range g.pods.Ifaces {
		s := g.senders[i]
		if s == nil {
			s = &sender{refusals: map[*closedPods]*refusal{}, asks: map[*closedPods]ask{}}
			g.senders[i] = s
		}
		for _, c := range gone {
			delete(s.asks, c)
			s.replaceRefusal(c, nil)
		}
		_, all := d.Moved[i]
		own := g.checks.SendsOwn(i)
		all, s.own = all || own != s.own, own
		for _, c := range g.closed {
			if all || c.stale || g.touched(i, c) {
				g.updateRefusal(i, s, c)
			}
		}
	}
	if g.resized {
		g.boundRefusals()
	}
	for _, i := range g.pods.Ifaces {
		if s := g.senders[i]; s.regroup {
			g.regroupAt(i, s)
		}
	}
	g.rewriteTables()
}

// replaceRefusal replaces the refusal for closed pods; nil: none.
func (s *sender) replaceRefusal(c *closedPods, now *refusal) {
	old := s.refusals[c]
	if now == nil {
		delete(s.refusals, c)
	} else {
		s.refusals[c] = now
	}
	s.regroup = s.regroup || (old == nil) != (now == nil) || old != nil && old.sig != now.sig
}

// locateClosed finds the closed pods. It returns those that exist no more.
func (g *Refuser) locateClosed() (gone []*closedPods) {
	addrs := map[[2]*endpoint.Program][]netip.Addr{}
	if n := g.pods.Node; len(n.Frontends)+len(n.Outer) > 0 {
		for _, i := range g.pods.Ifaces {
			if i.Progs[0].Closes() && i.Progs[1].Closes() {
				if list := n.Early(addrs[i.Progs], i.Addrs); len(list) > 0 {
					addrs[i.Progs] = list
				}
			}
		}
	}
	for key, c := range g.closed {
		if addrs[key] == nil {
			gone = append(gone, c)
			c.renote(g.pods)
			g.resized = true
			delete(g.closed, key)
		}
	}
	for key, list := range addrs {
		slices.SortFunc(list, netip.Addr.Compare)
		c := g.closed[key]
		if c == nil {
			c = &closedPods{key: strconv.Itoa(len(key[0].Key)) + key[0].Key + key[1].Key, in: key[0], out: key[1], stale: true}
			c.part = group.PartOf(c.key)
			g.closed[key] = c
		}
		_, in := g.pods.Changed[c.in]
		_, out := g.pods.Changed[c.out]
		if c.stale = c.stale || in || out; c.stale {
			c.blind = c.in.Steps.IgnoresDestinations() && c.out.Steps.IgnoresSources()
		}
		if c.moved = !slices.Equal(c.addrs, list); c.moved {
			c.renote(g.pods)
			g.resized = true
			c.addrs, c.stale = list, c.stale || !c.blind
		}
	}
	return gone
}

// touched reports whether a sender joined or left a set that the programs of closed pods use. A closed pod that did so changes its program, or
// every refusal that depends on its address.
func (g *Refuser) touched(i *endpoint.Iface, c *closedPods) bool {
	for id, members := range g.pods.Members {
		touches := func(a netip.Addr) bool {
			return slices.ContainsFunc(members, func(m netip.Prefix) bool { return m.Contains(a) })
		}
		if (slices.ContainsFunc(i.Addrs, touches) || !c.blind && slices.ContainsFunc(c.addrs, touches)) && (c.in.Steps.NamesSet(id) || c.out.Steps.NamesSet(id)) {
			return true
		}
	}
	return false
}

// refusal computes which packets a pod may not send to closed pods; nil: it may send all.
func (g *Refuser) refusal(i *endpoint.Iface, s *sender, c *closedPods) *refusal {
	if !g.denials.Denies(i, c.out) { // their egress admits all ports
		return nil
	}
	froms, tos := g.pods.Node.Early(nil, i.Addrs), c.addrs
	if c.blind {
		tos = tos[:1]
	}
	res := &refusal{}
	for _, from := range froms {
		for _, to := range tos {
			if match.FamilyOf(from) != match.FamilyOf(to) {
				continue
			}
			line := refusalLine{from: from, to: to}
			line.rects = uninvited(denial.Of(g.pods.Sets, c.in.Steps.Each, from, to), denial.Of(g.pods.Sets, c.out.Steps.Each, to, from))
			if len(line.rects) == 0 {
				continue
			}
			if len(froms) == 1 && s.own {
				line.from = netip.Addr{}
			}
			if c.blind {
				line.to = netip.Addr{}
			}
			res.lines = append(res.lines, line)
		}
	}
	if len(res.lines) == 0 {
		return nil
	}
	res.sign()
	return res
}

// uninvited returns the denied packets that are no answers: those of denied whose ports, exchanged, are in back.
func uninvited(denied, back []denial.Rect) (out []denial.Rect) {
	for _, d := range denied {
		for _, b := range back {
			s, ok := d.Sport.And(b.Dport)
			t, also := d.Dport.And(b.Sport)
			if ok && also && d.Proto == b.Proto {
				out = append(out, denial.Rect{Proto: d.Proto, Sport: s, Dport: t, Cause: d.Cause})
			}
		}
	}
	if len(out) > mostRects {
		slices.SortStableFunc(out, func(a, b denial.Rect) int { return cmp.Compare(b.Size(), a.Size()) })
		out = out[:mostRects]
	}
	return out
}

// sign makes a refusal's signature.
func (res *refusal) sign() {
	var b []byte
	for _, l := range res.lines {
		for _, a := range [2]netip.Addr{l.from, l.to} {
			b = append(a.AppendTo(b), ' ')
		}
		b = append(strconv.AppendInt(b, int64(len(l.rects)), 10), ' ')
		for _, c := range l.rects {
			b = c.AppendTo(b)
		}
	}
	res.sig = string(b)
}

// regroupAt assigns the refusals at a sender to tables.
func (g *Refuser) regroupAt(i *endpoint.Iface, s *sender) {
	s.groups, s.regroup = g.groups.Replace(s.groups, s.refusals), false
	g.pods.Relist(i)
}

// rewriteTables writes the tables of closed pods that changed.
func (g *Refuser) rewriteTables() {
	for _, c := range g.closed {
		if c.stale || c.moved {
			g.groups.Rewrite(c)
		}
		c.stale, c.moved = false, false
	}
}

// refusalTable writes a group's table.
func refusalTable(q *refusalGroup) *table.Table {
	t := &table.Table{Name: q.Name}
	for _, m := range q.Members {
		for _, l := range m.Contribution.lines {
			for _, to := range l.targets(m.Owner) {
				src := match.FamilyOf(to).All()
				if l.from.IsValid() {
					src = netip.PrefixFrom(l.from, l.from.BitLen())
				}
				for _, c := range l.rects {
					t.Add(c.Atom(src, netip.PrefixFrom(to, to.BitLen())), c.Cause)
				}
			}
		}
	}
	return t
}

// targets returns the closed pods' addresses that a line is for.
func (l *refusalLine) targets(c *closedPods) []netip.Addr {
	if l.to.IsValid() {
		return []netip.Addr{l.to}
	}
	return c.addrs
}

// Places returns the places of refusals in the input list of an interface.
func (g *Refuser) Places(i *endpoint.Iface) (out []lists.Place) {
	if s := g.senders[i]; s != nil {
		for _, q := range s.groups {
			short := slices.ContainsFunc(q.Members, func(m group.Member[*closedPods, *refusal]) bool { return m.Owner.refused != "" })
			out = append(out, lists.Place{Table: q.Name, Denies: true, Repeats: !short})
		}
	}
	return out
}

// SetReplaced marks the closed pods whose programs use a set.
func (g *Refuser) SetReplaced(id string) {
	for _, c := range g.closed {
		if c.in.Steps.NamesSet(id) || c.out.Steps.NamesSet(id) {
			c.stale, g.pods.Senders = true, true
		}
	}
}

// ForgetIface forgets an interface that exists no more.
func (g *Refuser) ForgetIface(i *endpoint.Iface) {
	if s := g.senders[i]; s != nil {
		g.groups.Release(s.groups)
		delete(g.senders, i)
	}
	g.pods.Senders, g.resized = true, true
}

// Cause completes the cause of a rule in a table of refusals at a sender: equal rules may have other causes at other senders. It returns the
// address of the pod that refuses the packet.
func (g *Refuser) Cause(i *endpoint.Iface, name string, rule int, c *dataplane.Cause) (of netip.Addr, ok bool) {
	q := g.groups.Named(name)
	if q == nil || g.senders[i] == nil {
		return of, false
	}
	n := 0
	for _, m := range q.Members {
		res := g.senders[i].refusals[m.Owner]
		for k, l := range m.Contribution.lines {
			for _, to := range l.targets(m.Owner) {
				if at := rule - n; at < len(l.rects) {
					if res != nil && k < len(res.lines) && at < len(res.lines[k].rects) {
						*c = *res.lines[k].rects[at].Cause
					}
					return to, true
				}
				n += len(l.rects)
			}
		}
	}
	return of, false
}
