package service

import (
	"github.com/contiv-agent/contiv-agent/budget"
	"github.com/contiv-agent/contiv-agent/model"
)

func newShares(l budget.Limits) shares {
	l = l.Of(1, 3) // policies have the rest
	return shares{budget.NewLedger(l), budget.NewLedger(l)}
}

func serviceRef(id model.ServiceID) model.Ref {
	return model.Ref{Kind: model.KindService, Namespace: id.Namespace, Name: id.Name}
}

// crowded returns why a service's endpoints are not served; "": they are.
func (x *shares) crowded(id model.ServiceID) string { return x.backends.Refused(serviceRef(id)) }

// rangesRefused returns why load-balancer IPs with source ranges are not served; "": they are.
func (x *shares) rangesRefused(id model.ServiceID) string { return x.ranges.Refused(serviceRef(id)) }

// weigh claims the sizes of dirty services, and marks services dirty whose verdict changes as a result.
func (p *Processor) weigh() {
	for _, s := range p.dirty {
		ref := serviceRef(s.id)
		if skipReason(s.spec, p.cfg.ProxyName) != "" {
			p.shares.backends.Drop(ref)
			p.shares.ranges.Drop(ref)
			continue
		}
		size := budget.OfService(s.spec, s.parts)
		age := budget.Age{Created: s.spec.Created, UID: s.spec.UID}
		ranges := budget.Size{budget.RangeRules: size[budget.RangeRules]}
		size[budget.RangeRules] = 0
		p.shares.backends.Claim(budget.Claim{Ref: ref, Age: age, Size: size})
		if ranges == (budget.Size{}) {
			p.shares.ranges.Drop(ref)
		} else {
			p.shares.ranges.Claim(budget.Claim{Ref: ref, Age: age, Size: ranges})
		}
	}
	for _, l := range []*budget.Ledger{p.shares.backends, p.shares.ranges} {
		for _, ref := range l.Settle() {
			p.mark(p.serviceOf(model.ServiceID{Namespace: ref.Namespace, Name: ref.Name}))
		}
	}
}
