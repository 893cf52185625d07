// Package descriptor is the contract between the engine and the kinds of values, and what all kinds share. A kind turns single values (a DNat44,
// an interface, a route, …) into binary-API requests, and dumps of VPP back into values; the kinds of one feature of VPP are one package below.
//
// Invariant: a descriptor owns no state. Retrieve after Create returns a state that is Equal to the created one, so that a resync
// of an unchanged VPP writes nothing.
package descriptor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"go.fd.io/govpp/api"
	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/vpp"
)

// Descriptor is one kind of value, as a table of functions. The any in their signatures is the compiled form of the value (a
// pointer, the S of the kind's Spec): Compile makes it, and all other functions take it, so that parsing happens once.
//
// The names in parentheses are the users of a field: the expansion (vppagent/expand), the planner, the execution, the resync, the journal.
type Descriptor struct {
	// Name is "dnat44"; messages and the slices of rechecks use it.
	Name string
	// Prefix starts all keys of the kind; a star stands for a name. Without a final slash it is the only key (graph).
	Prefix string
	// Tagged reports that VPP keeps our tag on the object: an object with our tag is ours. Without it the journal decides (resync, journal).
	Tagged bool

	// Compile validates a message; its error names the field. A state beside an error keeps the parts that the value still gives to
	// merged values (expansion).
	Compile func(key string, m proto.Message) (any, error)
	// Message is the inverse of Compile, in canonical form (journal).
	Message func(state any) proto.Message
	// Compare returns the change that leads from have to want (planner).
	Compare func(have, want any) Change

	// Dependencies are the keys that the value needs in VPP, and the claims that must be free. nil: none (planner)
	Dependencies func(state any) []Dependency
	// Derived are the values and parts that follow from a value. nil: none (expansion)
	Derived func(state any) []Derived
	// Merge makes one state of the message's state (nil: no message) and the parts that other values give, sorted by the key of the
	// giver. At least one of both exists. It returns nil if they make no value. nil: no value gives parts to this kind (expansion)
	Merge func(own any, parts []any) any
	// Claims names resources that only one value can have at a time in VPP (a VIP and port, an interface of the host). Of two values of one
	// plan, the value that frees the claim is written first. nil: none (planner)
	Claims func(state any) []string

	Lifecycle
	Retrieval

	// Replace is set if a second object can take the place of the first. nil: values change in place (planner, execution)
	Replace *Replace
	// Stands is set if values stand on others, their loose dependencies, that Replace may give a second object. nil: they do not
	// (planner, execution)
	Stands *Stands
}

// Has reports whether key belongs to the descriptor. A star in Prefix stands for a name.
func (d *Descriptor) Has(key string) bool {
	head, tail, star := strings.Cut(d.Prefix, "*")
	switch {
	case star:
		return strings.HasPrefix(key, head) && strings.Contains(key[len(head):], tail)
	case strings.HasSuffix(d.Prefix, "/"):
		return strings.HasPrefix(key, d.Prefix)
	}
	return key == d.Prefix
}

// Change is the kind of change from one state to another.
type Change uint8

// The changes.
const (
	Same    Change = iota // no request is needed
	InPlace               // an update
	Anew                  // the old object is deleted first, with all dependents
)

// Equal reports that no request is needed to get from have to want.
func (d *Descriptor) Equal(have, want any) bool { return d.Compare(have, want) == Same }

// Lifecycle are the requests of a value.
type Lifecycle struct {
	// After are the names of kinds whose values a plan puts before this kind's, although this kind does not need them (planner).
	After []string
	// Ready returns why want must not be put yet, although VPP has all its dependencies. The agent retries. have is nil for a creation; sure
	// returns the certain actual state of a key if it equals the desired state, or nil. nil: want is always ready (execution)
	Ready func(w *World, have, want any, sure func(key string) any) error
	// Create, Update and Delete return the requests. Update is not called if Compare returns Anew (execution).
	Create func(w *World, state any) ([]Op, error)
	Update func(w *World, have, want any) ([]Op, error)
	Delete func(w *World, state any) ([]Op, error)
}

