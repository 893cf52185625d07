package acl

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/contiv-agent/contiv-agent/model"
)

// Retvals of the plugin (vnet/error.h).
const (
	rvNoSuchEntry   int32 = -6
	rvInvalidValue  int32 = -7
	rvInvalidValue2 int32 = -8
	rvInvalidSrc    int32 = -57
	rvInvalidDst    int32 = -58
	rvExists        int32 = -116
	rvInUseInbound  int32 = -142
	rvInUseOutbound int32 = -143
	// rvPartly is no error number: acl_interface_set_acl_list returns 1 when a direction fails, whether or not the other was
	// applied.
	rvPartly int32 = 1
)

// None is ~0: no ACL, all ACLs, a new ACL.
const None = ^uint32(0)

// Action is the action of a rule (acl_types.api: acl_action).
type Action uint8

// The actions. VPP treats any other value as Permit.
const (
	Deny    Action = 0
	Permit  Action = 1
	Reflect Action = 2 // permit, and let the flow pass in both directions from now on
)

// String returns the form of `show acl-plugin acl`.
func (a Action) String() string {
	switch a {
	case Deny:
		return "deny"
	case Permit:
		return "permit"
	case Reflect:
		return "permit+reflect"
	}
	return fmt.Sprintf("action %d", uint8(a))
}

// Range is an inclusive range of ports, or of ICMP types or codes.
type Range struct{ First, Last uint16 }

// allPorts is the range of a rule without ports.
var allPorts = Range{0, 65535}

func (r Range) holds(v uint16) bool { return r.First <= v && v <= r.Last }

// Rule is one line of an ACL (acl_types.api: acl_rule). Both prefixes are of one family, which is the rule's.
type Rule struct {
	Action             Action
	Src, Dst           netip.Prefix
	Proto              uint8 // 0: any, and then ports do not count
	SrcPorts, DstPorts Range // ICMP: type and code. Only TCP, UDP and ICMP have other values than 0 (SCTP has not)
	TCPMask, TCPValue  uint8 // for TCP only: the flags under the mask must be the value
}

// String returns one line without handles: permit+reflect TCP 10.1.0.0/16 -> 10.1.1.2/32 dport 80.
func (r Rule) String() string { return string(r.AppendTo(nil)) }

// AppendTo appends String to b: dumps have many rules.
func (r Rule) AppendTo(b []byte) []byte {
	b = append(b, r.Action.String()...)
	if r.Proto != 0 {
		b = append(append(b, ' '), model.Protocol(r.Proto).String()...)
	}
	b = r.Src.AppendTo(append(b, ' '))
	b = r.Dst.AppendTo(append(b, " -> "...))
	if r.Proto != 0 {
		first, second := " sport ", " dport "
		if r.Proto == icmp4 || r.Proto == icmp6 {
			first, second = " type ", " code "
		}
		b = r.DstPorts.appendTo(r.SrcPorts.appendTo(b, first), second)
	}
	if r.TCPMask|r.TCPValue != 0 {
		b = fmt.Appendf(b, " flags %#x/%#x", r.TCPValue, r.TCPMask)
	}
	return b
}

// appendTo appends the range under its name, unless it is the full range.
func (r Range) appendTo(b []byte, name string) []byte {
	if r == allPorts {
		return b
	}
	b = strconv.AppendUint(append(b, name...), uint64(r.First), 10)
	if r.First != r.Last {
		b = strconv.AppendUint(append(b, '-'), uint64(r.Last), 10)
	}
	return b
}

// ACL is one list of rules.
type ACL struct {
	Index uint32
	Tag   string // at most 63 bytes
	Rules []Rule // must not be changed
	Form  *any   // what the caller derives from the rules: nil as long as it has put nothing there
}

// Config configures the plugin at its start. The zero value is VPP's default on 25.06 and later.
type Config struct {
	// Now is VPP's time since its start; nil: it stands still.
	Now func() time.Duration
	// Reclassify is `acl-plugin { reclassify sessions 1 }`.
	Reclassify bool
	// PrefixBug compares IPv6 prefixes as VPP before 25.06 does: if the length is no multiple of eight, the bits after the last
	// whole byte are compared one byte too far.
	PrefixBug bool
	// MaxSessions is the size of the session table; 0: 500,000.
	MaxSessions uint32
	// Threads is the number of VPP's threads; 0: 1.
	Threads uint32
}

// The directions of an interface's lists. Output sorts first because VPP applies it first.
type direction int

const (
	output direction = iota
	input
)

func directionOf(in bool) direction {
	if in {
		return input
	}
	return output
}

func (d direction) other() direction { return 1 - d }

// Timeouts are the idle times of sessions, in seconds.
type Timeouts struct{ UDPIdle, TCPIdle, TCPTransient uint32 }

// sameMembers reports whether two lists have the same ACLs, in any order. Neither has duplicates.
func sameMembers(a, b []uint32) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(x uint32) bool { return !slices.Contains(b, x) })
}
