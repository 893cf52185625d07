package cnat

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/contiv-agent/contiv-agent/model"
)

// Network is the plugin's view of the rest of VPP. All methods concern table 0.
type Network interface {
	// Address is the first address of a family on an interface.
	Address(swIf uint32, v6 bool) (netip.Addr, bool)
	// Own makes an address one of the plugin: packets to it meet FIB. Exclusively, other routes to it are hidden.
	Own(a netip.Addr, exclusive bool)
	Disown(a netip.Addr)
	// Track ensures a host route to an address, and counts its users.
	Track(a netip.Addr)
	Untrack(a netip.Addr)
}

// Config of an Engine. Net is required.
type Config struct {
	Net Network
	Now func() time.Duration // time since VPP's boot; nil: the clock stands at 0
	// EchoInErrors: ICMP errors about echoes are translated, as VPP does since 25.02.
	EchoInErrors bool
	// Anew: the plugin is that of 26.06, which was written anew. VPP looks for a flow only where its packets come in, so those of a known flow, and those
	// that it did not look for, get no new source where they leave. It looks again where a route leads to an address of a frontend, so that the answers of an
	// endpoint that has this address are not translated. And IPv6 addresses with the same last 32 bits count as one that reaches itself.
	// Answers to an echo of IPv6 whose sender got another address are not translated.
	Anew bool
}

// Engine is the plugin of one VPP. Methods named like API messages return VPP's retval.
type Engine struct {
	net  Network
	now  func() time.Duration
	echo bool
	anew bool
	pick func(n int) int

	pool    []*translation // by ID; nil: free
	free    []uint32
	byKey   map[trKey]uint32
	watched []watch

	policy   Policy
	snat     [2]Endpoint // per family
	excluded map[netip.Prefix]struct{}
	tables   [tableCount]map[uint32]bool

	dynamic
}

// translation is a translation in the plugin's form.
type translation struct {
	id     uint32
	vip    Endpoint
	proto  uint8
	flags  uint8
	lb     LBType
	hash   uint32
	client *client // nil: the VIP's address is not known
	paths  []Path
	active []Path
	maglev []int // into active
}

// trKey identifies a translation: by client, or by interface while it has no client.
type trKey struct {
	client *client
	swIf   uint32
	v6     bool
	port   uint16
	proto  uint8
}

// watch is an endpoint given by an interface. path is the index of its path; -1 for a VIP.
type watch struct {
	t    *translation
	path int
	src  bool
}

// New returns the plugin after VPP's start.
func New(c Config) *Engine {
	e := &Engine{net: c.Net, now: c.Now, echo: c.EchoInErrors, anew: c.Anew, byKey: map[trKey]uint32{}, excluded: map[netip.Prefix]struct{}{}}
	if e.now == nil {
		e.now = func() time.Duration { return 0 }
	}
	for i := range e.tables {
		e.tables[i] = map[uint32]bool{}
	}
	e.snat = [2]Endpoint{{Addr: netip.IPv4Unspecified()}, {Addr: netip.IPv6Unspecified()}} // interface 0, before the first cnat_set_snat_addresses
	e.sessions, e.clients = map[sessionKey]*session{}, map[netip.Addr]*client{}
	return e
}

// SetChoice replaces the choice of a backend: f receives the number of active paths, in their given order, and returns one of
// 0..n-1. Nil restores VPP's choice.
func (e *Engine) SetChoice(f func(n int) int) { e.pick = f }

// resolve is cnat_resolve_ep; it reports whether the address is known.
func (e *Engine) resolve(p *Endpoint) bool {
	if p.SwIf == None {
		p.resolved = true
		return true
	}
	a, ok := e.net.Address(p.SwIf, p.Addr.Is6())
	if ok {
		p.Addr, p.resolved = a, true
	}
	return ok
}

// unresolved returns an endpoint from the API: the interface's address is not known yet.
func unresolved(p Endpoint) Endpoint {
	p.resolved = false
	if p.SwIf != None {
		p.Addr = unspecified(p.Addr.Is6())
	}
	return p
}

func unspecified(v6 bool) netip.Addr {
	if v6 {
		return netip.IPv6Unspecified()
	}
	return netip.IPv4Unspecified()
}

// knownProto is ip_proto_decode: vnet/ip/protocols.def has no others.
func knownProto(p uint8) bool {
	switch {
	case p == 61, p == 63, p == 68, p == 99, p == 114:
		return false
	}
	return p <= 143 || p >= 253
}

