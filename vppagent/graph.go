package vppagent

import (
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
	"github.com/contiv-agent/contiv-agent/vppagent/expand"
)

// value is a node of the graph: a wanted value, a value derived from one, an object found in VPP, or a name that others depend
// on.
type value struct {
	key  string
	kind *kind // nil: a property, or a name without a value

	msg  proto.Message // as wanted; nil for derived parts
	want any           // compiled desired state; nil: not wanted, or invalid
	bad  error         // why msg did not compile
	have any           // actual state; nil: none
	ours bool          // the agent owns have and may remove it
	// unsure: a request failed half-way, and have may differ from VPP. The agent dumps it again before it touches the value.
	unsure bool
	tried  any // the intended state of the failed request; nil: none
	// rebind: it was bound to an interface that was deleted; a dump of it shows a dead object.
	rebind bool

	base    *value   // derived from it; nil: not derived
	derived []*value // wanted parts
	deps    []*value // dependencies of want; of have if not wanted
	hard    int      // the first hard of deps are conditions; the others are loose
	// dependents are the values that have this one in deps.
	dependents map[*value]struct{}
	outlives   int      // the first outlives of deps are removed before this value: see descriptor.Outlives
	uses       []*value // what have stands on
	users      map[*value]struct{}
	held       []string // the keys that want waits for, while have is the possible part of it
	never      string   // why want is impossible
	// ifname is the interface that this key names; such a value exists if VPP has the interface, regardless of its owner.
	ifname string
	// any is set on the node of an AnyOf dependency: it exists while members do.
	any     string
	members int

	found uint64 // epoch of the last dump that contained it
	will  bool   // exists after the current plan
	status
	slot  int // index in the snapshot; -1: none
	place int // index in the values of its kind
	plan  planMark
}

// status is the published state of a value.
type status struct {
	state   event.State
	err     string
	missing []string // the keys that it waits for
	backoff time.Duration
	retryAt time.Time // zero: no retry
}

// planMark is the mark of one plan on a value.
type planMark struct {
	epoch  uint64 // of the plan that the other fields belong to
	queued bool
	action Action
	early  bool
	beside bool // to be replaced by a second object
	shut   any  // the state that denies everything and is put first; nil: none
	first  bool // done together with the interfaces that are shut
	after  any  // the actual state after the step succeeds; nil: want
	// putLevel and delLevel are 0 until they are known.
	putLevel, delLevel int
	err                error // of its step
	unsent             bool  // no request was sent for it
	sent               bool  // a request was sent for it
}

// kind is a descriptor and its values.
type kind struct {
	*descriptor.Descriptor
	values []*value // in no particular order; each value has its index
	plain  bool     // Has only compares Prefix
	// foreign are the objects of the kind that other clients own, as of the last dump.
	foreign []string
	pods    *bool // see ofPods; nil: not known yet
	onIface bool  // a value of the kind has depended on an interface
}

func newKind(d *descriptor.Descriptor) *kind {
	plain := strings.HasSuffix(d.Prefix, "/") && !strings.Contains(d.Prefix, "*")
	return &kind{Descriptor: d, plain: plain}
}

func (k *kind) addValue(v *value) {
	v.place = len(k.values)
	k.values = append(k.values, v)
}

// removeValue puts the last one in the place of v.
func (k *kind) removeValue(v *value) {
	last := len(k.values) - 1
	k.values[v.place] = k.values[last]
	k.values[v.place].place = v.place
	k.values[last] = nil
	k.values = k.values[:last]
}

// graph is all values, by key.
type graph struct {
	kinds  []*kind
	values map[string]*value
	anyOf  []*value // nodes of AnyOf dependencies; few
	world  *descriptor.World
	many   int     // number of expected nodes; they are allocated in bunches
	spare  []value // unused nodes of a bunch
	set    *expand.Set
	stall  time.Duration
	// partsDue says that what giveParts depends on may have changed since it ran.
	partsDue bool
}

func newGraph(all []*descriptor.Descriptor, o descriptor.Options) *graph {
	g := &graph{values: map[string]*value{}, partsDue: true}
	for _, d := range all {
		g.kinds = append(g.kinds, newKind(d))
	}
	g.set = expand.New(g.descriptorOf)
	g.world = descriptor.NewWorld(o, g.wanted)
	g.world.Needing, g.world.Having = g.needing, g.having
	return g
}

// wanted is the compiled form of a wanted value, nil if there is none.
func (g *graph) wanted(key string) any {
	if v := g.values[key]; v != nil {
		return v.want
	}
	return nil
}

