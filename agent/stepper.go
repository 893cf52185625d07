package agent

import (
	"context"
	"net/netip"
	"time"

	"github.com/contiv-agent/contiv-agent/agent/stepper"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

// Stepper is an agent that works only when it is fed: the parts of Agent without its goroutines.
type Stepper struct {
	*stepper.Stepper
	*parts
}

// NewStepper connects to VPP and returns an agent without objects. Sources are names only. The caller must Close it.
func NewStepper(ctx context.Context, cfg Config) (*Stepper, error) {
	cfg.Lock, cfg.Process.Recorder = "", nil
	var pause func(context.Context, time.Duration)
	if cfg.VPPAgent.Stall > 0 {
		pause = func(context.Context, time.Duration) {}
	}
	p, err := assemble(cfg, pause)
	if err != nil {
		return nil, err
	}
	if p.nat != nil {
		p.nat.Pods = func(context.Context) (map[netip.Addr]string, error) { return p.podsByAddress(), nil }
		p.nat.Rest = func(ctx context.Context, _ time.Duration) error { return ctx.Err() }
	}
	s := stepper.New(stepper.Parts{
		Conn: p.conn, Controller: p.controller, VPPAgent: p.vppagent, Values: p.values, Services: p.processor, Policies: p.policies, NAT: p.nat, Reader: p.reader,
	})
	p.onState = s.Announce
	if err := s.Connect(ctx); err != nil {
		return nil, err
	}
	return &Stepper{s, p}, nil
}

// PlanFor returns the changes that an agent would make in VPP with the objects of the update: see stepper.Stepper.Plan.
func PlanFor(ctx context.Context, cfg Config, objects *event.Update, sessions bool) (*vppagent.Plan, error) {
	s, err := NewStepper(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	return s.Plan(ctx, objects, sessions)
}

// Fed is a source whose events the caller feeds to a Stepper.
type Fed struct{}

// Run implements Source; it waits for ctx.
func (Fed) Run(ctx context.Context, _ func(event.Event)) error {
	<-ctx.Done()
	return ctx.Err()
}
