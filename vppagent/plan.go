package vppagent

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/contiv-agent/contiv-agent/parallel"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

// Action is the change that a plan makes to a value.
type Action uint8

// The actions, with ligato's names.
const (
	None Action = iota
	Create
	Update
	Delete
	Recreate // delete, then create
)

// String is lower case: "create".
func (a Action) String() string {
	return [...]string{"none", "create", "update", "delete", "recreate"}[a]
}

// MarshalText is String.
func (a Action) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText reads what MarshalText writes.
func (a *Action) UnmarshalText(text []byte) error {
	for *a = None; *a <= Recreate; *a++ {
		if a.String() == string(text) {
			return nil
		}
	}
	*a = None
	return fmt.Errorf("%q is no action", text)
}

// Plan is an ordered list of changes. The steps of a level do not depend on each other and are sent in one batch. A level begins
// when VPP has acknowledged the level before.
type Plan struct {
	Levels [][]Step `json:"levels"`
	// Invalid and Pending are the values that VPP does not get, with the reasons.
	Invalid []Note `json:"invalid,omitempty"`
	Pending []Note `json:"pending,omitempty"`
	// Foreign are the objects of other clients that the dump found; they stay.
	Foreign []string `json:"foreign,omitempty"`
	// Sessions is the number of NAT sessions that the removals cut; nil if not counted: see PlanSessions.
	Sessions *int `json:"sessions,omitempty"`
}

// Step is the change of one value in a level.
type Step struct {
	Action Action `json:"action"` // Create, Update or Delete
	Key    string `json:"key"`
	// Messages are the known requests; requests with handles that VPP has not assigned yet are absent.
	Messages []string `json:"messages,omitempty"`
	// Unknown is the reason why messages are not known yet.
	Unknown string `json:"unknown,omitempty"`

	sweep bool // removes the object that was replaced beside
	shut  bool // denies everything, before all other steps
	stage any  // the state that the step leads to; nil: the whole of the change
	v     *value
}

// Note is a value with a remark.
type Note struct {
	Key string `json:"key"`
	Why string `json:"why"`
}

// Empty reports that the plan writes nothing.
func (p *Plan) Empty() bool { return len(p.Levels) == 0 }

// String is one line per step, its messages indented below it.
func (p *Plan) String() string {
	var b strings.Builder
	for _, level := range p.Levels {
		for _, s := range level {
			fmt.Fprintf(&b, "%s %s\n", s.Action, s.Key)
			for _, m := range s.Messages {
				fmt.Fprintf(&b, "    %s\n", m)
			}
			if s.Unknown != "" {
				fmt.Fprintf(&b, "    (%s)\n", s.Unknown)
			}
		}
	}
	for _, n := range p.Pending {
		fmt.Fprintf(&b, "pending %s: %s\n", n.Key, n.Why)
	}
	for _, n := range p.Invalid {
		fmt.Fprintf(&b, "invalid %s: %s\n", n.Key, n.Why)
	}
	for _, f := range p.Foreign {
		fmt.Fprintf(&b, "foreign %s\n", f)
	}
	if p.Sessions != nil {
		fmt.Fprintf(&b, "cuts %d NAT sessions\n", *p.Sessions)
	}
	if b.Len() == 0 {
		return "nothing to do\n"
	}
	return b.String()
}

// JSON is the plan as indented JSON.
func (p *Plan) JSON() ([]byte, error) { return json.MarshalIndent(p, "", "  ") }

// planner makes one plan: desired × actual → ordered operations. It does no I/O.
type planner struct {
	g       *graph
	epoch   uint64
	queue   []*value
	touched []*value // each once, in order of its first touch
	dels    []*value
	puts    []*value
	freed   map[string][]*value // the claims that dels free
	// onWay is the epoch of the plan whose creations VPP may not have answered yet; nothing may touch them; 0: none. collided
	// says that a value of that plan should have been touched.
	onWay    uint64
	collided bool
	// ahead says that more portions follow: values that are put last are held until the end.
	ahead bool
	held  []*value
	drift *drift // set in a recheck; nil: this is no recheck
}

// touch puts v on the list of values to plan.
func (p *planner) touch(v *value) {
	if p.onWay != 0 && p.onWay == v.plan.epoch && v.plan.action == Create && v.have == nil {
		p.collided = true
		return
	}
	if p.drift.waits(v) {
		return
	}
	p.mark(v)
	if !v.plan.queued {
		v.plan.queued = true
		p.queue = append(p.queue, v)
	}
}

// mark makes v part of the plan.
func (p *planner) mark(v *value) {
	if v.plan.epoch != p.epoch {
		v.plan = planMark{epoch: p.epoch}
		p.touched = append(p.touched, v)
	}
}

// settleValues decides which values will exist. It starts from the touched values and follows those whose answer changes: the work is
// proportional to the change. A cycle of dependencies never starts to exist, because its values wait for each other.
func (p *planner) settleValues() {
	for len(p.queue) > 0 {
		v := p.queue[len(p.queue)-1]
		p.queue = p.queue[:len(p.queue)-1]
		v.plan.queued = false
		p.g.setWill(v, p.g.should(v), p.touch)
	}
}

