package realvpp

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// rolloutTally is what clients and pods of a family saw of all rolling updates.
type rolloutTally struct {
	*clientCount
	toDraining int // connections to a pod whose first packet left after the client's agent had acknowledged that the pod drains
	resent     int // connections whose first packet was sent again
	dropped    int // first packets that did not arrive at a pod
	pods       int // that got new connections
	// chi is how far the sum of the squared deviations of all shares is from its mean, in σ. Each pod has a share of the connections from each node. beyond
	// is the number of shares that are not within 3 σ, worst the largest deviation in σ.
	chi    float64
	beyond int
	all    int
	worst  float64
}

func (n *rolloutTally) String() string {
	return fmt.Sprintf("%s | %d | %d | %d | %d | %s | %d | %d | %s | %d | %d | %d | %d | %.1f σ | %d of %d | %.1f σ", n.took.Round(gapUnit), n.slots, n.requests, n.moved, n.failed,
		n.keptGap.Round(gapUnit), n.fresh, n.refused+n.timed+n.cut, n.freshGap.Round(gapUnit), n.toDraining, n.resent, n.dropped, n.pods, n.chi, n.beyond, n.all, n.worst)
}

// tally counts what a family saw.
func (r *rollouts) tally(six bool) *rolloutTally {
	r.t.Helper()
	n := &rolloutTally{clientCount: r.count(six)}
	r.load.mu.Lock()
	defer r.load.mu.Unlock()
	of := slices.DeleteFunc(slices.Clone(r.load.dials), func(d *dialed) bool { return d.user.addr.Is6() != six || d.begun < r.from || d.begun > r.to })
	for _, d := range of {
		if since := r.drains[d.pod][d.user.node]; since > 0 && d.begun > since {
			n.toDraining++
			n.text = append(n.text, fmt.Sprintf("a connection of %s (kept open: %v) that began at %s reached %s, which drained since %s", d.user.node, d.user.kept, d.begun, d.pod, since))
		}
		if d.resent > 0 {
			n.resent++
			n.text = append(n.text, fmt.Sprintf("a connection of %s to %q sent its first packet %d times again at %s, and %d arrived", d.user.node, d.pod, d.resent, d.begun.Round(gapUnit), d.arrived))
		}
		if d.pod != "" { // another one failed
			n.dropped += max(0, 1+d.resent-d.arrived)
		}
	}
	n.shares(r.settled, of)
	return n
}

type shareKey struct{ node, pod string }

// share is what a pod got of the new connections from a node, and what it should have got.
type share struct{ got, mean, variance float64 }

// shares compares the new connections of all settled times with equal shares, those from each node separately: VPPs draw the same random numbers in the same
// order, and two that get as many connections make the same choices.
func (n *rolloutTally) shares(settled []settledTime, dials []*dialed) {
	of := map[shareKey]*share{}
	for _, d := range dials {
		i, _ := slices.BinarySearchFunc(settled, d.begun, func(s settledTime, at time.Duration) int { return cmp.Compare(s.to, at) })
		if i == len(settled) || d.begun < settled[i].from || d.accepted == 0 || d.accepted > settled[i].to {
			continue
		}
		p := 1 / float64(len(settled[i].pods))
		for _, pod := range settled[i].pods {
			key := shareKey{d.user.node, pod}
			if of[key] == nil {
				of[key] = &share{}
			}
			of[key].mean += p
			of[key].variance += p * (1 - p)
		}
		if s := of[shareKey{d.user.node, d.pod}]; s != nil {
			s.got++
		}
	}
	pods := map[string]bool{}
	sum := 0.0
	for key, s := range of {
		pods[key.pod] = true
		z := (s.got - s.mean) / math.Sqrt(s.variance)
		sum += z * z
		if math.Abs(z) > 3 {
			n.beyond++
			n.text = append(n.text, fmt.Sprintf("%s got %.0f new connections of %s; its share is %.1f", key.pod, s.got, key.node, s.mean))
		}
		n.worst = max(n.worst, math.Abs(z))
	}
	n.pods, n.all = len(pods), len(of)
	k := float64(n.all)
	n.chi = (sum - k) / math.Sqrt(2*k)
}

// judge fails the test for each failed request, each connection to a pod that drains, each lost first packet, and uneven shares.
func (r *rollouts) judge(n *rolloutTally) {
	r.t.Helper()
	var bad []string
	for what, count := range map[string]int{
		"requests on open connections failed": n.failed, "new connections were lost": n.refused + n.timed + n.cut, "connections reached a pod that drains": n.toDraining,
		"first packets did not arrive": n.dropped,
	} {
		if count > 0 {
			bad = append(bad, fmt.Sprintf("%d %s", count, what))
		}
	}
	most := 3.0
	if n.all < 1000 { // χ² of few shares exceeds 3 σ by chance, in 2 % of runs
		most = 6
	}
	if n.chi > most {
		bad = append(bad, fmt.Sprintf("the shares of %d pods are not equal: %.1f σ", n.pods, n.chi))
	}
	if len(bad) > 0 {
		r.t.Errorf("%s%s\n%s", r.tails(), strings.Join(n.text[:min(60, len(n.text))], "\n"), strings.Join(bad, "; "))
	}
}
