package table

import (
	"testing"

	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
)

// The tables of a segment distribute its buckets, for every number of tables.
func TestTablesShareBuckets(t *testing.T) {
	for n := 1; n <= match.Buckets; n *= 2 {
		var all uint64
		for i := range n {
			if all&bucketsOf(n, i) != 0 {
				t.Errorf("%d tables: table %d shares a bucket", n, i)
			}
			all |= bucketsOf(n, i)
		}
		if all != ^uint64(0) {
			t.Errorf("%d tables leave buckets out", n)
		}
	}
}
