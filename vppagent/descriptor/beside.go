package descriptor

import "time"

// Replace is what a kind needs whose values can be replaced by a second object.
type Replace struct {
	// Cost is the longest time for which a request stops forwarding if have becomes want in place, and if it is replaced beside.
	Cost func(w *World, have, want any) (inPlace, beside time.Duration)
	// Make makes the second object; the state is what VPP has then.
	Make func(w *World, have, want any) ([]Op, any)
	// Stale reports that VPP has objects beside the one that counts.
	Stale func(have any) bool
	// Carry is want with the stale objects of have.
	Carry func(have, want any) any
	// Sweep removes those nobody uses any more; the state is what VPP has then.
	Sweep func(w *World, have any) ([]Op, any)
}

// Stands is what a kind needs whose values stand on others that can be replaced beside (Descriptor.Replace).
type Stands struct {
	// Reach is what can be had of want now, and the keys of what is missing for the rest; why it will never be had, or "".
	// in returns what VPP surely has of a key, or nil.
	Reach func(w *World, have, want any, in func(key string) any) (state any, missing []string, why string)
	// Note tells, of a state Reach gave for want of something, what that means.
	Note func(state any) string
	// Settled reports that what have stands on in VPP is what counts, nothing stale.
	Settled func(w *World, have any) bool
	// Torn reports that changing one after the other, what have stands on and then have to want (nil: nothing), may show
	// something that is neither before nor after. content tells what VPP has of a key and what it will have then.
	Torn func(w *World, have, want any, content func(key string) (have, want any)) bool
	// Shut is the state that passes nothing. The planner puts it before all other steps where VPP has nothing yet, and want after all other
	// puts. nil: want needs no such state
	Shut func(want any) any
	// Shuts reports that a state passes nothing. The planner puts the state that follows it after all others.
	Shuts func(state any) bool
}
