// Package feed publishes keys and values of Calico's datastore to a fan-out server. The keys are made from objects, or are those of
// another fan-out server, or are read as lines.
//
// Invariant: the feed publishes a policy in every form that the server serves, whichever form the source has.
package feed

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/contiv-agent/contiv-agent/calico"
	"github.com/contiv-agent/contiv-agent/calico/datastore"
	"github.com/contiv-agent/contiv-agent/calico/datastore/encode"
	"github.com/contiv-agent/contiv-agent/calico/typha"
	"github.com/contiv-agent/contiv-agent/calico/wire"
	"github.com/contiv-agent/contiv-agent/event"
)

// Source delivers objects; source/manifest and source/kube implement it.
type Source interface {
	// Run emits updates and sync states until ctx ends.
	Run(ctx context.Context, emit func(event.Event)) error
}

// Feed has exactly one kind of source: objects, an upstream, or lines.
type Feed struct {
	// Objects are sources whose changes carry keys, by name.
	Objects map[string]Source
	// Upstream is another fan-out server, or a Typha; nil: none.
	Upstream *typha.Config
	// Lines are keys and values as JSON, read to their end; nil: none. See Feed.Run.
	Lines io.Reader

	// Syncers are the sets of keys to serve.
	Syncers []wire.SyncerType
	// Modern also serves policies of felix under the keys of Calico 3.32, as a separate form.
	Modern bool
	Logger *slog.Logger // nil: silent
}

// Run publishes the source's keys to the server until ctx ends. Exactly one kind of source must be set. Lines are
//
//	{"key":"/calico/v1/Ready","value":"true"}   the value as text, or as JSON itself; may have "syncer":"bgp", else felix, and
//	                                            "revision":"7"
//	{"key":"/calico/v1/Ready","deleted":true}
//	{"status":"in-sync"}                        of all sets, or of one "syncer"
//
// A line that cannot be parsed is an error; the end of the lines is not.
func (f *Feed) Run(ctx context.Context, publish func(wire.Batch)) error {
	if f.Logger == nil {
		f.Logger = slog.New(slog.DiscardHandler)
	}
	t := &forms{Feed: f, sink: publish, status: map[wire.SyncerType]wire.Status{}, tiered: map[string]string{}}
	switch {
	case f.Upstream != nil:
		return f.relay(ctx, t)
	case f.Lines != nil:
		ended := make(chan error, 1)
		go func() { ended <- t.lines(f.Lines) }() // a read that waits for input does not end with ctx: the goroutine stays
		select {
		case err := <-ended:
			if err != nil {
				return err
			}
			<-ctx.Done()
		case <-ctx.Done():
		}
		return ctx.Err()
	}
	return f.objects(ctx, t)
}

// relay follows each set of keys on a separate connection.
func (f *Feed) relay(ctx context.Context, t *forms) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, syncer := range f.Syncers {
		client := typha.NewClient(*f.Upstream, syncer, true)
		g.Go(func() error {
			return client.Follow(ctx, func(b wire.Batch) { t.publishSet(syncer, b.Status, b.KVs) }, func(err error) {
				if err != nil {
					f.Logger.Warn("upstream lost; serving its last state", "keys-of", syncer, "err", err)
				}
			})
		})
	}
	return g.Wait()
}

// objects merges the keys of all sources' objects.
func (f *Feed) objects(ctx context.Context, t *forms) error {
	o := &keyTable{forms: t, table: encode.NewTable(encode.Builtin()), sync: map[string]event.Sync{}}
	for name := range f.Objects {
		o.sync[name] = event.WaitForReady
	}
	o.publishKeys(encode.Builtin())
	g, ctx := errgroup.WithContext(ctx)
	for _, source := range f.Objects {
		g.Go(func() error { return source.Run(ctx, o.event) })
	}
	return g.Wait()
}

// keyTable turns events into steps of keys.
type keyTable struct {
	*forms
	mu    sync.Mutex // of the fields below: sources emit from their goroutines
	table *encode.Table
	sync  map[string]event.Sync
}

func (o *keyTable) event(ev event.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch ev := ev.(type) {
	case *event.Update:
		var steps []calico.KV
		for _, c := range ev.Changes {
			if c.Err != nil {
				o.Logger.Warn("object refused", "object", c.Ref, "err", c.Err, "from", c.Origin)
			}
			steps = append(steps, o.table.Apply(c.Ref, c.Keys)...)
		}
		o.publishKeys(steps)
	case *event.SyncStatus:
		if ev.Err != nil {
			o.Logger.Warn("source", "name", ev.Source, "status", ev.Status, "err", ev.Err)
		}
		o.sync[ev.Source] = max(o.sync[ev.Source], ev.Status) // the last status holds while the source is away
		o.publishKeys(nil)
	}
}

// publishKeys distributes changes to their sets.
func (o *keyTable) publishKeys(steps []calico.KV) {
	status := wire.InSync
	for _, st := range o.sync {
		status = min(status, wire.Status(st))
	}
	for _, syncer := range o.Syncers {
		var kvs []wire.KV
		for _, kv := range steps {
			if datastore.Of(string(syncer), kv.Key) {
				kvs = append(kvs, fromStore(kv))
			}
		}
		if known := o.status[syncer]; len(kvs) > 0 || known != status {
			o.publishSet(syncer, status, kvs)
		}
	}
}

