package sim

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/contiv-agent/contiv-agent/sim/acl"
	"github.com/contiv-agent/contiv-agent/sim/bridge"
	"github.com/contiv-agent/contiv-agent/sim/capture"
	"github.com/contiv-agent/contiv-agent/sim/classify"
	"github.com/contiv-agent/contiv-agent/sim/cnat"
	"github.com/contiv-agent/contiv-agent/sim/flowprobe"
	"github.com/contiv-agent/contiv-agent/sim/mirror"
	"github.com/contiv-agent/contiv-agent/sim/nat44ed"
	"github.com/contiv-agent/contiv-agent/sim/policer"
	"github.com/contiv-agent/contiv-agent/sim/reassembly"
)

// Config configures the simulated VPP. The zero value is a VPP 24.06 with one thread.
type Config struct {
	// Seed makes the random choices (load balancing, NAT ports) reproducible.
	Seed uint64
	// Now is the virtual clock's start; zero: 2024-06-26 00:00 UTC, the day 24.06 was released.
	Now time.Time
	// Version is the version in show_version; "" is "24.06-release". Before 25.06 the ACL plugin compares IPv6 prefixes wrongly.
	Version string
	// PID is the process id in control_ping and show_threads; 0 is 24060. It increases by one with every Restart.
	PID uint32
	// Workers is the reported number of worker threads. Packets are forwarded as without workers.
	Workers int
	// PuntLocal hands packets for VPP's addresses to the node's network stack (Output.Local), as with a host stack behind VPP.
	// False: VPP answers them itself, as a bare one does (echo replies, port unreachable).
	PuntLocal bool
	// HostInterfaces are the Linux interfaces af_packet may attach to; nil: every name exists.
	HostInterfaces []string
	// NoReclassify is a startup.conf without `acl-plugin { reclassify sessions 1 }`: sessions of permit+reflect rules outlive the rule.
	NoReclassify bool
	// ACLSessions is the size of the ACL plugin's session table; 0: 500,000.
	ACLSessions uint32
	// Wire carries the packets of af_packet interfaces; nil: only Send and SendLocal send packets, which have no payload.
	Wire Wire
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
	epoch   int                                   // number of restarts
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

// copies is what concerns copies and counts of packets, and answers for other hosts.
type copies struct {
	mirrors  mirror.Mirrors
	proxy    mirror.Proxies
	captured capture.Capture
	probe    *flowprobe.Probe
}

// state is lost by a restart.
type state struct {
	booted time.Time
	now    time.Time
	ifs    interfaces
	fib    [2]fib // per family
	neigh  neighbors
	memif  memifs
	l2     *bridge.Table
	copies
	abf      forwardings
	punt     punts
	nat      *nat44ed.Engine
	acl      *acl.Engine
	cnat     *cnat.Engine
	classify *classify.Engine
	held     *reassembly.Table[flow]
	random   uint64 // state of the generator of Config.Seed
	arcs     arcs
	// features are those of feature_enable_disable, with the number of times that each is on an interface.
	features features
	// sessionLayer is session_enable_disable: a reset answers TCP to VPP's addresses.
	sessionLayer bool
}

// New returns a running VPP with the interface local0 and the default tables.
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
	if cfg.Wire == nil {
		cfg.Wire = noWire{}
	}
	v := &VPP{cfg: cfg, api: messages(), living: map[*context.CancelCauseFunc]struct{}{}, clients: map[*conn]struct{}{}}
	v.log.limit = cfg.LogLimit
	v.boot(cfg.Now)
	return v
}