// needing is the actual state of the dependents of a key.
func (g *graph) needing(key string) (out []any) {
	v := g.values[key]
	if v == nil {
		return nil
	}
	for d := range v.dependents {
		if d.have != nil {
			out = append(out, d.have)
		}
	}
	return out
}

// having is the actual state of a kind.
func (g *graph) having(prefix string) (out []any) {
	for _, k := range g.kinds {
		if k.Prefix != prefix {
			continue
		}
		for _, v := range k.values {
			if v.have != nil {
				out = append(out, v.have)
			}
		}
	}
	return out
}

const interfacePrefix = "config/vpp/v2/interfaces/"

// nodeOf returns the node of a key, and makes it if absent.
func (g *graph) nodeOf(key string) *value {
	if v := g.values[key]; v != nil {
		return v
	}
	k := g.kindOf(key)
	v := g.blank()
	v.key, v.kind, v.slot = key, k, -1
	if k != nil {
		k.addValue(v)
	}
	if name, ok := strings.CutPrefix(key, interfacePrefix); ok {
		v.ifname = name
	}
	g.values[key] = v
	v.will = g.exists(v)
	return v
}

func (g *graph) blank() *value {
	if g.many == 0 {
		return &value{}
	}
	if g.many--; len(g.spare) == 0 {
		g.spare = make([]value, 32)
	}
	v := &g.spare[0]
	g.spare = g.spare[1:]
	return v
}

// expect makes room for the nodes of many values.
func (g *graph) expect(list []compiled) {
	const many = 128
	if len(list) < many || len(g.values) > len(list)/2 {
		return
	}
	kinds := map[*kind]int{}
	for i := range list {
		kinds[list[i].kind]++
	}
	for k, n := range kinds {
		if k != nil {
			k.values = slices.Grow(k.values, n)
		}
	}
	values := make(map[string]*value, len(g.values)+len(list))
	maps.Copy(values, g.values)
	g.values, g.many = values, len(list)
}

// kindOf returns the kind of a key; nil if none has it.
func (g *graph) kindOf(key string) *kind {
	for _, k := range g.kinds {
		if k.plain && strings.HasPrefix(key, k.Prefix) || !k.plain && k.Has(key) {
			return k
		}
	}
	return nil
}

// descriptorOf returns the descriptor of a key; nil if none has it.
func (g *graph) descriptorOf(key string) *descriptor.Descriptor {
	if k := g.kindOf(key); k != nil {
		return k.Descriptor
	}
	return nil
}

// anyNode returns the node of an AnyOf dependency.
func (g *graph) anyNode(prefix string) *value {
	for _, v := range g.anyOf {
		if v.any == prefix {
			return v
		}
	}
	v := &value{key: prefix + "*", any: prefix, slot: -1}
	for key, m := range g.values {
		if m.will && strings.HasPrefix(key, prefix) {
			v.members++
		}
	}
	v.will = v.members > 0
	g.anyOf = append(g.anyOf, v)
	return v
}

// setWant sets the desired state of v; nil: none.
func (g *graph) setWant(v *value, state any, touch func(*value)) {
	v.want = state
	g.setDeps(v)
	g.noteChange(v)
	touch(v)
}

// noteChange records that the parts which the agent gives may follow from the new state of v: it is an interface, is on one, or is NAT44's settings.
func (g *graph) noteChange(v *value) {
	g.partsDue = g.partsDue || v.ifname != "" || v.kind != nil && v.kind.onIface || v.key == kv.Nat44GlobalKey
}

// differs reports that VPP has something else than the desired state, and that setUses does not track the difference.
func (v *value) differs() bool {
	return v.want != nil && v.have != nil && v.have != v.want && v.kind != nil && v.kind.Stands == nil
}

// setDeps sets the dependencies from want, or from have if nothing is wanted: have's order of removal still matters.
func (g *graph) setDeps(v *value) {
	state := v.want
	if state == nil {
		state = v.have
	}
	outlived, needed, loose := g.dependencies(v.kind, state)
	if v.want == nil && state != nil && v.base != nil { // no longer a part of it, but still removed before it
		if len(outlived) > 0 { // or after it, if it outlives it
			outlived = append(outlived, v.base)
		} else {
			needed = append(needed, v.base)
		}
	}
	deps := needed
	if len(outlived) > 0 {
		deps = append(outlived, needed...)
	}
	v.outlives, v.hard = len(outlived), len(deps)
	deps = append(deps, loose...)
	if v.differs() { // what it still needs in VPP is removed after it, and is no longer a condition
		outlived, needed, _ := g.dependencies(v.kind, v.have)
		for _, d := range append(outlived, needed...) {
			if !slices.Contains(deps, d) {
				deps = append(deps, d)
			}
		}
	}
	if slices.Equal(deps, v.deps) {
		return
	}
	for _, d := range v.deps {
		if !slices.Contains(deps, d) {
			delete(d.dependents, v)
			g.collect(d)
		}
	}
	for _, d := range deps {
		if d.dependents == nil {
			d.dependents = map[*value]struct{}{}
		}
		d.dependents[v] = struct{}{}
		v.kind.onIface = v.kind.onIface || d.ifname != ""
	}
	v.deps = deps
}

