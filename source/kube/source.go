package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
)

// Name is what this source calls itself in events.
const Name = "kube"

// Config says which API server to follow, and as whom.
type Config struct {
	Kubeconfig string // file; "": $KUBECONFIG, ~/.kube/config, or the pod's service account, whichever is there first
	Context    string // context of the kubeconfig; "": its current one
	// Server overrides the API server's address (https://host:port). An agent that programs the cluster IP of the API
	// server should not depend on it: give the real address here.
	Server string
	Client kubernetes.Interface // used instead of all of the above if not nil
	Batch  time.Duration        // how long changes are collected before they are emitted together; 0: 5 ms
	Logger *slog.Logger         // nil: silent. Refused objects are not logged here: they travel as changes.
}

// Validate reports everything wrong with the configuration.
func (c *Config) Validate() error {
	var errs []error
	if c.Batch < 0 {
		errs = append(errs, errors.New("kube: batch must not be negative"))
	}
	if c.Client != nil && (c.Kubeconfig != "" || c.Context != "" || c.Server != "") {
		errs = append(errs, errors.New("kube: a client and a way to make one are both given"))
	}
	if u, err := url.Parse(c.Server); c.Server != "" && (err != nil || u.Host == "") {
		errs = append(errs, fmt.Errorf("kube: server %q: must be https://host:port", c.Server))
	}
	return errors.Join(errs...)
}

// client is the client the configuration describes. Objects travel as protobuf where they can: a third of the work.
func (c *Config) client() (kubernetes.Interface, error) {
	if c.Client != nil {
		return c.Client, nil
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = c.Kubeconfig
	overrides := &clientcmd.ConfigOverrides{CurrentContext: c.Context}
	overrides.ClusterInfo.Server = c.Server
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("kube: %w", err)
	}
	if c.Server != "" {
		cfg.Host = c.Server // also when the rest comes from a service account
	}
	cfg = rest.AddUserAgent(cfg, "contiv-agent")
	cfg.AcceptContentTypes, cfg.ContentType = "application/vnd.kubernetes.protobuf,application/json", "application/vnd.kubernetes.protobuf"
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("kube: %w", err)
	}
	return client, nil
}

// Source follows an API server. Create with New, start with Run; a Source runs once.
type Source struct {
	cfg    Config
	log    *slog.Logger
	emit   func(event.Event)
	in     chan message
	status event.Sync
	said   string           // the last sync status, in words
	faults map[string]error // what is wrong, by resource
	done   map[string]chan struct{}
	batch  batch
	first  time.Time // when the oldest change of batch came
}

// message is what informers tell the loop: one step of one object, or the result of one request.
type message struct {
	resource      *resource
	before, after *item
	request       bool
	err           error
}

