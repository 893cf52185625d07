package acl

import (
	"slices"
	"time"
)

// acl is a slot of the pool of ACLs.
type acl struct {
	used    bool
	tag     string
	rules   []Rule
	form    any      // of the caller, derived from the rules
	index   *index   // made for the first packet
	outside bool     // how it was made
	hits    []uint64 // per rule, when counters are on
}

// Engine is the ACL plugin. It is not safe for concurrent use.
type Engine struct {
	cfg  Config
	acls []acl
	free []uint32 // slots; the one freed last is used first

	lists    [2]map[uint32][]uint32        // by direction and interface; no empty ones
	attached [2]map[uint32]map[uint32]bool // by direction and ACL: the interfaces
	epochs   [2][]uint16                   // by direction and interface, like VPP's vectors: a gap is zero
	etypes   map[uint32][2][]uint16

	reclassify bool
	linear     bool
	counters   bool
	timeouts   Timeouts

	macips macips
	dynamic
}

// The defaults (acl.h, fa_node.h).
const (
	defaultMaxSessions = 500000
	defaultUDPIdle     = 600
	defaultTCPIdle     = 24 * 3600
	defaultTransient   = 120
)

// New returns a plugin without ACLs.
func New(cfg Config) *Engine {
	if cfg.Now == nil {
		cfg.Now = func() time.Duration { return 0 }
	}
	if cfg.MaxSessions == 0 {
		cfg.MaxSessions = defaultMaxSessions
	}
	if cfg.Threads == 0 {
		cfg.Threads = 1
	}
	e := &Engine{cfg: cfg, reclassify: cfg.Reclassify, timeouts: Timeouts{defaultUDPIdle, defaultTCPIdle, defaultTransient}}
	for d := range e.lists {
		e.lists[d], e.attached[d] = map[uint32][]uint32{}, map[uint32]map[uint32]bool{}
	}
	e.etypes = map[uint32][2][]uint16{}
	e.macips.init()
	e.dynamic.init()
	return e
}

func (e *Engine) aclAt(i uint32) *acl {
	if uint64(i) < uint64(len(e.acls)) && e.acls[i].used {
		return &e.acls[i]
	}
	return nil
}

// Tag returns the tag of an ACL; "" if it has none.
func (e *Engine) Tag(i uint32) string {
	if a := e.aclAt(i); a != nil {
		return a.tag
	}
	return ""
}

// maxTag is a tag's longest length (u8 tag[64] with its final zero).
const maxTag = 63

// AddReplace is acl_add_replace: i is None for a new one. It is all or nothing. The engine owns the rules afterwards.
func (e *Engine) AddReplace(i uint32, tag string, rules []Rule) (uint32, int32) {
	if len(tag) > maxTag {
		return i, rvInvalidValue
	}
	for _, r := range rules {
		if rv := r.checkPrefixes(); rv != 0 {
			return i, rv
		}
	}
	if i != None && e.aclAt(i) == nil {
		return i, rvNoSuchEntry
	}
	if i == None {
		i = e.slot()
	}
	e.acls[i] = acl{used: true, tag: tag, rules: rules}
	if e.reclassify {
		for _, d := range []direction{output, input} {
			for swIf := range e.attached[d][i] {
				e.bump(swIf, d)
			}
		}
	}
	return i, 0
}

func (e *Engine) slot() uint32 {
	if n := len(e.free); n > 0 {
		i := e.free[n-1]
		e.free = e.free[:n-1]
		return i
	}
	e.acls = append(e.acls, acl{})
	return uint32(len(e.acls) - 1)
}

// checkPrefixes returns the errors of acl_add_list; an invalid netip.Prefix stands for a length that is too long.
func (r *Rule) checkPrefixes() int32 {
	switch {
	case !r.Src.IsValid() || r.Src != r.Src.Masked():
		return rvInvalidSrc
	case !r.Dst.IsValid() || r.Dst != r.Dst.Masked():
		return rvInvalidDst
	case r.Src.Addr().Is4() != r.Dst.Addr().Is4():
		return rvInvalidSrc
	case r.SrcPorts.First > r.SrcPorts.Last || r.DstPorts.First > r.DstPorts.Last:
		return rvInvalidValue2
	}
	return 0
}

