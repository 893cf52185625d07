package felix

import (
	"testing"

	pb "github.com/contiv-agent/contiv-agent/proto/felix"
)

// The table has every message of the protocol once, in the protocol's order.
func TestHandlingsAreComplete(t *testing.T) {
	oneof := (&pb.ToDataplane{}).ProtoReflect().Descriptor().Oneofs().ByName("payload").Fields()
	at := map[string]int{}
	for i := range oneof.Len() {
		at[string(oneof.Get(i).Name())] = int(oneof.Get(i).Number())
	}
	last := 0
	for _, h := range Handlings() {
		if at[h.Field] <= last {
			t.Errorf("%s is out of place, no message, or twice", h.Field)
		}
		last = at[h.Field]
		delete(at, h.Field)
		if h.Text == "" {
			t.Errorf("%s: nothing is said of it", h.Field)
		}
	}
	for name := range at {
		t.Errorf("%s is missing", name)
	}
}
