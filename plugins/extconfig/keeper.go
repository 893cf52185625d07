package extconfig

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
)

// Config configures a Keeper.
type Config struct {
	Name   string       // name of the source; must not be empty
	File   string       // Bolt file with the clients' values; "": values do not survive the process
	Logger *slog.Logger // nil: silent
	// Open opens File; nil: OpenStore.
	Open func(file string) (Storage, error)
}

// Storage stores the clients' values. *Store implements it and documents the methods.
type Storage interface {
	Load() (wants map[string]kv.Values, unread []error, err error)
	LoadTerms() (map[string]map[string]Terms, error)
	Save(client string, changes map[string]proto.Message, terms map[string]Terms) error
	Close() error
}

// Keeper carries out the clients' requests and stores their values. For the controller each client is a separate source,
// Name/client, and the client without a name is Name. It is safe for concurrent use: requests of one client run one after the other,
// those of several clients at once.
type Keeper struct {
	cfg   Config
	ready chan struct{} // closed when Run has sent the controller the content of the file
	ended chan struct{} // closed when Run takes no more requests

	mu      sync.Mutex
	clients map[string]*client
	stopped bool
	jobs    sync.WaitGroup

	ctx   context.Context // context of Run
	emit  func(event.Event)
	store Storage // nil: none
}

// client is the state of one client. The holder of turn may use wants.
type client struct {
	turn  chan struct{}
	wants kv.Values
	terms map[string]Terms // of the items that have some
}

// Terms are a client's additions to one of its items. The zero value has none.
type Terms struct {
	Merge  event.Merge       // how the item is merged over the values of others for its key
	Labels map[string]string // for the client's use; not to be modified
}

func (t Terms) zero() bool { return t.Merge.Zero() && len(t.Labels) == 0 }

// NewKeeper returns a keeper; it does nothing before Run.
func NewKeeper(cfg Config) *Keeper {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Open == nil {
		cfg.Open = func(file string) (Storage, error) { return OpenStore(file) }
	}
	return &Keeper{cfg: cfg, ready: make(chan struct{}), ended: make(chan struct{}), clients: map[string]*client{}}
}

// Run sends the controller the stored values of each client, in the order of names with the unnamed client last. Then it serves
// Apply until ctx ends. A Keeper runs once.
func (k *Keeper) Run(ctx context.Context, emit func(event.Event)) error {
	defer k.waitForRequests()
	if k.cfg.File != "" {
		store, err := k.cfg.Open(k.cfg.File)
		if err != nil {
			return err
		}
		k.store = store
		defer func() {
			k.waitForRequests()
			if err := store.Close(); err != nil {
				k.cfg.Logger.Error("store not closed", "err", err)
			}
		}()
		wants, unread, err := store.Load()
		if err != nil {
			return err
		}
		for _, err := range unread {
			k.cfg.Logger.Warn("left out", "file", k.cfg.File, "err", err)
		}
		terms, err := store.LoadTerms()
		if err != nil {
			return err
		}
		for name, values := range wants {
			c := k.client(name)
			c.wants = values
			for key, t := range terms[name] {
				c.agree(key, values[key], t)
			}
		}
	}
	k.ctx, k.emit = ctx, emit
	names := slices.Sorted(maps.Keys(k.clients))
	names = append(slices.DeleteFunc(names, func(n string) bool { return n == "" }), "")
	for _, name := range names {
		c := k.client(name)
		ev := event.ExternalConfigResync(k.source(name), maps.Clone(c.wants))
		ev.Merge = merges(c.terms)
		emit(ev)
	}
	if store, ok := k.store.(interface{ Remark() string }); ok && store.Remark() != "" {
		k.cfg.Logger.Error("store", "err", store.Remark())
		emit(&event.SyncStatus{Source: k.cfg.Name, Status: event.InSync, Note: store.Remark()})
	}
	close(k.ready)
	<-ctx.Done()
	return ctx.Err()
}

// waitForRequests waits for the requests in progress and refuses further ones.
func (k *Keeper) waitForRequests() {
	k.mu.Lock()
	if !k.stopped {
		k.stopped = true
		close(k.ended)
	}
	k.mu.Unlock()
	k.jobs.Wait()
}

// source returns the controller's name for a client.
func (k *Keeper) source(client string) string {
	if client == "" {
		return k.cfg.Name
	}
	return k.cfg.Name + "/" + client
}

func (k *Keeper) client(name string) *client {
	k.mu.Lock()
	defer k.mu.Unlock()
	c := k.clients[name]
	if c == nil {
		c = &client{turn: make(chan struct{}, 1), wants: kv.Values{}, terms: map[string]Terms{}}
		k.clients[name] = c
	}
	return c
}

// agree records the terms of an item; nil: the item was removed.
func (c *client) agree(key string, item proto.Message, t Terms) {
	if item == nil || t.zero() {
		delete(c.terms, key)
	} else {
		c.terms[key] = t
	}
}

// merges returns the merge terms that differ from plain proto.Merge; nil: none.
func merges(terms map[string]Terms) map[string]event.Merge {
	var out map[string]event.Merge
	for key, t := range terms {
		if t.Merge.Zero() {
			continue
		}
		if out == nil {
			out = map[string]event.Merge{}
		}
		out[key] = t.Merge
	}
	return out
}

