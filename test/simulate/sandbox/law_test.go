package sandbox

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/contiv-agent/contiv-agent/verify"
)

// sockets is an error unless VPP has the memif sockets of the sandboxes, and no other.
func (h *host) sockets(dump string) error {
	var got, want []string
	for line := range strings.Lines(dump) {
		if words := strings.Fields(line); len(words) == 3 && words[0] == "memif-socket" {
			got = append(got, words[2])
		}
	}
	for _, p := range h.pods {
		if p.res != nil && p.res.Interface.Socket != "" {
			want = append(want, p.res.Interface.Socket)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		return fmt.Errorf("VPP has the memif sockets %q instead of %q", got, want)
	}
	return nil
}

// verify is an error if VPP and the objects differ about a packet of any pod.
func (h *host) verify(l *life) error {
	cfg := l.proof
	cfg.Dial, cfg.Timeout = h.sim.Dial, time.Minute
	objects, err := h.cluster.list()
	if err != nil {
		return err
	}
	report, err := verify.Run(context.Background(), cfg, objects)
	if err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	for _, c := range report.Checks {
		h.count("verify: " + string(c.Verdict))
		if c.Verdict == verify.Different {
			return fmt.Errorf("verify: %s, %s: %+v", c.Pod, c.Packets, *c.Difference)
		}
	}
	for _, s := range report.Services {
		h.count("verify, of a Service: " + string(s.Verdict))
		for _, d := range s.Differences {
			return fmt.Errorf("verify: %s: %+v", s.Of, d)
		}
	}
	return nil
}
