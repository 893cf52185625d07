package kube

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/event"
)

// A snapshot has all objects, refused ones included, or an error that says why it is incomplete.
func TestSnapshot(t *testing.T) {
	t.Parallel()
	s := newSecretive(t, "")
	s.put(service("web", "10.96.0.1", 80), service("odd", "nonsense", 80), namespace("default"))
	cfg := Config{Client: s.client(t), Dynamic: s.dynamic(t)}
	changes, err := Snapshot(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	got := words(&event.Update{Changes: changes})
	for _, want := range []string{"+Service default/web", "!Service default/odd", "+Namespace default", "+CalicoNetworkPolicy prod/web", "+Tier sec"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in %s", want, got)
		}
	}
	s.set(func(s *apiServer) { s.secret = tiers })
	if changes, err := Snapshot(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "tiers in API group crd.projectcalico.org, which may deny traffic") || changes != nil {
		t.Errorf("without a right: %v, %v", changes, err)
	}
	s.set(func(s *apiServer) { s.down = true })
	if _, err := Snapshot(t.Context(), cfg); err == nil || errors.Is(err, context.Canceled) {
		t.Errorf("nobody there: %v", err)
	}
	if _, err := Snapshot(t.Context(), Config{Batch: -1}); err == nil {
		t.Error("a configuration that is none is taken")
	}
	ended, stop := context.WithCancel(t.Context())
	stop()
	if _, err := Snapshot(ended, cfg); !errors.Is(err, context.Canceled) {
		t.Errorf("asked to stop: %v", err)
	}
}
