package source

import (
	"fmt"
	"net/netip"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/renderer/acl/endpoint"
	"github.com/contiv-agent/contiv-agent/renderer/acl/lists"
	"github.com/contiv-agent/contiv-agent/renderer/acl/netset"
	"github.com/contiv-agent/contiv-agent/renderer/acl/table"
)

// Mode states from which addresses a pod may send (ADR 13).
type Mode uint8

// The source checks.
const (
	// Strict drops a pod's packets from any address but the pod's.
	Strict Mode = iota
	// Allowed also lets a pod send from the prefixes that its endpoint allows (allow_spoofed_source_prefixes).
	Allowed
	// Off checks nothing.
	Off
)

// Felix's setting that turns Strict into Allowed (v3.31).
const (
	configSpoofing  = "WorkloadSourceSpoofing"
	spoofingAllowed = "Any"
)

// Checks has the source checks: of pods' interfaces, and of the uplink and the overlay.
type Checks struct {
	pods     *endpoint.Pods
	mode     Mode
	spoofing bool         // Felix's settings let pods send from the prefixes their endpoints allow
	outside  *lists.Check // sources that no host outside has; nil: not checked
}

// New returns the checks of a mode.
func New(pods *endpoint.Pods, mode Mode) *Checks { return &Checks{pods: pods, mode: mode} }

// checkOf returns the source check of an interface.
func (g *Checks) checkOf(i *endpoint.Iface) *lists.Check {
	if g.mode == Off || len(i.Addrs) == 0 {
		return nil
	}
	c := &lists.Check{}
	for _, a := range i.Addrs {
		c.From = append(c.From, netip.PrefixFrom(a, a.BitLen()))
	}
	if g.allowsSources() {
		for _, w := range i.Work {
			c.From = append(c.From, w.Allowed...) // masked
		}
	}
	c.From = netset.Separate(c.From)
	return c
}

// SendsOwn reports whether the source check of an interface admits only the pod's addresses.
func (g *Checks) SendsOwn(i *endpoint.Iface) bool {
	c := g.checkOf(i)
	return c != nil && len(c.From) == len(i.Addrs)
}

// allowsSources reports whether the prefixes that endpoints allow count.
func (g *Checks) allowsSources() bool { return g.mode == Allowed || g.spoofing }

// Configure takes Felix's settings, which may let pods send from the prefixes that their endpoints allow.
func (g *Checks) Configure(settings map[string]string) {
	allowed := settings[configSpoofing] == spoofingAllowed
	if g.spoofing == allowed {
		return
	}
	g.spoofing = allowed
	g.pods.Senders = true
	g.pods.RelistAll()
}

// InFront puts the source check into the lists of an interface.
func (g *Checks) InFront(i *endpoint.Iface, l lists.Lists) lists.Lists {
	for _, t := range []string{table.SourceOnly, table.SourceFirst} {
		g.pods.Store.Unfix(t + table.NameOf(i.Name))
	}
	c := g.checkOf(i)
	if c == nil {
		return l
	}
	l.Check = c
	name, write := table.SourceFirst, c.DenyOthers
	if len(l.In)+len(l.Out) == 0 {
		name, write = table.SourceOnly, c.PermitOnly
	}
	t := &table.Table{Name: name + table.NameOf(i.Name)}
	write(t, g.pods.Node.ByteMatch6)
	g.pods.Store.Fix(t)
	l.In = append([]lists.Place{{Table: t.Name, SourceCheck: true}}, l.In...)
	return l
}

// Notes notes the endpoints that allow sources which the check does not.
func (g *Checks) Notes(i *endpoint.Iface) (notes []model.Note) {
	if g.mode == Off || g.allowsSources() {
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

// ForgetIface forgets an interface that exists no more.
func (g *Checks) ForgetIface(i *endpoint.Iface) {
	for _, t := range []string{table.SourceOnly, table.SourceFirst} {
		g.pods.Store.Forget(t + table.NameOf(i.Name))
	}
}
