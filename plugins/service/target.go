package service

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/contiv-agent/contiv-agent/backoff"

	"github.com/contiv-agent/contiv-agent/renderer"
)

// The processor repeats a failed call after firstRetry, then after twice as long each time, up to lastRetry.
const (
	firstRetry = time.Second
	lastRetry  = time.Minute
)

// retries are the pauses between attempts of a call, and between lookups of objects that VPP does not have yet.
var retries = backoff.Range{Min: firstRetry, Max: lastRetry} // read only

// target is a renderer and the last state it received.
type target struct {
	number    int // its index in accepted and errs of services
	api       renderer.ServiceRendererAPI
	node      renderer.NodeRenderer    // nil: it does not use node state
	portions  renderer.PortionRenderer // nil: it takes a resync as a whole
	synced    bool                     // the last Resync succeeded
	failed    map[*service]struct{}
	err       error // of a call that is not about one service
	retry     backoff.Timer
	version   int // version of the last sent node state and interface sets; 0: none
	state     renderer.NodeState
	nodeIPs   *renderer.IPAddresses
	frontends renderer.Interfaces
	backends  renderer.Interfaces
}

func newTarget(number int, api renderer.ServiceRendererAPI) *target {
	t := &target{number: number, api: api, failed: map[*service]struct{}{}}
	t.node, _ = api.(renderer.NodeRenderer)
	t.portions, _ = api.(renderer.PortionRenderer)
	return t
}

// Flush sends the changes to the renderers, and repeats failed calls whose pause has ended. The error joins the errors of these
// calls; a failure prevents no other call.
func (p *Processor) Flush() error {
	dirty, changed := p.refresh()
	var errs []error
	for _, t := range p.targets {
		errs = append(errs, p.update(t, changed))
	}
	p.forgetServices(dirty)
	return errors.Join(errs...)
}

// Resync sends the full state to the renderers.
func (p *Processor) Resync() error {
	portions, err := p.ResyncInPortions()
	for _, do := range portions {
		do()
	}
	return err
}

// ResyncInPortions is Resync, but the work that renderers can do later is in the calls it returns. The caller makes them one after
// the other, before any other call of the processor.
func (p *Processor) ResyncInPortions() (portions []func(), err error) {
	dirty, _ := p.refresh()
	var errs []error
	for _, t := range p.targets {
		t.synced, t.retry = false, backoff.Timer{}
		left, err := p.resync(t)
		portions, errs = append(portions, left...), append(errs, err)
	}
	p.forgetServices(dirty)
	return portions, errors.Join(errs...)
}

// Prepare does the part of the first resync that needs no answer from VPP: it builds the services.
func (p *Processor) Prepare() {
	if !slices.ContainsFunc(p.targets, func(t *target) bool { return t.synced }) { // no renderer receives changes yet
		dirty, _ := p.refresh()
		p.forgetServices(dirty)
	}
}

func (p *Processor) update(t *target, changed []*service) error {
	due := t.retry.Due(p.now)
	if !t.synced {
		if !due {
			return nil
		}
		portions, err := p.resync(t)
		for _, do := range portions {
			do()
		}
		return err
	}
	var errs []error
	work := changed
	if due && len(t.failed) > 0 {
		work = slices.SortedFunc(maps.Keys(t.failed), compareServices)
		work = append(work, changed...) // a service in both is delivered once: see accepted
	}
	if t.err == nil || due {
		t.err = p.updateNode(t)
		errs = append(errs, t.err)
	}
	for _, s := range work {
		errs = append(errs, p.deliver(t, s))
	}
	if t.err == nil || due {
		err := p.updateNodePorts(t)
		t.err = errors.Join(t.err, err)
		errs = append(errs, err)
	}
	err := errors.Join(errs...)
	switch {
	case err != nil && (due || t.retry.Pause == 0):
		t.retry.Failed(p.now, retries)
	case len(t.failed) == 0 && t.err == nil:
		t.retry = backoff.Timer{}
	}
	return err
}

