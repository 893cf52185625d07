package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/source/kube/api"
)

// Name is the name of this source in events.
const Name = "kube"

// Config names the API server to follow and the credentials to use.
type Config struct {
	Kubeconfig string // file; "": the first that exists of $KUBECONFIG, ~/.kube/config and the pod's service account
	Context    string // context of the kubeconfig; "": its current one
	// Server overrides the API server's address (https://host:port). An agent that programs the API server's cluster IP
	// should not depend on that IP: give the real address here.
	Server string
	// Dial connects to the API server, or to a proxy before it; nil: to the address as it is.
	Dial   func(ctx context.Context, network, address string) (net.Conn, error)
	Client api.Client // if not nil, used instead of the fields above
	// Dynamic reads kinds that Client has no types for. If it is nil and Client is not, the source does not follow such
	// kinds.
	Dynamic dynamic.Interface
	// Discover is the shortest time between two discoveries of the kinds that the API server serves; 0: 10 s. The longest,
	// while nothing changes, is 30 times that.
	Discover time.Duration
	// IgnorePolicyKinds lists policy kinds that the source does not read even if the API server serves them, as
	// resource.group: "tiers.crd.projectcalico.org". The agent then does not enforce what they deny. The source must read
	// every other policy kind that is served: without the right to, it is not in sync.
	IgnorePolicyKinds []string
	// Keys makes the source also write every object as Calico's datastore stores it (event.Change.Keys). The source then
	// reads all Services and EndpointSlices, not only proxied ones, and Calico's address pools, address blocks and BGP
	// kinds.
	Keys bool
	// Identities makes the source keep the identities of objects that reports may name (Source.Identity).
	Identities bool
	Batch      time.Duration // how long changes are collected into one update; 0: 5 ms
	Logger     *slog.Logger  // nil: silent. The source does not log refused objects: changes carry their errors.
}

// Validate returns all problems of the configuration.
func (c *Config) Validate() error {
	var errs []error
	if c.Batch < 0 || c.Discover < 0 {
		errs = append(errs, errors.New("kube: batch and discover must not be negative"))
	}
	if c.Client == nil && c.Dynamic != nil {
		errs = append(errs, errors.New("kube: Dynamic is set, but Client is not: set both or none"))
	}
	if c.Client != nil && (c.Kubeconfig != "" || c.Context != "" || c.Server != "") {
		errs = append(errs, errors.New("kube: Client is set: Kubeconfig, Context and Server must be empty"))
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

// ignoredText names the ignored policy kinds; "" if there are none.
func (c *Config) ignoredText() string {
	if len(c.IgnorePolicyKinds) == 0 {
		return ""
	}
	return "policy kinds ignored by configuration, what they deny is not enforced: " + strings.Join(c.IgnorePolicyKinds, ", ")
}

// Clients returns the clients that the configuration describes: for Kubernetes' own groups, and for custom resources.
func (c *Config) Clients() (api.Client, dynamic.Interface, error) {
	if c.Client != nil {
		return c.Client, c.Dynamic, nil
	}
	cfg, err := c.rest()
	if err != nil {
		return nil, nil, fmt.Errorf("kube: %w", err)
	}
	cfg = rest.AddUserAgent(cfg, "contiv-agent")
	cfg.Dial = c.Dial
	untyped, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return nil, nil, fmt.Errorf("kube: %w", err)
	}
	client, err := api.New(cfg)
	if err != nil {
		return nil, nil, fmt.Errorf("kube: %w", err)
	}
	return client, untyped, nil
}

// rest returns client-go's configuration of the connection.
func (c *Config) rest() (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = c.Kubeconfig
	return atServer(c.Server, func(server string) (*rest.Config, error) {
		overrides := &clientcmd.ConfigOverrides{CurrentContext: c.Context}
		overrides.ClusterInfo.Server = server
		return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides).ClientConfig()
	})
}

// atServer loads a configuration and changes its server; "": no change. Client-go takes a server that is given to it for a complete configuration, and
// reads no service account then: neither the authority of its certificate nor a token. So only a configuration that is empty otherwise is loaded with it.
func atServer(server string, load func(server string) (*rest.Config, error)) (*rest.Config, error) {
	cfg, err := load("")
	if server == "" {
		return cfg, err
	}
	if clientcmd.IsEmptyConfig(err) {
		return load(server)
	}
	if err == nil {
		cfg.Host = server
	}
	return cfg, err
}

