package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/agent/control"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/httpserver"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/source/manifest"
)

func guestbook(t *testing.T) (out []event.Change) {
	t.Helper()
	changes, err := manifest.Load("../../examples/guestbook")
	if err != nil {
		t.Fatal(err)
	}
	for _, ch := range changes {
		if ch.Object != nil {
			out = append(out, ch)
		}
	}
	return out
}

// Only pods of the node send, each to every Service with a cluster IP, each from a separate port. The order of objects does not matter.
func TestPacketsOfPods(t *testing.T) {
	tr := &Traffic{Node: "node-1"}
	objects := guestbook(t)
	list := tr.packets(objects)
	slices.Reverse(objects)
	if again := tr.packets(objects); fmt.Sprint(again) != fmt.Sprint(list) {
		t.Errorf("%v\nin the other order %v", list, again)
	}
	from, ports := map[string]int{}, map[uint16]bool{}
	for _, d := range list {
		from[d.at]++
		ports[d.packet.SrcPort] = true
		if err := d.packet.Validate(); err != nil {
			t.Errorf("%v: %v", d, err)
		}
	}
	if fmt.Sprint(from) != "map[pod-guestbook/client:7 pod-guestbook/frontend-0:7 pod-guestbook/redis-leader-0:7 uplink:2]" || len(ports) != len(list) {
		t.Errorf("%v, %d ports", from, len(ports))
	}
	if list := (&Traffic{Node: "node-9"}).packets(objects); len(list) != 0 {
		t.Error(list)
	}
}

// The number of connections is bounded.
func TestTrafficIsBounded(t *testing.T) {
	objects := guestbook(t)
	client := objects[slices.IndexFunc(objects, func(ch event.Change) bool { return ch.Ref.String() == "Pod guestbook/client" })].Object.(*model.Pod)
	for i := range 300 {
		pod := *client
		pod.ID.Name = fmt.Sprintf("client-%03d", i)
		objects = append(objects, event.Change{Ref: pod.Ref(), Object: &pod})
	}
	if list := (&Traffic{Node: "node-1"}).packets(objects); len(list) != mostDials {
		t.Errorf("%d connections", len(list))
	}
}

// VPP receives the packets of the agent's objects. Objects that cannot be read leave the former packets.
func TestTrafficArrives(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	objects := guestbook(t)
	asked := 0
	v := sim.New(sim.Config{Seed: 1})
	defer v.Close()
	s := &control.Server{Logger: slog.New(slog.DiscardHandler), Objects: func(context.Context) (*control.Objects, error) {
		switch asked++; asked {
		case 1:
			out := &control.Objects{}
			for _, ch := range objects {
				out.List = append(out.List, ch.Object)
			}
			return out, nil
		case 3:
			cancel()
		}
		return nil, errors.New("the agent has not received all objects")
	}}
	l, err := httpserver.Unix(t.Context(), filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	served, end := make(chan error, 1), make(chan struct{})
	serving, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	go func() { served <- httpserver.HTTP(serving, l, s.Handler(), s.Logger) }()
	tr := &Traffic{VPP: v, Node: "node-1", Socket: l.Addr().String(), every: time.Millisecond}
	go func() { tr.Run(ctx); close(end) }()
	<-end
	stop()
	<-served
	if tr.sent < dials || asked != 3 {
		t.Errorf("%d packets, objects were read %d times", tr.sent, asked)
	}
}
