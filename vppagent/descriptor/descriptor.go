// Package descriptor turns single values (a DNat44, an interface, a route, …) into binary-API requests, and dumps of VPP
// back into values: one file per kind of value.
//
// Invariant: a descriptor owns no state. Retrieve after Create gives a state that is Equal to the one created, so that a
// resync of an unchanged VPP asks for nothing.
package descriptor

import (
	"fmt"
	"time"

	"go.fd.io/govpp/api"
	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/vpp"
)

// Descriptor is one kind of value, as a table of functions. The any passed around is the compiled form of the value (a
// pointer, the S of the kind's Spec): Compile makes it, and everything after works on it, so that parsing is done once.
type Descriptor struct {
	Name   string // "dnat44"; for messages
	Prefix string // of all keys; without a final slash: the only key
	// Tagged reports that VPP keeps our tag on the object: what carries it is ours. Without, the agent's journal decides.
	Tagged bool
	// Untagged tells of a Tagged kind that this object has no tag yet; nil: all have theirs from the beginning.
	Untagged func(state any) bool

	// Compile validates; its error names the field.
	Compile func(key string, m proto.Message) (any, error)
	// Message is the inverse of Compile, in canonical form.
	Message func(state any) proto.Message
	// Equal reports that nothing has to be sent to get from have to want.
	Equal func(have, want any) bool

	Dependencies func(state any) []Dependency // nil: none
	Derived      func(state any) []Derived    // nil: none
	// Claims names what only one value can have at a time in VPP (a VIP and port, a host interface). Of two values of one
	// plan, the one that gives it up comes first. nil: none
	Claims func(state any) []string

	// Parts are what a value gives to values of other kinds, by their keys; there may be many givers to one. nil: nothing
	Parts func(state any) []Derived
	// Broken are the parts of a message that does not compile. nil: none
	Broken func(key string, m proto.Message) []Derived
	// Merge makes a value of what its message says (nil: there is none) and the parts given to it, sorted by giver; at least
	// one of both there is. nil: nobody gives parts
	Merge func(own any, parts []any) any
	// Idle tells of a part that it alone makes no value. nil: any part makes one
	Idle func(part any) bool
	// Beside is set if a value can be replaced by a second object; nil: it cannot. See Stands.
	Beside *Besides
	// Stands is set if values stand on others (their loose dependencies) that can be replaced beside. nil: they do not
	Stands *Stands

	// Shut is what is put before all other steps of a plan where VPP has nothing yet, and passes nothing; want follows after all
	// other puts. It returns nil if want needs no such thing. nil: none does
	Shut func(want any) any
	// Shuts reports that a state passes nothing: what follows such a state is put after all others. Set if Shut is.
	Shuts func(state any) bool

	// Waits names claims that must not be held any more when the value is put, though it does not make them. nil: none
	Waits func(state any) []string
	// After are the names of kinds whose values are put before this one's where a plan has both, though nothing needs them.
	After []string
	// Rebind reports that the object stays in VPP when its interface is deleted, and is dead even if an interface of that
	// name and index comes back: it has to be deleted and made again.
	Rebind bool
	// ForPods reports that values are for interfaces of pods, too: that there is one does not tell that the interface is the node's.
	ForPods bool
	// Guards reports that something relies on the value that goes only after what both are on, which takes it along: so does the value. What
	// stands on others (Stands) does so as well.
	Guards bool
	// Many reports that there may be thousands of values, and that Retrieve changes nothing: that of several such kinds runs at
	// the same time.
	Many bool

	// Ready tells why want must not be put yet, though all it depends on is there: it is tried again. have is nil if it is to be
	// created; sure returns what VPP certainly has of a key, if that is as it is wanted, or nil. nil: it always may
	Ready func(w *World, have, want any, sure func(key string) any) error
	// Recreate reports that have cannot become want: it is deleted first, with all that depends on it.
	Recreate func(have, want any) bool
	// Anew reports that an update says all that dumps do not show, so that the journal has to know of it before, as of a creation.
	// nil: none does
	Anew   func(have any) bool
	Create func(w *World, state any) ([]Op, error)
	Update func(w *World, have, want any) ([]Op, error)
	Delete func(w *World, state any) ([]Op, error)

	// Dumps are the requests Retrieve needs answered.
	Dumps func(w *World, candidates Candidates) []Request
	// More are the requests that follow from answers; it is asked again until there are none that have not been answered. Not of a kind
	// with Many. nil: none follow
	More func(w *World, d *Dump) []Request
	// Nodes are what packets must meet if VPP has the value; its key is Prefix and the interface. nil: dumps show all there is
	Nodes func(w *World, have any) []Node
	// Rest is the key under which Retrieve finds what of ours belongs to no other value. "": nothing may be left over
	Rest string
	// Haunted reports that interfaces are such now that Retrieve would find something nobody knows of: it is looked. nil: they never are
	Haunted func(w *World) bool
	// Retrieve finds values in the dumps. candidates are the values wanted and those known to be ours; they tell what dumps
	// cannot show.
	Retrieve func(w *World, d *Dump, candidates Candidates) ([]Found, error)
}

// Dependency is what must be in VPP before a value can be.
type Dependency struct {
	Key   string // exact key; or
	AnyOf string // prefix of which any value will do
	// Loose reports that Key is put before and removed after, but is no condition.
	Loose bool
}

// String is the key, or the prefix followed by "*".
func (d Dependency) String() string {
	if d.AnyOf != "" {
		return d.AnyOf + "*"
	}
	return d.Key
}