// TranslationUpdate is cnat_translation_update: it adds a translation, or sets new paths and flags for that of the same address,
// port and protocol. The choice of backends, and whether the address is exclusive, are fixed when the translation and the address
// are new.
func (e *Engine) TranslationUpdate(t Translation) (id uint32, retval int32) {
	if !knownProto(t.Proto) {
		return None, InvalidProtocol
	}
	if len(t.Paths) == 0 {
		panic(&Crash{"cnat_translation_update without paths: out of memory in vec_validate (-1)"})
	}
	vip := unresolved(t.VIP)
	var old *translation
	var c *client
	if e.resolve(&vip) {
		c = e.addClient(vip.Addr, t.Flags&Exclusive != 0)
		old = e.findTranslation(c, vip.Port, t.Proto)
	}
	if old == nil {
		old = e.addTranslation(&translation{vip: vip, proto: t.Proto, client: c, lb: t.LB, hash: t.Hash})
	}
	old.flags = t.Flags
	e.unwatch(old)
	if vip.SwIf != None {
		e.watched = append(e.watched, watch{t: old, path: -1})
	}
	e.setPaths(old, t.Paths)
	return old.id, OK
}

func (e *Engine) addTranslation(t *translation) *translation {
	if n := len(e.free); n > 0 {
		t.id, e.free = e.free[n-1], e.free[:n-1]
		e.pool[t.id] = t
	} else {
		t.id = uint32(len(e.pool))
		e.pool = append(e.pool, t)
	}
	e.byKey[t.lookupKey()] = t.id
	if t.client != nil {
		t.client.translations++
	}
	return t
}

func (t *translation) lookupKey() trKey {
	if t.client == nil {
		return trKey{swIf: t.vip.SwIf, v6: t.vip.Addr.Is6(), port: t.vip.Port, proto: t.proto}
	}
	return trKey{client: t.client, port: t.vip.Port, proto: t.proto}
}

// findTranslation is cnat_find_translation.
func (e *Engine) findTranslation(c *client, port uint16, proto uint8) *translation {
	if id, ok := e.byKey[trKey{client: c, port: port, proto: proto}]; ok {
		return e.pool[id]
	}
	return nil
}

func (e *Engine) setPaths(t *translation, paths []Path) {
	for i := range t.paths {
		e.releasePath(&t.paths[i])
	}
	t.paths = nil
	for i, p := range paths {
		p.Src, p.Dst = unresolved(p.Src), unresolved(p.Dst)
		e.resolve(&p.Src)
		e.resolve(&p.Dst)
		for _, src := range []bool{true, false} {
			if end := p.endpointOf(src); end.SwIf != None {
				e.watched = append(e.watched, watch{t: t, path: i, src: src})
			}
		}
		e.track(&p)
		t.paths = append(t.paths, p)
	}
	t.stack()
}

func (p *Path) endpointOf(src bool) *Endpoint {
	if src {
		return &p.Src
	}
	return &p.Dst
}

// track is cnat_tracker_track: only paths with both ends resolved count.
func (e *Engine) track(p *Path) {
	if !p.Src.resolved || !p.Dst.resolved {
		p.Flags &^= PathActive
		return
	}
	p.Flags |= PathActive
	e.net.Track(p.Dst.Addr)
}

func (e *Engine) releasePath(p *Path) {
	if p.Flags&PathActive != 0 {
		e.net.Untrack(p.Dst.Addr)
	}
}

// stack collects the paths that count.
func (t *translation) stack() {
	t.active = slices.DeleteFunc(slices.Clone(t.paths), func(p Path) bool { return p.Flags&PathActive == 0 })
	if t.lb == Maglev && len(t.active) > 0 {
		t.maglev = maglevTable(t.active, t.maglev)
	}
}

// TranslationDel is cnat_translation_del. Sessions remain.
func (e *Engine) TranslationDel(id uint32) int32 {
	if id >= uint32(len(e.pool)) || e.pool[id] == nil {
		return NoSuchEntry
	}
	t := e.pool[id]
	for i := range t.active {
		e.releasePath(&t.active[i])
	}
	delete(e.byKey, t.lookupKey())
	if c := t.client; c != nil {
		c.translations--
		e.destroyIdle(c)
	}
	e.unwatch(t)
	e.pool[id] = nil
	e.free = append(e.free, id)
	return OK
}

