package lists

import (
	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/acl/table"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// An access list matches SCTP by addresses alone: if it permits a packet in one direction of an interface, it permits everything between
// these addresses in the other, although policies deny it there, and although the first packet reached nobody. So if policies restrict one
// direction, and no filter separates requests from answers, SCTP may not begin in the other direction.

// NoSCTPTable returns the table that denies SCTP.
func NoSCTPTable() *table.Table {
	t := &table.Table{Name: table.NoSCTP}
	cause := &dataplane.Cause{Kind: dataplane.CauseStatic, Denied: true, Text: "SCTP, which nothing here tracks: policies restrict the pod's other direction, and none of them asks for ports of SCTP"}
	for _, f := range match.Families {
		t.Add(match.Atom{Verb: match.Deny, Src: f.All(), Dst: f.All(), Proto: match.SCTP, SrcPorts: match.AllPorts, DstPorts: match.AllPorts}, cause)
	}
	return t
}

// WithoutSCTP puts the table in front of a list if the other direction is restricted.
func WithoutSCTP(list []Place, otherOpen bool) []Place {
	if otherOpen {
		return list
	}
	return append([]Place{{Table: table.NoSCTP, Denies: true}}, list...)
}

// Tracked returns the list behind noSCTP, and whether the list has noSCTP.
func Tracked(list []Place) (rest []Place, without bool) {
	if len(list) > 0 && list[0].Table == table.NoSCTP {
		return list[1:], true
	}
	return list, false
}

// CommonDirection is commonList, with noSCTP if either list has it.
func CommonDirection(old, now []Place) []Place {
	before, had := Tracked(old)
	after, has := Tracked(now)
	return WithoutSCTP(CommonTables(before, after), !had && !has)
}

// NoneButSCTP reports whether a list lets everything pass except SCTP.
func NoneButSCTP(list []Place) bool {
	rest, _ := Tracked(list)
	return None(rest)
}
