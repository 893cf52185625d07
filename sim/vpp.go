package sim

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"go.fd.io/govpp/binapi/span"

	"github.com/contiv-agent/contiv-agent/sim/acl"
	"github.com/contiv-agent/contiv-agent/sim/classify"
	"github.com/contiv-agent/contiv-agent/sim/cnat"
	"github.com/contiv-agent/contiv-agent/sim/nat44ed"
)

// Config says what kind of VPP it is. The zero value is a VPP 24.06 with one thread.
type Config struct {
	// Seed makes the random choices (load balancing, NAT ports) reproducible.
	Seed uint64
	// Now is the virtual clock's start; zero: 2024-06-26 00:00 UTC, the day 24.06 was released.
	Now time.Time
	// Version is what show_version says; "" is "24.06-release". Before 25.06 the ACL plugin compares IPv6 prefixes wrongly.
	Version string
	// PID is what control_ping and show_threads say; 0 is 24060. It grows by one with every Restart.
	PID uint32
	// Workers is the number of worker threads VPP claims to have. Packets are forwarded as with none.
	Workers int
	// PuntLocal hands packets for VPP's own addresses to the node's own stack (Output.Local), as with a host stack behind
	// VPP; false: VPP answers them itself, as a bare one does (echo replies, port unreachable).
	PuntLocal bool
	// HostInterfaces are the Linux interfaces af_packet may attach to; nil: every name exists.
	HostInterfaces []string
	// NoReclassify is a startup.conf without `acl-plugin { reclassify sessions 1 }`: sessions of permit+reflect rules outlive the rule.
	NoReclassify bool
	// ACLSessions is the size of the ACL plugin's session table; 0: 500,000.
	ACLSessions uint32
	// LogLimit is how many records Log keeps, the newest ones; 0 is 1<<18.
	LogLimit int
}

// VPP is a virtual VPP. Its methods may be called concurrently; requests and packets are processed one at a time, as VPP's
// main thread does.
type VPP struct {
	cfg Config
	api *apiTable // immutable

	conns sync.WaitGroup // the goroutines of Serve and Dial

	mu      sync.Mutex // guards all that follows
	crashed error
	living  map[*context.CancelCauseFunc]struct{} // contexts that a crash ends
	epoch   int                                   // how often it was restarted
	clients map[*conn]struct{}
	lastIdx uint32
	events  []ifEvent // to be sent after the reply of the request that caused them
	log     requestLog
	fail    func(name string) (int32, bool)
	after   func(Record)
	choice  func(n int) int
	state
	foreign foreign
}

// state is what a restart loses.
type state struct {
	booted   time.Time
	now      time.Time
	ifs      interfaces
	fib      [2]fib // per family
	neigh    neighbors
	memif    memifs
	l2       layer2
	mirrors  map[mirrorKey]span.SpanState
	proxy    proxies
	abf      forwardings
	punt     punts
	nat      *nat44ed.Engine
	acl      *acl.Engine
	cnat     *cnat.Engine
	classify *classify.Engine
	random   uint64 // state of the generator of Config.Seed
	arcs     arcs
	// features are those of feature_enable_disable: how often each is on an interface.
	features map[featureKey]int
	off      map[featureKey]bool // nodes that somebody took off an arc where a plug-in had put them
	// sessionLayer is session_enable_disable: TCP to VPP's own addresses is answered by a reset.
	sessionLayer bool
}

// New is a running VPP with the interface local0 and the default tables.
func New(cfg Config) *VPP {
	if cfg.Now.IsZero() {
		cfg.Now = time.Date(2024, 6, 26, 0, 0, 0, 0, time.UTC)
	}
	if cfg.Version == "" {
		cfg.Version = "24.06-release"
	}
	if cfg.PID == 0 {
		cfg.PID = 24060
	}
	if cfg.LogLimit <= 0 {
		cfg.LogLimit = 1 << 18
	}
	v := &VPP{cfg: cfg, api: messages(), living: map[*context.CancelCauseFunc]struct{}{}, clients: map[*conn]struct{}{}}
	v.log.limit = cfg.LogLimit
	v.boot(cfg.Now)
	return v
}

