package doctor

import "fmt"

// cnatSparse is how many sessions VPP's 1,024 buckets hold before lookups go through lists: two in each.
const (
	cnatSparse  = 2 * 1024
	cnatBuckets = 65536
	cnatBucket  = 2*(40+56) + 8 // bytes of a bucket with its first two places (cnat_bihash.h, VPP 24.06)

	// Parts of the main heap that the sessions may take: they have no limit up to VPP 25.10, and VPP ends when the heap is full.
	cnatMuch, cnatMost = 0.25, 0.5
)

// cnat is cnat's session table; nothing if it will not be used or its plugin is not there. VPP 26.06 makes it as large as its limit of
// sessions wants, and does not start with a number of buckets.
func (f *facts) cnat() []Check {
	if _, requests := f.lacking(cnatNeeds()); requests > 0 || f.cfg.NAT44 {
		return nil
	}
	c := Check{Name: "cnat sessions", Verdict: OK}
	text, ok := f.cli(askCNATUse)
	sessions, size, parsed := parseCNATSessions(text)
	switch {
	case !ok || !parsed:
		return []Check{unknown(c.Name, "VPP does not tell how many there are")}
	case size == 0:
		c.Found = "none yet, so that VPP does not tell how large its table is"
	default:
		c.Found = fmt.Sprintf("%d in %s of the main heap", sessions, mebibytes(size))
	}
	_, missing := f.lacking(newerCNAT())
	older := missing > 0
	switch share := f.heapShare(size); {
	case older && share >= cnatMuch:
		c.Verdict, c.Startup = Wrong, "memory { main-heap-size 4G }"
		if share >= cnatMost {
			c.Verdict = Dangerous
		}
		c.Consequence = fmt.Sprintf("that is %.0f %% of the main heap. This cnat has no limit of sessions, and the agent cannot free one: VPP ends when "+
			"the heap is full", 100*share)
	case older && size > 0 && sessions > cnatSparse && size < cnatBuckets*cnatBucket:
		c.Verdict = Wrong
		c.Consequence = "more sessions than its table has buckets for: each packet looks through a list"
		c.Startup = fmt.Sprintf("cnat { session-db-buckets %d }", cnatBuckets)
	}
	return []Check{c}
}

// heapShare is what part of the main heap a number of bytes is; 0 if VPP does not tell how large its heap is.
func (f *facts) heapShare(bytes float64) float64 {
	text, _ := f.cli(askHeap)
	heap, _ := parseMemory(text)
	return use{heap.total, bytes}.share()
}
