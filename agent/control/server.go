// Package control is both ends of an agent's unix socket: the server that the agent runs, and the calls of the commands.
//
// Invariant: nothing here changes VPP by itself. A client that may open the socket may read everything, set the log level, release what the agent
// holds, capture packets of pods, see the headers of their packets, and let a pod send one packet.
package control

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	agentflows "github.com/contiv-agent/contiv-agent/agent/flows"
	"github.com/contiv-agent/contiv-agent/agent/live"
	"github.com/contiv-agent/contiv-agent/agent/status"
	"github.com/contiv-agent/contiv-agent/flows"
	"github.com/contiv-agent/contiv-agent/httpserver"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/plugins/policy"
	"github.com/contiv-agent/contiv-agent/verify"
	"github.com/contiv-agent/contiv-agent/vpp/capture"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

// queryLimit bounds how long an HTTP request may wait for the loop.
const queryLimit = 10 * time.Second

// Server answers the requests.
type Server struct {
	Status  func(context.Context) (*status.Status, error)
	History func() []status.Transaction // past transactions
	// Policy returns the policies of a pod of this node; nil: it has no endpoint here.
	Policy func(context.Context, model.PodID) (*policy.Description, error)
	// Plan returns the changes that a resync would make in VPP, with sessions also the NAT sessions that it would cut.
	Plan func(ctx context.Context, sessions bool) (*vppagent.Plan, error)
	// Verify returns the report of a proof that begins after the call.
	Verify func(context.Context) (*verify.Report, error)
	// Flows returns the flows that changed after a number and match a filter.
	Flows func(ctx context.Context, after uint64, filter *flows.Filter) (*agentflows.Answer, error)
	// AllFlows returns all flows that changed after a number.
	AllFlows func(ctx context.Context, after uint64) (*agentflows.Answer, error)
	// Objects returns the objects that the agent has; nil: it serves none.
	Objects  func(context.Context) (*Objects, error)
	LogLevel *slog.LevelVar // of Logger; nil: fixed
	// Capture returns a pcap file with the packets of a pod of this node. It ends early when stop is closed; when ctx ends, the packets are lost.
	Capture func(ctx context.Context, pod model.PodID, l capture.Limits, stop <-chan struct{}) ([]byte, error)
	// Trace returns the path of a real packet of a pod of this node through VPP.
	Trace func(context.Context, live.Question) (*live.Answer, error)
	// Release carries out what the agent holds, and returns what it was; nil: it holds nothing.
	Release  func() []string
	Registry prometheus.Gatherer // of the agent's metrics; nil: it has none
	// Journal writes the newest files of the flight recorder's journal, at most that many bytes of them, as a tar archive; nil: no journal is kept.
	Journal func(w io.Writer, most int64) error
	Logger  *slog.Logger
}

// Handler serves the agent's unix socket: GET /status is the status command's output, with past transactions if the query
// has history=true; GET /policy/<namespace>/<pod> has the policies of a pod of this node; GET /plan has the changes that a
// resync would make in VPP, with the sessions that it would cut if the query has sessions=true; GET /verify has the report of a proof; GET /flows has
// the flows that match verdict, from and to, and changed after the number after, or with all=true all flows after it; GET /objects has the objects that the agent has from its sources;
// GET /metrics has the metrics as text; GET /journal?most=<bytes> has the newest files of the flight recorder as a tar archive;
// POST /release carries out held removals; POST /capture/<namespace>/<pod> captures the packets of a pod, until DELETE /capture/<id> with its id at the
// latest; POST /trace/<namespace>/<pod> has the path of a packet from the pod to the query's to and protocol, which comes within its time, or with
// inject=true is sent as the pod, from the port sourcePort.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), queryLimit)
		defer cancel()
		st, err := s.Status(ctx)
		if err != nil {
			httpserver.JSON(w, http.StatusServiceUnavailable, map[string]string{"error": err.Error()})
			return
		}
		if r.URL.Query().Get("history") == "true" {
			st.History = s.History()
		}
		httpserver.JSON(w, http.StatusOK, st)
	})
	mux.HandleFunc("GET /policy/{namespace}/{pod}", s.servePolicy)
	mux.HandleFunc("GET /loglevel", s.serveLogLevel)
	mux.HandleFunc("PUT /loglevel", s.serveLogLevel)
	mux.HandleFunc("GET /plan", s.servePlan)
	mux.HandleFunc("GET /verify", s.serveVerify)
	mux.HandleFunc("GET /flows", s.serveFlows)
	mux.HandleFunc("GET /metrics", s.serveMetrics)
	mux.HandleFunc("GET /journal", s.serveJournal)
	reading := make(chan struct{}, mostReaders)
	mux.HandleFunc("GET /objects", func(w http.ResponseWriter, r *http.Request) { s.serveObjects(w, r, reading) })
	mux.HandleFunc("POST /release", s.serveRelease)
	mux.HandleFunc("POST /trace/{namespace}/{pod}", s.serveTrace)
	running := &captures{}
	mux.HandleFunc("POST /capture/{namespace}/{pod}", func(w http.ResponseWriter, r *http.Request) { s.serveCapture(w, r, running) })
	mux.HandleFunc("DELETE /capture/{id}", running.serveStop)
	return mux
}

func (s *Server) servePolicy(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), queryLimit)
	defer cancel()
	id := model.PodID{Namespace: r.PathValue("namespace"), Name: r.PathValue("pod")}
	switch d, err := s.Policy(ctx, id); {
	case err != nil:
		httpserver.JSON(w, http.StatusServiceUnavailable, map[string]string{"error": err.Error()})
	case d == nil:
		httpserver.JSON(w, http.StatusNotFound, map[string]string{"error": fmt.Sprintf("pod %s has no endpoint on this node", id)})
	default:
		httpserver.JSON(w, http.StatusOK, d)
	}
}

// driftLimit bounds the time of comparing a VPP with the desired state.
const driftLimit = time.Minute

// servePlan answers with the changes that a resync would make.
func (s *Server) servePlan(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), driftLimit)
	defer cancel()
	plan, err := s.Plan(ctx, r.URL.Query().Get("sessions") == "true")
	if err != nil {
		httpserver.JSON(w, http.StatusServiceUnavailable, map[string]string{"error": err.Error()})
		return
	}
	httpserver.JSON(w, http.StatusOK, plan)
}

// proofLimit bounds the time of a proof, with the rest of the one before and its repetitions.
const proofLimit = 5 * time.Minute

// serveVerify answers with the report of a proof.
func (s *Server) serveVerify(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), proofLimit)
	defer cancel()
	report, err := s.Verify(ctx)
	if err != nil {
		httpserver.JSON(w, http.StatusServiceUnavailable, map[string]string{"error": err.Error()})
		return
	}
	httpserver.JSON(w, http.StatusOK, report)
}