// Wants returns the values of a client, by key, and their terms, after its requests in progress have ended.
func (k *Keeper) Wants(ctx context.Context, name string) (kv.Values, map[string]Terms, error) {
	select {
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	case <-k.ended:
		return nil, nil, fmt.Errorf("%w: the agent is stopping", ErrUnavailable)
	case <-k.ready:
	}
	k.mu.Lock()
	c := k.clients[name]
	k.mu.Unlock()
	if c == nil {
		return kv.Values{}, map[string]Terms{}, nil
	}
	select {
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	case c.turn <- struct{}{}:
	}
	defer func() { <-c.turn }()
	return maps.Clone(c.wants), maps.Clone(c.terms), nil
}

// Apply validates the request, has it carried out, stores it, and returns when all of that is done. The error is one of these: an
// *InvalidError if nothing changed; a *TransactionError if items failed; one that wraps ErrUnavailable if VPP is away (the request
// is stored and carried out later, unless it is all or nothing) or the agent is stopping; or ctx's error, and then the request
// continues nevertheless.
func (k *Keeper) Apply(ctx context.Context, req Request) (*Outcome, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-k.ended:
		return nil, fmt.Errorf("%w: the agent is stopping", ErrUnavailable)
	case <-k.ready:
	}
	values, err := valid(req)
	if err != nil {
		return nil, err
	}
	c := k.client(req.Client)
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case c.turn <- struct{}{}:
	}
	type end struct {
		out *Outcome
		err error
	}
	ended := make(chan end, 1)
	if !k.start(func() {
		defer func() { <-c.turn }()
		out, err := k.carryOut(c, req, values)
		ended <- end{out, err}
	}) {
		<-c.turn
		return nil, fmt.Errorf("%w: the agent is stopping", ErrUnavailable)
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case e := <-ended:
		return e.out, e.err
	}
}

func (k *Keeper) start(job func()) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.stopped {
		return false
	}
	k.jobs.Go(job)
	return true
}

// carryOut carries out a request: it applies the items, rolls back those that must not stay, and stores the rest.
func (k *Keeper) carryOut(c *client, req Request, values map[string]proto.Message) (*Outcome, error) {
	changes := values
	if req.Op == Resync {
		changes = maps.Clone(values)
		for key := range c.wants {
			if _, stays := values[key]; !stays {
				changes[key] = nil
			}
		}
	}
	source := k.source(req.Client)
	ev := event.ExternalConfigChange(source, changes)
	ev.Merge = merges(req.Terms)
	result, err := event.Await(k.ctx, k.emit, ev)
	if err == nil && result.Seq == 0 {
		err = result.Err
	}
	if err != nil { // nothing changed, or the caller is gone
		if errors.Is(err, kv.ErrKeyMismatch) || errors.Is(err, kv.ErrNoModel) || errors.Is(err, kv.ErrKeyTooLong) {
			return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
		}
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	failed := &TransactionError{}
	stay := maps.Clone(changes)
	for _, st := range result.Bad() {
		never := st.State == event.Invalid && changes[st.Key] != nil
		if result.Err != nil && st.State != event.Invalid {
			continue // VPP was away, so it did not refuse the item
		}
		failed.Keys = append(failed.Keys, KeyError{Op: operation(c.wants[st.Key], changes[st.Key]), Status: st, TakenBack: never || req.AllOrNothing})
		if never {
			delete(stay, st.Key)
		}
	}
	if failed.Reverted = req.AllOrNothing && (len(failed.Keys) > 0 || result.Err != nil); failed.Reverted {
		clear(stay)
	}
	if err := k.takeBack(source, c, changes, stay); err != nil {
		return nil, err
	}
	out := outcome(result, c.wants, changes)
	if err := k.storeChanges(source, c, req, stay); err != nil {
		return nil, err
	}
	if err = nil; len(failed.Keys) > 0 {
		err = failed
	}
	if result.Err != nil {
		err = errors.Join(err, fmt.Errorf("%w: %w", ErrUnavailable, result.Err))
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

// takeBack restores the earlier values of all changes that do not stay, and waits for the result.
func (k *Keeper) takeBack(source string, c *client, changes, stay map[string]proto.Message) error {
	back := map[string]proto.Message{}
	for key := range changes {
		if _, stays := stay[key]; !stays {
			back[key] = c.wants[key]
		}
	}
	if len(back) == 0 {
		return nil
	}
	ev := event.ExternalConfigChange(source, back)
	ev.Merge = merges(c.terms)
	if _, err := event.Await(k.ctx, k.emit, ev); err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return nil
}

// storeChanges stores the changes, in the file first. If the file cannot be written, it rolls the changes back.
func (k *Keeper) storeChanges(source string, c *client, req Request, stay map[string]proto.Message) error {
	if k.store != nil && len(stay) > 0 {
		if err := k.store.Save(req.Client, stay, req.Terms); err != nil {
			return errors.Join(err, k.takeBack(source, c, stay, nil))
		}
	}
	for key, msg := range stay {
		c.agree(key, msg, req.Terms[key])
		if msg == nil {
			delete(c.wants, key)
		} else {
			c.wants[key] = msg
		}
	}
	return nil
}
