// Package index turns pairs of an object and its user into the users of each object, and two lists into the elements that they share.
//
// Invariant: an object without users has no entry. A search never returns to an earlier element, so a walk through two lists is linear.
package index

// Of has the users of objects. Users are a set: a pair counts once.
type Of[K, V comparable] map[K]map[V]struct{}

// Add adds a user of an object.
func (x Of[K, V]) Add(k K, v V) {
	if x[k] == nil {
		x[k] = map[V]struct{}{}
	}
	x[k][v] = struct{}{}
}

// Remove removes a user of an object.
func (x Of[K, V]) Remove(k K, v V) {
	delete(x[k], v)
	if len(x[k]) == 0 {
		delete(x, k)
	}
}
