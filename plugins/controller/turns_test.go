package controller

import (
	"fmt"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
)

func changeOf(ns string, i int) event.Change {
	ref := model.Ref{Kind: "NetworkPolicy", Namespace: ns, Name: fmt.Sprint("p", i)}
	return event.Change{Ref: ref}
}

// turnsOf are turns with a clock, and the clock.
func turnsOf() (*fair, *time.Time) {
	now := time.Unix(1e6, 0)
	return &fair{turns: turns{clock: func() time.Time { return now }}}, &now
}

// turn is a turn that takes so long.
func (f *fair) turn(now *time.Time, took time.Duration) {
	f.turns.begins()
	*now = now.Add(took)
	f.load.learn(false)
	f.turns.rendered()
	f.turns.ends(0)
	f.beginShares()
}

// TestLongTurnRests: a namespace whose turn took long waits three times as long, if another one has changes, and the other does not wait.
func TestLongTurnRests(t *testing.T) {
	f, now := turnsOf()
	f.admit([]event.Change{changeOf("victim", 0)})
	f.turn(now, time.Millisecond)
	f.admit([]event.Change{changeOf("evil", 0)})
	f.turn(now, 100*time.Millisecond)
	for _, after := range []time.Duration{0, 299 * time.Millisecond} {
		*now = time.Unix(1e6, 0).Add(101*time.Millisecond + after)
		if got := f.admit([]event.Change{changeOf("evil", 1), changeOf("victim", 1)}); len(got) != 1 || got[0].Ref.Namespace != "victim" {
			t.Errorf("after %s: %v", after, got)
		}
		f.turn(now, 0)
		if f.releaseChanges(); !f.waits() {
			t.Errorf("after %s: the lane of evil is due", after)
		}
	}
	*now = now.Add(2 * time.Millisecond)
	if f.waits() {
		t.Error("evil rests for more than 300 ms")
	}
	if got := f.releaseChanges(); len(got) != 1 || got[0].Ref.Namespace != "evil" {
		t.Errorf("released %v", got)
	}
}

// TestLonelyNamespaceDoesNotRest: nobody rests while no other namespace has had changes for two seconds.
func TestLonelyNamespaceDoesNotRest(t *testing.T) {
	f, now := turnsOf()
	f.admit([]event.Change{changeOf("victim", 0)})
	f.turn(now, time.Millisecond)
	*now = now.Add(activeFor)
	for i := range 3 {
		if got := f.admit([]event.Change{changeOf("evil", i)}); len(got) != 1 {
			t.Errorf("change %d waits", i)
		}
		f.turn(now, time.Second)
	}
}

// TestTurnCountsByCost: who has a small part of a turn rests for a small part of its time, and nobody for more than a second.
func TestTurnCountsByCost(t *testing.T) {
	f, now := turnsOf()
	for i := range 30 {
		f.admit([]event.Change{changeOf("evil", i)})
	}
	f.admit([]event.Change{changeOf("victim", 0)})
	f.turn(now, 3100*time.Millisecond)
	if rest := f.turns.until["victim"].Sub(*now); rest != 300*time.Millisecond {
		t.Errorf("the victim rests %s", rest)
	}
	if rest := f.turns.until["evil"].Sub(*now); rest != maxRest {
		t.Errorf("evil rests %s", rest)
	}
}