// boot builds the state of a VPP that has just started, without the foreign objects.
func (v *VPP) boot(now time.Time) {
	v.state = state{booted: now, now: now, random: v.cfg.Seed, held: reassembly.New[flow]()}
	v.ifs.init()
	v.fib[ip4].init(ip4, func(id uint32) { v.nat.TableDeleted(id) })
	v.fib[ip6].init(ip6, func(uint32) {})
	v.neigh.init()
	v.memif.init()
	v.l2 = bridge.New()
	v.mirrors, v.proxy.On, v.probe = mirror.Mirrors{}, map[uint32]bool{}, flowprobe.New()
	v.abf.init()
	v.punt.init()
	v.bootNAT()
	v.bootACL()
	v.bootCNAT()
	v.classify = classify.New()
	v.arcs = newArcs(v)
	v.ifs.addIface(&iface{name: "local0", devType: "local", kind: kindLocal})
}

// RestartBare is Restart before the CNI has made its objects again. Interfaces, routes and neighbours are these objects: the caller
// adds them by AddInterface, AddRoute and AddNeighbor, in any order that their dependencies allow.
func (v *VPP) RestartBare() (ifs []Interface, routes []Route, neighbors []Neighbor) {
	v.mu.Lock()
	f := v.foreign
	v.foreign = foreign{}
	v.mu.Unlock()
	v.Restart()
	return f.ifs, f.routes, f.neighbors
}

// Restart simulates the end of VPP's process and a new start. All state is lost except the objects of AddInterface, AddRoute and
// AddNeighbor, which a CNI would make again. Connections are cut, message ids differ, and Crashed is nil. The clock continues.
func (v *VPP) Restart() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.cut()
	v.cfg.Wire.Reset()
	v.crashed = nil
	v.epoch++
	v.boot(v.now)
	v.applyForeign()
	v.events = nil
}

// Crashed is not nil after a message or packet that crashes VPP; it names the trap. Until Restart everything is refused.
func (v *VPP) Crashed() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.crashed
}

// Living returns a context that ends when VPP crashes, with the crash as its cause; if VPP has crashed, it ends at once. Programs
// that wait for a connection use it, because none is made until Restart. Call stop when done.
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

// crash stops VPP. The caller holds v.mu.
func (v *VPP) crash(err error) {
	if v.crashed != nil {
		return
	}
	v.crashed = fmt.Errorf("vpp crashed: %w", err)
	v.cut()
	v.cfg.Wire.Reset()
	for cancel := range v.living {
		(*cancel)(v.crashed)
	}
}

// trap is a cause of a VPP crash outside the NAT, found with TestAgainstRealVPP on 24.06, and present in 25.10.
type trap string

func (t trap) Error() string { return string(t) }

const (
	// Such a path keeps sw_if_index 0 whatever the message has (fib_api_path_decode), so VPP treats the route as attached to local0
	// and imports it from local0's table, which does not exist. Table 0 is not affected.
	trapSpecialPath trap = "ip_route_add_del of a drop, unreach or prohibit path in another table than 0: SIGSEGV in fib_attached_export_import"
	// With the same path, a recursive next hop treats its covering prefix as attached.
	trapUnreachableNextHop trap = "ip_route_add_del: a recursive next hop is covered by a drop, unreach or prohibit route: SIGSEGV in fib_entry_src_rr_resolve_via_connected"
	// If ip4-cnat-tx sends a packet to another lookup after a translation, and the translation did not change the fields of its key,
	// the packet meets the same session again. An example is an ICMP error about SCTP, the protocol of a flow whose path has a
	// separate source.
	trapEndless trap = "ip4-cnat-tx: a packet is translated and looked up again for ever, and VPP does nothing else any more"
	// The source before which cnat's interposes itself stays active when a better one is added. After cnat's and the better one are
	// removed it is activated a second time, and registers twice with the prefix that covers it.
	trapLostEntry trap = "a prefix changes that covers an entry of the FIB that is gone, or another prefix comes between them: SIGSEGV in fib_entry_src_action_reactivate"
	// nat44_add_del_static_mapping for the removal of a mapping of another kind answers 0, removes nothing, and releases a lock of its table each time
	// (the guard's rule for kinds of mappings). Without table 0 VPP answers -3 to every request about it; what packets meet then is not known.
	trapTable0 trap = "nat44_add_del_static_mapping: table 0 has no lock any more, and is deleted"
	// Static neighbours outlive their interface; a second path for the same address makes VPP access the first one again.
	trapDeadNeighbor trap = "ip_neighbor_add_del of an address that a deleted interface still has as static neighbour: SIGSEGV in ip_pmtu_adj_delegate_adj_created"
)

