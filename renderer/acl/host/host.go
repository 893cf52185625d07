package host

import (
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/proto/felix"
	"github.com/contiv-agent/contiv-agent/renderer/acl/endpoint"
	"github.com/contiv-agent/contiv-agent/renderer/acl/failsafe"
	"github.com/contiv-agent/contiv-agent/renderer/acl/lists"
	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/acl/netset"
	"github.com/contiv-agent/contiv-agent/renderer/acl/node"
	"github.com/contiv-agent/contiv-agent/renderer/acl/note"
	"github.com/contiv-agent/contiv-agent/renderer/acl/policy"
	"github.com/contiv-agent/contiv-agent/renderer/acl/table"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// Host endpoints are evaluated where packets enter VPP:
//
//	from outside ──▶ input of uplink or overlay ─┬─ to the node itself: failsafe ports, tiers, profiles
//	                                             └─ to anybody else:    tiers for what is passed on
//	from the node ─▶ input of host ───────────────── to anybody but local pods and services: failsafe ports, tiers, profiles
//
// and packets that the node forwards also where they leave (see Exit).
//
// Answers pass because the outputs of these interfaces make sessions.

// NotEnforced is the reason in the note on a host endpoint of which no part is enforced.
const NotEnforced = "is at no interface of VPP: none of it is enforced"

// Hook has the tables of a host endpoint for the input of an interface.
type Hook struct {
	Endpoint string
	Egress   bool
	Before   []string // tables in front
	Uses     []table.Use
	Forwards bool // its last use allows all that no other one decides about, and no other one for all destinations allows
}

// Names of the tables of host endpoints, beside those of segments.
const (
	failsafeIn  = "failsafe-in"
	failsafeOut = "failsafe-out"
	hostPack    = "host-"
)

// allInterfaces is the interface name of a host endpoint for all interfaces.
const allInterfaces = "*"

// Endpoints has the host endpoints, and their tables at the interfaces of the node.
type Endpoints struct {
	pods     *endpoint.Pods
	packs    *lists.Packs
	all      map[string]*felix.HostEndpointUpdate
	hooks    map[string]*Hook    // by interface
	exits    map[string]*Exit    // of host endpoints that deny forwarded packets, by interface
	changed  map[string]struct{} // endpoints
	segs     []*table.Segment    // of hooks
	matches  matches             // of hooks and exits
	failsafe [2][]failsafe.Port  // in, out
}

// New returns no endpoint, and Felix's default failsafe ports.
func New(pods *endpoint.Pods, packs *lists.Packs) *Endpoints {
	return &Endpoints{
		pods: pods, packs: packs, all: map[string]*felix.HostEndpointUpdate{}, hooks: map[string]*Hook{}, changed: map[string]struct{}{},
		matches: matches{}, failsafe: failsafe.Ports(nil),
	}
}

// PutEndpoint adds or replaces an endpoint.
func (g *Endpoints) PutEndpoint(u *felix.HostEndpointUpdate) {
	id := u.GetId().GetEndpointId()
	g.all[id], g.changed[id], g.pods.Hosts = u, struct{}{}, true
}

// RemoveEndpoint removes an endpoint.
func (g *Endpoints) RemoveEndpoint(id string) {
	delete(g.all, id)
	g.changed[id], g.pods.Hosts = struct{}{}, true
}

// Configure takes Felix's settings, which have the failsafe ports.
func (g *Endpoints) Configure(settings map[string]string) {
	g.failsafe, g.pods.Hosts = failsafe.Ports(settings), true
}

// Empty reports whether there are no endpoints, and no exits of earlier ones.
func (g *Endpoints) Empty() bool { return len(g.all)+len(g.exits) == 0 }

// HasExits reports whether some endpoint denies forwarded packets.
func (g *Endpoints) HasExits() bool { return len(g.exits) > 0 }

// Enforces reports whether an interface has a hook or an exit.
func (g *Endpoints) Enforces() bool { return len(g.hooks)+len(g.exits) > 0 }

// Hook returns the hook at an interface; nil: none.
func (g *Endpoints) Hook(iface string) *Hook { return g.hooks[iface] }

// Exit returns the exit at an interface; nil: none.
func (g *Endpoints) Exit(iface string) *Exit { return g.exits[iface] }

// PodsMoved marks the endpoints if their exits depend on the addresses of local pods.
func (g *Endpoints) PodsMoved() { g.pods.Hosts = g.pods.Hosts || len(g.exits) > 0 }

// PoliciesChanged marks the endpoints if policies changed.
func (g *Endpoints) PoliciesChanged() {
	g.pods.Hosts = g.pods.Hosts || len(g.all) > 0 && g.pods.Book.Changed()
}

// Evaluate locates the endpoints and makes their tables.
func (g *Endpoints) Evaluate() {
	if !g.pods.Hosts {
		return
	}
	g.pods.Hosts = false
	before, old := g.hooks, g.segs
	g.hooks, g.segs = map[string]*Hook{}, nil
	at := g.hostsAt()
	if len(at) > 0 {
		g.fixHosts(at)
	}
	for _, name := range slices.Sorted(maps.Keys(at)) {
		g.hooks[name] = g.hostInput(name, at[name])
	}
	if id, ok := at[g.pods.Node.Uplink]; ok && g.pods.Node.Host != "" {
		g.hooks[g.pods.Node.Host] = g.hostEgress(g.pods.Node.Host, id)
	}
	for _, seg := range old {
		g.pods.Segs.Drop(seg)
	}
	g.noteHosts(at)
	g.pods.Leaving = g.pods.Leaving || len(before)+len(g.hooks) > 0
}

// hostsAt returns the host endpoints at the uplink and the overlay. Of several the first by name counts (Felix v3.31), and one
// for all interfaces only if no other exists.
func (g *Endpoints) hostsAt() map[string]string {
	out := map[string]string{}
	ids := slices.Sorted(maps.Keys(g.all))
	for _, all := range []bool{false, true} {
		for _, id := range ids {
			e := g.all[id].GetEndpoint()
			if all != (e.GetName() == allInterfaces) {
				continue
			}
			for _, name := range []string{g.pods.Node.Uplink, g.pods.Node.Overlay} {
				if out[name] == "" && name != "" && name != g.pods.Node.Host && (all || isAt(g.pods.Node, e, name)) {
					out[name] = id
				}
			}
		}
	}
	return out
}

// isAt reports whether a host endpoint belongs to an interface. The uplink is the interface with the node's addresses.
func isAt(n *node.Node, e *felix.HostEndpoint, name string) bool {
	own := e.GetName()
	if own == name {
		return true
	}
	if name != n.Uplink || own != "" && (own == n.Overlay || own == n.Host) {
		return false
	}
	return slices.ContainsFunc(slices.Concat(e.GetExpectedIpv4Addrs(), e.GetExpectedIpv6Addrs()), func(text string) bool {
		p, err := netset.Parse(text)
		return err == nil && p.IsSingleIP() && slices.Contains(n.Addrs, p.Addr())
	})
}

// hostInput returns the hook for packets that enter at the uplink or the overlay.
func (g *Endpoints) hostInput(name, id string) *Hook {
	e := g.all[id].GetEndpoint()
	own, forward := policy.SpecOf(false, e.GetTiers(), e.GetProfileIds()), policy.SpecOf(false, e.GetForwardTiers(), nil)
	forward.Forward = true
	passedOn := g.pods.Flatten(&forward)
	h := &Hook{Endpoint: id, Before: []string{table.StaticIn, table.StaticOut, failsafeIn, table.Tunnels, leading}, Forwards: forwards(passedOn)}
	for _, kind := range g.translated() {
		g.hostUses(h, name, kind, passedOn)
	}
	g.hostUses(h, name, g.ownAddresses(), g.pods.Flatten(&own))
	g.hostUses(h, name, "", passedOn)
	return h
}

// forwards reports whether a program allows by its last step alone, and everything there.
func forwards(steps policy.Steps) bool {
	last := len(steps) - 1
	return steps[last].Lone() && !slices.ContainsFunc(steps, func(s policy.Step) bool { return (s.Clauses[0].Verb == match.Allow) != s.Same(steps[last]) })
}

// hostEgress returns the hook for packets that the node itself sends.
func (g *Endpoints) hostEgress(name, id string) *Hook {
	e := g.all[id].GetEndpoint()
	own := policy.SpecOf(true, e.GetTiers(), e.GetProfileIds())
	h := &Hook{Endpoint: id, Egress: true, Before: []string{table.StaticIn, table.StaticOut, failsafeOut, table.Inward}}
	g.hostUses(h, name, "", g.pods.Flatten(&own))
	return h
}

// hostUses appends the steps of a program, limited to packets of the match with that name ("": all).
func (g *Endpoints) hostUses(h *Hook, name, kind string, steps policy.Steps) {
	for _, s := range steps {
		c := &s.Clauses[len(s.Clauses)-1]
		if kind != "" {
			s = s.And(g.matches[kind], kind)
		} else if s.Lone() {
			h.Uses = append(h.Uses, table.Use{Seg: nil, Verb: c.Verb, Cause: c.Cause})
			continue
		}
		seg := g.pods.Segs.Take("h\x00"+name+"\x00"+kind+"\x00"+s.Role, table.Scope{Egress: h.Egress}, s.Clauses)
		seg.Host = true
		g.segs = append(g.segs, seg)
		h.Uses = append(h.Uses, table.Use{Seg: seg, Verb: c.Verb, Cause: nil})
	}
}

// matches are matches by kind of packets.
type matches map[string]*match.Match

// keepMatch keeps a match under a name: the same pointer while the match is equal.
func (x matches) keepMatch(kind string, m match.Match) string {
	m.NotProto = -1
	if old := x[kind]; old == nil || !old.Same(&m) {
		x[kind] = &m
	}
	return kind
}

// ownAddresses names the match of packets to the node itself.
func (g *Endpoints) ownAddresses() string {
	nets := []netip.Prefix{}
	for _, a := range g.pods.Node.Addrs {
		nets = append(nets, netip.PrefixFrom(a, a.BitLen()))
	}
	slices.SortFunc(nets, netset.Compare)
	return g.matches.keepMatch("own", match.Match{Proto: -1, Dst: match.Side{Nets: nets}})
}

// translated names the matches of packets to addresses of the node that Services translate: the node forwards those, as dialled.
// A Service that leads to the node itself does not count.
func (g *Endpoints) translated() []string {
	ports := map[string]*match.Match{}
	for k := range g.pods.Node.Outer {
		o := &g.pods.Node.Outer[k]
		home := slices.ContainsFunc(o.Backends, func(b netip.AddrPort) bool { return slices.Contains(g.pods.Node.Addrs, b.Addr()) })
		if home || g.pods.Node.View(match.FamilyOf(o.Addr)) != dataplane.PreDNAT || !slices.Contains(g.pods.Node.Addrs, o.Addr) {
			continue
		}
		kind := "services " + strconv.Itoa(int(o.Proto)) + " " + o.Addr.String()
		if ports[kind] == nil {
			ports[kind] = &match.Match{Proto: int(o.Proto), Dst: match.Side{Nets: []netip.Prefix{netip.PrefixFrom(o.Addr, o.Addr.BitLen())}}}
		}
		ports[kind].Dst.Ports = append(ports[kind].Dst.Ports, match.Span{Lo: o.Port, Hi: o.Port})
	}
	kinds := slices.Sorted(maps.Keys(ports))
	for _, kind := range kinds {
		m := ports[kind]
		slices.SortFunc(m.Dst.Ports, func(a, b match.Span) int { return int(a.Lo) - int(b.Lo) })
		m.Dst.Ports = match.JoinSpans(m.Dst.Ports)
		g.matches.keepMatch(kind, *m)
	}
	return kinds
}

// fixHosts writes the tables of host endpoints that have no segment.
func (g *Endpoints) fixHosts(at map[string]string) {
	in, out := &table.Table{Name: failsafeIn}, &table.Table{Name: failsafeOut, Egress: true}
	cause := &dataplane.Cause{Kind: dataplane.CauseStatic, Text: "failsafe ports"}
	for _, p := range g.failsafe[0] {
		for _, a := range g.pods.Node.Addrs {
			in.AddWide(match.Atom{Src: p.Net, Dst: netip.PrefixFrom(a, a.BitLen()), Proto: p.Proto, SrcPorts: match.AllPorts, DstPorts: match.Span{Lo: p.Port, Hi: p.Port}}, cause, g.pods.Node.ByteMatch6)
		}
	}
	for _, p := range g.failsafe[1] {
		for _, f := range match.Families {
			out.AddWide(match.Atom{Src: f.All(), Dst: p.Net, Proto: p.Proto, SrcPorts: match.AllPorts, DstPorts: match.Span{Lo: p.Port, Hi: p.Port}}, cause, g.pods.Node.ByteMatch6)
		}
	}
	g.pods.Store.Fix(in)
	g.pods.Store.Fix(out)
	g.pods.Store.Fix(g.pods.Node.TunnelTable())
	g.pods.Store.Fix(g.pods.Node.InwardTable(at[g.pods.Node.Overlay] != ""))
	g.pods.Store.Fix(g.pods.Node.OutgoingTable())
	g.pods.Store.Fix(g.leadingTable())
}

// HookPlaces returns the input list of an interface with a host endpoint, in at most the given number of tables, which is at least two.
func (g *Endpoints) HookPlaces(name string, h *Hook, most int) []lists.Place {
	var out []lists.Place
	for _, t := range h.Before {
		out = append(out, lists.Filled(g.pods.Store, t)...)
	}
	out = append(out, lists.Places(h.Uses, h.Egress)...)
	if len(out) <= most {
		return out
	}
	last := len(out) - 1 // the last step of a program decides everything
	return []lists.Place{g.packs.Join(hostPack+table.NameOf(name), out[:last]), out[last]}
}

// noteHosts notes the parts of host endpoints that are not enforced.
func (g *Endpoints) noteHosts(at map[string]string) {
	for id := range g.changed {
		if g.all[id] == nil {
			g.pods.Notes.Forget("host\x00" + id)
		}
	}
	clear(g.changed)
	for id, u := range g.all {
		var notes []model.Note
		for _, text := range g.hostProblems(id, u.GetEndpoint(), at) {
			notes = append(notes, model.Note{Ref: model.Ref{Kind: note.KindHostEndpoint, Name: id}, Reason: text, Refused: true})
		}
		g.pods.Notes.Set("host\x00"+id, notes)
	}
}

func (g *Endpoints) hostProblems(id string, e *felix.HostEndpoint, at map[string]string) []string {
	there := false
	for _, is := range at {
		there = there || is == id
	}
	if !there {
		return []string{NotEnforced}
	}
	var out []string
	if at[g.pods.Node.Uplink] != id {
		out = append(out, "is not at the uplink: packets that the node itself sends are not evaluated")
	} else if g.pods.Node.Host == "" {
		out = append(out, "packets that the node itself sends do not pass VPP: they are not evaluated")
	}
	if len(g.pods.Node.Addrs) == 0 {
		out = append(out, "the node's addresses are not known: all that comes in counts as passed on")
	}
	if len(e.GetUntrackedTiers()) > 0 {
		out = append(out, "untracked policies are not enforced")
	}
	if len(e.GetPreDnatTiers()) > 0 {
		out = append(out, "policies before DNAT are not enforced")
	}
	return out
}

// CrowdedNotes notes the endpoints whose tables in the lists of an interface are closed because they have too many rules.
func (g *Endpoints) CrowdedNotes(name string, l lists.Lists) (notes []model.Note) {
	for _, at := range slices.Concat(l.In, l.Out) {
		if !g.packs.Over(at.Table) {
			continue
		}
		one := model.Note{Reason: "its policies make too many rules: what they allow is denied", Refused: true}
		switch h, e := g.hooks[name], g.exits[name]; {
		case h != nil && strings.HasPrefix(at.Table, hostPack):
			one.Ref = model.Ref{Kind: note.KindHostEndpoint, Name: h.Endpoint}
		case e != nil && strings.HasPrefix(at.Table, exitPack):
			one.Ref = model.Ref{Kind: note.KindHostEndpoint, Name: e.Endpoint}
		default:
			continue
		}
		notes = append(notes, one)
	}
	return notes
}
