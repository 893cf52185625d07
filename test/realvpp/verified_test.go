package realvpp

import (
	"context"
	"fmt"
	"time"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/verify"
	"github.com/contiv-agent/contiv-agent/verify/serving"
)

// proofs counts what verify found.
type proofs struct {
	equal, unknown                      int // checks of pods
	servicesEqual, servicesUnknown, all int // checks of Services, and their frontends
}

// prove runs verify on the real VPP of a node. The errors are differences.
func (p *proofs) prove(ctx context.Context, w *twin, objects []model.Object, services serving.Config) (differences []error, err error) {
	report, err := verify.Run(ctx, verify.Config{Socket: w.lab.socket(), Node: w.node, Timeout: time.Minute, Services: services}, objects)
	if err != nil {
		return nil, err
	}
	for _, c := range report.Checks {
		switch c.Verdict {
		case verify.Equal:
			p.equal++
		case verify.Unknown:
			p.unknown++
		case verify.Different:
			differences = append(differences, fmt.Errorf("verify: %s, %s: %+v", c.Pod, c.Packets, *c.Difference))
		}
	}
	for _, c := range report.Services {
		p.all += c.Frontends
		switch c.Verdict {
		case verify.Equal:
			p.servicesEqual++
		case verify.Unknown:
			p.servicesUnknown++
		case verify.Different:
			differences = append(differences, fmt.Errorf("verify: %s: %+v", c.Of, c.Differences))
		}
	}
	return differences, nil
}

// String has the counts.
func (p *proofs) String() string {
	return fmt.Sprintf("verify: %d checks of pods equal, %d not compared; %d of Services equal, with %d frontends, %d not compared", p.equal, p.unknown, p.servicesEqual, p.all, p.servicesUnknown)
}
