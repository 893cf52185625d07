package proof

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/plugins/controller"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/test/logbuffer"
	"github.com/contiv-agent/contiv-agent/test/samples"
	"github.com/contiv-agent/contiv-agent/verify"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/all"
)

// agent is what a prover sees of an agent: the state of the loop, and the reports of comparisons.
type agent struct {
	*Prover
	log       *logbuffer.Buffer
	mu        sync.Mutex
	moment    Moment
	compared  atomic.Int64
	reports   []*verify.Report   // of the comparisons, the last one again and again
	meanwhile func(compared int) // during a comparison
}

func newAgent(every time.Duration, reports ...*verify.Report) *agent {
	a := &agent{log: &logbuffer.Buffer{}, moment: Moment{Settings: verify.Config{Node: "node-1"}}, reports: reports, meanwhile: func(int) {}}
	a.Prover = New(Config{
		Every: every, Now: time.Now, Logger: slog.New(slog.NewTextHandler(a.log, nil)), Metrics: NewMetrics(),
		Look: func(_ context.Context, inside func()) (m Moment, err error) {
			a.become(func(now *Moment) { m = *now; inside() })
			return m, nil
		},
		Compare: func(context.Context, verify.Config, []model.Object) (*verify.Report, error) {
			n := int(a.compared.Add(1))
			a.meanwhile(n)
			return a.reports[min(n, len(a.reports))-1], nil
		},
		Rest: func(ctx context.Context, d time.Duration) error {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(d):
				return nil
			}
		},
	})
	return a
}

// become changes the state of the loop.
func (a *agent) become(change func(*Moment)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change(&a.moment)
}

// differing is a report in which these checks of pods differ.
func differing(pods ...string) *verify.Report {
	r := &verify.Report{Node: "node-1", Verdict: verify.Equal}
	for _, pod := range []string{"a/a", "b/b"} {
		c := verify.Check{Pod: pod, Packets: "ingress", Verdict: verify.Equal}
		if slices.Contains(pods, pod) {
			r.Verdict, c.Verdict = verify.Different, verify.Different
			c.Difference = &verify.Difference{Packet: "tcp to " + pod, VPP: "dropped", Policy: "allowed"}
		}
		r.Checks = append(r.Checks, c)
	}
	return r
}

// A comparison counts if the agent programs nothing meanwhile, and a difference if the next comparison finds it, too.
func TestOnlyStandingDifferencesCount(t *testing.T) {
	busy := func(now *Moment) { now.Busy = "transaction 7 is running" }
	program := func(now *Moment) { now.Mark.Writes++ }
	a, b, ab, none := differing("a/a"), differing("b/b"), differing("a/a", "b/b"), differing()
	for name, c := range map[string]struct {
		reports   []*verify.Report
		before    func(*Moment)
		meanwhile []func(*Moment) // during each comparison, as long as the list is
		want      []string        // what differs
		compared  int
		why       string
	}{
		"equal":                   {[]*verify.Report{none}, nil, nil, nil, 1, ""},
		"confirmed":               {[]*verify.Report{a}, nil, nil, []string{"a/a, ingress"}, 2, ""},
		"of one moment":           {[]*verify.Report{a, none}, nil, nil, nil, 2, ""},
		"another one":             {[]*verify.Report{a, b}, nil, nil, []string{"b/b, ingress"}, 3, ""},
		"one remains":             {[]*verify.Report{ab, b}, nil, nil, []string{"b/b, ingress"}, 2, ""},
		"each time another one":   {[]*verify.Report{a, b, a, b, a, b}, nil, nil, nil, 6, "each comparison found other differences"},
		"programmed meanwhile":    {[]*verify.Report{a, none}, nil, []func(*Moment){program}, nil, 2, ""},
		"not confirmed by that":   {[]*verify.Report{a, a, none}, nil, []func(*Moment){program}, nil, 3, ""},
		"reconnected meanwhile":   {[]*verify.Report{a, none}, nil, []func(*Moment){func(now *Moment) { now.Mark.Connection++ }}, nil, 2, ""},
		"programmed all the time": {[]*verify.Report{a}, nil, slices.Repeat([]func(*Moment){program}, 6), nil, 6, "the agent programmed VPP during each comparison"},
		"begins meanwhile":        {[]*verify.Report{none}, nil, []func(*Moment){busy}, nil, 1, "transaction 7 is running"},
		"busy":                    {[]*verify.Report{a}, busy, nil, nil, 0, "transaction 7 is running"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAgent(0, c.reports...)
				if c.before != nil {
					a.become(c.before)
				}
				a.meanwhile = func(n int) {
					if n <= len(c.meanwhile) {
						a.become(c.meanwhile[n-1])
					}
				}
				r, _, err := a.prove(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				var got []string
				for of := range different(r) {
					got = append(got, of)
				}
				if !slices.Equal(got, c.want) || int(a.compared.Load()) != c.compared || !strings.Contains(r.Why, c.why) || (c.why == "") != (r.Why == "") {
					t.Errorf("%v, %q after %d comparisons, want %v, %q after %d", got, r.Why, a.compared.Load(), c.want, c.why, c.compared)
				}
				if c.why != "" && (r.Verdict != verify.Unknown || r.Node != "node-1" || len(r.Checks) > 0) {
					t.Errorf("report without a comparison: %+v", r)
				}
			})
		})
	}
}

