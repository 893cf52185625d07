package index

// Follower finds the elements of a list in an older list with mostly the same elements in the same order. The zero value is at the beginning. Most are at the
// expected index; after elements that are missing, it searches before and behind that index.
type Follower struct {
	at     int // first index that may match again
	missed int // number of consecutive misses
}

// mostMissed bounds the search.
const mostMissed = 8

// Find returns the index of the next element in an older list of n.
func (f *Follower) Find(n int, same func(i int) bool) (place int, ok bool) {
	for i := f.at; i < min(f.at+f.missed+2, n); i++ {
		if same(i) {
			f.at, f.missed = i+1, 0
			return i, true
		}
	}
	if f.missed == mostMissed {
		f.at++
	} else {
		f.missed++
	}
	return 0, false
}