// Retrieval has the functions that find values in VPP and decide which of them are the agent's.
type Retrieval struct {
	// Many reports that VPP may have thousands of values, and that Retrieve does not change the World: the resync runs several such
	// kinds in parallel.
	Many bool
	// Dumps are the requests whose answers Retrieve needs. known has the answers so far, nil at first; the resync calls Dumps again
	// until it adds nothing. Kinds with Many do not read known.
	Dumps func(w *World, c Candidates, known *Dump) []Request
	// Retrieve finds values in the dumps. The candidates are the wanted values and those known to be ours: they supply what dumps
	// cannot show.
	Retrieve func(w *World, d *Dump, c Candidates) ([]Found, error)
	// Nodes are the graph nodes that packets of an interface meet if VPP has the value, whose key is Prefix and the interface. nil:
	// dumps show everything (recheck)
	Nodes func(w *World, have any) []Node
	// Unmarked reports that neither a tag nor the journal shows all of a state that is ours. For a tagged kind: the object has no tag
	// yet, or has a part that can have none, so the journal keeps it. For another kind: dumps and journal lack something that an update
	// states, so the journal records it first. nil: never (journal)
	Unmarked func(state any) bool
	// Rest is set if VPP may have objects of ours that belong to no value. nil: it cannot (resync)
	Rest *Rest
}

// Rest are the objects of ours in VPP that belong to no value.
type Rest struct {
	Key string // the key under which Retrieve returns them
	// Suspect reports that Retrieve may find new objects, because interfaces changed or an agent began.
	Suspect func(w *World) bool
}

// Gradual is a state whose change VPP may have a part of, for any time: other values then go between the parts.
type Gradual interface {
	// Toward returns a state between have and want, whose requests take about most of VPP's and the agent's time; nil: the requests to want take
	// no longer. have or want may be nil.
	Toward(w *World, have, want any, most time.Duration) any
}

// Dependency is a condition of a value: a key that must be in VPP before the value, or a claim that must be free.
type Dependency struct {
	Key   string // exact key; or
	AnyOf string // a prefix; any value below it satisfies the dependency; or
	// Without is a claim that no value may hold when the value is put, although the value does not make the claim.
	Without string
	// Loose reports that Key is put before and removed after the value, but is no condition.
	Loose bool
	// Bond is the fate of the value when Key is deleted.
	Bond Bond
	// Pods reports that an interface of a pod has such a value too: the value does not show that the interface Key is the node's. All values of a kind
	// report the same.
	Pods bool
}

// Bond is the fate of a value in VPP when VPP deletes an object that the value depends on.
type Bond uint8

// The bonds.
const (
	// Follows: the value is removed before.
	Follows Bond = iota
	// Dies: VPP keeps the object, and it stays dead even if an interface of that name and index is added again. The agent deletes and
	// recreates it.
	Dies
	// Outlives: other values rely on the value until Key is deleted, which also deletes the value. The agent removes the value after Key.
	Outlives
)

// Waits are the claims that must be free before a state is put.
func (d *Descriptor) Waits(state any) (claims []string) {
	if d.Dependencies == nil {
		return nil
	}
	for _, dep := range d.Dependencies(state) {
		if dep.Without != "" {
			claims = append(claims, dep.Without)
		}
	}
	return claims
}

// Bound reports that a state depends on a key with that bond.
func (d *Descriptor) Bound(state any, key string, bond Bond) bool {
	if d.Dependencies == nil || state == nil {
		return false
	}
	return slices.ContainsFunc(d.Dependencies(state), func(dep Dependency) bool { return dep.Key == key && dep.Bond == bond })
}

// String is the key, the prefix followed by "*", or the claim.
func (d Dependency) String() string {
	if d.AnyOf != "" {
		return d.AnyOf + "*"
	}
	return d.Key + d.Without
}

// Derived is a value or part that a value gives under another key. If the kind of the key has Merge, State is a part of that value, which
// may get parts of several values. Otherwise it is a value with separate dependencies, which exists if and only if its base does.
type Derived struct {
	Key string
	// State is the compiled form for the descriptor of the key, or a part for its Merge; nil: a property, on which other values may depend.
	State any
}

// Op is one request of a value, with the requests that follow from its reply.
type Op struct {
	Call vpp.Call
	// Then receives the successful reply; the requests that it returns are sent next, before any later level. nil: none
	Then func(vpp.Reply) []Op
	// Next are sent when VPP has accepted this request, like Then's result; nil: none, or Then's result.
	Next []Op
	// Else is called if VPP refuses this request; the requests that it returns are sent next. nil: none
	Else func() []Op
	// Gone reports that the request succeeds if VPP answers that the object does not exist: see Gone.
	Gone bool
	// Asks reports that the request changes nothing.
	Asks bool
	// Preview are the requests that follow once the answer is known, as far as they can be foretold; nil: the request itself.
	Preview api.Message
	Follows time.Duration // cost of Preview
	// Refuses examines the successful reply and returns why the step must not continue; nil: it always may.
	Refuses func(vpp.Reply) error
	// Takes and Frees are the claims that this request takes and frees; zero: none. A request that has to precede the freeing one has
	// its claim, too.
	Takes, Frees Claim
	// Cost is the time that VPP's main thread takes for the request; 0: the usual time of requests with its name.
	Cost time.Duration
	// Apart means that the request may take longer than Cost says, and that others with the same number then do, too; 0: it does not.
	Apart uint64
}

