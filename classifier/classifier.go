// Package classifier turns the rules of an SCTPPorts into tables of VPP's classifier, and such tables back into rules.
//
// An SCTP association begins with a packet whose first chunk is INIT (RFC 9260). VPP's access lists do not match ports
// of SCTP, so the classifier does, for INITs only. The classifier compares bytes: each table has one mask, and each
// entry decides about packets that have certain bytes under that mask. A packet that matches no entry continues with
// the next table. So rules in order of precedence become tables in order. The tables of a direction and family are, in
// order
//
//	root      TCP, UDP and ICMP pass at once: usual traffic costs one look-up
//	hidden    drops SCTP that may hide an INIT: see hidden4, hidden6
//	rules     first match decides; each entry matches INITs of some addresses and ports
//	last      drops all other INITs, and INITs that are fragments: an INIT is never fragmented
//
// A packet that matches no table passes. Invariant: an INIT passes if and only if the first rule that matches it
// permits; of other packets only those are dropped that hide whether they begin with an INIT.
package classifier

import (
	"errors"
	"fmt"
	"math/bits"
	"net/netip"

	"github.com/contiv-agent/contiv-agent/proto/contiv/vpp/acl"
)

// Limits of one direction of one family, all tables together.
const (
	MaxTables  = 256
	MaxEntries = 4096
)

// ErrTooMany says that valid rules need more than MaxTables or MaxEntries.
var ErrTooMany = errors.New("too many for VPP's classifier")

// Ports is a compiled SCTPPorts. It is never changed.
type Ports struct {
	Interface string
	// Input and Output are nil if that direction is not filtered.
	Input, Output *Direction
}

// Direction holds the rules of one direction, and the tables for them.
type Direction struct {
	Rules  []Rule
	V4, V6 Program
}

// Rule matches an INIT. Both networks are masked and of one family.
type Rule struct {
	Permit              bool
	Source, Destination netip.Prefix
	From, To            Range // ports of source and destination
}

// Range is a range of ports, both ends included.
type Range struct{ First, Last uint16 }

const maxPort = 65535

// all is the range of all ports.
var all = Range{0, maxPort} // read only

// Program is a list of tables in the order in which VPP looks them up.
type Program []Table

// Table is one table of the classifier.
type Table struct {
	// Mask counts from the first byte of the IP header. It has 48 bytes in IPv4, 64 in IPv6.
	Mask string
	// Entries are sorted and distinct.
	Entries []Entry
}

// Entry decides about packets that have these bytes under the mask: they pass, or are dropped.
type Entry struct {
	Match string
	Pass  bool
}

// Compile validates m and lays out its tables. An error names the field, or wraps ErrTooMany.
func Compile(m *acl.SCTPPorts) (*Ports, error) {
	p := &Ports{Interface: m.GetInterface()}
	switch {
	case p.Interface == "":
		return nil, errors.New("interface: empty")
	case len(m.GetInput())+len(m.GetOutput()) == 0:
		return nil, errors.New("input, output: both empty")
	}
	var err error
	if p.Input, err = compileDirection("input", m.GetInput()); err != nil {
		return nil, err
	}
	p.Output, err = compileDirection("output", m.GetOutput())
	return p, err
}

func compileDirection(field string, list []*acl.SCTPPorts_Rule) (*Direction, error) {
	if len(list) == 0 {
		return nil, nil
	}
	d := &Direction{}
	for i, m := range list {
		r, err := compileRule(m)
		if err != nil {
			return nil, fmt.Errorf("%s[%d].%w", field, i, err)
		}
		d.Rules = append(d.Rules, r)
	}
	var err error
	if d.V4, err = compile(d.Rules, &ip4); err == nil {
		d.V6, err = compile(d.Rules, &ip6)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", field, err)
	}
	return d, nil
}

func compileRule(m *acl.SCTPPorts_Rule) (r Rule, err error) {
	r = Rule{Permit: m.GetPermit(), From: all, To: all}
	if r.Source, err = network("source_network", m.GetSourceNetwork()); err != nil {
		return r, err
	}
	if r.Destination, err = network("destination_network", m.GetDestinationNetwork()); err != nil {
		return r, err
	}
	if r.Source.Addr().Is4() != r.Destination.Addr().Is4() {
		return r, fmt.Errorf("destination_network: %s is not of the family of source_network %s", r.Destination, r.Source)
	}
	for _, side := range []struct {
		field string
		m     *acl.SCTPPorts_Ports
		to    *Range
	}{{"source", m.GetSource(), &r.From}, {"destination", m.GetDestination(), &r.To}} {
		switch lower, upper := side.m.GetLower(), side.m.GetUpper(); {
		case side.m == nil:
		case upper > maxPort:
			return r, fmt.Errorf("%s.upper: %d is above %d", side.field, upper, maxPort)
		case lower > upper:
			return r, fmt.Errorf("%s.lower: %d is above the upper port %d", side.field, lower, upper)
		default:
			*side.to = Range{uint16(lower), uint16(upper)}
		}
	}
	return r, nil
}

func network(field, s string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	switch {
	case err != nil || p.Addr().Is4In6():
		return p, fmt.Errorf("%s: %q is not <address>/<prefix length>", field, s)
	case p != p.Masked():
		return p, fmt.Errorf("%s: %s has bits set beyond its length; use %s", field, s, p.Masked())
	}
	return p, nil
}

// Message is the inverse of Compile.
func (p *Ports) Message() *acl.SCTPPorts {
	return &acl.SCTPPorts{Interface: p.Interface, Input: messages(p.Input), Output: messages(p.Output)}
}

func messages(d *Direction) (out []*acl.SCTPPorts_Rule) {
	if d == nil {
		return nil
	}
	for _, r := range d.Rules {
		out = append(out, &acl.SCTPPorts_Rule{
			Permit: r.Permit, SourceNetwork: r.Source.String(), DestinationNetwork: r.Destination.String(),
			Source: r.From.portsMessage(), Destination: r.To.portsMessage(),
		})
	}
	return out
}

func (r Range) portsMessage() *acl.SCTPPorts_Ports {
	if r == all {
		return nil
	}
	return &acl.SCTPPorts_Ports{Lower: uint32(r.First), Upper: uint32(r.Last)}
}

// block is a set of ports with the same first bits.
type block struct {
	first uint16
	bits  int
}

// blocks splits the range into the fewest blocks that cover exactly its ports, in order.
func (r Range) blocks() (out []block) {
	for next, end := uint32(r.First), uint32(r.Last)+1; next < end; {
		size := 16
		if next != 0 {
			size = bits.TrailingZeros32(next)
		}
		for next+1<<size > end {
			size--
		}
		out = append(out, block{uint16(next), 16 - size})
		next += 1 << size
	}
	return out
}

// Blocks is the number of tables that the range makes at most for a rule, if no other part of the rule makes tables.
func (r Range) Blocks() int { return len(r.blocks()) }

// mask has a one for each of the block's fixed bits.
func (b block) mask() uint16 { return uint16(uint32(0xffff0000) >> b.bits) }

// portRange is the block as a range.
func (b block) portRange() Range { return Range{b.first, b.first | ^b.mask()} }