// survives runs f and reports whether VPP survives it: handlers and the engine panic with the trap. The caller holds v.mu.
func (v *VPP) survives(f func()) (alive bool) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case trap, *nat44ed.Crash, *cnat.Crash, *classify.Crash, policer.Trap:
			v.crash(r.(error))
			alive = false
		default:
			panic(r) // a bug of ours
		}
	}()
	f()
	return true
}

// Fail installs a fault: the VPP calls f before it processes a request. A retval other than zero refuses the request with it (a dump
// is empty), drop closes the connection. nil removes the fault. f is called with the VPP locked and may not call its methods.
func (v *VPP) Fail(f func(name string) (retval int32, drop bool)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.fail = f
}

// After installs an onlooker: the VPP calls f when it has processed a request that changes configuration, before it answers and
// before it reads the next one of the connection; not for requests that Fail refused. nil removes the onlooker. f is called with the
// VPP unlocked: it may send packets.
func (v *VPP) After(f func(Record)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.after = f
}

// Advance moves the virtual clock. Sessions and affinity of NAT expire lazily, as in VPP; those of cnat at once.
func (v *VPP) Advance(d time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.now = v.now.Add(d)
	_ = v.survives(v.cnat.Expire)
}

// Now returns the virtual clock.
func (v *VPP) Now() time.Time {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.now
}

// SetChoice replaces the random pick among the locals of a load-balanced mapping, and the choice by hash among the paths of a
// translation. n is the number of eligible locals (weight above zero), in mapping order, or of active paths, in their given order;
// the result must be in 0..n-1. nil restores the seeded random pick by weight, and the hash.
func (v *VPP) SetChoice(choose func(n int) int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.choice = choose
	v.nat.SetChoice(choose)
	v.cnat.SetChoice(choose)
}

// ChooseByHash restores cnat's choice by hash among the paths of a translation; SetChoice's function remains in use for NAT44.
func (v *VPP) ChooseByHash() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.cnat.SetChoice(nil)
}

// Mark identifies a past dynamic state, made by Snapshot.
type Mark struct {
	now    time.Time
	random uint64
	nat    nat44ed.Mark
	acl    acl.Mark
	cnat   cnat.Mark
	held   *reassembly.Table[flow]
}

// Snapshot marks sessions of NAT, ACLs and translations, affinity and the clock. It costs next to nothing.
func (v *VPP) Snapshot() Mark {
	v.mu.Lock()
	defer v.mu.Unlock()
	return Mark{now: v.now, random: v.random, nat: v.nat.Snapshot(), acl: v.acl.Snapshot(), cnat: v.cnat.Snapshot(), held: v.held.Clone()}
}

// Restore returns to a mark made since the last change of configuration; its cost is that of the changes since. Marks older than m
// stay valid, younger ones do not.
func (v *VPP) Restore(m Mark) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.now, v.random = m.now, m.random
	v.nat.Restore(m.nat)
	v.acl.Restore(m.acl)
	v.cnat.Restore(m.cnat)
	v.held = m.held.Clone()
}

// Release drops all marks. After Snapshot every change is recorded for a Restore until then.
func (v *VPP) Release() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.nat.Release()
	v.acl.Release()
	v.cnat.Release()
}

// Close cuts all connections and waits for their goroutines. The VPP itself continues.
func (v *VPP) Close() {
	v.mu.Lock()
	v.cut()
	v.mu.Unlock()
	v.conns.Wait()
}

// Start serves a new VPP on a unix socket in dir until ctx ends, for simple tests and programs. The returned wait blocks until
// everything it started has ended (cancel ctx first).
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
		_ = v.Serve(ctx, l) // it ends with ctx; clients of a broken listener get refused connections
	}()
	return v, socket, func() { <-done }, nil
}