// dependencies are the nodes that a state of a kind depends on; none without a state or a kind.
func (g *graph) dependencies(k *kind, state any) (outlived, needed, loose []*value) {
	if k == nil || k.Dependencies == nil || state == nil {
		return nil, nil, nil
	}
	list := k.Dependencies(state)
	if len(list) > 0 {
		needed = make([]*value, 0, len(list)+1)
	}
	for _, d := range list {
		switch {
		case d.Without != "": // only the plan uses it
		case d.AnyOf != "":
			needed = append(needed, g.anyNode(d.AnyOf))
		case d.Loose:
			loose = append(loose, g.nodeOf(d.Key))
		case d.Bond == descriptor.Outlives:
			outlived = append(outlived, g.nodeOf(d.Key))
		default:
			needed = append(needed, g.nodeOf(d.Key))
		}
	}
	return outlived, needed, loose
}

// collect removes a node that nothing refers to any more.
func (g *graph) collect(v *value) {
	if v.msg != nil || v.bad != nil || v.want != nil || v.have != nil || v.unsure {
		return
	}
	if len(v.dependents)+len(v.derived)+len(v.users) > 0 {
		return
	}
	if v.any != "" {
		g.anyOf = slices.DeleteFunc(g.anyOf, func(a *value) bool { return a == v })
		return
	}
	if g.values[v.key] != v {
		return
	}
	if v.base != nil && slices.Contains(v.base.derived, v) {
		return // a property
	}
	delete(g.values, v.key)
	if v.kind != nil {
		v.kind.removeValue(v)
	}
	for _, d := range v.deps {
		delete(d.dependents, v)
		g.collect(d)
	}
	v.deps = nil
}

// exists reports whether other values may depend on v now.
func (g *graph) exists(v *value) bool {
	switch {
	case v.any != "":
		return v.members > 0
	case v.have != nil:
		return true
	case v.kind == nil:
		return v.base != nil && g.exists(v.base)
	}
	return g.adopted(v)
}

// adopted reports that v names an interface of another client.
func (g *graph) adopted(v *value) bool {
	if v.ifname == "" || v.want != nil {
		return false
	}
	i, ok := g.world.Interface(v.ifname)
	return ok && !i.Ours
}

// should reports whether v is to exist, given what will.
func (g *graph) should(v *value) bool {
	switch {
	case v.any != "":
		return v.members > 0
	case v.kind == nil:
		return v.base != nil && v.base.will
	case v.want == nil:
		return g.adopted(v)
	case v.base != nil && !v.base.will:
		return false
	}
	for _, d := range v.deps[:v.hard] {
		if !d.will {
			return false
		}
	}
	return true
}

// setWill records whether v will exist, and touches the values that depend on the answer.
func (g *graph) setWill(v *value, will bool, touch func(*value)) {
	if v.will == will {
		return
	}
	v.will = will
	for d := range v.dependents {
		touch(d)
	}
	for _, d := range v.derived {
		touch(d)
	}
	if v.any != "" {
		return
	}
	for _, a := range g.anyOf {
		if !strings.HasPrefix(v.key, a.any) {
			continue
		}
		if will {
			a.members++
		} else {
			a.members--
		}
		touch(a)
	}
}

// steady reports that v's actual state equals its desired state and its published status says so: a resync has nothing to do or report.
func (v *value) steady() bool {
	return v.state == event.Configured && v.err == "" && v.will && !v.unsure && !v.rebind && v.want != nil && v.have == v.want
}

// missingKeys returns the keys that v waits for, sorted.
func (v *value) missingKeys() (keys []string) {
	if v.base != nil && !v.base.will {
		keys = append(keys, v.base.key)
	}
	for _, d := range v.deps[:v.hard] {
		if !d.will {
			keys = append(keys, d.key)
		}
	}
	slices.Sort(keys)
	return keys
}
