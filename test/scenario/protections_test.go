package scenario

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/plugins/lossguard"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/trace"
	"github.com/contiv-agent/contiv-agent/vppagent/quarantine"
)

// protections are the guard against the removal of many objects, and the quarantine. The agents of a story share them: the guard stands between the
// story's changes and all agents.
type protections struct {
	guard  *lossguard.Guard
	send   func(event.Event) // to the guard
	failed error             // of what the guard passed since the last request
	ward   *quarantine.Ward
	now    time.Time
}

// newProtections makes what the settings ask for, and that is not made yet.
func (s *story) newProtections() {
	clock := func() time.Time { return s.now }
	if s.now.IsZero() {
		s.now = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	if s.settings.quarantine && s.ward == nil {
		s.ward = quarantine.New(quarantine.Config{Now: clock})
	}
	if l := s.settings.removals; l.Share > 0 && s.guard == nil {
		s.guard = lossguard.New(lossguard.Config{Limits: l, Now: clock})
		s.send = s.guard.Watch(func(ev event.Event) {
			if u, ok := ev.(*event.Update); ok {
				s.failed = errors.Join(s.failed, s.world().Apply(background(), u.Changes))
			}
		})
		s.send(&event.SyncStatus{Source: guarded, Status: event.InSync})
	}
}

// guarded is the name of the objects' source for the guard.
const guarded = "manifest"

// config returns the configuration of the agents.
func (s *story) config(journals string) trace.Config {
	cfg := s.settings.config(journals)
	cfg.Agent.VPPAgent.Quarantine = s.ward
	return cfg
}

// change sends changes to the agents; what the guard holds follows later.
func (s *story) change(changes []event.Change) error {
	if s.guard == nil {
		return s.world().Apply(background(), changes)
	}
	s.failed = nil
	s.send(&event.Update{Source: guarded, Changes: changes})
	return s.failed
}

// advanceGuard lets time pass for the guard: an update without changes makes it look at the time.
func (s *story) advanceGuard(d time.Duration) error {
	if s.now = s.now.Add(d); s.guard == nil {
		return nil
	}
	return s.change(nil)
}

// cmdHeld prints what the guard holds.
func (s *story) cmdHeld(ts *testscript.TestScript, args []string) error {
	if len(args) > 0 || s.guard == nil {
		return fmt.Errorf("want no arguments, and a guard: agent hold-removals=50")
	}
	out := ts.Stdout() // empties what the last command printed
	for _, h := range s.guard.Held() {
		fmt.Fprintln(out, h)
	}
	return nil
}

// cmdRelease does what contiv-agent release does.
func (s *story) cmdRelease(ts *testscript.TestScript, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("want no arguments")
	}
	s.failed = nil
	out := ts.Stdout()
	for _, line := range append(s.guard.ReleaseAll(), s.ward.ReleaseAll()...) {
		fmt.Fprintln(out, "released: "+line)
	}
	return s.failed
}

// cmdLethal makes a VPP end whenever it gets a request whose text has these words.
func (s *story) cmdLethal(_ *testscript.TestScript, args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("want NODE [TEXT]")
	}
	v, err := s.vpp(args[0])
	if err != nil {
		return err
	}
	v.After(nil)
	if text := strings.Join(args[1:], " "); text != "" {
		v.After(func(r sim.Record) {
			if strings.Contains(r.Text, text) {
				v.Restart()
			}
		})
	}
	return nil
}
