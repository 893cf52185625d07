package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
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
	// Dynamic reads what Client has no types for; nil beside a Client: such kinds are not followed.
	Dynamic dynamic.Interface
	// Discover is the shortest time between two looks for kinds the API server may come to serve, or cease to; 0: 10 s.
	// The longest, if nothing changes, is 30 times that.
	Discover time.Duration
	// IgnorePolicyKinds are kinds of policies that are left out though the API server may serve them, by resource and group:
	// "tiers.crd.projectcalico.org". What they deny is then not denied. Every other kind that is served has to be read: without
	// the right to, the source is not in sync.
	IgnorePolicyKinds []string
	// Keys makes the source write every object as Calico's datastore has it, too (event.Change.Keys). It then asks for all
	// Services and EndpointSlices, not only for those that are proxied, and for Calico's pools and blocks of addresses and what
	// BGP is made of.
	Keys bool
	// Identities makes the source remember who the objects are that may be written about (Identity).
	Identities bool
	Batch      time.Duration // how long changes are collected before they are emitted together; 0: 5 ms
	Logger     *slog.Logger  // nil: silent. Refused objects are not logged here: they travel as changes.
}

// Validate reports everything wrong with the configuration.
func (c *Config) Validate() error {
	var errs []error
	if c.Batch < 0 || c.Discover < 0 {
		errs = append(errs, errors.New("kube: batch and discover must not be negative"))
	}
	if c.Client == nil && c.Dynamic != nil {
		errs = append(errs, errors.New("kube: a dynamic client needs a client beside it"))
	}
	if c.Client != nil && (c.Kubeconfig != "" || c.Context != "" || c.Server != "") {
		errs = append(errs, errors.New("kube: a client and a way to make one are both given"))
	}
	if u, err := url.Parse(c.Server); c.Server != "" && (err != nil || u.Host == "") {
		errs = append(errs, fmt.Errorf("kube: server %q: must be https://host:port", c.Server))
	}
	for _, kind := range c.IgnorePolicyKinds {
		if resource, group, _ := strings.Cut(kind, "."); resource == "" || !slices.Contains(optionalGroupNames(), group) {
			errs = append(errs, fmt.Errorf("kube: policy kind %q: must be <resource>.<group>, the group one of %s", kind, strings.Join(optionalGroupNames(), ", ")))
		}
	}
	return errors.Join(errs...)
}

// note says what is left out.
func (c *Config) note() string {
	if len(c.IgnorePolicyKinds) == 0 {
		return ""
	}
	return "left out, whatever they deny: " + strings.Join(c.IgnorePolicyKinds, ", ")
}

// Clients makes the clients the configuration describes. Objects travel as protobuf where they can: a third of the work.
func (c *Config) Clients() (kubernetes.Interface, dynamic.Interface, error) {
	if c.Client != nil {
		return c.Client, c.Dynamic, nil
	}
	cfg, err := c.rest()
	if err != nil {
		return nil, nil, fmt.Errorf("kube: %w", err)
	}
	cfg = rest.AddUserAgent(cfg, "contiv-agent")
	untyped, err := dynamic.NewForConfig(rest.CopyConfig(cfg)) // before the next line: its kinds are JSON only
	if err != nil {
		return nil, nil, fmt.Errorf("kube: %w", err)
	}
	cfg.AcceptContentTypes, cfg.ContentType = "application/vnd.kubernetes.protobuf,application/json", "application/vnd.kubernetes.protobuf"
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, nil, fmt.Errorf("kube: %w", err)
	}
	return client, untyped, nil
}

// rest says how to reach the API server.
func (c *Config) rest() (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = c.Kubeconfig
	overrides := &clientcmd.ConfigOverrides{CurrentContext: c.Context}
	overrides.ClusterInfo.Server = c.Server
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides).ClientConfig()
	if err == nil && c.Server != "" {
		cfg.Host = c.Server // also when the rest comes from a service account
	}
	return cfg, err
}

