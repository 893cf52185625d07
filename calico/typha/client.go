package typha

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/contiv-agent/contiv-agent/backoff"

	"github.com/contiv-agent/contiv-agent/calico/wire"
)

// Client follows one set of keys, on one server after another. Create with NewClient, start with Follow; it follows once.
type Client struct {
	cfg    Config
	syncer wire.SyncerType
	either bool // if a server closes the connection at the hello, try the other dialect
	modern bool // the dialect that the hello asks for
	log    *slog.Logger

	publish func(wire.Batch)
	seed    maphash.Seed
	held    map[string]uint64 // keys passed on, with a hash of their values
	fresh   *snapshot         // keys that the current server has sent before it is in sync; nil: it is in sync
	status  wire.Status       // as passed on last
}

// snapshot collects the keys of a server that is not yet in sync: the last value of each key, in the order of their first
// occurrence.
type snapshot struct {
	order []string
	kvs   map[string]wire.KV
}

// NewClient returns a client. With older it asks for the older dialect of policy keys, as a relay needs, and tries the
// newer one if a server refuses; otherwise it asks for the newer one only. Follow reports problems of cfg.
func NewClient(cfg Config, syncer wire.SyncerType, older bool) *Client {
	cfg.defaults()
	return &Client{
		cfg: cfg, syncer: syncer, either: older, modern: !older, log: cfg.Logger.With("keys-of", string(syncer)),
		seed: maphash.MakeSeed(), held: map[string]uint64{},
	}
}

// Follow connects, and connects again whenever a connection breaks, until ctx ends. It returns ctx's error, or that of
// Validate. publish gets what differs from before: the whole snapshot once the first server is in sync, and each change after
// that. Of a later server's snapshot it gets only new values, and deletes of keys that the server does not have. Its status
// is the server's, but never leaves in-sync: a lost server withdraws nothing. lost gets the error while no server is
// connected, and nil once one is in sync. Follow's goroutine calls both.
func (c *Client) Follow(ctx context.Context, publish func(wire.Batch), lost func(error)) error {
	if err := c.cfg.Validate(); err != nil {
		return err
	}
	c.publish = publish
	pause := c.cfg.PauseFrom
	for {
		synced, err := c.round(ctx, lost)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		lost(err)
		if synced {
			pause = c.cfg.PauseFrom
		}
		wait := pause/2 + rand.N(pause) // half to one and a half pauses: a thousand clients must not reconnect at once
		c.log.Warn("no connection", "err", err, "again-in", wait.Round(time.Millisecond))
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
		pause = backoff.Range{Min: c.cfg.PauseFrom, Max: c.cfg.PauseTo}.Next(pause)
	}
}

// round tries every server once. It follows the first one that answers, until the connection ends. synced reports whether
// that server was in sync.
func (c *Client) round(ctx context.Context, lost func(error)) (synced bool, err error) {
	servers, err := c.cfg.servers(ctx)
	if err != nil {
		return false, err
	}
	var errs []error
	for _, addr := range servers {
		s, hello, err := open(ctx, &c.cfg, addr, c.syncer, c.modern)
		if err != nil {
			if c.either && errors.Is(err, errNoHello) {
				c.modern = !c.modern
			}
			if ctx.Err() != nil {
				return false, ctx.Err()
			}
			errs = append(errs, err)
			continue
		}
		c.log.Info("connected", "server", addr, "version", hello.Version)
		c.fresh = &snapshot{kvs: map[string]wire.KV{}}
		err = s.followStream(ctx, c.handleKVs, func(st wire.Status) {
			if c.handleStatus(st) {
				synced = true
				lost(nil)
			}
		})
		c.fresh = nil
		return synced, fmt.Errorf("connection to %s: %w", addr, err)
	}
	return false, errors.Join(errs...)
}

// handleKVs handles changes: it collects them until the server is in sync, and passes them on at once after that.
func (c *Client) handleKVs(list []wire.KV) {
	if c.fresh == nil {
		c.passOn(list)
		return
	}
	for _, kv := range list {
		if _, known := c.fresh.kvs[kv.Key]; !known {
			c.fresh.order = append(c.fresh.order, kv.Key)
		}
		c.fresh.kvs[kv.Key] = kv
	}
}

// handleStatus handles a status, and reports whether the status completes a snapshot.
func (c *Client) handleStatus(st wire.Status) (complete bool) {
	if st == wire.InSync && c.fresh != nil {
		list := c.compareSnapshot()
		c.fresh = nil
		c.status = wire.InSync
		c.passOnSnapshot(list)
		return true
	}
	if st > c.status { // never lower: keys that were passed on hold until they change
		c.status = st
		c.publish(wire.Batch{Syncer: c.syncer, Status: st})
	}
	return false
}

// compareSnapshot returns the changes from the held keys to the snapshot.
func (c *Client) compareSnapshot() []wire.KV {
	list := make([]wire.KV, 0, len(c.fresh.order))
	for _, key := range c.fresh.order {
		list = append(list, c.fresh.kvs[key])
	}
	for key := range c.held {
		if _, there := c.fresh.kvs[key]; !there {
			list = append(list, wire.KV{Key: key, UpdateType: wire.Deleted})
		}
	}
	return list
}

// passOn passes on the changes that differ from what is held.
func (c *Client) passOn(list []wire.KV) {
	if list = c.differing(list); len(list) > 0 {
		c.publish(wire.Batch{Syncer: c.syncer, Status: c.status, KVs: list})
	}
}

// passOnSnapshot passes on a snapshot's changes with the status in-sync, even if there are none.
func (c *Client) passOnSnapshot(list []wire.KV) {
	c.publish(wire.Batch{Syncer: c.syncer, Status: c.status, KVs: c.differing(list)})
}

func (c *Client) differing(list []wire.KV) []wire.KV {
	return slices.DeleteFunc(slices.Clone(list), func(kv wire.KV) bool {
		before, known := c.held[kv.Key]
		if kv.Deleted() {
			delete(c.held, kv.Key)
			return !known
		}
		sum := maphash.Bytes(c.seed, kv.Value)
		c.held[kv.Key] = sum
		return known && sum == before
	})
}
