package simulate

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/agent/status"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/sim/nat44ed/show"
	"github.com/contiv-agent/contiv-agent/trace"
	"github.com/contiv-agent/contiv-agent/verify"
)

// check evaluates all laws at the end of a quiet time.
func (r *run) check() error {
	v := r.history[r.now]
	fresh, err := r.fresh.dumps(r.Seed, v)
	if err != nil {
		return err
	}
	for _, n := range r.nodes {
		if err := n.sim.Crashed(); err != nil {
			return fmt.Errorf("%s: %w", n.name, err)
		}
		if err := n.status(); err != nil {
			return fmt.Errorf("%s: %w", n.name, err)
		}
		report, err := verify.Run(context.Background(), verify.Config{Dial: n.sim.Dial, Node: n.name, Timeout: time.Minute}, v.list)
		if err != nil {
			return fmt.Errorf("verify of %s: %w", n.name, err)
		}
		if err := r.verdict(n, report); err != nil {
			return fmt.Errorf("verify of %s: %w", n.name, err)
		}
		dump := n.sim.Dump()
		n.clients.mu.Lock()
		r.Acked += len(n.clients.acked)
		n.clients.mu.Unlock()
		if err := n.clients.check(dump); err != nil {
			return fmt.Errorf("%s: %w", n.name, err)
		}
		if n.etcd != nil {
			if err := n.etcd.Check(dump); err != nil {
				return fmt.Errorf("%s: %w", n.name, err)
			}
		}
		if diff := cmp.Diff(fresh[n.name], withoutExternal(show.WithoutDrained(dump))); diff != "" {
			return fmt.Errorf("VPP of %s differs from one with these objects alone (-alone +simulated):\n%s", n.name, diff)
		}
		if err := r.continueConnections(n, v); err != nil {
			return fmt.Errorf("%s: %w", n.name, err)
		}
	}
	if err := r.checkDialled(v); err != nil {
		return err
	}
	return r.checkGoroutines()
}

// checkGoroutines is an error if the bubble has more goroutines than at the start.
func (r *run) checkGoroutines() error {
	synctest.Wait() // the servers of verify's connections end
	all := goroutines()
	if r.base == nil {
		r.base = all
	}
	var errs []error
	total, before := 0, 0
	for by, n := range all {
		total += n
		if n > r.base[by] {
			errs = append(errs, fmt.Errorf("%d instead of %d goroutines: %s", n, r.base[by], by))
		}
	}
	for _, n := range r.base {
		before += n
	}
	if total <= before {
		return nil // the same in another state
	}
	return errors.Join(errs...)
}

// goroutines counts the goroutines of the bubble, by what started them.
func goroutines() map[string]int {
	buf := make([]byte, 1<<20)
	buf = buf[:runtime.Stack(buf, true)]
	out := map[string]int{}
	for text := range strings.SplitSeq(string(buf), "\n\n") {
		head, _, _ := strings.Cut(text, "\n")
		if !strings.Contains(head, "synctest bubble") {
			continue
		}
		_, by, _ := strings.Cut(text, "created by ")
		by, _, _ = strings.Cut(by, " in goroutine")
		lines := strings.SplitN(text, "\n", 12)
		for _, line := range lines { // the first function of ours
			if strings.Contains(line, "contiv-agent/") && !strings.HasPrefix(line, "\t") {
				by = line[:strings.LastIndexByte(line, '(')] + ", created by " + by
				break
			}
		}
		out[by]++
	}
	return out
}

// status is an error unless the agent has reached its desired state and says so.
func (n *node) status() error {
	l := n.present()
	if l == nil {
		return errors.New("no agent runs")
	}
	st, err := l.Status(context.Background())
	if err != nil {
		return err
	}
	if !st.InSync || !st.Ready || !st.VPP.Connected || st.VPP.Silent != "" || st.Busy != "" {
		return fmt.Errorf("the agent is not in sync: waiting for %q, VPP %+v, busy %q", st.Waiting, st.VPP, st.Busy)
	}
	if held := n.guard.Load().Held(); len(held) > 0 {
		return fmt.Errorf("removals are still held: %v", held)
	}
	for _, v := range st.Unwell {
		if v.State == event.Retrying.String() || v.State == event.Failed.String() {
			return fmt.Errorf("%s is %s: %s", v.Key, v.State, v.Error)
		}
	}
	return nil
}