// Requests during a proof wait for the next one, which begins after them, and share it. Between both the prover rests.
func TestRequestsShareAProof(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAgent(0, differing())
		a.meanwhile = func(int) { time.Sleep(2 * time.Second) }
		ctx, cancel := context.WithCancel(t.Context())
		began := time.Now()
		var wg sync.WaitGroup
		ask := func(after, want time.Duration) {
			wg.Go(func() {
				time.Sleep(after)
				if _, err := a.Report(ctx); err != nil || time.Since(began) != want {
					t.Errorf("asked after %s: %v after %s, want %s", after, err, time.Since(began), want)
				}
			})
		}
		wg.Go(func() { _ = a.Run(ctx) })
		ask(0, 2*time.Second)
		for i := range 10 {
			ask(time.Duration(1+i)*100*time.Millisecond, 12*time.Second) // 2 s of the first proof, 4 times as long of rest
		}
		time.Sleep(20 * time.Second)
		cancel()
		wg.Wait()
		if a.compared.Load() != 2 {
			t.Errorf("%d comparisons, want 2", a.compared.Load())
		}
		if _, err := a.Report(t.Context()); !errors.Is(err, ErrStopped) {
			t.Errorf("after the end: %v", err)
		}
	})
}

// With a period, each proof sets the metrics and the summary. The log has a line for a new difference, and one for the end of all.
func TestPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAgent(time.Minute, differing(), differing("a/a"), differing("a/a"), differing("a/a"), differing("a/a"), differing())
		registry := prometheus.NewRegistry()
		if err := a.cfg.Metrics.Register(registry); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- a.Run(ctx) }()
		sleep := func(d time.Duration) { time.Sleep(d); synctest.Wait() }
		lines := func(text string) int { return strings.Count(a.log.String(), text) }
		if sleep(61 * time.Second); a.compared.Load() != 1 || a.Last().Verdict != verify.Equal || a.Last().Equal != 2 || a.log.String() != "" {
			t.Errorf("first: %d comparisons, %v\n%s", a.compared.Load(), a.Last(), a.log)
		}
		sleep(2 * time.Minute)
		const line = `object="a/a, ingress" packet="tcp to a/a" vpp=dropped wanted=allowed`
		if a.compared.Load() != 5 || lines(line) != 1 || a.Last().String() != "different: a/a, ingress: tcp to a/a; 1 checks equal, 1 different, 0 not compared" || !a.Last().Repeats {
			t.Errorf("with a difference: %d comparisons, %v\n%s", a.compared.Load(), a.Last(), a.log)
		}
		got := samples.Read(t, registry)
		for name, want := range map[string]float64{
			`contiv_verify_checks{subject="pods",verdict="different"}`: 1, `contiv_verify_checks{subject="pods",verdict="equal"}`: 1,
			`contiv_verify_proofs_total{result="different"}`: 2, `contiv_verify_proofs_total{result="equal"}`: 1,
			`contiv_verify_last_proof_timestamp_seconds{}`: float64(a.Last().At.Unix()), `contiv_verify_last_proof_duration_seconds{}`: 1,
		} {
			if got[name] != want {
				t.Errorf("%s is %v, want %v", name, got[name], want)
			}
		}
		if sleep(time.Minute); lines("the differences have ended") != 1 || a.Last().Verdict != verify.Equal {
			t.Errorf("afterwards: %v\n%s", a.Last(), a.log)
		}
		a.become(func(now *Moment) { now.Busy = "source kube is resync" })
		if sleep(time.Minute + attempts*pause); a.Last().String() != "not compared: source kube is resync; 0 checks equal, 0 different, 0 not compared" {
			t.Errorf("busy: %v", a.Last())
		}
		cancel()
		<-ended
	})
}

// VPP has the desired state only if nothing is under way, and no change waits.
func TestBusy(t *testing.T) {
	last := &event.Committed{}
	rest := controller.Status{VPP: event.VPPStatus{Connected: true}, Done: true, Last: last}
	for want, change := range map[string]func(*controller.Status){
		"":                                       func(*controller.Status) {},
		"the agent is not in sync: for a reason": func(st *controller.Status) { st.InFlight = 7 },
		"changes wait for VPP":                   func(st *controller.Status) { st.Waits = true },
	} {
		st := rest
		change(&st)
		if got := (Loop{Waiting: func(*controller.Status) string { return "for a reason" }}).busy(&st); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// A refused object counts with the parts that fail closed; without such parts it is none.
func TestObjects(t *testing.T) {
	a := newAgent(0)
	pod, policy := &model.Pod{ID: model.PodID{Namespace: "a", Name: "a"}}, &model.Policy{ID: model.PolicyID{Namespace: "a", Name: "p"}}
	count := func(want int, ch event.Change) {
		t.Helper()
		if a.Changed(ch); len(a.Objects()) != want {
			t.Errorf("%d objects, want %d", len(a.Objects()), want)
		}
	}
	count(1, event.Change{Ref: pod.Ref(), Object: pod})
	count(2, event.Change{Ref: policy.Ref(), Object: policy, Err: errors.New("a part is wrong")})
	count(1, event.Change{Ref: pod.Ref(), Err: errors.New("it is wrong")})
	count(0, event.Change{Ref: policy.Ref()})
	var none *Prover
	none.Changed(event.Change{Ref: pod.Ref(), Object: pod})
	if none.Last() != nil {
		t.Error("a proof without a prover")
	}
}

// The prover and the simulated VPP agree which of the agent's requests change VPP. For the simulated one, unlike for the prover, requests for events do.
func TestReads(t *testing.T) {
	both := map[bool]int{}
	for _, m := range all.Needs() {
		name := m.GetMessageName()
		if reads(name) == sim.Writes(name) && !strings.HasPrefix(name, "want_") {
			t.Errorf("%s: the prover takes it for reading: %v", name, reads(name))
		}
		both[reads(name)]++
	}
	if both[true] < 10 || both[false] < 10 {
		t.Errorf("%d requests read, %d change VPP", both[true], both[false])
	}
}
