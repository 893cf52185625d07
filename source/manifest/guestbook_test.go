package manifest

import (
	"testing"

	"github.com/contiv-agent/contiv-agent/model"
)

// The agent uses every object of the guestbook example and refuses none.
func TestGuestbook(t *testing.T) {
	changes, err := Load("../../examples/guestbook")
	if err != nil {
		t.Fatal(err)
	}
	count := map[model.Kind]int{}
	for _, c := range changes {
		if c.Err != nil {
			t.Errorf("refused: %v", c.Err)
		}
		count[c.Ref.Kind]++
	}
	for kind, want := range map[model.Kind]int{
		model.KindNode: 3, model.KindNamespace: 3, model.KindServiceCIDR: 1,
		model.KindService: 9, model.KindEndpointSlice: 8, model.KindPod: 8,
	} {
		if count[kind] != want {
			t.Errorf("%d objects of kind %s, want %d", count[kind], kind, want)
		}
	}
}