// boot builds the state of a VPP that has just started, without the foreign objects.
func (v *VPP) boot(now time.Time) {
	v.state = state{booted: now, now: now, random: v.cfg.Seed}
	v.ifs.init()
	v.fib[ip4].init(ip4, func(id uint32) { v.nat.TableDeleted(id) })
	v.fib[ip6].init(ip6, func(uint32) {})
	v.neigh.init()
	v.memif.init()
	v.l2.init()
	v.mirrors, v.proxy.on = map[mirrorKey]span.SpanState{}, map[uint32]bool{}
	v.abf.init()
	v.punt.init()
	v.bootNAT()
	v.bootACL()
	v.bootCNAT()
	v.classify = classify.New()
	v.arcs = newArcs(v)
	v.ifs.add(&iface{name: "local0", devType: "local", kind: kindLocal})
}

// RestartBare is Restart before the CNI made anything again. Interfaces, routes and neighbours are what it would make: whoever restarts does
// so, by AddInterface, AddRoute and AddNeighbor, in whatever order their dependencies allow.
func (v *VPP) RestartBare() (ifs []Interface, routes []Route, neighbors []Neighbor) {
	v.mu.Lock()
	f := v.foreign
	v.foreign = foreign{}
	v.mu.Unlock()
	v.Restart()
	return f.ifs, f.routes, f.neighbors
}

// Restart is VPP dying and starting again: its state is gone but for what AddInterface, AddRoute and AddNeighbor made, which the
// CNI would make again; connections are cut, message ids differ, and it is no longer crashed. The clock goes on.
func (v *VPP) Restart() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.cut()
	v.crashed = nil
	v.epoch++
	v.boot(v.now)
	v.applyForeign()
	v.events = nil
}

// Crashed is not nil after a message or packet that kills VPP; it names the trap. Until Restart everything is refused.
func (v *VPP) Crashed() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.crashed
}

// Living returns a context that ends when VPP crashes, with the crash as its cause, and at once if VPP has crashed. For those who wait for
// a connection: until Restart none is made. Call stop when done.
func (v *VPP) Living(parent context.Context) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.crashed != nil {
		cancel(v.crashed)
	}
	v.living[&cancel] = struct{}{}
	return ctx, func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		delete(v.living, &cancel)
		cancel(nil)
	}
}

// crash stops VPP. v.mu is held.
func (v *VPP) crash(err error) {
	if v.crashed != nil {
		return
	}
	v.crashed = fmt.Errorf("vpp crashed: %w", err)
	v.cut()
	for cancel := range v.living {
		(*cancel)(v.crashed)
	}
}

// trap is what VPP dies of outside the NAT: found with TestAgainstRealVPP on 24.06, and there in 25.10.
type trap string

func (t trap) Error() string { return string(t) }

const (
	// Such a path keeps sw_if_index 0 whatever the message says (fib_api_path_decode), so VPP takes the route for one attached
	// to local0 and imports it from local0's table, of which there is none. Table 0 is not affected.
	trapSpecialPath trap = "ip_route_add_del of a drop, unreach or prohibit path in another table than 0: SIGSEGV in fib_attached_export_import"
	// The same path makes a recursive next hop believe that its covering prefix is attached.
	trapUnreachableNextHop trap = "ip_route_add_del: a recursive next hop is covered by a drop, unreach or prohibit route: SIGSEGV in fib_entry_src_rr_resolve_via_connected"
	// What ip4-cnat-tx sends to another lookup after a translation meets the same session there, if the translation changed nothing
	// that it is found by: as with an ICMP error about SCTP, the protocol of a flow whose path has a source of its own.
	trapEndless trap = "ip4-cnat-tx: a packet is translated and looked up again for ever, and VPP does nothing else any more"
	// The source that cnat's interposes itself before stays active when a better one comes. Once cnat's and the better one are gone it is activated
	// a second time, and registers twice with the prefix that covers it.
	trapLostEntry trap = "a prefix changes that covers an entry of the FIB that is gone, or another prefix comes between them: SIGSEGV in fib_entry_src_action_reactivate"
	// Static neighbours outlive their interface; a second path for the same address makes VPP look at the first one again.
	trapDeadNeighbor trap = "ip_neighbor_add_del of an address that a deleted interface still has as static neighbour: SIGSEGV in ip_pmtu_adj_delegate_adj_created"
)

