package nat44ed

import (
	"fmt"
	"net/netip"
	"time"
)

// Network is NAT44-ED's view of the rest of VPP.
type Network interface {
	// Table is the ID of the FIB table the interface is bound to; 0 for interfaces that do not exist.
	Table(swIf uint32) uint32
	// HasTable reports whether a FIB table exists.
	HasTable(table uint32) bool
	// Addrs returns the interface's addresses in the order they were added.
	Addrs(swIf uint32) []netip.Prefix
	// Resolve looks up an address and returns the interface that the route resolves to; false for no route, drop and reject routes.
	Resolve(table uint32, dst netip.Addr) (swIf uint32, ok bool)
}

// FIB receives the side effects of NAT44-ED on the routing tables.
type FIB interface {
	// LockTable makes sure the table exists and takes a reference; UnlockTable gives it back.
	LockTable(table uint32)
	UnlockTable(table uint32)
	// Receive adds or removes a /32 route of type receive for addr at the interface (VPP source nat-low).
	Receive(table uint32, addr netip.Addr, swIf uint32, add bool)
}

// Config of an Engine. Net is required.
type Config struct {
	Net Network
	FIB FIB                  // nil: side effects are ignored
	Now func() time.Duration // time since VPP's boot; nil: the clock stands at 0
	// Rand gives 32 random bits for backends and ports. Nil: VPP's own generator from VPP's own seed, 0, whose state is part
	// of a snapshot.
	Rand func() uint32
}

// Crash is a crash of VPP: the engine panics with a *Crash where VPP would raise a signal, and must not be used after it. Rule names
// the trap: the section of the project's VPP notes.
type Crash struct{ Rule, Why string }

func (c *Crash) Error() string { return fmt.Sprintf("nat44-ed %s: %s", c.Rule, c.Why) }

// Engine is the NAT44-ED plugin of one VPP, disabled at first. Methods named like API messages return VPP's retval.
type Engine struct {
	net   Network
	fib   FIB
	now   func() time.Duration
	rand  func() uint32
	seed  uint32
	pick  func(n int) int
	crash *Crash

	enabled    bool
	forwarding bool
	mss        uint16
	rconfig    PluginConfig
	buckets    uint32
	timeouts   Timeouts

	insideVRF, outsideVRF uint32
	maxPerThread          uint32
	maxPerFIB             map[uint32]uint32 // by table; table 0 is the default

	addrs, twiceAddrs []poolAddr
	addrResolve       []addrResolve
	ifaces, outIfaces pool[iface]
	outsideFIBs       []fibRef
	fibs              []fibRef
	vrfTables         pool[vrfTable]
	receives          []receive
	arcs              map[uint32]Arc
	reass             map[uint32]int // users of shallow reassembly on the input arc, by interface

	mappings pool[mapping]
	smI2O    map[smKey]uint32
	smO2I    map[smKey]uint32
	resolve  []smResolve
	owners   uint32

	dynamic
}

// New returns a disabled plugin.
func New(c Config) *Engine {
	e := &Engine{net: c.Net, fib: c.FIB, now: c.Now, rand: c.Rand, arcs: map[uint32]Arc{}, reass: map[uint32]int{}}
	if e.fib == nil {
		e.fib = noFIB{}
	}
	if e.now == nil {
		e.now = func() time.Duration { return 0 }
	}
	if e.rand == nil {
		e.rand = e.vppRand
	}
	e.clearLookups()
	e.clearDynamic()
	return e
}

type noFIB struct{}

func (noFIB) LockTable(uint32)                         {}
func (noFIB) UnlockTable(uint32)                       {}
func (noFIB) Receive(uint32, netip.Addr, uint32, bool) {}

// vppRand is VPP's linear congruential generator (vppinfra/random.h). NAT44-ED never seeds it, so it starts at 0.
func (e *Engine) vppRand() uint32 {
	if e.recording {
		seed := e.seed
		e.undo(func() { e.seed = seed })
	}
	e.seed = 1664525*e.seed + 1013904223
	return e.seed
}

// SetChoice replaces the random pick among a mapping's backends: f receives the number of backends a random pick could yield, in
// mapping order, and returns one of 0..n-1. Nil restores the random pick.
func (e *Engine) SetChoice(f func(n int) int) { e.pick = f }

// Crashed is not nil after a crash of VPP.
func (e *Engine) Crashed() error {
	if e.crash == nil {
		return nil
	}
	return e.crash
}

func (e *Engine) die(rule, format string, args ...any) {
	e.crash = &Crash{Rule: rule, Why: fmt.Sprintf(format, args...)}
	panic(e.crash)
}

