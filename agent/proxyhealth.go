package agent

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/httpserver"
	"github.com/contiv-agent/contiv-agent/model"
)

const (
	// stuckAfter is how long a change may wait until VPP has it before a node is called unwell: kube-proxy's time, twice its
	// sync period (v1.36).
	stuckAfter = time.Minute
	// reopenAfter is how long a port that is taken is left alone: kube-proxy may have it, until it goes.
	reopenAfter = 5 * time.Second
)

// proxyHealth answers /healthz and /livez as kube-proxy does (pkg/proxy/healthcheck, v1.36): cloud providers' load balancers ask
// there whether a node is to have connections at all.
//
// It is told of what happens, and asks nobody: a loop that hangs cannot keep it from saying so. Its methods do nothing where there
// is none.
type proxyHealth struct {
	node          string
	families      []string
	now           func() time.Time
	reopen        time.Duration
	healthz, live *prometheus.CounterVec // answers, by status code

	mu             sync.Mutex // the loop and those who bring it changes tell, servers read
	updated        time.Time  // when VPP had all it was asked for; zero: it never had
	queued         time.Time  // since when it lacks something; zero: it has all
	brought, taken int        // changes put into the loop's queue, and those the loop has taken
	connected      bool
	failed         bool   // the last transaction was lost, or there was none since VPP was
	known          bool   // the Node is there,
	leaving        bool   // and about to go
	closed         string // why the port is not open; "": it is, or nobody has tried
}

// proxyHealthBody is what is answered, in kube-proxy's order.
type proxyHealthBody struct {
	LastUpdated  time.Time                    `json:"lastUpdated"` // now, while it is well
	CurrentTime  time.Time                    `json:"currentTime"`
	NodeEligible *bool                        `json:"nodeEligible,omitempty"` // of /healthz alone
	Healthy      bool                         `json:"healthy"`
	Status       map[string]familyHealthState `json:"status,omitempty"`
}

type familyHealthState struct {
	LastUpdated time.Time `json:"lastUpdated"`
	Healthy     bool      `json:"healthy"`
}

// proxyHealth is what /healthz is answered from; nil: nobody asks.
func (p *parts) proxyHealth() *proxyHealth {
	if p.cfg.Healthz == "" {
		return nil
	}
	m := p.metrics.proxy
	return &proxyHealth{node: p.cfg.NodeName, families: m.families, now: time.Now, reopen: reopenAfter, failed: true, healthz: m.healthz, live: m.livez}
}

// watched is emit, which puts events into the loop's queue, but h sees them before.
func (h *proxyHealth) watched(emit func(event.Event)) func(event.Event) {
	if h == nil {
		return emit
	}
	return func(ev event.Event) {
		if u, ok := ev.(*event.Update); ok {
			h.bring(u.Changes)
		}
		emit(ev)
	}
}

// bring notes changes that are about to be put into the loop's queue.
func (h *proxyHealth) bring(changes []event.Change) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, ch := range changes {
		h.look(ch)
		h.lacks()
	}
	h.brought += len(changes)
}

// took notes that the loop has taken a change.
func (h *proxyHealth) took() {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.taken++
}

// vpp notes that VPP is there, or gone, and with it what it had.
func (h *proxyHealth) vpp(connected bool) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.connected = connected; !connected {
		h.failed = true
		h.lacks()
	}
}

// look notes what a change says of this node. One that cannot be read says nothing.
func (h *proxyHealth) look(ch event.Change) {
	if ch.Ref.Kind != model.KindNode || ch.Ref.Name != h.node || ch.Err != nil {
		return
	}
	n, ok := ch.Object.(*model.Node)
	h.known, h.leaving = ok, ok && n.Leaving
}

func (h *proxyHealth) lacks() {
	if h.queued.IsZero() {
		h.queued = h.now()
	}
}

// committed notes the end of a transaction. One that was lost is repeated until it is not.
func (h *proxyHealth) committed(ev *event.Committed) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failed = ev.Err != nil; h.failed {
		h.lacks()
	}
}

// idle is called when the loop has nothing to ask of VPP; started reports whether it ever had. Changes it has not taken yet may be
// those it will hang at.
func (h *proxyHealth) idle(started bool) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if started && h.connected && !h.failed && h.brought == h.taken {
		h.queued, h.updated = time.Time{}, h.now()
	}
}

// body is what is to be said, apart from the node.
func (h *proxyHealth) body() (b proxyHealthBody, eligible bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.now()
	b = proxyHealthBody{LastUpdated: h.updated, CurrentTime: now, Healthy: true, Status: map[string]familyHealthState{}}
	if h.updated.IsZero() { // starting up is not being stuck
		return b, false
	}
	b.Healthy = h.queued.IsZero() || now.Sub(h.queued) < stuckAfter
	for _, family := range h.families {
		b.Status[family] = familyHealthState{h.updated, b.Healthy}
	}
	return b, h.known && !h.leaving
}

// handler answers /healthz and /livez.
func (h *proxyHealth) handler() http.Handler {
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, b proxyHealthBody, well bool, count *prometheus.CounterVec) {
		code, text := http.StatusServiceUnavailable, "503"
		if well {
			code, text, b.LastUpdated = http.StatusOK, "200", b.CurrentTime
		}
		count.WithLabelValues(text).Inc()
		w.Header().Set("X-Content-Type-Options", "nosniff")
		httpserver.JSON(w, code, b)
	}
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) {
		b, eligible := h.body()
		b.NodeEligible = &eligible
		answer(w, b, b.Healthy && eligible, h.healthz)
	})
	mux.HandleFunc("/livez", func(w http.ResponseWriter, _ *http.Request) {
		b, _ := h.body()
		answer(w, b, b.Healthy, h.live)
	})
	return mux
}

// serve answers at an address until ctx ends. One that is taken is tried again: where kube-proxy goes, the agent takes over.
func (h *proxyHealth) serve(ctx context.Context, address string, log *slog.Logger) {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
		if h.opened(err) && ctx.Err() == nil {
			log.Warn("healthz is not answered yet", "address", address, "err", err)
		}
		if err == nil {
			err = httpserver.HTTP(ctx, l, h.handler(), log)
			if h.opened(err) && ctx.Err() == nil {
				log.Warn("healthz was interrupted", "address", address, "err", err)
			}
		}
		pause.Reset(h.reopen)
	}
}

// opened notes whether the port is open, and reports whether that it is not is news.
func (h *proxyHealth) opened(err error) (news bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	was := h.closed
	h.closed = text(err)
	return h.closed != "" && h.closed != was
}

// problem is why the port is not open; "": it is.
func (h *proxyHealth) problem() string {
	if h == nil {
		return ""
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.closed
}
