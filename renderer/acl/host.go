package acl

import (
	"maps"
	"net/netip"
	"slices"
	"strconv"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/proto/felix"
	"github.com/contiv-agent/contiv-agent/renderer/acl/lists"
	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/acl/netset"
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
// and packets that the node forwards also where they leave (see exit).
//
// Answers pass because the outputs of these interfaces make sessions.

// HostNotEnforced is the reason in the note on a host endpoint of which no part is enforced.
const HostNotEnforced = "is at no interface of VPP: none of it is enforced"

// hostHook has the tables of a host endpoint for the input of an interface.
type hostHook struct {
	endpoint string
	egress   bool
	before   []string // tables in front
	uses     []table.Use
	forwards bool // its last use allows all that no other one decides about, and no other one for all destinations allows
}

// Names of the tables of host endpoints, beside those of segments.
const (
	failsafeIn  = "failsafe-in"
	failsafeOut = "failsafe-out"
	hostPack    = "host-"
)

// allInterfaces is the interface name of a host endpoint for all interfaces.
const allInterfaces = "*"

// evaluateHosts locates the host endpoints and makes their tables.
func (r *Renderer) evaluateHosts() {
	if !r.pods.Hosts {
		return
	}
	r.pods.Hosts = false
	before, old := r.hooks, r.hostSegs
	r.hooks, r.hostSegs = map[string]*hostHook{}, nil
	at := r.hostsAt()
	if len(at) > 0 {
		r.fixHosts(at)
	}
	for _, name := range slices.Sorted(maps.Keys(at)) {
		r.hooks[name] = r.hostInput(name, at[name])
	}
	if id, ok := at[r.pods.Node.Uplink]; ok && r.pods.Node.Host != "" {
		r.hooks[r.pods.Node.Host] = r.hostEgress(r.pods.Node.Host, id)
	}
	for _, seg := range old {
		r.pods.Segs.Drop(seg)
	}
	r.noteHosts(at)
	r.pods.Leaving = r.pods.Leaving || len(before)+len(r.hooks) > 0
}

// hostsAt returns the host endpoints at the uplink and the overlay. Of several the first by name counts (Felix v3.31), and one
// for all interfaces only if no other exists.
func (r *Renderer) hostsAt() map[string]string {
	out := map[string]string{}
	ids := slices.Sorted(maps.Keys(r.hosts))
	for _, all := range []bool{false, true} {
		for _, id := range ids {
			e := r.hosts[id].GetEndpoint()
			if all != (e.GetName() == allInterfaces) {
				continue
			}
			for _, name := range []string{r.pods.Node.Uplink, r.pods.Node.Overlay} {
				if out[name] == "" && name != "" && name != r.pods.Node.Host && (all || r.isAt(e, name)) {
					out[name] = id
				}
			}
		}
	}
	return out
}

// isAt reports whether a host endpoint belongs to an interface. The uplink is the interface with the node's addresses.
func (r *Renderer) isAt(e *felix.HostEndpoint, name string) bool {
	own := e.GetName()
	if own == name {
		return true
	}
	if name != r.pods.Node.Uplink || own != "" && (own == r.pods.Node.Overlay || own == r.pods.Node.Host) {
		return false
	}
	return slices.ContainsFunc(slices.Concat(e.GetExpectedIpv4Addrs(), e.GetExpectedIpv6Addrs()), func(text string) bool {
		p, err := netset.Parse(text)
		return err == nil && p.IsSingleIP() && slices.Contains(r.pods.Node.Addrs, p.Addr())
	})
}

// hostInput returns the hook for packets that enter at the uplink or the overlay.
func (r *Renderer) hostInput(name, id string) *hostHook {
	e := r.hosts[id].GetEndpoint()
	own, forward := policy.SpecOf(false, e.GetTiers(), e.GetProfileIds()), policy.SpecOf(false, e.GetForwardTiers(), nil)
	forward.Forward = true
	passedOn := r.pods.Flatten(&forward)
	h := &hostHook{endpoint: id, before: []string{table.StaticIn, table.StaticOut, failsafeIn, table.Tunnels, leading}, forwards: forwards(passedOn)}
	for _, kind := range r.translated() {
		r.hostUses(h, name, kind, passedOn)
	}
	r.hostUses(h, name, r.ownAddresses(), r.pods.Flatten(&own))
	r.hostUses(h, name, "", passedOn)
	return h
}

// forwards reports whether a program allows by its last step alone, and everything there.
func forwards(steps policy.Steps) bool {
	last := len(steps) - 1
	return steps[last].Lone() && !slices.ContainsFunc(steps, func(s policy.Step) bool { return (s.Clauses[0].Verb == match.Allow) != s.Same(steps[last]) })
}

// hostEgress returns the hook for packets that the node itself sends.
func (r *Renderer) hostEgress(name, id string) *hostHook {
	e := r.hosts[id].GetEndpoint()
	own := policy.SpecOf(true, e.GetTiers(), e.GetProfileIds())
	h := &hostHook{endpoint: id, egress: true, before: []string{table.StaticIn, table.StaticOut, failsafeOut, table.Inward}}
	r.hostUses(h, name, "", r.pods.Flatten(&own))
	return h
}

// hostUses appends the steps of a program, limited to packets of the match with that name ("": all).
func (r *Renderer) hostUses(h *hostHook, name, kind string, steps policy.Steps) {
	for _, s := range steps {
		c := &s.Clauses[len(s.Clauses)-1]
		if kind != "" {
			s = s.And(r.hostMatches[kind], kind)
		} else if s.Lone() {
			h.uses = append(h.uses, table.Use{Seg: nil, Verb: c.Verb, Cause: c.Cause})
			continue
		}
		seg := r.pods.Segs.Take("h\x00"+name+"\x00"+kind+"\x00"+s.Role, table.Scope{Egress: h.egress}, s.Clauses)
		seg.Host = true
		r.hostSegs = append(r.hostSegs, seg)
		h.uses = append(h.uses, table.Use{Seg: seg, Verb: c.Verb, Cause: nil})
	}
}

// hostMatch keeps a match under a name: the same pointer while the match is equal.
func (r *Renderer) hostMatch(kind string, m match.Match) string {
	m.NotProto = -1
	if old := r.hostMatches[kind]; old == nil || !old.Same(&m) {
		r.hostMatches[kind] = &m
	}
	return kind
}

// ownAddresses names the match of packets to the node itself.
func (r *Renderer) ownAddresses() string {
	nets := []netip.Prefix{}
	for _, a := range r.pods.Node.Addrs {
		nets = append(nets, netip.PrefixFrom(a, a.BitLen()))
	}
	slices.SortFunc(nets, netset.Compare)
	return r.hostMatch("own", match.Match{Proto: -1, Dst: match.Side{Nets: nets}})
}

// translated names the matches of packets to addresses of the node that Services translate: the node forwards those, as dialled.
// A Service that leads to the node itself does not count.
func (r *Renderer) translated() []string {
	ports := map[string]*match.Match{}
	for k := range r.pods.Node.Outer {
		o := &r.pods.Node.Outer[k]
		home := slices.ContainsFunc(o.Backends, func(b netip.AddrPort) bool { return slices.Contains(r.pods.Node.Addrs, b.Addr()) })
		if home || r.pods.Node.View(match.FamilyOf(o.Addr)) != dataplane.PreDNAT || !slices.Contains(r.pods.Node.Addrs, o.Addr) {
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
		r.hostMatch(kind, *m)
	}
	return kinds
}

// fixHosts writes the tables of host endpoints that have no segment.
func (r *Renderer) fixHosts(at map[string]string) {
	in, out := &table.Table{Name: failsafeIn}, &table.Table{Name: failsafeOut, Egress: true}
	cause := &dataplane.Cause{Kind: dataplane.CauseStatic, Text: "failsafe ports"}
	for _, p := range r.failsafe[0] {
		for _, a := range r.pods.Node.Addrs {
			in.AddWide(match.Atom{Src: p.Net, Dst: netip.PrefixFrom(a, a.BitLen()), Proto: p.Proto, SrcPorts: match.AllPorts, DstPorts: match.Span{Lo: p.Port, Hi: p.Port}}, cause, r.pods.Node.ByteMatch6)
		}
	}
	for _, p := range r.failsafe[1] {
		for _, f := range match.Families {
			out.AddWide(match.Atom{Src: f.All(), Dst: p.Net, Proto: p.Proto, SrcPorts: match.AllPorts, DstPorts: match.Span{Lo: p.Port, Hi: p.Port}}, cause, r.pods.Node.ByteMatch6)
		}
	}
	r.pods.Store.Fix(in)
	r.pods.Store.Fix(out)
	r.pods.Store.Fix(r.pods.Node.TunnelTable())
	r.pods.Store.Fix(r.pods.Node.InwardTable(at[r.pods.Node.Overlay] != ""))
	r.pods.Store.Fix(r.pods.Node.OutgoingTable())
	r.pods.Store.Fix(r.leadingTable())
}

// hostPlaces returns the input list of an interface with a host endpoint, in at most the given number of tables, which is at least two.
func (r *Renderer) hostPlaces(name string, h *hostHook, most int) []lists.Place {
	var out []lists.Place
	for _, t := range h.before {
		out = append(out, lists.Filled(r.pods.Store, t)...)
	}
	out = append(out, lists.Places(h.uses, h.egress)...)
	if len(out) <= most {
		return out
	}
	last := len(out) - 1 // the last step of a program decides everything
	return []lists.Place{r.packs.Join(hostPack+table.NameOf(name), out[:last]), out[last]}
}

// noteHosts notes the parts of host endpoints that are not enforced.
func (r *Renderer) noteHosts(at map[string]string) {
	for id := range r.hostDirty {
		if r.hosts[id] == nil {
			r.pods.Notes.Forget("host\x00" + id)
		}
	}
	clear(r.hostDirty)
	for id, u := range r.hosts {
		var notes []model.Note
		for _, text := range r.hostProblems(id, u.GetEndpoint(), at) {
			notes = append(notes, model.Note{Ref: model.Ref{Kind: KindHostEndpoint, Name: id}, Reason: text, Refused: true})
		}
		r.pods.Notes.Set("host\x00"+id, notes)
	}
}

func (r *Renderer) hostProblems(id string, e *felix.HostEndpoint, at map[string]string) []string {
	there := false
	for _, is := range at {
		there = there || is == id
	}
	if !there {
		return []string{HostNotEnforced}
	}
	var out []string
	if at[r.pods.Node.Uplink] != id {
		out = append(out, "is not at the uplink: packets that the node itself sends are not evaluated")
	} else if r.pods.Node.Host == "" {
		out = append(out, "packets that the node itself sends do not pass VPP: they are not evaluated")
	}
	if len(r.pods.Node.Addrs) == 0 {
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
