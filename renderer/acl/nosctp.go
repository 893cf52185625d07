package acl

import (
	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// An access list matches SCTP by addresses alone: if it permits a packet in one direction of an interface, it permits everything between
// these addresses in the other, although policies deny it there, and although the first packet reached nobody. So if policies restrict one
// direction, and no filter separates requests from answers, SCTP may not begin in the other direction.

// noSCTP is the table that denies SCTP.
const noSCTP = "no-sctp"

func noSCTPTable() *table {
	t := &table{name: noSCTP}
	cause := &dataplane.Cause{Kind: dataplane.CauseStatic, Denied: true, Text: "SCTP, which nothing here tracks: policies restrict the pod's other direction, and none of them asks for ports of SCTP"}
	for _, f := range match.Families {
		t.add(match.Atom{Verb: match.Deny, Src: f.All(), Dst: f.All(), Proto: match.SCTP, SrcPorts: match.AllPorts, DstPorts: match.AllPorts}, cause)
	}
	return t
}

// withoutSCTP puts the table in front of a list if the other direction is restricted.
func withoutSCTP(list []place, otherOpen bool) []place {
	if otherOpen {
		return list
	}
	return append([]place{{table: noSCTP, denies: true}}, list...)
}

// tracked returns the list behind noSCTP, and whether the list has noSCTP.
func tracked(list []place) (rest []place, without bool) {
	if len(list) > 0 && list[0].table == noSCTP {
		return list[1:], true
	}
	return list, false
}

// commonDirection is commonList, with noSCTP if either list has it.
func commonDirection(old, now []place) []place {
	before, had := tracked(old)
	after, has := tracked(now)
	return withoutSCTP(commonList(before, after), !had && !has)
}

// noneButSCTP reports whether a list lets everything pass except SCTP.
func noneButSCTP(list []place) bool {
	rest, _ := tracked(list)
	return none(rest)
}
