package doctor

import "fmt"

// cnatSparse is how many sessions VPP's 1,024 buckets hold before lookups walk lists: two per bucket.
const (
	cnatSparse  = 2 * 1024
	cnatBuckets = 65536
	cnatBucket  = 2*(40+56) + 8 // bytes of a bucket with its first two places (cnat_bihash.h, VPP 24.06)

	// Shares of the main heap that the sessions may use. Up to VPP 25.10 sessions have no limit, and VPP ends when the heap
	// is full.
	cnatMuch, cnatMost = 0.25, 0.5
)

// cnat checks cnat's session table; it returns none if cnat will not be used or its plugin is not loaded. VPP 26.06 sizes
// the table for its limit of sessions, and has no configured number of buckets.
func (f *facts) cnat() []Check {
	if _, requests := f.lacking(cnatNeeds()); requests > 0 || f.cfg.NAT44 {
		return nil
	}
	c := Check{Name: "cnat sessions", Verdict: OK}
	text, ok := f.cli(askCNATUse)
	sessions, size, parsed := parseCNATSessions(text)
	switch {
	case !ok || !parsed:
		return []Check{unknown(c.Name, "VPP does not report the number of sessions")}
	case size == 0:
		c.Found, c.Facts = "none yet, so VPP does not report the size of the table", Facts{"sessions": sessions}
	default:
		c.Found, c.Facts = fmt.Sprintf("%d in %s of the main heap", sessions, mebibytes(size)), Facts{"sessions": sessions, "bytes": uint64(size)}
	}
	_, missing := f.lacking(newerCNAT())
	older := missing > 0
	switch share := f.heapShare(size); {
	case older && share >= cnatMuch:
		c.Verdict, c.Startup = Wrong, "memory { main-heap-size 4G }"
		if share >= cnatMost {
			c.Verdict = Dangerous
		}
		c.Consequence = fmt.Sprintf("that is %.0f %% of the main heap. This version of cnat does not limit sessions, and the agent cannot free any: VPP ends when "+
			"the heap is full", 100*share)
	case older && size > 0 && sessions > cnatSparse && size < cnatBuckets*cnatBucket:
		c.Verdict = Wrong
		c.Consequence = "more sessions than the table has buckets for: each packet walks a list"
		c.Startup = fmt.Sprintf("cnat { session-db-buckets %d }", cnatBuckets)
	}
	return []Check{c}
}

// heapShare returns the share of the main heap that a number of bytes is; 0 if VPP does not report the size of its heap.
func (f *facts) heapShare(bytes float64) float64 {
	text, _ := f.cli(askHeap)
	heap, _ := parseMemory(text)
	return use{heap.total, bytes}.share()
}
