package controller

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/contiv-agent/contiv-agent/event"
)

// dealer is a processor whose resync consists of single values. Its last portion removes the first value and changes the second.
type dealer struct {
	*recorder
	said []string
}

func (d *dealer) Prepare() { d.said = append(d.said, "prepare") }

func (d *dealer) ResyncInPortions() (portions []func(), err error) {
	d.said = append(d.said, "resync")
	d.values.Set("node", values(dnat("node", 1)), nil)
	for i := range 3 {
		portions = append(portions, func() {
			d.said = append(d.said, fmt.Sprint("portion ", i))
			d.values.Set(fmt.Sprint("service/", i), values(dnat(fmt.Sprint("service/", i), 1)), nil)
			if i == 2 {
				d.values.Set("service/0", nil, nil)
				d.values.Set("service/1", values(dnat("service/1", 2)), nil)
			}
		})
	}
	return append(portions, func() {}), nil // one without any change
}

func dealing(locate *event.Locate) (*Controller, *dealer) {
	d := &dealer{recorder: newRecorder()}
	d.locate = locate
	c := New(Config{Sources: []string{"test"}}, d.values, d)
	c.Step(&event.VPPStatus{Connected: true, Generation: 1})
	return c, d
}

func TestFirstSyncInPortions(t *testing.T) {
	for name, hurry := range map[string]func(*Controller){
		"meanwhile":      func(c *Controller) { c.Meanwhile(); c.Meanwhile() },
		"with next step": func(c *Controller) { c.Step(update("later", 1)) },
	} {
		t.Run(name, func(t *testing.T) {
			c, d := dealing(nil)
			txn := c.Step(inSync("test"))
			if diff := cmp.Diff([]string{"resync"}, d.said); diff != "" || len(txn.Rest) != 0 {
				t.Fatalf("before the transaction is handed over (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(values(dnat("node", 1)), txn.Values, protocmp.Transform()); diff != "" {
				t.Errorf("first portion (-want +got):\n%s", diff)
			}
			hurry(c) // it waits for no answer
			var rest []map[string]proto.Message
			for portion := range txn.Rest {
				rest = append(rest, portion)
			}
			last := values(dnat("service/2", 1), dnat("service/1", 2))
			for key := range values(dnat("service/0", 1)) {
				last[key] = nil
			}
			want := []map[string]proto.Message{values(dnat("service/0", 1)), values(dnat("service/1", 1)), last}
			if diff := cmp.Diff(want, rest, protocmp.Transform()); diff != "" {
				t.Errorf("rest (-want +got):\n%s", diff)
			}
			next := c.Step(done(txn))
			if late := name == "with next step"; late != (next != nil) {
				t.Errorf("after the first sync: %+v", next)
			}
		})
	}
}

// TestPreparedDuringLookup: the lookup is sent first, and its answer finds the preparation finished.
func TestPreparedDuringLookup(t *testing.T) {
	c, d := dealing(&event.Locate{})
	ask := c.Step(inSync("test"))
	if ask == nil || ask.Locate == nil || len(d.said) != 0 {
		t.Fatalf("first transaction %+v after %v", ask, d.said)
	}
	c.Meanwhile()
	c.Step(done(ask))
	txn := c.Step(&event.Located{})
	if txn == nil || txn.Resync != event.Full || !slices.Equal(d.said, []string{"prepare", "resync"}) {
		t.Fatalf("%+v after %v", txn, d.said)
	}
	c.Meanwhile()
	want := values(dnat("node", 1), dnat("service/1", 2), dnat("service/2", 1))
	if diff := cmp.Diff(want, txn.Whole().Values, protocmp.Transform()); diff != "" {
		t.Errorf("the whole (-want +got):\n%s", diff)
	}
}