// PluginEnableDisable is nat44_ed_plugin_enable_disable. Enabling clears the forwarding flag and resets the timeouts.
func (e *Engine) PluginEnableDisable(enable bool, c PluginConfig) int32 {
	if !enable {
		return e.disable()
	}
	if c.StaticMappingOnly || c.ConnectionTracking {
		return Unsupported
	}
	if e.enabled {
		return FeatureAlreadyEnabled
	}
	e.forwarding, e.mss = false, 0
	if c.Sessions == 0 {
		c.Sessions = 63 * 1024
	}
	e.maxPerThread = c.Sessions
	e.maxPerFIB = map[uint32]uint32{0: c.Sessions}
	e.buckets = hashBuckets(c.Sessions)
	e.insideVRF, e.outsideVRF = c.InsideVRF, c.OutsideVRF
	e.fib.LockTable(c.InsideVRF)
	e.fib.LockTable(c.OutsideVRF)
	e.clearLookups()
	e.clearDynamic()
	e.timeouts = Timeouts{UDP: 300, TCPEstablished: 7440, TCPTransitory: 240, ICMP: 60}
	e.enabled, e.rconfig = true, c
	return OK
}

// disable removes everything in VPP's order. The receive routes of load-balancing mappings and the locks of the two VRFs remain.
func (e *Engine) disable() int32 {
	if !e.enabled {
		return FeatureAlreadyDisabled
	}
	rv := OK
	for _, m := range e.mappings.copyUsed() {
		if last := e.delStaticInternal(m.local, m.ext, m.lport, m.eport, m.proto, m.vrf, m.flags); last != OK {
			rv = Bug
		} else {
			rv = OK // VPP returns the result of the last one only
		}
	}
	e.mappings = pool[mapping]{}
	e.resolve = nil
	e.delAllAddresses()
	e.delAllInterfaces()
	e.delVRFTables()
	e.clearLookups()
	e.clearDynamic()
	e.rconfig = PluginConfig{}
	e.forwarding, e.enabled = false, false
	return rv
}

// hashBuckets is how VPP sizes its hash from a number of sessions (nat/lib/lib.h, nat_calc_bihash_buckets).
func hashBuckets(n uint32) uint32 {
	n = uint32(float64(n) / 2.5)
	lower := uint64(1)
	for lower*2 < uint64(n) {
		lower *= 2
	}
	upper := 2 * lower
	// VPP's subtraction is unsigned: for n below 1 it wraps and picks the upper power.
	if upper-uint64(n) < uint64(n)-lower && upper <= 1<<32-1 {
		return uint32(upper)
	}
	return uint32(lower)
}

// ForwardingEnableDisable is nat44_forwarding_enable_disable; it works while the plugin is disabled too, but enabling
// resets it. Disabling ends forwarding-bypass sessions.
func (e *Engine) ForwardingEnableDisable(enable bool) int32 {
	e.forwarding = enable
	if !e.enabled || enable {
		return OK
	}
	for i := range e.sessions.usedSlots() {
		if s := e.sessions.slotAt(i); s.flags&sessBypass != 0 {
			e.freeSession(i)
		}
	}
	return OK
}

// SetTimeouts is nat_set_timeouts.
func (e *Engine) SetTimeouts(t Timeouts) int32 {
	e.timeouts = t
	return OK
}

// SetMSSClamping is nat_set_mss_clamping; 0 switches it off.
func (e *Engine) SetMSSClamping(mss uint16) int32 {
	e.mss = mss
	return OK
}

// MSSClamping is nat_get_mss_clamping's value; 0: off.
func (e *Engine) MSSClamping() uint16 { return e.mss }

// SetSessionLimit is nat44_set_session_limit, for one VRF. The limit of table 0 holds for VRFs without one.
func (e *Engine) SetSessionLimit(limit, vrf uint32) int32 {
	if !e.net.HasTable(vrf) {
		return Unspecified
	}
	if e.maxPerFIB == nil {
		e.maxPerFIB = map[uint32]uint32{0: e.maxPerThread}
	}
	e.maxPerFIB[vrf] = limit
	return OK
}

// CLISetSessionLimit is the command "set nat44 session limit": it makes a new flow table, so that all sessions end and no mapping is
// found any more, although the dumps still show them.
func (e *Engine) CLISetSessionLimit(limit, vrf uint32) int32 {
	if rv := e.SetSessionLimit(limit, vrf); rv != OK {
		return rv
	}
	e.maxPerThread = 0
	for _, m := range e.maxPerFIB {
		e.maxPerThread = max(e.maxPerThread, m)
	}
	e.buckets = hashBuckets(e.maxPerThread)
	e.clearLookups()
	e.clearSessions()
	return OK
}

// SessionsExceeded reports whether a new session in the table would be over the limit.
func (e *Engine) sessionsExceeded(table uint32) bool {
	limit, ok := e.maxPerFIB[table]
	if !ok {
		limit = e.maxPerFIB[0]
	}
	return uint32(e.sessions.len()) >= limit
}

// RunningConfig is nat44_show_running_config. After a disable the buckets and timeouts keep their last values, as in VPP.
func (e *Engine) RunningConfig() RunningConfig {
	return RunningConfig{
		InsideVRF: e.rconfig.InsideVRF, OutsideVRF: e.rconfig.OutsideVRF, Sessions: e.rconfig.Sessions,
		TranslationBuckets: e.buckets, Forwarding: e.forwarding, Timeouts: e.timeouts,
	}
}

// Enabled reports whether the plugin is enabled.
func (e *Engine) Enabled() bool { return e.enabled }
