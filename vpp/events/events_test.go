package events

import (
	"context"
	"slices"
	"sync"
	"testing"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/vlib"
)

// Callbacks get the messages of their names, in order, also those that arrive while a callback runs; PutEvent waits for no callback.
func TestCallbacksGetEventsInOrder(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	d := New()
	var got []string
	entered, leave := make(chan struct{}), make(chan struct{})
	d.AddFunc("a", func(m api.Message) {
		got = append(got, "a "+m.(*vlib.CliInband).Cmd)
		switch len(got) {
		case 1:
			close(entered)
			<-leave
		case 4:
			stop()
		}
	})
	d.AddFunc("b", func(m api.Message) { got = append(got, "b "+m.(*vlib.CliInband).Cmd) })
	var wg sync.WaitGroup
	wg.Go(func() { d.RunCallbacks(ctx) })
	d.PutEvent("a", &vlib.CliInband{Cmd: "1"})
	<-entered
	for _, e := range [][2]string{{"a", "2"}, {"b", "3"}, {"unknown", "4"}, {"a", "5"}} {
		d.PutEvent(e[0], &vlib.CliInband{Cmd: e[1]})
	}
	close(leave)
	wg.Wait()
	if want := []string{"a 1", "a 2", "b 3", "a 5"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
