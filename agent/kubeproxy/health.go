// Package kubeproxy has what other programs expect of a kube-proxy: its health endpoint and its metrics, under its names.
//
// Invariant: names, labels, buckets and answers equal those of kube-proxy v1.36. Health answers while the agent's loop hangs.
package kubeproxy

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
	// stuckAfter is how long VPP may lack a change before the node is unhealthy: kube-proxy's time, twice its sync period
	// (v1.36).
	stuckAfter = time.Minute
	// reopenAfter is the pause between attempts to open an occupied port: kube-proxy may have it, until it ends.
	reopenAfter = 5 * time.Second
)

// Health serves /healthz and /livez as kube-proxy does (pkg/proxy/healthcheck, v1.36): cloud providers' load balancers
// use them to decide whether a node gets connections.
//
// It receives events and calls nothing: it also answers while the loop hangs. Its methods do nothing on nil.
type Health struct {
	node    string
	metrics *Metrics // its families, and the numbers of answers
	now     func() time.Time
	reopen  time.Duration

	mu             sync.Mutex // the loop and the sources write, servers read
	updated        time.Time  // when VPP last had the desired state; zero: never
	queued         time.Time  // since when VPP lacks a change; zero: it has all
	brought, taken int        // changes put into the loop's queue, and changes that the loop has processed
	connected      bool
	failed         bool   // the last transaction was lost, or none has run since VPP connected
	known          bool   // the Node exists,
	leaving        bool   // and is being removed
	closed         string // why the port is not open; "": open, or not tried yet
}

// Answer is the body of an answer, in kube-proxy's order.
type Answer struct {
	LastUpdated  time.Time              `json:"lastUpdated"` // now, while healthy
	CurrentTime  time.Time              `json:"currentTime"`
	NodeEligible *bool                  `json:"nodeEligible,omitempty"` // only in /healthz
	Healthy      bool                   `json:"healthy"`
	Status       map[string]FamilyState `json:"status,omitempty"`
}

// FamilyState is the state of one family of addresses.
type FamilyState struct {
	LastUpdated time.Time `json:"lastUpdated"`
	Healthy     bool      `json:"healthy"`
}

// NewHealth returns the health of a node. The metrics count its answers.
func NewHealth(node string, m *Metrics) *Health {
	return &Health{node: node, metrics: m, now: time.Now, reopen: reopenAfter, failed: true}
}

// Watch wraps emit, which puts events into the loop's queue; h sees the events first.
func (h *Health) Watch(emit func(event.Event)) func(event.Event) {
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

// bring records changes that are about to enter the loop's queue.
func (h *Health) bring(changes []event.Change) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, ch := range changes {
		h.lookAtNode(ch)
		h.lacks()
	}
	h.brought += len(changes)
}

// Took records that the loop has processed a change.
func (h *Health) Took() {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.taken++
}

// VPP records that VPP is connected, or is gone with its state.
func (h *Health) VPP(connected bool) {
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

// lookAtNode records a change of this node's Node object. It ignores an object with an error.
func (h *Health) lookAtNode(ch event.Change) {
	if ch.Ref.Kind != model.KindNode || ch.Ref.Name != h.node || ch.Err != nil {
		return
	}
	n, ok := ch.Object.(*model.Node)
	h.known, h.leaving = ok, ok && n.Leaving
}

func (h *Health) lacks() {
	if h.queued.IsZero() {
		h.queued = h.now()
	}
}

// Committed records the end of a transaction. A lost transaction is repeated until it succeeds.
func (h *Health) Committed(ev *event.Committed) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failed = ev.Err != nil; h.failed {
		h.lacks()
	}
}

// Idle is called when the loop has no request for VPP; started reports whether it ever had. Changes that it has not
// processed yet still count: the loop may hang on them.
func (h *Health) Idle(started bool) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if started && h.connected && !h.failed && h.brought == h.taken {
		h.queued, h.updated = time.Time{}, h.now()
	}
}

// body returns the answer, apart from the node.
func (h *Health) body() (b Answer, eligible bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.now()
	b = Answer{LastUpdated: h.updated, CurrentTime: now, Healthy: true, Status: map[string]FamilyState{}}
	if h.updated.IsZero() { // a start is not a hang
		return b, false
	}
	b.Healthy = h.queued.IsZero() || now.Sub(h.queued) < stuckAfter
	for _, family := range h.metrics.families {
		b.Status[family] = FamilyState{h.updated, b.Healthy}
	}
	return b, h.known && !h.leaving
}

// handler serves /healthz and /livez.
func (h *Health) handler() http.Handler {
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, b Answer, well bool, count *prometheus.CounterVec) {
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
		answer(w, b, b.Healthy && eligible, h.metrics.healthz)
	})
	mux.HandleFunc("/livez", func(w http.ResponseWriter, _ *http.Request) {
		b, _ := h.body()
		answer(w, b, b.Healthy, h.metrics.livez)
	})
	return mux
}

// Serve listens at an address until ctx ends. It retries an occupied address: when kube-proxy ends, the agent takes over.
func (h *Health) Serve(ctx context.Context, address string, log *slog.Logger) {
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
			log.Warn("healthz is not served yet", "address", address, "err", err)
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

// opened records whether the port is open, and reports whether its error is new.
func (h *Health) opened(err error) (news bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	was := h.closed
	if h.closed = ""; err != nil {
		h.closed = err.Error()
	}
	return h.closed != "" && h.closed != was
}

// Problem returns why the port is not open; "": it is open.
func (h *Health) Problem() string {
	if h == nil {
		return ""
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.closed
}
