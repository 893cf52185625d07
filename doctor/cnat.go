package doctor

import "fmt"

// cnatSparse is how many sessions VPP's 1,024 buckets hold before lookups go through lists: two in each.
const (
	cnatSparse  = 2 * 1024
	cnatBuckets = 65536
	cnatBucket  = 2*(40+56) + 8 // bytes of a bucket with its first two places (cnat_bihash.h, VPP 24.06)
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
	if _, missing := f.lacking(newerCNAT()); missing > 0 && size > 0 && sessions > cnatSparse && size < cnatBuckets*cnatBucket {
		c.Verdict = Wrong
		c.Consequence = "more sessions than its table has buckets for: each packet looks through a list"
		c.Startup = fmt.Sprintf("cnat { session-db-buckets %d }", cnatBuckets)
	}
	return []Check{c}
}