// deliver makes the call that brings a renderer from the last sent form of a service to its present form.
func (p *Processor) deliver(t *target, s *service) error {
	old, now := s.accepted[t.number], s.built
	var err error
	switch {
	case old == now || old.Equal(now):
	case old == nil:
		err = t.api.AddService(now)
	case now == nil:
		err = p.others(s.id, func(others []*renderer.ContivService) error { return t.api.DeleteService(old, others) })
	default:
		err = p.others(s.id, func(others []*renderer.ContivService) error { return t.api.UpdateService(old, now, others) })
	}
	if err != nil {
		s.errs[t.number] = err
		t.failed[s] = struct{}{}
		return fmt.Errorf("service %s: %w", s.id, err)
	}
	s.accepted[t.number], s.errs[t.number] = now, nil
	if _, repeated := t.failed[s]; repeated {
		delete(t.failed, s)
		p.forgetServices([]*service{s})
	}
	return nil
}

func (p *Processor) updateNode(t *target) error {
	if t.version == p.version { // comparing sets would take longer than the rest of a small change
		return nil
	}
	var errs []error
	if t.node != nil && !equalStates(t.state, p.state) {
		if err := t.node.UpdateNode(p.state); err != nil {
			errs = append(errs, fmt.Errorf("node state: %w", err))
		} else {
			t.state = p.state
		}
	}
	swap := func(what string, was *renderer.Interfaces, now renderer.Interfaces, call func(a, b renderer.Interfaces) error) {
		if maps.Equal(*was, now) {
			return
		}
		if err := call(was.Copy(), now.Copy()); err != nil {
			errs = append(errs, fmt.Errorf("%s interfaces: %w", what, err))
			return
		}
		*was = now
	}
	swap("frontend", &t.frontends, p.frontends, t.api.UpdateLocalFrontendIfs)
	swap("backend", &t.backends, p.backends, t.api.UpdateLocalBackendIfs)
	if len(errs) == 0 {
		t.version = p.version
	}
	return errors.Join(errs...)
}

func (p *Processor) updateNodePorts(t *target) error {
	if t.nodeIPs.Equal(p.claims.nodes) {
		return nil
	}
	services := make([]*renderer.ContivService, 0, len(p.nodePorts))
	for _, s := range slices.SortedFunc(maps.Keys(p.nodePorts), compareServices) {
		services = append(services, s.built)
	}
	if err := t.api.UpdateNodePortServices(p.claims.nodes.Copy(), services); err != nil {
		return fmt.Errorf("node ports: %w", err)
	}
	t.nodeIPs = p.claims.nodes
	return nil
}

// resync sends the full state to one renderer, which owns what it receives. It returns the work that the renderer does later.
func (p *Processor) resync(t *target) ([]func(), error) {
	portions, err := p.resyncCalls(t)
	if err != nil {
		t.err = err
		t.retry.Failed(p.now, retries)
		return portions, err
	}
	t.synced, t.err, t.retry = true, nil, backoff.Timer{}
	t.version, t.state, t.nodeIPs, t.frontends, t.backends = p.version, p.state, p.claims.nodes, p.frontends, p.backends
	clear(t.failed)
	for _, s := range p.services {
		s.accepted[t.number], s.errs[t.number] = s.built, nil
	}
	return portions, nil
}

func (p *Processor) resyncCalls(t *target) (portions []func(), err error) {
	if t.node != nil {
		if err := t.node.UpdateNode(p.state); err != nil {
			return nil, fmt.Errorf("resync: node state: %w", err)
		}
	}
	all := &renderer.ResyncEventData{
		NodeIPs:     p.claims.nodes.Copy(),
		Services:    slices.Clone(p.all),
		FrontendIfs: p.frontends.Copy(),
		BackendIfs:  p.backends.Copy(),
	}
	if t.portions != nil {
		portions, err = t.portions.ResyncInPortions(all)
	} else {
		err = t.api.Resync(all)
	}
	if err != nil {
		return nil, fmt.Errorf("resync: %w", err)
	}
	return portions, nil
}
