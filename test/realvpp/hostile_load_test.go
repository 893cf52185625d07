package realvpp

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime/metrics"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/test/hostile"
)

// attack is what a tenant does for as long as it is measured.
type attack struct {
	name   string
	before []event.Change                  // exists when it begins
	next   func(*rand.Rand) []event.Change // one change; nil: it is done once
	once   func(*testing.T) []event.Change
}

// attackRate is how many changes a second the tenant makes.
const attackRate = 1000

func attacks() []attack {
	toggle := func(r *rand.Rand) []event.Change {
		return []event.Change{put(evilMember(r.IntN(2*loadMembers), r.IntN(2) == 0))}
	}
	out := []attack{
		{name: "nothing"},
		{name: "1,000 members a second, one port", before: append(members(), put(evilPolicy(80))), next: toggle},
		{name: "1,000 members a second, any port", before: append(members(), put(evilPolicy())), next: toggle},
		{name: "1,000 members a second, egress", before: append(members(), put(evilEgress())), next: toggle},
		{name: "1,000 endpoints a second", before: each(loadService), next: func(r *rand.Rand) []event.Change {
			return []event.Change{loadSlice(r.IntN(loadServices), r.IntN(3))}
		}},
		{name: "1,000 policy changes a second", next: func(r *rand.Rand) []event.Change {
			return []event.Change{put(&model.Policy{
				ID: model.PolicyID{Kind: model.KindNetworkPolicy, Namespace: "evil", Name: fmt.Sprint("p", r.IntN(20))}, Tier: model.TierDefault, Order: model.OrderKubernetes(),
				Namespace: "evil", Selector: model.LabelNamespace + " == 'evil' && many == 'yes'", Ingress: true,
				InboundRules: []model.Rule{{Action: model.ActionAllow, Source: model.Peer{Selector: fmt.Sprintf("n == '%d'", r.IntN(1000))}}},
			})}
		}},
	}
	for _, a := range hostile.Attacks() {
		out = append(out, attack{name: a.Name, once: func(t *testing.T) []event.Change {
			list, err := a.Changes(1)
			if err != nil {
				t.Fatal(err)
			}
			return list
		}})
	}
	return out
}

// TestVPPHostileLoad: while a tenant does what it can, the victim changes its policy again and again and sends all the time. The test shows the
// time from each change of the victim to the first datagram that it lets pass, quiet and under attack, what the victim's flow met, and the CPU
// time of the process during the attack, in cores. It asserts that VPP lives, and that every change of the victim comes into force.
func TestVPPHostileLoad(t *testing.T) {
	realVPP(t, "measures the time of VPP's main thread")
	for _, a := range attacks() {
		t.Run(a.name, func(t *testing.T) { underAttack(t, a) })
	}
}

const victimChanges = 15

func underAttack(t *testing.T, a attack) {
	w := openLoaded(t, 0, a.before...)
	w.settle()
	w.flow.look()
	quiet := w.changes(victimChanges)
	quietFlow := w.flow.look()
	busy, since := processorTime(os.Getpid()), time.Now()
	stop := w.attack(t, a)
	attacked := w.changes(victimChanges)
	rate := stop()
	load := float64(processorTime(os.Getpid())-busy) / float64(time.Since(since))
	flow := w.flow.look()
	w.settle()
	if err := w.l.alive(); err != nil {
		t.Fatal(err)
	}
	t.Logf("| %s | %d | %s / %s | %s / %s | %.1f / %.1f | %s | %s | %d of %d | %d MB | %.2f |", a.name, rate, ms(median(quiet)), ms(slices.Max(quiet)), ms(median(attacked)), ms(slices.Max(attacked)),
		float64(median(attacked))/float64(median(quiet)), float64(slices.Max(attacked))/float64(slices.Max(quiet)),
		ms(quietFlow.longest), ms(flow.longest), flow.lost, flow.packets, heap()>>20, load)
}

func median(list []time.Duration) time.Duration {
	list = slices.Clone(list)
	slices.Sort(list)
	return list[len(list)/2]
}

// changes are the times that changes of the victim took.
func (w *loaded) changes(n int) (out []time.Duration) {
	w.t.Helper()
	for range n {
		out = append(out, w.victim())
		time.Sleep(150 * time.Millisecond)
	}
	return out
}

// attack begins one; it ends with the function returned, which says how many changes a second there were.
func (w *loaded) attack(t *testing.T, a attack) func() int {
	if a.once != nil {
		w.emit(a.once(t)...)
		return func() int { return 0 }
	}
	if a.next == nil {
		return func() int { return 0 }
	}
	quit, ended, began := make(chan struct{}), make(chan struct{}), time.Now()
	var made atomic.Int64
	go func() {
		defer close(ended)
		r := rand.New(rand.NewPCG(1, 1))
		for {
			due := int64(time.Since(began).Seconds() * attackRate)
			for made.Load() < due {
				select {
				case w.events <- &event.Update{Source: source, Changes: a.next(r)}:
					made.Add(1)
				case <-quit:
					return
				}
			}
			select {
			case <-quit:
				return
			case <-time.After(time.Millisecond):
			}
		}
	}()
	return func() int {
		close(quit)
		<-ended
		return int(float64(made.Load()) / time.Since(began).Seconds())
	}
}

// heap is what the process has of the operating system for Go, the test included.
func heap() uint64 {
	s := []metrics.Sample{{Name: "/memory/classes/total:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}
