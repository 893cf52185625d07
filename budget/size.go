package budget

import (
	"fmt"
	"strconv"
	"strings"
)

// Dimension is something VPP and the agent have little of.
type Dimension uint8

// The dimensions.
const (
	// Rules are the rules that policies make, each of which is up to four in VPP (ADR 12).
	Rules Dimension = iota
	// Tables are the access lists that policies make.
	Tables
	// RangeRules are the rules in the access list of all loadBalancerSourceRanges.
	RangeRules
	// Backends are pairs of a Service's frontend and an endpoint behind it.
	Backends
	// Memory is what the agent takes at its peak, in KiB, about.
	Memory
	// Dimensions is how many there are.
	Dimensions
)

var dimensionNames = [Dimensions]string{"rules of policies", "access lists of policies", "rules of source ranges", "backends of Services", "KiB of memory"}

// String is what the dimension counts: "rules of policies".
func (d Dimension) String() string { return dimensionNames[d] }

// Flag is the name of the setting that bounds the dimension.
func (d Dimension) Flag() string {
	return [Dimensions]string{"max-policy-rules", "max-policy-tables", "max-source-range-rules", "max-service-backends", "max-memory"}[d]
}

// Size is what an object asks for, by dimension. The zero value asks for nothing.
type Size [Dimensions]int

// Limit bounds one dimension. A bound of 0 is none.
type Limit struct {
	Object    int // of one object
	Namespace int // of all objects of a namespace
	Node      int // of all objects
}

// String is "65536/262144/524288": object, namespace, node.
func (l Limit) String() string { return fmt.Sprintf("%d/%d/%d", l.Object, l.Namespace, l.Node) }

// ParseLimit reads what String writes.
func ParseLimit(text string) (Limit, error) {
	parts := strings.Split(text, "/")
	if len(parts) != 3 {
		return Limit{}, fmt.Errorf("%q is not OBJECT/NAMESPACE/NODE, three numbers", text)
	}
	var n [3]int
	for i, p := range parts {
		v, err := strconv.ParseInt(p, 10, 32)
		if err != nil || v < 0 {
			return Limit{}, fmt.Errorf("%q: %q is not a number from 0 to 2147483647 (0: no limit)", text, p)
		}
		n[i] = int(v)
	}
	return Limit{n[0], n[1], n[2]}, nil
}

// Limits bound each dimension. The zero value bounds nothing.
type Limits [Dimensions]Limit

// Defaults are the limits of the commands, without that of the node's memory (see Within). A set of 10,000 members with six ports is within them, and 10,000 Services with ten
// endpoints each. Source ranges have the lowest: VPP stops forwarding for about 40 µs per rule when any of them changes.
func Defaults() Limits {
	return Limits{
		Rules:      {Object: 1 << 16, Namespace: 1 << 18, Node: 1 << 19},
		Tables:     {Object: 1 << 10, Namespace: 1 << 12, Node: 1 << 14},
		RangeRules: {Object: 1 << 13, Namespace: 1 << 14, Node: 1 << 15},
		Backends:   {Object: 1 << 18, Namespace: 1 << 19, Node: 1 << 20},
		Memory:     {Object: 1 << 17},
	}
}

// The peak memory of the agent for one of these, in KiB, and without any, in bytes. A test of hostile tenants measures them.
const (
	writtenMemory = 3 // a rule as it is written: an ipBlock is one
	ruleMemory    = 1 // a rule of an access list
	perKiB        = 2 // backends
	baseMemory    = 192 << 20
)

// Within returns the limits of a process that may have so many bytes of memory; 0: no bound is known, and they stay as they are. The
// memory of all objects is bounded to what is left beside the agent itself, and that of a namespace to half of it. No bound becomes higher.
func (l Limits) Within(memory int64) Limits {
	if memory <= 0 {
		return l
	}
	left := int(max(memory-baseMemory, memory/4) >> 10)
	m := &l[Memory]
	m.Node = lower(m.Node, left)
	m.Namespace = lower(m.Namespace, left/2)
	return l
}

// lower is the lower of two bounds, of which 0 is none.
func lower(a, b int) int {
	if a == 0 || b < a {
		return b
	}
	return a
}

// Of returns the limits for a part of all objects: so many of so many parts of a namespace's and of the node's memory are theirs. One object may ask
// for as much in any part. The other dimensions are one kind's.
func (l Limits) Of(parts, all int) Limits {
	m := &l[Memory]
	for _, n := range []*int{&m.Namespace, &m.Node} {
		if *n > 0 {
			*n = max(1, *n/all*parts)
		}
	}
	return l
}
