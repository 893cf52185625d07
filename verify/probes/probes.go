// Package probes turns classes of packets into packets that pods send, and what VPP does with each of them into checks of a report. So it finds what no dump of VPP shows: access lists that
// VPP does not look up, and sessions that let packets pass.
//
// Invariant: a check is equal only if a packet of each class of the pod was sent, and had the fate that policies say.
package probes

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/space"
	"github.com/contiv-agent/contiv-agent/verify"
	"github.com/contiv-agent/contiv-agent/verify/classes"
	"github.com/contiv-agent/contiv-agent/verify/example"
	"github.com/contiv-agent/contiv-agent/verify/question"
)

// Fate is what VPP did with a packet.
type Fate struct {
	Passed bool   // an access list let it pass
	Denied bool   // an access list dropped it, or the end of all lists
	Left   string // the interface by which it left VPP, of a local pod "pod-<namespace>/<name>"; "": it did not
	// Session: VPP let it pass because of an earlier packet.
	Session bool
	Text    string // what the last node did
}

// Config says how packets are sent.
type Config struct {
	Node string
	// Read returns the classes of the present lists and objects.
	Read func(context.Context) (*classes.Finder, error)
	// Send lets a pod send a packet. The source port of an echo request is its type; echo is its identifier. An error says that this pod cannot send this packet.
	Send func(ctx context.Context, from model.PodID, h space.Header, echo uint16) (*Fate, error)
	// For is how long packets are sent.
	For time.Duration
	// Port is the source port of the first packet, and that of the next ones rises to Last; both 0: 40000 to 59999.
	Port, Last uint16
}

// failures is how many packets a pod may fail to send before no more are tried.
const failures = 3

// again is how often a packet is sent from another port because a session let it pass.
const again = 3

// run is one run.
type run struct {
	Config
	sent int
	next uint16 // source port
	pods []*pod
}

// pod is the check of a sender.
type pod struct {
	verify.Check
	id                      model.PodID
	sent, failed, differing int
}

// Run sends packets of the pods of a node. It returns a check of each pod, sorted, and how many packets were sent.
func Run(ctx context.Context, cfg Config) (checks []verify.Check, sent int, err error) {
	if cfg.Port == 0 {
		cfg.Port, cfg.Last = 40000, 59999
	}
	r := &run{Config: cfg, next: cfg.Port}
	inTime, cancel := context.WithTimeout(ctx, cfg.For)
	defer cancel()
	f, err := cfg.Read(ctx)
	if err != nil {
		return nil, 0, err
	}
	for _, p := range f.Senders(cfg.Node) {
		r.pods = append(r.pods, &pod{id: p.ID, Check: verify.Check{Pod: p.ID.String(), Interface: f.Interface(p), Packets: "packets that it sends", Verdict: verify.Equal}})
	}
	at := 0 // the sender: Cover has the same order
	for c := range f.Cover(inTime, cfg.Node) {
		for r.pods[at].id != c.From.ID {
			at++
		}
		if r.pods[at].failed >= failures {
			continue
		}
		if err := r.probeClass(ctx, r.pods[at], f, &c); err != nil {
			return nil, r.sent, err
		}
	}
	for i, p := range r.pods {
		checks = append(checks, p.conclude(inTime.Err() != nil && i >= at))
	}
	slices.SortFunc(checks, func(a, b verify.Check) int { return strings.Compare(a.Pod, b.Pod) })
	return checks, r.sent, nil
}

// conclude adds what was not done. over: the time was, before all classes of the pod.
func (p *pod) conclude(over bool) verify.Check {
	switch {
	case p.differing > 1:
		p.Why = fmt.Sprintf("and %d more of %d packets", p.differing-1, p.sent)
	case p.differing == 1:
	case over:
		p.Verdict, p.Why = verify.Unknown, fmt.Sprintf("the time was over after %d packets", p.sent)
	}
	return p.Check
}

// unknown notes why a packet decides nothing.
func (p *pod) unknown(why string) {
	if p.Verdict == verify.Equal {
		p.Verdict, p.Why = verify.Unknown, why
	}
}

// probeClass sends a packet of a class. The error ends the run.
func (r *run) probeClass(ctx context.Context, p *pod, f *classes.Finder, c *classes.Class) error {
	h, fate := r.sendProbe(ctx, p, f, c)
	if fate == nil {
		return ctx.Err()
	}
	wrong, why := judge(c, fate)
	if wrong { // the agent may have changed the lists
		if h, fate = r.sendProbe(ctx, p, f, c); fate == nil {
			return ctx.Err()
		}
		var err error
		if f, err = r.Read(ctx); err != nil {
			return err
		}
		now := f.Decide(c, h)
		if c = &now; c.Doubt != "" {
			p.unknown(c.Doubt)
			return nil
		}
		wrong, why = judge(c, fate)
	}
	switch {
	case wrong:
		if p.differing++; p.differing == 1 {
			p.Verdict, p.Why, p.Difference = verify.Different, "", explainProbe(f, c, h, fate)
		}
	case why != "":
		p.unknown(h.String() + ": " + why)
	}
	return nil
}

// sendProbe sends a packet of a class. nil: it was not sent, or decides nothing, which the pod's check says.
func (r *run) sendProbe(ctx context.Context, p *pod, f *classes.Finder, c *classes.Class) (h space.Header, fate *Fate) {
	if c.Doubt != "" {
		p.unknown(c.Doubt)
		return h, nil
	}
	for range again {
		port := r.next
		if r.next++; r.next > r.Last {
			r.next = r.Port
		}
		h = f.Packet(c, port)
		var err error
		if fate, err = r.Send(ctx, c.From.ID, h, port); err != nil {
			if p.failed++; ctx.Err() == nil {
				p.unknown(h.String() + ": " + err.Error())
			}
			return h, nil
		}
		r.sent++
		if p.sent++; !fate.Session || fate.Denied || c.Allowed {
			return h, fate
		}
	}
	p.unknown(h.String() + ": a session of VPP lets it pass: " + fate.Text)
	return h, nil
}

// judge reports whether VPP did something else than policies say. Why says why the packet decides nothing; "": it does. Behind the lists that decide, VPP may drop a packet to another
// node or to the outside for reasons that policies do not know, such as a missing neighbour.
func judge(c *classes.Class, fate *Fate) (wrong bool, why string) {
	lost := !fate.Denied && fate.Left == ""
	switch {
	case c.Allowed && c.To != nil:
		return fate.Left != "pod-"+c.To.ID.String(), ""
	case fate.Denied:
		return c.Allowed, ""
	case !lost, c.To == nil && (fate.Passed || len(c.Rules) == 0):
		return !c.Allowed, ""
	}
	return false, "VPP drops it, and no access list: " + fate.Text
}

// explainProbe describes a packet.
func explainProbe(f *classes.Finder, c *classes.Class, h space.Header, fate *Fate) *verify.Difference {
	d := &verify.Difference{
		Packet: h.String(), Header: example.HeaderOf(h), VPP: fate.Text, VPPPasses: fate.Left != "", Decisions: f.Reasons(c, h),
		Trace: question.Line(question.Pod(c.From.ID.String()), h, false),
	}
	if c.Passes == fate.Denied {
		d.VPP += fmt.Sprintf("; its lists say otherwise when they are read: %s", strings.Join(c.Rules, ", "))
	}
	var texts []string
	for _, p := range d.Decisions {
		texts = append(texts, p.Direction+" of "+p.Pod+": "+p.Text)
	}
	d.Policy = strings.Join(texts, "; ")
	return d
}