// Derived is a part of a value with dependencies of its own: it exists if and only if its base does.
type Derived struct {
	Key string
	// State is the compiled form for the descriptor of the key; nil: a property, something others depend on.
	State any
}

// Op is one request of a value, and what follows from its reply.
type Op struct {
	Call vpp.Call
	// Then is called with the successful reply; what it returns is sent next, before any later level. nil: nothing follows
	Then func(vpp.Reply) []Op
	// Next is sent when VPP has taken this one, as what Then returns; nil: nothing, or what Then returns.
	Next *Op
	// Else is called if VPP refuses this one; what it returns is sent next. nil: nothing follows
	Else func() []Op
	// Gone reports that it is success if VPP says there is nothing to remove: see Gone.
	Gone bool
	// Asks reports that the request changes nothing.
	Asks bool
	// Preview is what will be sent once the answer is known, as far as it can be foretold; nil: the request itself.
	Preview api.Message
	// Refuses looks at the successful reply and tells why the step must not go on; nil: it always may.
	Refuses func(vpp.Reply) error
	// Takes and Frees are the claim this request makes or gives up; zero: none.
	Takes, Frees Claim
	// Cost is how long VPP's main thread takes for the request; 0: as long as for any of its name.
	Cost time.Duration
}

// inTurn sends each when VPP has taken the one before, and none after one it has not.
func inTurn(ops []Op) []Op {
	for i := range ops[1:] {
		ops[i].Next = &ops[i+1]
	}
	return ops[:1]
}

// Claim is what only one value can have at a time, as an Op says it: a NAT44 address and port, or a name.
type Claim struct {
	nat  natID
	name string
}

// Found is a value in VPP.
type Found struct {
	Key   string
	State any
	Base  string // key of the value it is derived from; "" if it is not derived
	// Ours: made by this agent or an earlier life of it, known by its tag. Without tags: of what the agent made under another key.
	Ours bool
	// Foreign: made by somebody else; left alone and reported. Key is "" or the nearest there is, Text says what it is.
	Foreign bool
	Text    string
}

// Candidates are the values a dump may show.
type Candidates interface {
	// Wanted returns the compiled form of a wanted value, nil if key is not wanted.
	Wanted(key string) any
	// Each calls f for every wanted value of the descriptor, and for every value of it that is ours though unwanted.
	Each(f func(key string, state any, wanted bool))
}

// Spec is a Descriptor with types: V the message, S its compiled form.
type Spec[V proto.Message, S comparable] struct {
	Name         string
	Prefix       string
	Tagged       bool
	Untagged     func(S) bool
	Compile      func(key string, m V) (S, error)
	Message      func(S) V
	Equal        func(have, want S) bool
	Dependencies func(S) []Dependency
	Derived      func(S) []Derived
	Claims       func(S) []string
	Waits        func(S) []string
	After        []string
	Rebind       bool
	Guards       bool
	Many         bool
	Recreate     func(have, want S) bool // nil: never, unless Update is nil: then always
	Anew         func(have S) bool
	Create       func(*World, S) ([]Op, error)
	Update       func(w *World, have, want S) ([]Op, error)
	Delete       func(*World, S) ([]Op, error)
	Dumps        func(*World, Candidates) []Request
	Retrieve     func(*World, *Dump, Candidates) ([]Found, error)
}

// Descriptor erases the types.
func (s Spec[V, S]) Descriptor() *Descriptor {
	d := &Descriptor{Name: s.Name, Prefix: s.Prefix, Tagged: s.Tagged, After: s.After, Rebind: s.Rebind, Guards: s.Guards, Many: s.Many, Dumps: s.Dumps, Retrieve: s.Retrieve}
	d.Compile = func(key string, m proto.Message) (any, error) {
		v, ok := m.(V)
		if !ok {
			return nil, fmt.Errorf("%s is a %T", s.Name, m)
		}
		state, err := s.Compile(key, v)
		if err != nil {
			return nil, err
		}
		return state, nil
	}
	d.Message = func(state any) proto.Message { return s.Message(state.(S)) }
	d.Equal = func(have, want any) bool {
		h, w := have.(S), want.(S)
		return h == w || s.Equal(h, w)
	}
	d.Create = func(w *World, state any) ([]Op, error) { return s.Create(w, state.(S)) }
	d.Delete = func(w *World, state any) ([]Op, error) { return s.Delete(w, state.(S)) }
	d.Update = func(w *World, have, want any) ([]Op, error) { return s.Update(w, have.(S), want.(S)) }
	d.Recreate = func(have, want any) bool {
		return s.Update == nil || s.Recreate != nil && s.Recreate(have.(S), want.(S))
	}
	if s.Anew != nil {
		d.Anew = func(have any) bool { return s.Anew(have.(S)) }
	}
	if s.Dependencies != nil {
		d.Dependencies = func(state any) []Dependency { return s.Dependencies(state.(S)) }
	}
	if s.Derived != nil {
		d.Derived = func(state any) []Derived { return s.Derived(state.(S)) }
	}
	if s.Claims != nil {
		d.Claims = func(state any) []string { return s.Claims(state.(S)) }
	}
	if s.Untagged != nil {
		d.Untagged = func(state any) bool { return s.Untagged(state.(S)) }
	}
	if s.Waits != nil {
		d.Waits = func(state any) []string { return s.Waits(state.(S)) }
	}
	return d
}
