package etcd

import (
	"context"
	"errors"
	"time"
)

// configPrefix is what configuration begins with behind a node's root, statusPrefix what is said of it.
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

// pair is a key of this node's, without the root, and what is stored there.
type pair struct {
	key     string
	value   []byte
	deleted bool
	tooLong bool // the value was not even read
}

// page is a part of what is stored.
type page struct {
	pairs []pair
	more  bool
	rev   int64 // of the store
}

// reader is what an etcd is asked for configuration.
type reader interface {
	// Page is at most limit pairs from a key on ("": the first), sorted, as they were at a revision (0: now). errPageTooLong: fewer
	// may be got.
	Page(ctx context.Context, from string, limit int64, rev int64) (*page, error)
	// Watch tells the changes behind a revision, one revision at a time, until ctx ends or it fails.
	Watch(ctx context.Context, rev int64, tell func(rev int64, pairs []pair)) error
	Close()
}

// writer is what an etcd is asked for statuses.
type writer interface {
	// Grant makes a lease and keeps it; lost is closed when it could not be kept, or ctx ends.
	Grant(ctx context.Context, ttl time.Duration) (lease int64, lost <-chan struct{}, err error)
	// Write writes all of it or nothing; errLeaseLost: there is no such lease.
	Write(ctx context.Context, lease int64, puts []pair, deletes []string) error
	Revoke(ctx context.Context, lease int64) error
	Close()
}