// touchUnsure touches the unsure values that join the plan later: they stand on a touched value, are recreated with it, or lose it as a user.
func (p *planner) touchUnsure() {
	touch := func(d *value) {
		if d.unsure {
			p.touch(d)
		}
	}
	for _, v := range p.touched {
		for u := range v.users {
			touch(u)
		}
		for _, u := range v.uses {
			touch(u)
		}
		if len(v.dependents)+len(v.derived) > 0 && v.will && v.want != nil && v.have != nil && v.kind.Compare(v.have, v.want) == descriptor.Anew {
			v.needers(touch)
		}
	}
}

// decide chooses an action for every touched value.
func (p *planner) decide() {
	p.sort()
	for i := 0; i < len(p.touched); i++ { // recreate touches more
		v := p.touched[i]
		if v.plan.action != None || v.kind == nil {
			continue
		}
		switch {
		case v.will && v.want != nil && v.have == nil:
			v.plan.action = Create
		case v.will && v.want != nil && v.rebind:
			p.recreate(v) // its derived values are removed before the object they are part of
		case v.will && v.want != nil && v.kind.Equal(v.have, v.want) && p.g.settled(v):
			v.held, v.never = nil, ""
		case v.will && v.want != nil && v.kind.Compare(v.have, v.want) == descriptor.Anew:
			p.recreate(v)
		case v.will && v.want != nil:
			v.plan.action = Update
		case v.have != nil && v.ours:
			v.plan.action = Delete
			p.moveAside(v)
			p.takeAlong(v)
		}
		p.touchFollowers(v)
	}
	p.layBeside()
	p.sort() // the values that takeAlong added
	for _, v := range p.touched {
		switch v.plan.action {
		case Create, Update:
			p.puts = append(p.puts, v)
		case Recreate:
			p.puts = append(p.puts, v)
			p.dels = append(p.dels, v)
		case Delete:
			p.dels = append(p.dels, v)
		}
	}
}

// sort sorts the touched values by key, and thereby all later lists: the plan is the same for every order of input.
func (p *planner) sort() {
	byKey := func(a, b *value) int { return strings.Compare(a.key, b.key) }
	if !slices.IsSortedFunc(p.touched, byKey) {
		parallel.Sort(p.touched, byKey)
	}
}

// takeAlong makes values that need v and are to be removed part of the plan: VPP may have refused their removal earlier, and would keep a
// broken remainder of them. A value that does not need v, and whose creation waits for a retry, stays: nothing would create it again.
func (p *planner) takeAlong(v *value) {
	follow := func(d *value) {
		if d.kind == nil {
			p.takeAlong(d)
		} else if d.have != nil && !d.will && !p.g.should(d) {
			p.mark(d)
		}
	}
	for d := range v.dependents {
		follow(d)
	}
	for _, d := range v.derived {
		follow(d)
	}
}

// moveAside recreates the parts of the same base that VPP already has although they should have waited for the removal of v.
func (p *planner) moveAside(v *value) {
	if v.base == nil || v.kind.Claims == nil {
		return
	}
	claims := v.kind.Claims(v.have)
	for _, d := range v.base.derived {
		if d.kind == nil || d.have == nil || d.want == nil {
			continue
		}
		if slices.ContainsFunc(d.kind.Waits(d.have), func(c string) bool { return slices.Contains(claims, c) }) {
			p.alsoRecreate(d)
		}
	}
}

// recreate also recreates all values that exist and depend on v: VPP would lose them, or refuse to delete v.
func (p *planner) recreate(v *value) {
	if v.plan.action == Recreate {
		return
	}
	v.plan.action = Recreate
	v.needers(func(d *value) {
		if d.kind == nil {
			p.mark(d)
		}
		p.alsoRecreate(d)
	})
}

// onlyAfter reports that v does not need o, but is put after it and removed before it.
func (v *value) onlyAfter(o *value) bool {
	return v.kind != nil && v.kind.Stands == nil && slices.Contains(v.deps[v.hard:], o)
}

// needers calls f for the values that need v, and for the properties of v that they need.
func (v *value) needers(f func(*value)) {
	follow := func(d *value) {
		if d.onlyAfter(v) {
			return
		}
		f(d)
		if d.kind != nil {
			return
		}
		for u := range d.dependents {
			f(u)
		}
	}
	for d := range v.dependents {
		follow(d)
	}
	for _, d := range v.derived {
		follow(d)
	}
}

// alsoRecreate recreates a value unless VPP does not have it or the plan removes it: an absent value may wait for its retry.
func (p *planner) alsoRecreate(d *value) {
	if d.kind != nil && d.have != nil && d.will && d.want != nil {
		p.mark(d)
		p.recreate(d)
	}
}

