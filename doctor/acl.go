package doctor

import (
	"context"
	"fmt"

	"go.fd.io/govpp/binapi/acl"

	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
	aclvalues "github.com/contiv-agent/contiv-agent/vppagent/descriptor/acl"
)

// acl returns the checks of the ACL plugin; none if policies are not enforced or the plugin is not loaded.
func (f *facts) acl() []Check {
	lists := f.replies[askACLs]
	if lists.Err != nil || f.cfg.NoPolicies {
		return nil
	}
	ours, foreign := 0, 0
	for _, d := range lists.Details {
		if a, ok := d.(*acl.ACLDetails); ok && descriptor.Owned(a.Tag) {
			ours++
		} else {
			foreign++
		}
	}
	owners := Check{Name: "access lists", Verdict: OK, Found: fmt.Sprintf("%d of an agent's", ours), Facts: Facts{"own": ours, "foreign": foreign}}
	if foreign > 0 {
		owners.Verdict, owners.Found = Note, fmt.Sprintf("%d of an agent's, %d foreign", ours, foreign)
		owners.Consequence = "the agent does not change foreign access lists on interfaces that it has no lists for"
	}
	return []Check{f.reclassify(), f.aclSessions(), owners}
}

func (f *facts) reclassify() Check {
	c := Check{Name: "acl reclassify", Verdict: OK, Found: "on", Facts: Facts{"on": true}}
	// VPP's answer is already in the facts; it is replayed to the descriptor's question.
	r, err := aclvalues.Reclassification(context.Background(), func(context.Context, ...vpp.Call) []vpp.Reply {
		return []vpp.Reply{f.replies[askACLUse]}
	})
	switch {
	case err != nil || r == aclvalues.ReclassifyUnknown:
		return unknown(c.Name, "VPP does not report whether it evaluates established flows again")
	case r == aclvalues.ReclassifyOff:
		c.Verdict, c.Found, c.Facts = Dangerous, "off", Facts{"on": false}
		c.Consequence = "a flow that a changed policy denies continues until it is idle (TCP: 24 h, UDP: 10 min), and where the lists of an " +
			"interface change, VPP drops replies until the side that opened the flow sends its next packet"
		c.Startup, c.Command = "acl-plugin { reclassify sessions 1 }", "vppctl set acl-plugin reclassify-sessions 1"
	}
	return c
}

func (f *facts) aclSessions() Check {
	c := Check{Name: "acl sessions", Verdict: OK}
	text, ok := f.cli(askACLUse)
	active, parsed := parseACLSessions(text)
	limit, there := f.replies[askACLLimit].Msg.(*acl.ACLPluginGetConnTableMaxEntriesReply)
	if !ok || !parsed || !there || limit.ConnTableMaxEntries == 0 {
		return unknown(c.Name, "VPP does not report the number of sessions, or their limit")
	}
	c.Found, c.Facts = fmt.Sprintf("%d of %d", active, limit.ConnTableMaxEntries), Facts{"sessions": active, "limit": limit.ConnTableMaxEntries}
	u := use{float64(limit.ConnTableMaxEntries), float64(active)}
	if u.share() > much {
		if c.Verdict = Wrong; u.share() > full {
			c.Verdict = Dangerous
		}
		c.Consequence = "a full table drops new flows of pods that policies select"
		c.Startup = "acl-plugin { connection count max 2000000 }"
	}
	return c
}
