package acl

import (
	"fmt"
	"net/netip"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/renderer/acl/endpoint"
	"github.com/contiv-agent/contiv-agent/renderer/acl/lists"
	"github.com/contiv-agent/contiv-agent/renderer/acl/netset"
	"github.com/contiv-agent/contiv-agent/renderer/acl/table"
)

// SourceCheck states from which addresses a pod may send (ADR 13).
type SourceCheck uint8

// The source checks.
const (
	// SourceStrict drops a pod's packets from any address but the pod's.
	SourceStrict SourceCheck = iota
	// SourceAllowed also lets a pod send from the prefixes that its endpoint allows (allow_spoofed_source_prefixes).
	SourceAllowed
	// SourceOff checks nothing.
	SourceOff
)

// Felix's setting that turns SourceStrict into SourceAllowed (v3.31).
const (
	configSpoofing  = "WorkloadSourceSpoofing"
	spoofingAllowed = "Any"
)

// checkOf returns the source check of an interface.
func (r *Renderer) checkOf(i *endpoint.Iface) *lists.Check {
	if r.cfg.SourceCheck == SourceOff || len(i.Addrs) == 0 {
		return nil
	}
	c := &lists.Check{}
	for _, a := range i.Addrs {
		c.From = append(c.From, netip.PrefixFrom(a, a.BitLen()))
	}
	if r.allowsSources() {
		for _, w := range i.Work {
			c.From = append(c.From, w.Allowed...) // masked
		}
	}
	c.From = netset.Separate(c.From)
	return c
}

// allowsSources reports whether the prefixes that endpoints allow count.
func (r *Renderer) allowsSources() bool { return r.cfg.SourceCheck == SourceAllowed || r.spoofing }

// setSpoofing takes whether Felix's settings let pods send from the prefixes their endpoints allow.
func (r *Renderer) setSpoofing(allowed bool) {
	if r.spoofing == allowed {
		return
	}
	r.spoofing = allowed
	r.pods.Senders = true
	for _, i := range r.pods.Ifaces {
		r.pods.Relist(i)
	}
}

// checked puts the source check into the lists of an interface.
func (r *Renderer) checked(i *endpoint.Iface, l lists.Lists) lists.Lists {
	for _, t := range []string{table.SourceOnly, table.SourceFirst} {
		r.pods.Store.Unfix(t + table.NameOf(i.Name))
	}
	c := r.checkOf(i)
	if c == nil {
		return l
	}
	l.Check = c
	name, write := table.SourceFirst, c.DenyOthers
	if len(l.In)+len(l.Out) == 0 {
		name, write = table.SourceOnly, c.PermitOnly
	}
	t := &table.Table{Name: name + table.NameOf(i.Name)}
	write(t, r.pods.Node.ByteMatch6)
	r.pods.Store.Fix(t)
	l.In = append([]lists.Place{{Table: t.Name, SourceCheck: true}}, l.In...)
	return l
}

// IsSourceCheck reports whether an ACL of that name is a source check: its denying rules drop packets that are not from the pod, or packets
// from outside with an address of the node's.
func IsSourceCheck(acl string) bool { return table.IsSource(acl) }

// sourceNotes notes the endpoints that allow sources which the check does not.
func (r *Renderer) sourceNotes(i *endpoint.Iface) (notes []model.Note) {
	if r.cfg.SourceCheck == SourceOff || r.allowsSources() {
		return nil
	}
	for _, w := range i.Work {
		if len(w.Allowed) > 0 {
			reason := fmt.Sprintf("allowed source prefixes: %s: the source check of this agent is strict: packets from them are dropped", w.Allowed[0])
			notes = append(notes, model.Note{Ref: w.Ref(), Reason: reason, Refused: true})
		}
	}
	return notes
}