func (e *Engine) unwatch(t *translation) {
	e.watched = slices.DeleteFunc(e.watched, func(w watch) bool { return w.t == t })
}

// Purge is cnat_session_purge: all sessions, and all translations.
func (e *Engine) Purge() int32 {
	for _, k := range e.sessionKeys(func(*session) bool { return true }) {
		if s := e.sessions[k]; s != nil {
			e.freeSession(k, s)
		}
	}
	for id, t := range e.pool {
		if t != nil {
			e.TranslationDel(uint32(id))
		}
	}
	return OK
}

// Translations returns the dump, in its order.
func (e *Engine) Translations() []Translation {
	var out []Translation
	for _, t := range e.pool {
		if t != nil {
			out = append(out, Translation{ID: t.id, VIP: t.vip, Proto: t.proto, Flags: t.flags, LB: t.lb, Hash: t.hash, Paths: slices.Clone(t.paths)})
		}
	}
	return out
}

// AddressChanged must be called after an interface got, or lost, an address.
func (e *Engine) AddressChanged(swIf uint32, a netip.Addr, add bool) {
	for _, w := range slices.Clone(e.watched) {
		if w.path < 0 {
			if w.t.vip.SwIf == swIf && w.t.vip.Addr.Is6() == a.Is6() {
				e.vipChanged(w.t, a, add)
			}
			continue
		}
		if end := w.t.paths[w.path].endpointOf(w.src); end.SwIf == swIf && end.Addr.Is6() == a.Is6() {
			e.endChanged(w.t, w.path, end, a, add)
		}
	}
	e.snatChanged(swIf, a, add)
}

// followInterface updates all endpoints of a changed interface; it reports whether there were any.
func (e *Engine) followInterface(end *Endpoint, a netip.Addr, add bool) bool {
	if add && end.resolved {
		return false
	}
	if !add {
		end.resolved = false
		e.resolve(end)
		return true
	}
	end.Addr, end.resolved = a, true
	return true
}

// vipChanged assigns a translation to the client of its new address. The client of the old address remains, and stays counted for
// ever.
func (e *Engine) vipChanged(t *translation, a netip.Addr, add bool) {
	if add && t.vip.resolved {
		return
	}
	delete(e.byKey, t.lookupKey())
	t.client = nil
	if e.followInterface(&t.vip, a, add); t.vip.resolved {
		t.client = e.addClient(t.vip.Addr, true) // VPP uses the flag for "exclusive" in place of "stacked"
		t.client.translations++
	}
	e.byKey[t.lookupKey()] = t.id
}

func (e *Engine) endChanged(t *translation, path int, end *Endpoint, a netip.Addr, add bool) {
	if e.followInterface(end, a, add) {
		e.track(&t.paths[path])
		t.stack()
	}
}

// Lines returns the configuration as text, in a fixed order.
func (e *Engine) Lines(ifName func(uint32) string) []string {
	var out []string
	for _, t := range e.pool {
		if t != nil {
			out = append(out, t.translationText(ifName))
		}
	}
	slices.Sort(out)
	return append(out, e.snatLines(ifName)...)
}

func (t *translation) translationText(ifName func(uint32) string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "cnat %s %s", protoName(t.proto), t.vip.endpointText(ifName))
	for _, f := range []struct {
		on   bool
		text string
	}{
		{t.client != nil && t.client.exclusive, " exclusive"},
		{t.flags&AllocPort != 0, " alloc-port"},
		{t.flags&NoReturnSession != 0, " no-return-session"},
		{t.lb == Maglev, " maglev"},
		{t.hash != 0, fmt.Sprintf(" hash %#x", t.hash)},
	} {
		if f.on {
			b.WriteString(f.text)
		}
	}
	for _, p := range t.paths {
		fmt.Fprintf(&b, "\n  to %s", p.Dst.endpointText(ifName))
		if p.Src.SwIf != None || !p.Src.Addr.IsUnspecified() || p.Src.Port != 0 {
			fmt.Fprintf(&b, " from %s", p.Src.endpointText(ifName))
		}
		if p.Flags&PathNoNAT != 0 {
			b.WriteString(" no-nat")
		}
	}
	return b.String()
}

func protoName(p uint8) string { return model.Protocol(p).String() }

// sortedSwIfs returns the interfaces of a table.
func sortedSwIfs(m map[uint32]bool) []uint32 { return slices.Sorted(maps.Keys(m)) }