// Addr returns the API server's address if the configuration names it by IP address. Otherwise, and if the configuration
// cannot be read, it is zero.
func (c *Config) Addr() netip.Addr {
	a, _ := netip.ParseAddr(c.url().Hostname()) // zero if it is a host name
	return a.Unmap()
}

// HostPort returns the API server's host and port, as "192.0.2.1:6443"; "" if the configuration cannot be read.
func (c *Config) HostPort() string {
	u := c.url()
	switch {
	case u.Hostname() == "":
		return ""
	case u.Port() == "":
		return net.JoinHostPort(u.Hostname(), "443")
	}
	return u.Host
}

// url is the API server's; empty if the configuration cannot be read.
func (c *Config) url() *url.URL {
	if cfg, err := c.rest(); err == nil {
		if u, err := url.Parse(cfg.Host); err == nil {
			return u
		}
	}
	return &url.URL{}
}

// Source follows an API server. Create with New, start with Run; a Source runs once.
type Source struct {
	cfg     Config
	log     *slog.Logger
	emit    func(event.Event)
	in      chan message
	status  event.Sync
	emitted string           // the last emitted sync status, as text
	faults  map[string]error // current errors, by resource
	batch   batch
	known   identities
	gate    *gate
	first   time.Time // when the oldest change of batch arrived
}

// message is what informers send to the loop: one change of one object, or the result of one request.
type message struct {
	resource      *resource
	before, after *item
	request       bool
	err           error
}

// New returns a source. Run reports problems of cfg.
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

// Run follows the API server until ctx is done, and returns ctx's error. An invalid configuration is the only other reason
// to return. Run emits the sync states wait-for-ready, resync when the first object arrives, one update with everything,
// and in-sync; then updates as changes arrive. If the API server is unreachable or answers with an error, Run emits a sync
// status with that error and keeps the state; a status without error follows after recovery. Only the goroutine of Run
// calls emit.
func (s *Source) Run(ctx context.Context, emit func(event.Event)) error {
	if err := s.cfg.Validate(); err != nil {
		return err
	}
	client, untyped, err := s.cfg.Clients()
	if err != nil {
		return err
	}
	s.emit = emit
	if note := s.cfg.ignoredText(); note != "" {
		s.log.Warn(note)
	}
	s.emitStatus()

	running, stop := context.WithCancel(logr.NewContextWithSlogLogger(ctx, s.log))
	var informers sync.WaitGroup
	defer informers.Wait()
	defer stop()
	var first []*following
	all := resources(client)
	for i := range all {
		f, err := s.startInformer(running, &all[i], client, func(error) {})
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
			o.runDiscovery(running, found, func(err error) { s.sendMessage(running, message{resource: looking, request: true, err: err}) })
		})
	}
	ready := make(chan struct{})
	informers.Go(func() { waitFor(running, first, found, ready) })
	return s.loop(ctx, ready)
}

// optional returns the follower of kinds that the API server may or may not serve.
func (s *Source) optional(client api.Client, untyped dynamic.Interface) *optional {
	return &optional{
		discovery: client, dynamic: untyped,
		groups: optionalGroups(), ignore: s.cfg.IgnorePolicyKinds, keys: s.cfg.Keys, least: s.cfg.Discover, missed: make(chan struct{}, 1), start: s.startInformer,
	}
}

