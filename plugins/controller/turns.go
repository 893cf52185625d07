package controller

import "time"

// A share bounds how much of a namespace a transaction has, not how long it takes: one policy more for a pod with many may render and
// compare all its rules again. So a namespace that had a turn rests, three times as long as the turn took, while other namespaces have
// changes, too. Its changes wait in its lane:
//
//	turn of evil: rendering, and the transaction ─▶ evil rests ─▶ turn of evil ─▶ …
//	                                                ▲ changes of others find the loop idle
//
// A turn of several namespaces counts for each by the costs of its changes. A turn is rendering and the cost of the transaction: not its pauses, which
// come from earlier ones, but the pause that follows from its own requests.

const (
	restTurns = 3
	maxRest   = time.Second
	// activeFor is how long after its last change a namespace counts as one that has changes.
	activeFor = 2 * time.Second
)

// turns measures the turns. The zero value measures nothing, and nobody rests.
type turns struct {
	clock func() time.Time // nil: none

	work  map[string]int // costs by namespace, of changes since the last turn
	under map[string]int // of the present turn
	since time.Time      // when it began
	took  time.Duration  // rendering it
	until map[string]time.Time
	last  [2]active // the two namespaces that changed last, of different names
}

type active struct {
	namespace string
	at        time.Time
}

// hears notes a change of a namespace.
func (t *turns) hears(ns string) {
	if t.clock == nil || ns == "" {
		return
	}
	if t.last[0].namespace != ns {
		t.last[1] = t.last[0]
	}
	t.last[0] = active{ns, t.clock()}
}

// rests reports that the changes of a namespace wait.
func (t *turns) rests(ns string) bool {
	if t.clock == nil {
		return false
	}
	until, had := t.until[ns]
	if !had {
		return false
	}
	now, other := t.clock(), t.last[0]
	if other.namespace == ns {
		other = t.last[1]
	}
	if until.After(now) {
		return now.Sub(other.at) < activeFor
	}
	delete(t.until, ns)
	return false
}

// does notes changes that the next turn renders.
func (t *turns) does(ns string, cost int) {
	if t.clock == nil {
		return
	}
	if t.work == nil {
		t.work = map[string]int{}
	}
	t.work[ns] += cost
}

// begins notes that a turn begins.
func (t *turns) begins() {
	if t.clock != nil {
		t.since, t.under, t.work = t.clock(), t.work, nil
	}
}

// rendered notes that the present turn is rendered.
func (t *turns) rendered() {
	if t.clock != nil {
		t.took = t.clock().Sub(t.since)
	}
}

// ends notes that VPP has acknowledged what the turn rendered, at that cost; or that nothing was to be sent.
func (t *turns) ends(cost time.Duration) {
	if t.clock == nil || len(t.under) == 0 {
		return
	}
	now, all := t.clock(), 0
	for _, n := range t.under {
		all += n
	}
	for ns, n := range t.under {
		if rest := restTurns * (t.took + cost) * time.Duration(n) / time.Duration(all); rest > 0 {
			if t.until == nil {
				t.until = map[string]time.Time{}
			}
			t.until[ns] = now.Add(min(rest, maxRest))
		}
	}
	t.under = nil
}
