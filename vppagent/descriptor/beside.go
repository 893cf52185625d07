package descriptor

import "time"

// Replace has the functions of a kind whose values can be replaced by a second object.
type Replace struct {
	// Cost returns the longest time for which one request stops forwarding: if have becomes want in place, and if it is replaced beside.
	Cost func(w *World, have, want any) (inPlace, beside time.Duration)
	// Make makes the second object, and returns the actual state after it.
	Make func(w *World, have, want any) ([]Op, any)
	// Stale reports that VPP has replaced objects beside the current one.
	Stale func(have any) bool
	// Carry returns want with the stale objects of have.
	Carry func(have, want any) any
	// Sweep removes the stale objects that nothing uses any more, and returns the actual state after it.
	Sweep func(w *World, have any) ([]Op, any)
}

// Stands has the functions of a kind whose values stand on others that can be replaced beside (Descriptor.Replace).
type Stands struct {
	// Reach returns the part of want that is possible now, the keys that the rest waits for, and the reason why the rest is
	// impossible, or "". in returns the certain actual state of a key, or nil.
	Reach func(w *World, have, want any, in func(key string) any) (state any, missing []string, why string)
	// Note describes the effect of a state that Reach returned in place of want.
	Note func(state any) string
	// Settled reports that have stands on current objects in VPP only, on no stale one.
	Settled func(w *World, have any) bool
	// Torn reports that packets may meet a state that is neither before nor after, if the objects that have stands on change
	// first and have changes to want (nil: none) after them. content returns the actual state of a key, and its state after the
	// change.
	Torn func(w *World, have, want any, content func(key string) (have, want any)) bool
	// Shut returns the state that denies everything. If VPP has no state of the value yet, the planner puts Shut's state before all other
	// steps, and want after all other puts. nil: want needs no such state
	Shut func(want any) any
	// Shuts reports that a state denies everything. The planner puts the state that follows it after all others.
	Shuts func(state any) bool
}
