package controller

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/nat"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
)

// follower records the connections that end.
type follower struct {
	stepper
	ending    func() (now, late []netip.Addr)
	now, late []netip.Addr // at the last Flush
}

func (f *follower) Behind(p dataplane.Progress) (between bool) {
	f.ending = p.Ending
	return false
}

func (f *follower) Flush() error {
	f.now, f.late = f.ending()
	return f.stepper.Flush()
}

// port is the external port of a mapping as an address.
func port(n uint16) netip.Addr { return netip.AddrFrom4([4]byte{0, 0, byte(n >> 8), byte(n)}) }

// moved ends the connections to the former port of a mapping.
func moved(was, now proto.Message, _ func(string) proto.Message) []netip.Addr {
	a, is := was.(*nat.DNat44)
	b, _ := now.(*nat.DNat44)
	if !is || b != nil && b.StMappings[0].ExternalPort == a.StMappings[0].ExternalPort {
		return nil
	}
	return []netip.Addr{port(uint16(a.StMappings[0].ExternalPort))}
}

// TestOvertakerLearnsWhatEnds: an Overtaker learns which connections end with the next transaction, and which end with values that VPP lacks. It need not wait
// longer than maxHeld for a value that VPP refuses.
func TestOvertakerLearnsWhatEnds(t *testing.T) {
	r := newRecorder()
	f := &follower{stepper: stepper{values: NewValues()}} // its own output does not matter
	c := New(Config{Sources: []string{"test"}}, r.values, r, f)
	r.values.EndsBy(moved)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	c.Step(&event.Tick{Now: now})
	c.Step(&event.VPPStatus{Connected: true})
	c.Step(done(c.Step(inSync("test"))))
	check := func(what string, ends, late []netip.Addr) {
		t.Helper()
		if !slices.Equal(f.now, ends) || !slices.Equal(f.late, late) {
			t.Errorf("%s: now %v, late %v, want %v and %v", what, f.now, f.late, ends, late)
		}
	}
	txn := c.Step(update("web", 1))
	check("a new mapping", nil, nil)
	c.Step(done(txn))
	txn = c.Step(update("web", 2))
	check("it moves", []netip.Addr{port(1)}, nil)
	key := kv.Key(dnat("default/web", 2))
	c.Step(divided(txn, key))
	txn = c.Step(update("other", 9))
	check("VPP lacks it", nil, []netip.Addr{port(1)})
	c.Step(divided(txn, key))
	c.Step(update("web", 3))
	check("it moves again, when VPP has the former move", []netip.Addr{port(2)}, []netip.Addr{port(1)})
	txn = c.Step(&event.Committed{})
	check("VPP has the former move", []netip.Addr{port(2)}, nil)

	refused := done(txn)
	refused.Statuses = []event.ValueStatus{{Key: key, State: event.Retrying}}
	c.Step(refused)
	txn = c.Step(update("other", 10))
	check("VPP refuses it", []netip.Addr{port(9)}, []netip.Addr{port(2)})
	c.Step(done(txn))
	c.Step(&event.Tick{Now: now.Add(maxHeld - time.Second)})
	txn = c.Step(update("other", 11))
	check("before the bound", []netip.Addr{port(10)}, []netip.Addr{port(2)})
	c.Step(done(txn))
	c.Step(&event.Tick{Now: now.Add(maxHeld)})
	txn = c.Step(update("other", 12))
	check("at the bound", []netip.Addr{port(11)}, nil)
	c.Step(done(txn))
	c.Step(remove("other"))
	check("a mapping ends", []netip.Addr{port(12)}, nil)
}
