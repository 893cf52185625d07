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

	"github.com/contiv-agent/contiv-agent/fanout/wire"
)

// Client follows one set of keys, from one server after another. Create with NewClient, start with Follow; it follows once.
type Client struct {
	cfg    Config
	syncer wire.SyncerType
	either bool // a server that hangs up on our hello is tried with the other dialect
	modern bool // the dialect our hello asks for
	log    *slog.Logger

	tell   func(wire.Batch)
	seed   maphash.Seed
	held   map[string]uint64 // keys handed on, with a sum of their values
	fresh  *snapshot         // what the present server has said before it is in sync; nil: it is
	status wire.Status       // as told last
}

// snapshot collects what a server says before it is in sync: the last word on each key, in the order of first mention.
type snapshot struct {
	order []string
	kvs   map[string]wire.KV
}

// NewClient makes a client. A relay wants the older dialect of policies' keys where it can have it: either is false for who
// understands both, and asks for the newer one. What is wrong with cfg is told by Follow.
func NewClient(cfg Config, syncer wire.SyncerType, older bool) *Client {
	cfg.defaults()
	return &Client{
		cfg: cfg, syncer: syncer, either: older, modern: !older, log: cfg.Logger.With("keys-of", string(syncer)),
		seed: maphash.MakeSeed(), held: map[string]uint64{},
	}
}

// Follow connects until ctx ends, and again whenever a connection breaks; it returns ctx's error, or that of Validate. tell
// gets what differs from before: everything there is, when a server is in sync for the first time, and changes from then on;
// of a later server's snapshot only what is not known yet, and deletes of what it does not have. Its status is that of the
// server, but once in sync we stay so: a lost server takes nothing back. lost hears why there is no connection, and nil when
// there is one that is in sync. Both are called from Follow's goroutine.
func (c *Client) Follow(ctx context.Context, tell func(wire.Batch), lost func(error)) error {
	if err := c.cfg.Validate(); err != nil {
		return err
	}
	c.tell = tell
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
		wait := pause/2 + rand.N(pause) // from half to three halves: a thousand clients must not come at once
		c.log.Warn("no connection", "err", err, "again-in", wait.Round(time.Millisecond))
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
		pause = min(2*pause, c.cfg.PauseTo)
	}
}

// round tries every server once, and follows the first that answers to its end. synced tells that one was in sync.
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
		err = s.follow(ctx, c.took, func(st wire.Status) {
			if c.heard(st) {
				synced = true
				lost(nil)
			}
		})
		c.fresh = nil
		return synced, fmt.Errorf("connection to %s: %w", addr, err)
	}
	return false, errors.Join(errs...)
}

// took notes changes: for later while the server is not in sync, to be handed on at once afterwards.
func (c *Client) took(list []wire.KV) {
	if c.fresh == nil {
		c.hand(list)
		return
	}
	for _, kv := range list {
		if _, known := c.fresh.kvs[kv.Key]; !known {
			c.fresh.order = append(c.fresh.order, kv.Key)
		}
		c.fresh.kvs[kv.Key] = kv
	}
}

// heard notes a status, and tells that it is the one that completes a snapshot.
func (c *Client) heard(st wire.Status) (complete bool) {
	if st == wire.InSync && c.fresh != nil {
		list := c.compare()
		c.fresh = nil
		c.status = wire.InSync
		c.handAll(list)
		return true
	}
	if st > c.status { // never back: what was handed on holds until something else is
		c.status = st
		c.tell(wire.Batch{Syncer: c.syncer, Status: st})
	}
	return false
}

// compare returns the steps from what is held to the snapshot.
func (c *Client) compare() []wire.KV {
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

// hand passes on what differs from what is held.
func (c *Client) hand(list []wire.KV) {
	if list = c.differing(list); len(list) > 0 {
		c.tell(wire.Batch{Syncer: c.syncer, Status: c.status, KVs: list})
	}
}

// handAll passes on a snapshot, and that we are in sync even if nothing differs.
func (c *Client) handAll(list []wire.KV) {
	c.tell(wire.Batch{Syncer: c.syncer, Status: c.status, KVs: c.differing(list)})
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