// New makes a source; what is wrong with cfg is told by Run.
func New(cfg Config) *Source {
	if cfg.Batch == 0 {
		cfg.Batch = 5 * time.Millisecond
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Source{
		cfg: cfg, log: cfg.Logger.With("source", Name), in: make(chan message),
		faults: map[string]error{}, done: map[string]chan struct{}{},
	}
}

// Run follows the API server until ctx is done, and returns its error; a configuration that gives no client is the only
// other reason to return. It emits the sync states wait-for-ready, resync when the first object arrives, one update with
// everything, in-sync; then updates as they come. An API server that cannot be reached, or answers with an error, is told
// by a sync status that carries the error and leaves the state as it is; another one without error follows when all is
// well again. emit is only ever called from the goroutine of Run.
func (s *Source) Run(ctx context.Context, emit func(event.Event)) error {
	if err := s.cfg.Validate(); err != nil {
		return err
	}
	client, err := s.cfg.client()
	if err != nil {
		return err
	}
	s.emit = emit
	s.tell()

	running, stop := context.WithCancel(logr.NewContextWithSlogLogger(ctx, s.log))
	var informers sync.WaitGroup
	defer informers.Wait()
	defer stop()
	var synced []cache.DoneChecker
	all := resources(client)
	for i := range all {
		r := &all[i]
		inf := r.informer(client, func(err error) {
			s.send(running, message{resource: r, request: true, err: err})
		})
		handler, err := inf.AddEventHandler(s.handler(running, r))
		if err != nil {
			return fmt.Errorf("kube: follow %s: %w", r.name, err)
		}
		s.done[r.name] = make(chan struct{})
		synced = append(synced, handler.HasSyncedChecker())
		informers.Go(func() { inf.RunWithContext(running) })
	}
	ready := make(chan struct{})
	informers.Go(func() { waitFor(running, all, synced, s.done, ready) })
	return s.loop(ctx, ready)
}

// waitFor closes ready when every resource has delivered its first list, or is done without.
func waitFor(ctx context.Context, all []resource, synced []cache.DoneChecker, without map[string]chan struct{}, ready chan<- struct{}) {
	for i, c := range synced {
		select {
		case <-c.Done():
		case <-without[all[i].name]:
		case <-ctx.Done():
			return
		}
	}
	close(ready)
}

// handler passes the steps of one informer to the loop. It compares first: most steps of Nodes and Pods mean nothing.
func (s *Source) handler(ctx context.Context, r *resource) cache.ResourceEventHandler {
	pass := func(before, after any) {
		b, _ := before.(*item)
		a, _ := after.(*item)
		if !same(b, a) {
			s.send(ctx, message{resource: r, before: b, after: a})
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { pass(nil, o) },
		UpdateFunc: pass,
		DeleteFunc: func(o any) {
			if t, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = t.Obj // the last version known; the deletion itself was missed
			}
			pass(o, nil)
		},
	}
}

func (s *Source) send(ctx context.Context, m message) {
	select {
	case s.in <- m:
	case <-ctx.Done():
	}
}

// loop owns all state of the source.
func (s *Source) loop(ctx context.Context, ready <-chan struct{}) error {
	flush := time.NewTimer(time.Hour)
	flush.Stop()
	armed := false
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case m := <-s.in:
			if m.request {
				s.heard(m)
			} else {
				s.took(m)
			}
			if s.status == event.InSync && !armed {
				flush.Reset(s.cfg.Batch)
				armed = true
			}
			if s.status != event.InSync {
				s.tell()
			}
		case <-ready:
			ready = nil
			s.status = event.ResyncInProgress
			s.tell()
			s.publish()
			s.status = event.InSync
			s.tell()
		case <-flush.C:
			armed = false
			s.publish()
			s.tell()
		}
	}
}

// took notes a step of an object.
func (s *Source) took(m message) {
	var ref model.Ref
	if m.after != nil {
		ref = m.after.ref
	} else {
		ref = m.before.ref
	}
	if s.first.IsZero() {
		s.first = time.Now()
	}
	s.batch.add(ref, m.before, m.after)
	s.status = max(s.status, event.ResyncInProgress)
}

// heard notes how a request went.
func (s *Source) heard(m message) {
	name := m.resource.name
	switch {
	case m.err == nil:
		delete(s.faults, name)
	case m.resource.optional && (apierrors.IsNotFound(m.err) || apierrors.IsForbidden(m.err)):
		delete(s.faults, name)
		select {
		case <-s.done[name]:
		default:
			s.log.Warn("going on without "+name, "err", m.err)
			close(s.done[name])
		}
	case errors.Is(m.err, context.Canceled) || apierrors.IsResourceExpired(m.err) || apierrors.IsGone(m.err):
		// Not a fault: the end, or a request to list again.
	case streamingRefused(m.err):
		// An older API server; the informer falls back to lists.
	default:
		s.faults[name] = m.err
	}
}

// streamingRefused tells an API server that cannot stream lists from one that fails.
func streamingRefused(err error) bool {
	return apierrors.IsInvalid(err) && strings.Contains(err.Error(), "sendInitialEvents")
}

// fault joins what is wrong; resources with the same trouble share a line.
func (s *Source) fault() error {
	if len(s.faults) == 0 {
		return nil
	}
	byText := map[string][]string{}
	for _, name := range slices.Sorted(maps.Keys(s.faults)) {
		err := s.faults[name]
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err // the same for every address
		}
		byText[err.Error()] = append(byText[err.Error()], name)
	}
	var parts []string
	for _, text := range slices.Sorted(maps.Keys(byText)) {
		parts = append(parts, strings.Join(byText[text], ", ")+": "+text)
	}
	return errors.New("API server: " + strings.Join(parts, "; "))
}

// tell emits the sync status if it is not what was said last.
func (s *Source) tell() {
	err := s.fault()
	if text := fmt.Sprint(s.status, err); text != s.said {
		s.said = text
		s.emit(&event.SyncStatus{Source: Name, Status: s.status, Err: err})
	}
}

// publish emits what the batch holds.
func (s *Source) publish() {
	at := s.first
	s.first = time.Time{}
	if changes := s.batch.take(); len(changes) > 0 {
		s.emit(&event.Update{Source: Name, Changes: changes, At: at})
	}
}