// startInformer starts an informer. It sends the result of each request to the loop first, then to heard.
func (s *Source) startInformer(parent context.Context, r *resource, client any, heard func(error)) (*following, error) {
	ctx, stop := context.WithCancel(parent)
	r.without, r.identified = make(chan struct{}), s.cfg.Identities
	inf := r.informer(client, s.gate, s.cfg.Keys, func(verb string, err error) {
		if apierrors.IsForbidden(err) {
			err = &forbidden{verb, r, err}
		}
		s.sendMessage(ctx, message{resource: r, request: true, err: err})
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
		s.sendMessage(parent, message{resource: r, before: it})
	}
	f.lost = func() { s.sendMessage(parent, message{resource: r, request: true}) } // clears the resource's error
	f.done.Go(func() { inf.RunWithContext(ctx) })
	return f, nil
}

// waitFor closes ready when every resource has delivered its first list or is given up. It includes the resources of the
// first discovery.
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

// handler passes the changes of one informer to the loop. It first drops those that do not matter, as most changes of Nodes
// and Pods.
func (s *Source) handler(ctx context.Context, r *resource) cache.ResourceEventHandler {
	pass := func(before, after any) {
		b, _ := before.(*item)
		a, _ := after.(*item)
		s.known.step(r, b, a)
		if !sameItem(b, a) {
			s.sendMessage(ctx, message{resource: r, before: b, after: a})
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { pass(nil, o) },
		UpdateFunc: pass,
		DeleteFunc: func(o any) {
			if t, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = t.Obj // the last known version: the informer missed the deletion
			}
			pass(o, nil)
		},
	}
}

func (s *Source) sendMessage(ctx context.Context, m message) {
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
				s.recordResult(m)
			} else {
				s.addStep(m)
			}
			if s.status == event.InSync && !armed {
				flush.Reset(s.cfg.Batch)
				armed = true
			}
			if s.status != event.InSync {
				s.emitStatus()
			}
		case <-ready:
			ready = nil
			s.status = event.ResyncInProgress
			s.emitStatus()
			s.publishBatch()
			s.status = event.InSync
			s.emitStatus()
		case <-flush.C:
			armed = false
			s.publishBatch()
			s.emitStatus()
		}
	}
}

// addStep adds an object's change to the batch.
func (s *Source) addStep(m message) {
	var ref model.Ref
	if m.after != nil {
		ref = m.after.ref
	} else {
		ref = m.before.ref
	}
	if s.first.IsZero() {
		s.first = time.Now()
	}
	s.batch.addChange(ref, m.before, m.after)
	s.status = max(s.status, event.ResyncInProgress)
}

// recordResult records the result of a request.
func (s *Source) recordResult(m message) {
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
		// No fault: the source ends, or the API server requires a new list.
	case streamingRefused(m.err):
		// An older API server: the informer falls back to lists.
	default:
		s.faults[name] = m.err
	}
}

// forbidden is the error of a request that the source has no right to make.
type forbidden struct {
	verb     string
	resource *resource
	err      error
}

// Error names the missing right and then quotes the API server.
func (f *forbidden) Error() string {
	resource, group, custom := strings.Cut(f.resource.name, ".")
	text := "no right to " + f.verb + " " + resource
	if custom {
		text += " in API group " + group
	}
	if f.resource.optional && !f.resource.dispensable {
		text += ", which may deny traffic: grant the right, or ignore the kind (--ignore-policy-kinds)"
	}
	return fmt.Sprintf("%s (%v)", text, f.err)
}

func (f *forbidden) Unwrap() error { return f.err }

// streamingRefused reports whether err means that the API server cannot stream lists.
func streamingRefused(err error) bool {
	return apierrors.IsInvalid(err) && strings.Contains(err.Error(), "sendInitialEvents")
}

// fault joins the errors of all resources; resources with the same error share one entry.
func (s *Source) fault() error {
	if len(s.faults) == 0 {
		return nil
	}
	byText := map[string][]string{}
	for _, name := range slices.Sorted(maps.Keys(s.faults)) {
		err := s.faults[name]
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err // without the URL, which differs by resource
		}
		byText[err.Error()] = append(byText[err.Error()], name)
	}
	var parts []string
	for _, text := range slices.Sorted(maps.Keys(byText)) {
		parts = append(parts, strings.Join(byText[text], ", ")+": "+text)
	}
	return errors.New("API server: " + strings.Join(parts, "; "))
}

// emitStatus emits the sync status if it differs from the last one.
func (s *Source) emitStatus() {
	err := s.fault()
	if text := fmt.Sprint(s.status, err); text != s.emitted {
		s.emitted = text
		s.emit(&event.SyncStatus{Source: Name, Status: s.status, Err: err, Note: s.cfg.ignoredText()})
	}
}

// publishBatch emits the batch.
func (s *Source) publishBatch() {
	at := s.first
	s.first = time.Time{}
	if changes := s.batch.takeChanges(); len(changes) > 0 {
		s.emit(&event.Update{Source: Name, Changes: changes, At: at})
	}
}