// order distributes the actions over levels.
//
// First, interfaces that are not yet evaluated are closed (see shut); the values that open them are put last.
//
// Puts precede removals, so that an object that both states have is never missing in between. Removals come first only to make
// room: for a recreated object, and for a claim that a put waits for.
func (p *planner) order() [][]Step {
	shut := p.shut()
	p.markEarly()
	var early, late, puts, opens levels
	early.sort(p.dels, p.removalLevel, func(v *value) bool { return v.plan.early })
	late.sort(p.dels, p.removalLevel, func(v *value) bool { return !v.plan.early })
	puts.sort(p.puts, p.putLevel, func(v *value) bool { return !v.plan.first && !v.last() })
	puts.gather()
	opens.sort(p.puts, func(*value) int { return 1 }, func(v *value) bool { return !v.plan.first && v.last() })
	if p.ahead {
		p.held, opens = slices.Concat(opens...), nil
	}
	removal := func(*value) Action { return Delete }
	put := func(v *value) Action {
		if v.plan.action == Update || v.plan.shut != nil {
			return Update
		}
		return Create
	}
	return slices.Concat(shut, early.steps(removal), puts.steps(put), opens.steps(put), late.steps(removal), p.sweeps())
}

func (p *planner) isPut(v *value) bool {
	return v.plan.epoch == p.epoch && (v.plan.action == Create || v.plan.action == Update || v.plan.action == Recreate)
}

func (p *planner) isRemoved(v *value) bool {
	return v.plan.epoch == p.epoch && (v.plan.action == Delete || v.plan.action == Recreate)
}

// putLevel is one more than the highest putLevel of the values that v needs. Untouched values are already in VPP.
func (p *planner) putLevel(v *value) int {
	if v.plan.epoch != p.epoch {
		return 0
	}
	if v.plan.putLevel != 0 {
		return v.plan.putLevel - 1
	}
	v.plan.putLevel = 1 // breaks cycles
	level := 0
	if v.base != nil {
		level = p.putLevel(v.base)
	}
	for _, d := range v.deps {
		level = max(level, p.putLevel(d))
	}
	if v.any != "" {
		for _, m := range p.touched {
			if m.any == "" && strings.HasPrefix(m.key, v.any) {
				level = max(level, p.putLevel(m))
			}
		}
	}
	if p.isPut(v) {
		level++
	}
	v.plan.putLevel = level + 1
	return level
}

// removalLevel is one more than the highest level of the removed values that need v.
func (p *planner) removalLevel(v *value) int {
	if v.plan.delLevel != 0 {
		return v.plan.delLevel - 1
	}
	v.plan.delLevel = 1
	level := 0
	p.users(v, func(d *value) { level = max(level, p.removalLevel(d)) })
	for _, d := range v.deps[:v.outlives] {
		if p.isRemoved(d) {
			level = max(level, p.removalLevel(d))
		}
	}
	if p.isRemoved(v) {
		level++
	}
	v.plan.delLevel = level + 1
	return level
}

// removedWith reports that v is removed only after the value it is on, whose removal also removes v: an earlier removal would open what v
// guards.
func (v *value) removedWith(on *value) bool {
	return slices.Contains(v.deps[:v.outlives], on)
}

// users calls f for the removed values that need v, and for the properties that lead to such values.
func (p *planner) users(v *value, f func(*value)) {
	visit := func(d *value) {
		if d.plan.epoch == p.epoch && (p.isRemoved(d) || d.kind == nil) && !d.removedWith(v) {
			f(d)
		}
	}
	for d := range v.dependents {
		visit(d)
	}
	for d := range v.users {
		visit(d)
	}
	for _, d := range v.derived {
		visit(d)
	}
	if v.kind != nil || v.any != "" {
		return
	}
	for _, a := range p.g.anyOf { // a property may be a member of a prefix
		if strings.HasPrefix(v.key, a.any) {
			visit(a)
		}
	}
}

// markEarly finds the removals that make room: of values whose claims a put takes, and of values that must be removed before those.
func (p *planner) markEarly() {
	if len(p.dels) == 0 || len(p.puts) == 0 {
		return
	}
	p.freed = map[string][]*value{}
	for _, v := range p.dels {
		if v.plan.action == Recreate {
			p.early(v)
		}
		if v.kind.Claims != nil {
			for _, c := range v.kind.Claims(v.have) {
				p.freed[c] = append(p.freed[c], v)
			}
		}
	}
	if len(p.freed) == 0 {
		return
	}
	for _, v := range p.puts {
		p.inTheWay(v, func(holder *value) bool { p.early(holder); return false })
	}
}

// inTheWay calls f for the values of the plan whose removal makes room for v, until f returns true.
func (p *planner) inTheWay(v *value, f func(*value) bool) bool {
	if len(p.freed) == 0 {
		return false
	}
	claims := v.kind.Waits(v.want)
	if v.kind.Claims != nil {
		claims = append(v.kind.Claims(v.want), claims...)
	}
	for _, c := range claims {
		for _, holder := range p.freed[c] {
			if holder != v && f(holder) {
				return true
			}
		}
	}
	return false
}

func (p *planner) early(v *value) {
	if v.plan.early {
		return
	}
	v.plan.early = true
	p.users(v, p.early)
}
