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
	// Dimensions is how many there are.
	Dimensions
)

var dimensionNames = [Dimensions]string{"rules of policies", "access lists of policies", "rules of source ranges", "backends of Services"}

// String is what the dimension counts: "rules of policies".
func (d Dimension) String() string { return dimensionNames[d] }

// Flag is the name of the setting that bounds the dimension.
func (d Dimension) Flag() string {
	return [Dimensions]string{"max-policy-rules", "max-policy-tables", "max-source-range-rules", "max-service-backends"}[d]
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

// Defaults are the limits of the commands. A set of 10,000 members with six ports is within them, and 10,000 Services with ten
// endpoints each. Source ranges have the lowest: VPP stops forwarding for about 40 µs per rule when any of them changes.
func Defaults() Limits {
	return Limits{
		Rules:      {Object: 1 << 16, Namespace: 1 << 18, Node: 1 << 19},
		Tables:     {Object: 1 << 10, Namespace: 1 << 12, Node: 1 << 14},
		RangeRules: {Object: 1 << 13, Namespace: 1 << 14, Node: 1 << 15},
		Backends:   {Object: 1 << 18, Namespace: 1 << 19, Node: 1 << 20},
	}
}

// What one unit of a dimension costs the agent at its peak, in bytes, and what it needs without any.
const (
	baseMemory    = 192 << 20
	ruleMemory    = 1280
	backendMemory = 512
)

// Within returns the limits of a process that may have so many bytes of memory; 0: no bound is known, and they stay as they are. Two
// thirds of what is left beside the agent itself are for policies, the rest is for Services. No bound becomes higher, and none
// lower than an eighth of it.
func (l Limits) Within(memory int64) Limits {
	if memory <= 0 {
		return l
	}
	left := max(memory-baseMemory, 0)
	for d, most := range map[Dimension]int64{Rules: left * 2 / 3 / ruleMemory, Backends: left / 3 / backendMemory} {
		lim := &l[d]
		floor := int64(lim.Node / 8)
		if lim.Node == 0 {
			floor = 1 << 12
		}
		most = max(most, floor)
		if lim.Node == 0 || int64(lim.Node) > most {
			lim.Node = int(most)
		}
	}
	return l
}
