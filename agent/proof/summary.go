package proof

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/contiv-agent/contiv-agent/verify"
)

// Summary is the result of the last proof, for the status.
type Summary struct {
	At      time.Time      `json:"at"`
	Took    time.Duration  `json:"tookNanoseconds"`
	Verdict verify.Verdict `json:"verdict"`
	// Equal, Different and Unknown count the checks.
	Equal     int `json:"equal"`
	Different int `json:"different"`
	Unknown   int `json:"notCompared"`
	// Repeats: the agent proves in a period, so the result is not an old one.
	Repeats bool `json:"repeats,omitempty"`
	// Why is the reason for a proof without checks; Example is the first difference.
	Why     string `json:"why,omitempty"`
	Example string `json:"example,omitempty"`
	// Differing are the Services ("namespace/name"), and other subjects of checks, that differed when VPP was last compared. They are sorted.
	Differing []string `json:"differing,omitempty"`
}

// String is "different: guestbook/web, ingress: tcp …; 12 checks equal, 1 different, 0 not compared".
func (s *Summary) String() string {
	text := string(s.Verdict)
	for _, more := range []string{s.Why, s.Example} {
		if more != "" {
			text += ": " + more
		}
	}
	return fmt.Sprintf("%s; %d checks equal, %d different, %d not compared", text, s.Equal, s.Different, s.Unknown)
}

// Last returns the result of the last proof; nil: none yet, or no prover.
func (p *Prover) Last() *Summary {
	if p == nil {
		return nil
	}
	return p.last.Load()
}

// mostLines bounds the log lines about the differences of one proof.
const mostLines = 20

// conclude keeps the result of a proof, counts it, and logs the differences that the proof before did not have.
func (p *Prover) conclude(r *verify.Report, err error, began time.Time, took time.Duration) {
	if err != nil {
		p.cfg.Metrics.countFailure()
		p.cfg.Logger.Warn("verify", "err", err)
		return
	}
	s := &Summary{At: began, Took: took, Verdict: r.Verdict, Why: r.Why, Repeats: p.cfg.Every > 0}
	count := func(v verify.Verdict) {
		switch v {
		case verify.Equal:
			s.Equal++
		case verify.Different:
			s.Different++
		default:
			s.Unknown++
		}
	}
	lines := 0
	found := func(of, packet, vpp, wanted string) {
		if s.Example == "" {
			s.Example = of + ": " + packet
		}
		if lines++; lines <= mostLines && !p.known[of] {
			p.cfg.Logger.Warn("verify: different", "object", of, "packet", packet, "vpp", vpp, "wanted", wanted)
		}
	}
	for i := range r.Checks {
		c := &r.Checks[i]
		count(c.Verdict)
		if d := c.Difference; d != nil {
			found(nameOf(c), d.Packet, d.VPP, d.Policy)
		}
	}
	for i := range r.Services {
		c := &r.Services[i]
		count(c.Verdict)
		if len(c.Differences) > 0 {
			d := &c.Differences[0]
			found(c.Of, d.Packet, d.VPP, d.Service)
		}
	}
	p.cfg.Metrics.countProof(s, r)
	if r.Why != "" { // it compared nothing: the last differences stay known
		p.cfg.Logger.Info("verify: not compared", "why", r.Why)
	} else {
		now := different(r)
		if len(p.known) > 0 && len(now) == 0 {
			p.cfg.Logger.Info("verify: the differences have ended")
		}
		p.known = now
	}
	s.Differing = slices.Sorted(maps.Keys(p.known))
	p.last.Store(s)
}
