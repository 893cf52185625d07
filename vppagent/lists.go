package vppagent

import (
	"context"
	"errors"

	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/acl"
	aclvalues "github.com/contiv-agent/contiv-agent/vppagent/descriptor/acl"
)

// Listed is an ACL in the list of an interface, as VPP has it.
type Listed struct {
	Interface string // as values call it
	Output    bool   // the output list; else the input list
	Place     int    // in the list, from 0
	Index     uint32 // acl_index
	// Front reports that it denies who is not in source ranges: it is before all that values put there.
	Front bool
	// Value is what VPP has been given, rule by rule; nil if the ACL is not ours, or not as it is wanted. Not to be changed.
	Value *acl.ACL
}

// Lists are the ACLs VPP has on some interfaces, input before output. It is answered by Run, when that
// has ended the transaction it is at; it fails with ctx, or while what VPP has is not known.
func (a *Agent) Lists(ctx context.Context, interfaces ...string) ([]Listed, error) {
	var out []Listed
	var err error
	asked := a.between(ctx, func() {
		if err = a.away(); err == nil && a.stale {
			err = errUnknown
		}
		if err != nil {
			return
		}
		for _, name := range interfaces {
			in, output := aclvalues.Lists(a.g.world, name)
			out = a.listed(out, Listed{Interface: name}, in)
			out = a.listed(out, Listed{Interface: name, Output: true}, output)
		}
	})
	return out, errors.Join(asked, err)
}

// between lets Run do something between two transactions, and waits for it. It fails with ctx, if Run does not come to it.
func (a *Agent) between(ctx context.Context, do func()) error {
	done := make(chan struct{})
	select {
	case <-ctx.Done():
		return ctx.Err()
	case a.questions <- func() { defer close(done); do() }:
	}
	<-done // Run has it and does not stop in between
	return nil
}

var errUnknown = errors.New("what VPP has is not known yet")

func (a *Agent) listed(out []Listed, l Listed, indices []uint32) []Listed {
	for l.Place, l.Index = range indices {
		l.Value, l.Front = nil, aclvalues.Front(a.g.world, l.Index)
		key := aclvalues.ACLKey(a.g.world, l.Index)
		if have := a.g.sure(key); have != nil {
			if m, ok := a.g.values[key].msg.(*acl.ACL); ok && aclvalues.Verbatim(have, m) {
				l.Value = m
			}
		}
		out = append(out, l)
	}
	return out
}

// Fronted reports whether the input list of an interface begins with the access list of source ranges. It is for the goroutine of
// Commit.
func (a *Agent) Fronted(iface string) bool {
	in, _ := aclvalues.Lists(a.g.world, iface)
	return len(in) > 0 && aclvalues.Front(a.g.world, in[0])
}