// InTurn sends each request when VPP has accepted the one before, and stops after a refusal.
func InTurn(ops []Op) []Op {
	for i := range ops[1:] {
		ops[i].Next = ops[i+1 : i+2]
	}
	return ops[:1]
}

// Claim is a resource that only one value can have at a time, as an Op names it: a NAT44 address and port, or a name.
type Claim struct {
	ID   uint64 // of a NAT44 address, port and protocol; 0: it is a name
	Name string
}

// Found is a value that a dump shows.
type Found struct {
	Key   string
	State any
	Base  string // key of the value it is derived from; "" if it is not derived
	// Ours: this agent or its predecessor made it, as its tag shows. Without tags: it belongs to an object that the agent made under
	// another key.
	Ours bool
	// Doubtful: the dump may show it although it is gone. The agent takes it only for what it knows to be its own, and otherwise puts it again. Without
	// a journal it takes what is wanted.
	Doubtful bool
	// Foreign: another client owns the object; the agent does not change it, and reports it. Key is "" or the nearest key that exists; Text
	// describes the object.
	Foreign bool
	Text    string
}

// Candidates are the values a dump may show.
type Candidates interface {
	// Wanted returns the compiled form of a wanted value, nil if key is not wanted.
	Wanted(key string) any
	// Each calls f for every wanted value of the descriptor, and for every unwanted value of it that is ours.
	Each(f func(key string, state any, wanted bool))
}

// Spec is a Descriptor with types: V the message, S its compiled form. A kind sets all other fields on the Descriptor.
type Spec[V proto.Message, S comparable] struct {
	Name         string
	Prefix       string
	Tagged       bool
	Compile      func(key string, m V) (S, error)
	Message      func(S) V
	Equal        func(have, want S) bool // false: Update, if Recreate does not say otherwise
	Recreate     func(have, want S) bool // nil: never, unless Update is nil: then always
	Dependencies func(S) []Dependency
	Derived      func(S) []Derived
	Claims       func(S) []string
	Create       func(*World, S) ([]Op, error)
	Update       func(w *World, have, want S) ([]Op, error)
	Delete       func(*World, S) ([]Op, error)
	Dumps        func(*World, Candidates) []Request
	Retrieve     func(*World, *Dump, Candidates) ([]Found, error)
}

// Descriptor erases the types.
func (s Spec[V, S]) Descriptor() *Descriptor {
	d := &Descriptor{Name: s.Name, Prefix: s.Prefix, Tagged: s.Tagged}
	d.Compile = s.compile
	d.Message = func(state any) proto.Message { return s.Message(state.(S)) }
	d.Compare = func(have, want any) Change { return s.compareStates(have.(S), want.(S)) }
	d.Create = func(w *World, state any) ([]Op, error) { return s.Create(w, state.(S)) }
	d.Delete = func(w *World, state any) ([]Op, error) { return s.Delete(w, state.(S)) }
	d.Update = func(w *World, have, want any) ([]Op, error) { return s.Update(w, have.(S), want.(S)) }
	d.Dumps = func(w *World, c Candidates, _ *Dump) []Request { return s.Dumps(w, c) }
	d.Retrieve = s.Retrieve
	if s.Dependencies != nil {
		d.Dependencies = func(state any) []Dependency { return s.Dependencies(state.(S)) }
	}
	if s.Derived != nil {
		d.Derived = func(state any) []Derived { return s.Derived(state.(S)) }
	}
	if s.Claims != nil {
		d.Claims = func(state any) []string { return s.Claims(state.(S)) }
	}
	return d
}

func (s Spec[V, S]) compareStates(have, want S) Change {
	switch {
	case have == want || s.Equal(have, want):
		return Same
	case s.Update == nil || s.Recreate != nil && s.Recreate(have, want):
		return Anew
	}
	return InPlace
}

// compile returns an untyped nil for no state, not a nil pointer.
func (s Spec[V, S]) compile(key string, m proto.Message) (any, error) {
	v, ok := m.(V)
	if !ok {
		return nil, fmt.Errorf("%s is a %T", s.Name, m)
	}
	var none S
	state, err := s.Compile(key, v)
	if state == none {
		return nil, err
	}
	return state, err
}

// NoMessage is the Compile of kinds that are derived only.
func NoMessage[V proto.Message, S any](key string, _ V) (S, error) {
	var zero S
	return zero, &DerivedError{Key: key}
}