// Del is acl_del.
func (e *Engine) Del(i uint32) int32 {
	switch {
	case e.aclAt(i) == nil:
		return rvNoSuchEntry
	case len(e.attached[input][i]) > 0:
		return rvInUseInbound
	case len(e.attached[output][i]) > 0:
		return rvInUseOutbound
	}
	e.acls[i] = acl{}
	e.free = append(e.free, i)
	return 0
}

// ACLs returns all ACLs by index, or the requested one.
func (e *Engine) ACLs(which uint32) []ACL {
	var out []ACL
	for i := range e.acls {
		if a := &e.acls[i]; a.used && (which == None || which == uint32(i)) {
			out = append(out, ACL{uint32(i), a.tag, a.rules, &a.form})
		}
	}
	return out
}

// SetList is acl_interface_set_acl_list: the first nInput of the ACLs are the input list, the rest the output list, which is applied
// first. A list that names an ACL twice is not changed, nor is the input list if the output list fails; the retval is then 1.
func (e *Engine) SetList(swIf uint32, nInput int, acls []uint32) int32 {
	if slices.ContainsFunc(acls, func(i uint32) bool { return e.aclAt(i) == nil }) {
		return rvNoSuchEntry
	}
	n := min(nInput, len(acls))
	mayClear := true
	if e.setLists(swIf, output, acls[n:], &mayClear) != 0 || e.setLists(swIf, input, acls[:n], &mayClear) != 0 {
		return rvPartly
	}
	return 0
}

// AddDel is acl_interface_add_del: it appends to a list, or removes from it; the last entry fills the gap.
func (e *Engine) AddDel(swIf uint32, add, in bool, i uint32) int32 {
	d := directionOf(in)
	list := slices.Clone(e.lists[d][swIf])
	at := slices.Index(list, i)
	switch {
	case add && at >= 0 && in:
		return rvInUseInbound
	case add && at >= 0:
		return rvInUseOutbound
	case add:
		list = append(list, i)
	case at < 0:
		return rvNoSuchEntry
	default:
		list[at] = list[len(list)-1]
		list = list[:len(list)-1]
	}
	mayClear := true
	return e.setLists(swIf, d, list, &mayClear)
}

// setLists is acl_interface_set_inout_acl_list.
func (e *Engine) setLists(swIf uint32, d direction, list []uint32, mayClear *bool) int32 {
	for n, i := range list {
		if e.aclAt(i) == nil {
			return rvNoSuchEntry
		}
		if slices.Contains(list[:n], i) {
			return rvExists
		}
	}
	old := e.lists[d][swIf]
	e.attach(swIf, d, old, list)
	if e.reclassify {
		e.bump(swIf, d)
	} else if *mayClear && !sameMembers(old, list) {
		e.clear(swIf)
		*mayClear = false
	}
	if len(old) > 0 && len(list) == 0 {
		e.disabled(swIf, d)
	}
	return 0
}

func (e *Engine) attach(swIf uint32, d direction, old, list []uint32) {
	for _, i := range old {
		delete(e.attached[d][i], swIf)
	}
	for _, i := range list {
		if e.attached[d][i] == nil {
			e.attached[d][i] = map[uint32]bool{}
		}
		e.attached[d][i][swIf] = true
	}
	delete(e.lists[d], swIf)
	if len(list) > 0 {
		e.lists[d][swIf] = slices.Clone(list)
	}
}

// disabled handles the end of a direction's node: when the other direction's node is also off, the sessions end.
func (e *Engine) disabled(swIf uint32, d direction) {
	if len(e.lists[d.other()][swIf]) == 0 {
		e.clear(swIf)
	}
}

// List returns the interface's ACLs, input before output.
func (e *Engine) List(swIf uint32) (acls []uint32, nInput int) {
	in := e.lists[input][swIf]
	return slices.Concat(in, e.lists[output][swIf]), len(in)
}

