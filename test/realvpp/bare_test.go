package realvpp

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.fd.io/govpp/adapter/socketclient"
	"go.fd.io/govpp/api"
	"go.fd.io/govpp/core"
)

// bare is a connection without a guard, for what no agent would ask.
type bare struct {
	channel api.Channel
	types   map[string]reflect.Type // of all messages there are, by name
}

// openBare connects to both VPPs of a twin, the simulated one first.
func openBare(t *testing.T, w *twin) [2]*bare {
	t.Helper()
	socket := filepath.Join(w.lab.dir, "sim.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = w.sim.Serve(ctx, l) // ends with ctx
	}()
	t.Cleanup(func() {
		stop()
		<-done
	})
	var out [2]*bare
	for i, path := range []string{socket, w.lab.socket()} {
		conn, err := core.Connect(socketclient.NewVppClient(path))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(conn.Disconnect)
		b := &bare{types: map[string]reflect.Type{}}
		if b.channel, err = conn.NewAPIChannel(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(b.channel.Close)
		b.channel.SetReplyTimeout(10 * time.Second)
		for _, byName := range api.GetRegisteredMessages() {
			for _, m := range byName {
				if typ := reflect.TypeOf(m).Elem(); strings.HasPrefix(typ.PkgPath(), "go.fd.io/") { // not those of later VPPs
					b.types[m.GetMessageName()] = typ
				}
			}
		}
		out[i] = b
	}
	return out
}

func (b *bare) fresh(name string) api.Message {
	return reflect.New(b.types[name]).Interface().(api.Message)
}

// do makes a request; a retval other than zero is an error.
func (b *bare) do(m api.Message) (api.Message, error) {
	reply := b.fresh(m.GetMessageName() + "_reply")
	return reply, b.channel.SendRequest(m).ReceiveReply(reply)
}

// dump makes a request that is answered by any number of details.
func (b *bare) dump(m api.Message) ([]api.Message, error) {
	replies := b.channel.SendMultiRequest(m)
	var out []api.Message
	for {
		d := b.fresh(strings.TrimSuffix(m.GetMessageName(), "_dump") + "_details")
		last, err := replies.ReceiveReply(d)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.GetMessageName(), err)
		}
		if last {
			return out, nil
		}
		out = append(out, d)
	}
}
