package control

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/agent/status"
	"github.com/contiv-agent/contiv-agent/httpserver"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/plugins/policy"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

// Each call of the commands reaches its function of the agent, with its arguments; errors keep their text.
func TestBothEnds(t *testing.T) {
	var level slog.LevelVar
	busy := errors.New("the loop is busy")
	web, lost := model.PodID{Namespace: "prod", Name: "web"}, model.PodID{Namespace: "prod", Name: "a b"}
	var sessions []bool
	s := &Server{
		Status:  func(context.Context) (*status.Status, error) { return &status.Status{Node: "node-1"}, nil },
		History: func() []status.Transaction { return []status.Transaction{{Seq: 7}} },
		Policy: func(_ context.Context, pod model.PodID) (*policy.Description, error) {
			switch pod {
			case web:
				return &policy.Description{Endpoint: "prod/web"}, nil
			case lost:
				return nil, nil
			}
			return nil, busy
		},
		Plan: func(_ context.Context, s bool) (*vppagent.Plan, error) {
			sessions = append(sessions, s)
			return &vppagent.Plan{}, nil
		},
		LogLevel: &level, Logger: slog.New(slog.DiscardHandler),
	}
	at := filepath.Join(t.TempDir(), "s")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	l, err := httpserver.Unix(ctx, at)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = httpserver.HTTP(ctx, l, s.Handler(), s.Logger) }()
	for _, history := range []bool{false, true} {
		if st, err := FetchStatus(ctx, at, history); err != nil || st.Node != "node-1" || (len(st.History) == 1) != history {
			t.Errorf("status %+v, %v", st, err)
		}
	}
	if d, err := FetchPolicy(ctx, at, web); err != nil || d.Endpoint != "prod/web" {
		t.Errorf("policy %+v, %v", d, err)
	}
	if _, err := FetchPolicy(ctx, at, lost); err == nil || !strings.Contains(err.Error(), "pod prod/a b has no endpoint on this node") {
		t.Error(err)
	}
	if _, err := FetchPolicy(ctx, at, model.PodID{Namespace: "x", Name: "y"}); err == nil || !strings.Contains(err.Error(), busy.Error()) {
		t.Error(err)
	}
	for _, s := range []bool{true, false} {
		if _, err := FetchPlan(ctx, at, s); err != nil {
			t.Error(err)
		}
	}
	if len(sessions) != 2 || !sessions[0] || sessions[1] {
		t.Errorf("plans with sessions %v", sessions)
	}
	if err := SetLogLevel(ctx, at, "debug"); err != nil || level.Level() != slog.LevelDebug {
		t.Errorf("%v %v", level.Level(), err)
	}
}
