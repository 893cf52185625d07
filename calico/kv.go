// Package calico turns a change of an object into the type that all rooms of this folder share: keys and values of Calico's
// datastore. Invariant: it imports nothing, so that events can carry such keys without knowing how they are written.
package calico

import "bytes"

// KV is a key of Calico's datastore with its encoded value, as Calico writes it to etcd.
type KV struct {
	Key   string // a path: "/calico/v1/policy/…"
	Value []byte // JSON, or bare text for a few keys; nil: the key is deleted
	// Revision is the origin's version; "" unknown. Equal bytes with another revision are the same value.
	Revision string
	// V3ResourceVersion is the resource version of a v3 resource, which Value omits for the same reason; "" for other
	// values.
	V3ResourceVersion string
}

// Equal reports whether a and b have the same key and value. It ignores versions.
func (a KV) Equal(b KV) bool {
	return a.Key == b.Key && (a.Value == nil) == (b.Value == nil) && bytes.Equal(a.Value, b.Value)
}
