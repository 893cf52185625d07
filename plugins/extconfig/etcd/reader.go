package etcd

import (
	"context"
	"errors"
	"time"
)

// configPrefix is the prefix of configuration behind a node's root, statusPrefix that of statuses.
const (
	configPrefix = "config/"
	statusPrefix = "config-status/"
)

// Errors of readers and writers.
var (
	errPageTooLong = errors.New("more than fits into one answer")
	errLost        = errors.New("connection lost")
	errLeaseLost   = errors.New("lease lost")
)

// pair is a key of this node, without the root, and its stored value.
type pair struct {
	key     string
	value   []byte
	deleted bool
	tooLong bool // the value was not read
}

// page is a part of etcd's content.
type page struct {
	pairs []pair
	more  bool
	rev   int64 // revision of the store
}

// reader reads configuration from an etcd.
type reader interface {
	// Page returns at most limit pairs from a key on ("": the first), sorted, as of a revision (0: now). errPageTooLong: a smaller
	// limit may succeed.
	Page(ctx context.Context, from string, limit int64, rev int64) (*page, error)
	// Watch calls handle for the changes after a revision, one revision at a time, until ctx ends or the watch fails.
	Watch(ctx context.Context, rev int64, handle func(rev int64, pairs []pair)) error
	Close()
}

// writer writes statuses into an etcd.
type writer interface {
	// Grant creates a lease and renews it; lost is closed when a renewal fails, or ctx ends.
	Grant(ctx context.Context, ttl time.Duration) (lease int64, lost <-chan struct{}, err error)
	// Write writes all of it or nothing; errLeaseLost: the lease does not exist.
	Write(ctx context.Context, lease int64, puts []pair, deletes []string) error
	Revoke(ctx context.Context, lease int64) error
	Close()
}
