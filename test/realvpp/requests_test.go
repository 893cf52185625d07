package realvpp

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// condition is what an EndpointSlice says of an endpoint.
type condition uint8

const (
	absent condition = iota
	ready
	draining // it terminates, and serves
	ending   // it terminates, and does not serve
	unready
)

// set are endpoints by number.
type set uint16

func (s set) has(i int) bool { return i >= 0 && s>>i&1 == 1 }
func (s set) with(i int) set { return s | 1<<i }

// usable are the endpoints that get new connections (KEP-1669): those that are ready; if none is, those that terminate and serve. With
// keep these are used beside ready ones, too.
func usable(conditions []condition, keep bool) set {
	var yes, maybe set
	for i, c := range conditions {
		switch c {
		case ready:
			yes = yes.with(i)
		case draining:
			maybe = maybe.with(i)
		}
	}
	if yes == 0 || keep {
		return yes | maybe
	}
	return yes
}

// leaving are the endpoints that terminate or are not ready.
func leaving(conditions []condition) (out set) {
	for i, c := range conditions {
		if c == draining || c == ending || c == unready {
			out = out.with(i)
		}
	}
	return out
}

// era begins with a change of endpoints.
type era struct {
	said, done time.Time // the change was made known, and VPP had acknowledged it
	usable     set       // who gets new connections from then on
	cut        set       // whose sessions VPP may end at the change
}

// history are eras, one after the other.
type history []era

// request is one connection of a client and what became of it.
type request struct {
	begun, met, over time.Time // dialled; the endpoint had said who it is; ended
	by               int       // who took the connection; nobody: none did
	err              error     // nil: everything asked for was answered
}

const nobody = -1

// judge says what is wrong with a request. Kubernetes says that it must be answered
//
//   - if it is to an endpoint that is usable for as long as the request takes, and
//   - by an endpoint that is usable at some moment between the first packet and the answer to it. Which endpoints are usable while a
//     change is on its way is open: those before it or those after it.
//
// Nat44's further effect is documented: it ends the connections to an endpoint that is neither usable nor terminating any more, also those that are being
// made and not yet accepted. Field cut has the endpoints whose connections end; with cnat it is empty, and then a request that was once taken must be
// answered whatever becomes of the endpoint.
func (h history) judge(r request) error {
	var may, cut set
	deserted := false
	for i, e := range h {
		last := i == len(h)-1
		if e.said.After(r.over) || !last && h[i+1].done.Before(r.begun) {
			continue // not in force at any moment of the request
		}
		deserted = deserted || e.usable == 0
		if r.met.IsZero() || !e.said.After(r.met) {
			may |= e.usable
		}
		if !e.done.Before(r.begun) {
			cut |= e.cut
		}
	}
	switch {
	case r.by != nobody && !may.has(r.by):
		return fmt.Errorf("endpoint %d took it, those usable were %b", r.by, may)
	case r.err == nil, r.by == nobody && (deserted || cut != 0), cut.has(r.by):
		return nil
	case r.by == nobody:
		return fmt.Errorf("nobody took it, of %b: %w", may, r.err)
	}
	return fmt.Errorf("endpoint %d took it and was usable, but: %w", r.by, r.err)
}

func TestUsableEndpoints(t *testing.T) {
	for _, k := range []struct {
		conditions   []condition
		remove, keep set
	}{
		{nil, 0, 0},
		{[]condition{ready, absent, ready}, 0b101, 0b101},
		{[]condition{ready, draining, ending, unready}, 0b1, 0b11},
		{[]condition{absent, draining, ending, unready}, 0b10, 0b10},
		{[]condition{ending, unready}, 0, 0},
	} {
		if r, p := usable(k.conditions, false), usable(k.conditions, true); r != k.remove || p != k.keep {
			t.Errorf("%v: %b, keeping %b; want %b and %b", k.conditions, r, p, k.remove, k.keep)
		}
	}
}

func TestJudgeRequests(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	// Endpoints 0 and 1; endpoint 0 is removed between 10 and 12, endpoint 1 between 20 and 22; between 30 and 32 both are added again.
	nat := history{
		{said: at(0), done: at(0), usable: 0b11},
		{said: at(10), done: at(12), usable: 0b10, cut: 0b01},
		{said: at(20), done: at(22), cut: 0b10},
		{said: at(30), done: at(32), usable: 0b11},
	}
	cnat := append(history(nil), nat...)
	for i := range cnat {
		cnat[i].cut = 0
	}
	hung := errors.New("no answer")
	for _, k := range []struct {
		name             string
		begun, met, over int // met 0: never
		by               int
		err              error
		nat, cnat        bool // fine
	}{
		{"answered", 1, 2, 3, 0, nil, true, true},
		{"failed for no reason", 1, 2, 3, 0, hung, false, false},
		{"never taken, for no reason", 1, 0, 3, nobody, hung, false, false},
		{"begun before the change", 9, 10, 13, 0, nil, true, true},
		{"begun while the change is on its way", 11, 11, 13, 0, nil, true, true},
		{"begun after it, to the one that went", 13, 13, 14, 0, nil, false, false},
		{"to the one that went, and failed", 13, 13, 14, 0, hung, false, false},
		{"to the other", 13, 13, 14, 1, nil, true, true},
		{"to the other, and failed", 9, 9, 14, 1, hung, false, false},
		{"cut by the change", 9, 9, 14, 0, hung, true, false},
		{"cut before anybody took it", 9, 0, 14, nobody, hung, true, false},
		{"not usable yet when it was met", 25, 26, 35, 0, nil, false, false},
		{"waited until somebody was there", 25, 31, 35, 0, nil, true, true},
		{"nobody there", 25, 0, 26, nobody, hung, true, true},
		{"nobody there in the end", 15, 0, 23, nobody, hung, true, true},
		{"somebody is there again", 33, 0, 34, nobody, hung, false, false},
		{"over all changes", 1, 2, 40, 1, nil, true, true},
		{"over all changes, cut", 1, 2, 40, 1, hung, true, false},
	} {
		r := request{begun: at(k.begun), over: at(k.over), by: k.by, err: k.err}
		if k.met > 0 {
			r.met = at(k.met)
		}
		if err := nat.judge(r); (err == nil) != k.nat {
			t.Errorf("%s, nat44: %v", k.name, err)
		}
		if err := cnat.judge(r); (err == nil) != k.cnat {
			t.Errorf("%s, cnat: %v", k.name, err)
		}
	}
}