// survives runs f and reports whether VPP lives after it: handlers and the engine panic with what VPP dies of. v.mu is held.
func (v *VPP) survives(f func()) (alive bool) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case trap:
			v.crash(r)
			alive = false
		case *nat44ed.Crash:
			v.crash(r)
			alive = false
		case *cnat.Crash:
			v.crash(r)
			alive = false
		case *classify.Crash:
			v.crash(r)
			alive = false
		default:
			panic(r) // a bug of ours
		}
	}()
	f()
	return true
}

// Fail installs a fault: f is asked before a request is processed. A retval other than zero refuses the request with it (a dump
// comes back empty), drop closes the connection. nil ends it. f is called with the VPP locked and may not call its methods.
func (v *VPP) Fail(f func(name string) (retval int32, drop bool)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.fail = f
}

// After installs an onlooker: f is called when a request that changes configuration has been processed, before it is answered
// and before the next one of its connection is looked at; not for requests that Fail refused. nil ends it. f is called with the
// VPP unlocked: it may send packets.
func (v *VPP) After(f func(Record)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.after = f
}

// Advance moves the virtual clock. Sessions and affinity of NAT time out by it lazily, as in VPP; those of cnat at once.
func (v *VPP) Advance(d time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.now = v.now.Add(d)
	_ = v.survives(v.cnat.Expire)
}

// Now is the virtual clock.
func (v *VPP) Now() time.Time {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.now
}

// SetChoice replaces the random pick among the locals of a load-balanced mapping, and the choice by hash among the paths of a
// translation: n is the number of eligible locals (weight above zero), in mapping order, or of active paths, in the order they
// were given; the result must be in 0..n-1. nil restores the seeded random pick by weight, and the hash.
func (v *VPP) SetChoice(choose func(n int) int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.choice = choose
	v.nat.SetChoice(choose)
	v.cnat.SetChoice(choose)
}

// ChooseByHash lets cnat choose among the paths of a translation by its hash again, while SetChoice's function goes on choosing for NAT44.
func (v *VPP) ChooseByHash() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.cnat.SetChoice(nil)
}

// Mark is a point in the life of the dynamic state, made by Snapshot.
type Mark struct {
	now    time.Time
	random uint64
	nat    nat44ed.Mark
	acl    acl.Mark
	cnat   cnat.Mark
}

// Snapshot marks sessions of NAT, ACLs and translations, affinity and the clock. It costs next to nothing.
func (v *VPP) Snapshot() Mark {
	v.mu.Lock()
	defer v.mu.Unlock()
	return Mark{now: v.now, random: v.random, nat: v.nat.Snapshot(), acl: v.acl.Snapshot(), cnat: v.cnat.Snapshot()}
}

// Restore goes back to a mark made since the last change of configuration; its cost is what happened since. Older marks than m
// stay valid, younger ones do not.
func (v *VPP) Restore(m Mark) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.now, v.random = m.now, m.random
	v.nat.Restore(m.nat)
	v.acl.Restore(m.acl)
	v.cnat.Restore(m.cnat)
}

// Release forgets all marks: after Snapshot everything is noted down for a Restore until then.
func (v *VPP) Release() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.nat.Release()
	v.acl.Release()
	v.cnat.Release()
}

// Close cuts all connections and waits for their goroutines. The VPP itself lives on.
func (v *VPP) Close() {
	v.mu.Lock()
	v.cut()
	v.mu.Unlock()
	v.conns.Wait()
}

// Start serves a new VPP on a unix socket in dir until ctx ends: for tests and programs that want no more. The returned wait
// blocks until everything it started has ended (cancel ctx first).
func Start(ctx context.Context, dir string, cfg Config) (v *VPP, socket string, wait func(), err error) {
	socket = dir + "/api.sock"
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", socket)
	if err != nil {
		return nil, "", nil, fmt.Errorf("listen for the binary API: %w", err)
	}
	v = New(cfg)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = v.Serve(ctx, l) // ends with ctx; a broken listener shows as refused connections
	}()
	return v, socket, func() { <-done }, nil
}