// OnInput and OnOutput report whether the interface has the node.
func (e *Engine) OnInput(swIf uint32) bool { return len(e.lists[input][swIf]) > 0 }

// OnOutput is OnInput for the output.
func (e *Engine) OnOutput(swIf uint32) bool { return len(e.lists[output][swIf]) > 0 }

// SetEtypes is acl_interface_set_etype_whitelist: Ethertypes that pass a bridged interface. The nodes of the directions that have
// lists are disabled and enabled again.
func (e *Engine) SetEtypes(swIf uint32, nInput int, etypes []uint16) {
	n := min(nInput, len(etypes))
	e.etypes[swIf] = [2][]uint16{output: slices.Clone(etypes[n:]), input: slices.Clone(etypes[:n])}
	for _, d := range []direction{input, output} {
		if len(e.lists[d][swIf]) > 0 {
			e.disabled(swIf, d)
		}
	}
}

// Etypes returns the interface's whitelist, input before output; nothing if both are empty.
func (e *Engine) Etypes(swIf uint32) (etypes []uint16, nInput int) {
	w := e.etypes[swIf]
	return slices.Concat(w[input], w[output]), len(w[input])
}

// InterfaceDeleted removes an interface from everything except the sessions. VPP requests their removal, but by then finds no such
// interface. So the next interface with that number inherits them.
func (e *Engine) InterfaceDeleted(swIf uint32) {
	e.macips.detach(swIf)
	for _, d := range []direction{output, input} {
		e.attach(swIf, d, e.lists[d][swIf], nil)
		if e.reclassify {
			e.bump(swIf, d)
		}
	}
}

// epochInput marks the epochs of input lists.
const epochInput = 0x8000

// bump begins a new epoch of a list: with reclassification, sessions of older epochs are evaluated anew.
func (e *Engine) bump(swIf uint32, d direction) {
	for uint64(len(e.epochs[d])) <= uint64(swIf) {
		e.epochs[d] = append(e.epochs[d], 0)
	}
	next := (e.epochs[d][swIf] + 1) &^ epochInput
	if d == input {
		next |= epochInput
	}
	e.epochs[d][swIf] = next
}

func (e *Engine) epoch(swIf uint32, d direction) uint16 {
	switch {
	case uint64(swIf) < uint64(len(e.epochs[d])):
		return e.epochs[d][swIf]
	case d == input:
		return epochInput
	}
	return 0
}

// Reclassify reports whether sessions are evaluated anew after a change of policy; SetReclassify changes it (`set acl-plugin
// reclassify-sessions N`).
func (e *Engine) Reclassify() bool { return e.reclassify }

// SetReclassify is `set acl-plugin reclassify-sessions`.
func (e *Engine) SetReclassify(on bool) { e.reclassify = on }

// HashLookup is acl_plugin_use_hash_lookup_get.
func (e *Engine) HashLookup() bool { return !e.linear }

// SetHashLookup is acl_plugin_use_hash_lookup_set.
func (e *Engine) SetHashLookup(on bool) { e.linear = !on }

// EnableCounters is acl_stats_intf_counters_enable.
func (e *Engine) EnableCounters(on bool) { e.counters = on }

// Hits returns the packets that each rule of an ACL evaluated since it was last replaced, while counters were on; nil: none.
func (e *Engine) Hits(i uint32) []uint64 {
	if a := e.aclAt(i); a != nil {
		return slices.Clone(a.hits)
	}
	return nil
}

// MaxSessions is acl_plugin_get_conn_table_max_entries.
func (e *Engine) MaxSessions() uint32 { return e.cfg.MaxSessions }

// SetMaxSessions is `set acl-plugin session table max-entries`.
func (e *Engine) SetMaxSessions(n uint32) { e.cfg.MaxSessions = n }

// Timeouts are the idle times of sessions.
func (e *Engine) Timeouts() Timeouts { return e.timeouts }

// SetTimeouts is `set acl-plugin session timeout`.
func (e *Engine) SetTimeouts(t Timeouts) {
	e.timeouts = t
	e.sweepAt = 0
}