// tooBig reports whether VPP drops what policies allow, and the agent says why: a policy is too big for a VPP that compares whole bytes of IPv6
// addresses, or what the namespace of the packet's sender or receiver allows without policies is; or the policies of that pod make too many rules together.
// The agent denies then.
func (n *node) tooBig(d *verify.Difference) bool {
	st, err := n.present().Status(context.Background())
	return err == nil && saysTooBig(st, d)
}

func saysTooBig(st *status.Status, d *verify.Difference) bool {
	if d.VPPPasses {
		return false
	}
	const bytes, rules = "too big to be written out", "too many rules: what they allow is denied"
	for _, list := range d.Lists {
		namespace, _, _ := strings.Cut(list.Pod, "/")
		for _, note := range st.Notes {
			if note.Object == "Pod "+list.Pod && strings.Contains(note.Reason, rules) || note.Object == "Namespace "+namespace && strings.Contains(note.Reason, bytes) {
				return true
			}
		}
	}
	for i := range st.Policies {
		if slices.ContainsFunc(st.Policies[i].Reasons, func(why string) bool { return strings.Contains(why, bytes) }) {
			return true
		}
	}
	return false
}

func (r *run) verdict(n *node, report *verify.Report) error {
	for _, k := range report.Checks {
		if k.Verdict == verify.Different && n.tooBig(k.Difference) {
			r.TooBig++
			continue
		}
		if k.Verdict == verify.Different {
			return fmt.Errorf("%s, %s: %+v", k.Pod, k.Packets, *k.Difference)
		}
		if k.Verdict == verify.Equal {
			r.Compared++
		}
	}
	for _, k := range report.Services {
		for _, d := range k.Differences {
			return fmt.Errorf("%s: %+v", k.Of, d)
		}
		if k.Verdict == verify.Equal {
			r.Compared++
		}
	}
	return nil
}

// freshStates has freshDumps of each version that was compared.
type freshStates map[*version]map[string]string

func (f *freshStates) dumps(seed uint64, v *version) (map[string]string, error) {
	if done, ok := (*f)[v]; ok {
		return done, nil
	}
	dumps, err := freshDumps(seed, v)
	if *f == nil {
		*f = freshStates{}
	}
	if err == nil {
		(*f)[v] = dumps
	}
	return dumps, err
}

// freshDumps are the states of new VPPs whose new agents got the objects alone, by node.
func freshDumps(seed uint64, v *version) (map[string]string, error) {
	c := trace.NewCluster(trace.Config{Seed: seed, Agent: agent.Config{}})
	defer c.Close()
	if err := c.Apply(context.Background(), v.changes); err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, name := range c.Nodes() {
		out[name] = show.WithoutDrained(c.Sim(name).Dump())
	}
	return out, nil
}

// withoutExternal leaves out the interfaces of external clients, and the entries of cnat's policy for sources that deleted interfaces leave: VPP keeps them for the next
// interface of that index, which may be a client's loopback. The agent sets its own interfaces in all tables.
func withoutExternal(dump string) string {
	var b strings.Builder
	skipping := false
	for line := range strings.Lines(dump) {
		if !strings.HasPrefix(line, "  ") {
			skipping = strings.HasPrefix(line, "interface ") && strings.Contains(line, "ext-") || isLeft(line)
		}
		if !skipping {
			b.WriteString(line)
		}
	}
	return b.String()
}

// isLeft reports whether a line of a dump is an entry of cnat's policy for a deleted interface, or for a client's loopback.
func isLeft(line string) bool {
	return strings.HasPrefix(line, "cnat snat-policy ") && (strings.Contains(line, " deleted:") || strings.Contains(line, " loop"))
}
