package verified

import (
	"context"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/space"
	"github.com/contiv-agent/contiv-agent/test/oracle"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy/generate"
	"github.com/contiv-agent/contiv-agent/test/pace"
	"github.com/contiv-agent/contiv-agent/trace"
	"github.com/contiv-agent/contiv-agent/verify"
	"github.com/contiv-agent/contiv-agent/verify/meaning"
)

func start(t *testing.T, changes []event.Change, seed uint64) *trace.Cluster {
	t.Helper()
	c := trace.NewCluster(trace.Config{Seed: seed})
	t.Cleanup(c.Close)
	if err := c.Apply(context.Background(), changes); err != nil {
		t.Fatal(err)
	}
	return c
}

func objectsOf(changes []event.Change) (list []model.Object) {
	for _, ch := range changes {
		if ch.Object != nil {
			list = append(list, ch.Object)
		}
	}
	return list
}

// TestEveryPodIsEqual grows random clusters: in each, all lists of all pods do what the policies mean, and the meaning agrees with the
// specifications about single flows.
func TestEveryPodIsEqual(t *testing.T) {
	first := oracle.Setting(t, "CONTIV_SEED", 1)
	verdicts, flows := map[verify.Verdict]int{}, 0
	for seed := first; seed < first+oracle.Setting(t, "CONTIV_CASES", pace.Fewer[uint64](20, 5)); seed++ {
		w := generate.NewWorld(seed, generate.AllKinds())
		changes := changesOf(t, w)
		c := start(t, changes, seed)
		for _, name := range c.Nodes() {
			r, err := verify.Run(context.Background(), verify.Config{Dial: c.Sim(name).Dial, Node: name, Timeout: time.Minute}, objectsOf(changes))
			if err != nil {
				t.Fatal(err)
			}
			for _, k := range r.Checks {
				verdicts[k.Verdict]++
				if k.Verdict == verify.Different {
					t.Errorf("seed %d, %s, %s, %s: %+v", seed, name, k.Pod, k.Packets, *k.Difference)
				}
			}
			for _, k := range r.Services {
				for _, d := range k.Differences {
					t.Errorf("seed %d, %s, %s: %+v", seed, name, k.Of, d)
				}
			}
		}
		c.Close()
		flows += meaningAgrees(t, seed, w, objectsOf(changes))
	}
	t.Logf("%v, %d flows", verdicts, flows)
	if verdicts[verify.Equal] < 3*verdicts[verify.Unknown] || flows == 0 {
		t.Errorf("too little was compared: %v, %d flows", verdicts, flows)
	}
}

// meaningAgrees compares the sets of meaning with the specifications, for flows of one cluster.
func meaningAgrees(t *testing.T, seed uint64, w *generate.World, objects []model.Object) (flows int) {
	s := space.New()
	c := meaning.Read(s, objects)
	spec, err := policy.Read(w.Objects())
	if err != nil {
		t.Fatal(err)
	}
	type side struct {
		pod    *meaning.Pod
		egress bool
	}
	allowed := map[side]space.Set{}
	for _, p := range c.Pods {
		for _, egress := range []bool{false, true} {
			set, doubts := c.Allowed(p, egress)
			if len(doubts) == 0 {
				allowed[side{p, egress}] = set
			}
		}
	}
	for _, f := range w.Flows(1) {
		h := space.Header{Src: f.Src, Dst: f.Dst, Protocol: uint8(f.Proto), SrcPort: f.SrcPort, DstPort: f.DstPort}
		if f.Proto == policy.ICMP || f.Proto == policy.ICMPv6 {
			h.SrcPort, h.DstPort = uint16(f.Type), uint16(f.Code)
		}
		for _, p := range c.Pods {
			for egress, at := range map[bool]netip.Addr{true: f.Src, false: f.Dst} {
				set, known := allowed[side{p, egress}]
				if !known || !slices.Contains(p.IPs, at) || f.Src == f.Dst {
					continue
				}
				want := spec.JudgeIngress(&f)
				if egress {
					want = spec.JudgeEgress(&f)
				}
				if want.Why == "from the pod's own node" {
					continue // no policy decides
				}
				flows++
				if s.Contains(set, h) != want.Allowed {
					t.Errorf("seed %d: %s of %s: allowed %v, should be %v: %s; %s", seed, h, p.ID, !want.Allowed, want.Allowed, want.Why, c.Reason(p, egress, h))
					return flows
				}
			}
		}
	}
	return flows
}
