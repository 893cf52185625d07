package vppagent

import (
	"context"
	"errors"

	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/acl"
	aclvalues "github.com/contiv-agent/contiv-agent/vppagent/descriptor/acl"
)

// Listed is an ACL in the actual list of an interface.
type Listed struct {
	Interface string // the name in values
	Output    bool   // the output list; else the input list
	Place     int    // in the list, from 0
	Index     uint32 // acl_index
	// Front reports that the ACL denies clients outside the source ranges: it precedes all lists that values put on the interface.
	Front bool
	// Value is the ACL's state in VPP, rule by rule; nil if the ACL is foreign or differs from the desired state. Do not change it.
	Value *acl.ACL
}

// Lists returns the ACLs that VPP has on some interfaces, input before output. Run answers it between two transactions. It fails
// with ctx, and while the actual state is not known.
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

// between runs do in Run between two transactions, and waits for its end. It fails with ctx if Run does not start it in time.
func (a *Agent) between(ctx context.Context, do func()) error {
	done := make(chan struct{})
	select {
	case <-ctx.Done():
		return ctx.Err()
	case a.questions <- func() { defer close(done); do() }:
	}
	<-done // Run has started do and does not stop before its end
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

// Fronted reports whether the input list of an interface begins with the access list of source ranges. Only the goroutine of
// Commit may call it.
func (a *Agent) Fronted(iface string) bool {
	in, _ := aclvalues.Lists(a.g.world, iface)
	return len(in) > 0 && aclvalues.Front(a.g.world, in[0])
}