// Addr is the address of the API server where the configuration names it by one; zero: it does not, or cannot be read.
func (c *Config) Addr() netip.Addr {
	cfg, err := c.rest()
	if err != nil {
		return netip.Addr{}
	}
	u, err := url.Parse(cfg.Host)
	if err != nil {
		return netip.Addr{}
	}
	a, _ := netip.ParseAddr(u.Hostname()) // zero if it is a name
	return a.Unmap()
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
	batch  batch
	known  identities
	gate   *gate
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
	if cfg.Discover == 0 {
		cfg.Discover = 10 * time.Second
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Source{
		cfg: cfg, log: cfg.Logger.With("source", Name), in: make(chan message), faults: map[string]error{}, gate: newGate(),
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
	client, untyped, err := s.cfg.Clients()
	if err != nil {
		return err
	}
	s.emit = emit
	if note := s.cfg.note(); note != "" {
		s.log.Warn(note)
	}
	s.tell()

	running, stop := context.WithCancel(logr.NewContextWithSlogLogger(ctx, s.log))
	var informers sync.WaitGroup
	defer informers.Wait()
	defer stop()
	var first []*following
	all := resources(client)
	for i := range all {
		f, err := s.follow(running, &all[i], client, func(error) {})
		if err != nil {
			return err
		}
		informers.Go(f.done.Wait)
		first = append(first, f)
	}
	found := make(chan []*following, 1)
	if untyped == nil {
		found <- nil
	} else {
		o := s.optional(client, untyped)
		looking := &resource{name: lookingName}
		informers.Go(func() {
			o.run(running, found, func(err error) { s.send(running, message{resource: looking, request: true, err: err}) })
		})
	}
	ready := make(chan struct{})
	informers.Go(func() { waitFor(running, first, found, ready) })
	return s.loop(ctx, ready)
}

// optional makes what looks for kinds that may or may not be served.
func (s *Source) optional(client kubernetes.Interface, untyped dynamic.Interface) *optional {
	return &optional{
		discovery: discovery.ToServerResourcesInterfaceWithContext(client.Discovery()), dynamic: untyped,
		groups: optionalGroups(), ignore: s.cfg.IgnorePolicyKinds, keys: s.cfg.Keys, least: s.cfg.Discover, missed: make(chan struct{}, 1), start: s.follow,
	}
}

// follow starts an informer. heard is told the result of each of its requests, after the loop is.
func (s *Source) follow(parent context.Context, r *resource, client any, heard func(error)) (*following, error) {
	ctx, stop := context.WithCancel(parent)
	r.without, r.identified = make(chan struct{}), s.cfg.Identities
	inf := r.informer(client, s.gate, s.cfg.Keys, func(verb string, err error) {
		if apierrors.IsForbidden(err) {
			err = &forbidden{verb, r, err}
		}
		s.send(ctx, message{resource: r, request: true, err: err})
		heard(err)
	})
	handler, err := inf.AddEventHandler(s.handler(ctx, r))
	if err != nil {
		stop()
		return nil, fmt.Errorf("kube: follow %s: %w", r.name, err)
	}
	f := &following{informer: inf, synced: handler.HasSyncedChecker(), without: r.without, stop: stop}
	f.gone = func(it *item) {
		s.known.step(r, it, nil)
		s.send(parent, message{resource: r, before: it})
	}
	f.lost = func() { s.send(parent, message{resource: r, request: true}) } // no fault any more
	f.done.Go(func() { inf.RunWithContext(ctx) })
	return f, nil
}

// waitFor closes ready when every resource has delivered its first list, or is done without; those that have to be found
// first as well.
func waitFor(ctx context.Context, first []*following, found <-chan []*following, ready chan<- struct{}) {
	wait := func(list []*following) bool {
		for _, f := range list {
			select {
			case <-f.synced.Done():
			case <-f.without:
			case <-ctx.Done():
				return false
			}
		}
		return true
	}
	if !wait(first) {
		return
	}
	select {
	case more := <-found:
		if wait(more) {
			close(ready)
		}
	case <-ctx.Done():
	}
}

// handler passes the steps of one informer to the loop. It compares first: most steps of Nodes and Pods mean nothing.
func (s *Source) handler(ctx context.Context, r *resource) cache.ResourceEventHandler {
	pass := func(before, after any) {
		b, _ := before.(*item)
		a, _ := after.(*item)
		s.known.step(r, b, a)
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
	case m.resource.optional && apierrors.IsNotFound(m.err), m.resource.dispensable && apierrors.IsForbidden(m.err):
		delete(s.faults, name)
		select {
		case <-m.resource.without:
		default:
			s.log.Warn("going on without "+name, "err", m.err)
			close(m.resource.without)
		}
	case errors.Is(m.err, context.Canceled) || apierrors.IsResourceExpired(m.err) || apierrors.IsGone(m.err):
		// Not a fault: the end, or a request to list again.
	case streamingRefused(m.err):
		// An older API server; the informer falls back to lists.
	default:
		s.faults[name] = m.err
	}
}

// forbidden is a request there is no right to.
type forbidden struct {
	verb     string
	resource *resource
	err      error
}

// Error says what right is missing, whatever words the API server has for it.
func (f *forbidden) Error() string {
	resource, group, custom := strings.Cut(f.resource.name, ".")
	text := "no right to " + f.verb + " " + resource
	if custom {
		text += " in API group " + group
	}
	if f.resource.optional && !f.resource.dispensable {
		text += ", which may deny something: grant it, or leave the kind out knowingly"
	}
	return fmt.Sprintf("%s (%v)", text, f.err)
}

func (f *forbidden) Unwrap() error { return f.err }

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
		s.emit(&event.SyncStatus{Source: Name, Status: s.status, Err: err, Note: s.cfg.note()})
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