// forms publishes each set to the server in all its forms.
type forms struct {
	*Feed
	sink func(wire.Batch)

	mu     sync.Mutex
	status map[wire.SyncerType]wire.Status // last published
	tiered map[string]string               // the older key of a policy that arrived under its newer one
}

// publishSet publishes changes of a set. Policies may have keys of either form.
func (t *forms) publishSet(syncer wire.SyncerType, status wire.Status, kvs []wire.KV) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.status[syncer] = status
	older, newer := wire.Batch{Syncer: syncer, Status: status}, wire.Batch{Syncer: syncer, Status: status, Modern: true}
	for _, kv := range kvs {
		older.KVs = append(older.KVs, t.older(kv)...)
		if t.Modern && syncer == wire.Felix {
			newer.KVs = append(newer.KVs, inForm(kv, datastore.Modern))
		}
	}
	t.sink(older)
	if t.Modern && syncer == wire.Felix {
		t.sink(newer)
	}
}

// older converts a change to the keys up to Calico 3.31. A policy that changes its tier becomes two changes: its old key is
// deleted.
func (t *forms) older(kv wire.KV) []wire.KV {
	key, err := datastore.ParseKey(kv.Key)
	if err != nil || key.Kind != datastore.KeyPolicy {
		return []wire.KV{kv}
	}
	before := t.tiered[kv.Key]
	now, ok := datastore.Tiered(toStore(kv))
	if !ok && !kv.Deleted() {
		t.Logger.Warn("policy cannot be parsed; it counts as deleted", "key", kv.Key)
	}
	var out []wire.KV
	if before != "" && (!ok || before != now.Key) {
		out = append(out, wire.KV{Key: before, Revision: kv.Revision})
		delete(t.tiered, kv.Key)
	}
	if ok {
		t.tiered[kv.Key] = now.Key
		out = append(out, inForm(kv, func(calico.KV) calico.KV { return now }))
	}
	return out
}

// inForm changes key and value of a KV and keeps the other fields.
func inForm(kv wire.KV, form func(calico.KV) calico.KV) wire.KV {
	to := form(toStore(kv))
	kv.Key, kv.Value = to.Key, to.Value
	return kv
}

func toStore(kv wire.KV) calico.KV {
	return calico.KV{Key: kv.Key, Value: kv.Value, Revision: kv.Revision, V3ResourceVersion: kv.V3ResourceVersion}
}

func fromStore(kv calico.KV) wire.KV {
	return wire.KV{Key: kv.Key, Value: kv.Value, Revision: kv.Revision, V3ResourceVersion: kv.V3ResourceVersion}
}

// lines reads keys and values to the end. It publishes them when no more input is available.
func (t *forms) lines(in io.Reader) error {
	r := bufio.NewReaderSize(in, 1<<20)
	pending := map[wire.SyncerType][]wire.KV{}
	status := map[wire.SyncerType]wire.Status{}
	for number := 1; ; number++ {
		text, err := r.ReadBytes('\n')
		if text = bytes.TrimSpace(text); len(text) > 0 {
			if lerr := t.line(text, pending, status); lerr != nil {
				return fmt.Errorf("line %d: %w", number, lerr)
			}
		}
		if err != nil || r.Buffered() == 0 {
			for syncer, kvs := range pending {
				t.publishSet(syncer, status[syncer], kvs)
			}
			clear(pending)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("line %d: %w", number, err)
		}
	}
}

func (t *forms) line(text []byte, pending map[wire.SyncerType][]wire.KV, status map[wire.SyncerType]wire.Status) error {
	var l struct {
		Key      string          `json:"key"`
		Value    json.RawMessage `json:"value"`
		Deleted  bool            `json:"deleted"`
		Revision string          `json:"revision"`
		Status   string          `json:"status"`
		Syncer   wire.SyncerType `json:"syncer"`
	}
	if err := json.Unmarshal(text, &l); err != nil {
		return err
	}
	switch {
	case l.Key != "" && l.Deleted != (len(l.Value) > 0):
		value := []byte(l.Value)
		if s := ""; json.Unmarshal(l.Value, &s) == nil {
			value = []byte(s)
		}
		if l.Syncer == "" {
			l.Syncer = wire.Felix
		}
		pending[l.Syncer] = append(pending[l.Syncer], wire.KV{Key: l.Key, Value: value, Revision: l.Revision})
		return nil
	case l.Status != "":
		for st := wire.WaitForDatastore; st <= wire.InSync; st++ {
			if st.String() != l.Status {
				continue
			}
			for _, syncer := range t.Syncers {
				if l.Syncer == "" || l.Syncer == syncer {
					status[syncer] = st
					pending[syncer] = append(pending[syncer], []wire.KV{}...)
				}
			}
			return nil
		}
	}
	return errors.New(`must have "key" and either "value" or "deleted":true, or "status": wait-for-ready, resync or in-sync`)
}
