package kube

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/event"
)

const tiers = "tiers.crd.projectcalico.org"

func newSecretive(t *testing.T, secret string) *apiServer {
	s := newAPIServer(t)
	s.serve(calicoCRD, "NetworkPolicy", "Tier")
	s.put(
		custom(calicoCRD, "NetworkPolicy", "prod", "web", map[string]any{"selector": "all()", "order": 1.5}),
		custom(calicoCRD, "Tier", "", "sec", map[string]any{"order": int64(7)}),
	)
	s.secret = secret
	return s
}

// Without the right to read a policy kind the source is not in sync, because it cannot know what is denied. It syncs once
// it has the right.
func TestForbiddenPolicyKindBlocksSync(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ secret, why string }{
		{tiers, "no right to list tiers in API group crd.projectcalico.org, which may deny traffic"},
		{calicoCRD, "discovery: forbidden: ask somebody else"},
	} {
		t.Run(c.secret, func(t *testing.T) {
			t.Parallel()
			s := newSecretive(t, c.secret)
			f := followAll(t, s)
			f.expect("wait-for-ready")
			f.awaitFault(c.why)
			s.set(func(s *apiServer) { s.secret = "" })
			f.awaitSync("+CalicoNetworkPolicy prod/web +Tier sec")
		})
	}
}

// After a right is revoked the source keeps its state, and the sync status carries the error.
func TestRevokedRightKeepsState(t *testing.T) {
	t.Parallel()
	s := newSecretive(t, "")
	f := followAll(t, s)
	f.expect("wait-for-ready", "resync", "+CalicoNetworkPolicy prod/web +Tier sec", "in-sync")
	s.set(func(s *apiServer) { s.secret = tiers })
	s.drop()
	f.expectFault("in-sync", "in API group crd.projectcalico.org, which may deny traffic")
}

// The source never reads an ignored kind, with or without the right to. It logs that once and notes it in every sync
// status.
func TestIgnoredKindIsNotRead(t *testing.T) {
	t.Parallel()
	for _, secret := range []string{"", tiers} {
		s := newSecretive(t, secret)
		var log bytes.Buffer
		s.set(func(s *apiServer) { s.asked = nil })
		cfg := Config{
			Client: s.client(t), Dynamic: s.dynamic(t), Discover: 20 * time.Millisecond, IgnorePolicyKinds: []string{tiers},
			Logger: slog.New(slog.NewTextHandler(&log, nil)),
		}
		if err := cfg.Validate(); err != nil {
			t.Error(err)
		}
		f := followWith(t, cfg)
		f.expect("wait-for-ready", "resync", "+CalicoNetworkPolicy prod/web", "in-sync")
		f.stop()
		s.set(func(s *apiServer) {
			for _, q := range s.asked {
				if strings.HasPrefix(q, "tiers") {
					t.Errorf("asked for %s", q)
				}
			}
		})
		if n := strings.Count(log.String(), tiers); n != 1 {
			t.Errorf("said %d times in the log: %s", n, &log)
		}
	}
	src := New(Config{IgnorePolicyKinds: []string{tiers}})
	src.emit = func(ev event.Event) {
		if st, ok := ev.(*event.SyncStatus); !ok || !strings.Contains(st.Note, tiers) {
			t.Errorf("the status does not say so: %+v", ev)
		}
	}
	src.emitStatus()
}

// Validate rejects kinds that the source does not read.
func TestValidateRejectsUnknownIgnoredKinds(t *testing.T) {
	for kind, good := range map[string]bool{
		tiers: true, "adminnetworkpolicies.policy.networking.k8s.io": true, "globalnetworkpolicies.projectcalico.org": true,
		"networkpolicies.networking.k8s.io": false, "Tier": false, ".projectcalico.org": false, "": false,
	} {
		cfg := Config{IgnorePolicyKinds: []string{kind}}
		if err := cfg.Validate(); (err == nil) != good {
			t.Errorf("%q: %v", kind, err)
		}
	}
}

// awaitFault waits for a status that is not in sync and whose error contains why.
func (f *follower) awaitFault(why string) {
	f.t.Helper()
	for deadline := time.After(20 * time.Second); ; {
		select {
		case got := <-f.events:
			if !strings.HasPrefix(got, "wait-for-ready") && !strings.HasPrefix(got, "resync") {
				f.t.Fatalf("event %q while a right is missing", got)
			}
			if strings.Contains(got, why) {
				return
			}
		case <-deadline:
			f.t.Fatalf("no status says %q", why)
		}
	}
}

// awaitSync waits for an update and the status after it.
func (f *follower) awaitSync(update string) {
	f.t.Helper()
	told := false
	for deadline := time.After(60 * time.Second); ; {
		select {
		case got := <-f.events:
			told = told || got == update
			if strings.HasPrefix(got, "in-sync") {
				if !told {
					f.t.Errorf("in sync without %q", update)
				}
				return
			}
		case <-deadline:
			f.t.Fatal("not in sync")
		}
	}
}
