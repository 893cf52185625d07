package felix

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/calico/felix/message"
	"github.com/contiv-agent/contiv-agent/event"
	pb "github.com/contiv-agent/contiv-agent/proto/felix"
	"github.com/contiv-agent/contiv-agent/test/logbuffer"
)

// peer is Felix's side of a session, and the session's result.
type peer struct {
	t      *testing.T
	in     *os.File // to the driver
	out    *os.File // from the driver
	w      *Writer
	r      *Reader
	driver *Driver
	log    *logbuffer.Buffer
	events chan event.Event
	ended  chan error
	cancel context.CancelFunc
	seq    uint64
}

func newPeer(t *testing.T, change func(*Config)) *peer {
	t.Helper()
	fromFelix, toDriver, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	fromDriver, toFelix, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p := &peer{t: t, in: toDriver, out: fromDriver, log: &logbuffer.Buffer{}, events: make(chan event.Event, 1000), ended: make(chan error, 1)}
	cfg := Config{In: fromFelix, Out: toFelix, Alive: time.Hour, Logger: slog.New(slog.NewTextHandler(p.log, nil))}
	if change != nil {
		change(&cfg)
	}
	p.w, p.r, p.driver = NewWriter(toDriver), NewReader(fromDriver, 0), NewDriver(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	go func() { p.ended <- p.driver.Run(ctx, func(ev event.Event) { p.events <- ev }) }()
	t.Cleanup(func() { cancel(); _ = p.in.Close(); _ = p.out.Close() })
	return p
}

func (p *peer) send(m *pb.ToDataplane) {
	p.t.Helper()
	m.SequenceNumber = p.seq
	p.seq++
	if err := p.w.Write(m); err != nil {
		p.t.Fatal(err)
	}
}

// event returns the next event, as text.
func (p *peer) event() string {
	p.t.Helper()
	select {
	case ev := <-p.events:
		switch ev := ev.(type) {
		case *event.SyncStatus:
			return ev.Status.String()
		case *event.Dataplane:
			var names []string
			for _, m := range ev.Messages {
				names = append(names, message.Name(m))
			}
			return strings.Join(names, " ")
		}
		p.t.Fatalf("event %T", ev)
	case <-time.After(10 * time.Second):
		p.t.Fatalf("no event; log:\n%s", p.log)
	}
	return ""
}

// until reads events until one equals want; messages may arrive in several events.
func (p *peer) until(want string) (before []string) {
	p.t.Helper()
	for {
		got := p.event()
		if got == want {
			return before
		}
		before = append(before, strings.Fields(got)...)
	}
}

// passedOn returns the driver's state once it has passed on the message of this number, which it publishes after the event.
func (p *peer) passedOn(number uint64) *State {
	p.t.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		st := p.driver.State()
		if st.Sequence == number {
			return st
		}
		if time.Now().After(end) {
			p.t.Fatalf("the driver does not say that it passed message %d on: %+v", number, st)
		}
	}
}

func (p *peer) end() error {
	p.t.Helper()
	select {
	case err := <-p.ended:
		return err
	case <-time.After(10 * time.Second):
		p.t.Fatalf("the driver does not end; log:\n%s", p.log)
		return nil
	}
}

// next returns the next message from the driver.
func (p *peer) next() *pb.FromDataplane {
	p.t.Helper()
	if err := p.out.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		p.t.Fatal(err)
	}
	m := &pb.FromDataplane{}
	if err := p.r.Read(m); err != nil {
		p.t.Fatal(err)
	}
	return m
}

func configUpdate() *pb.ToDataplane {
	return &pb.ToDataplane{Payload: &pb.ToDataplane_ConfigUpdate{ConfigUpdate: &pb.ConfigUpdate{Config: map[string]string{"FelixHostname": "n1"}}}}
}

func anIPSet(id string) *pb.ToDataplane {
	return &pb.ToDataplane{Payload: &pb.ToDataplane_IpsetUpdate{IpsetUpdate: &pb.IPSetUpdate{Id: id}}}
}

// The handshake: the driver is in sync only after both the configuration and in_sync, in any order.
func TestHandshake(t *testing.T) {
	for _, c := range []struct {
		name  string
		say   []*pb.ToDataplane
		early bool // in_sync before the configuration
	}{
		{"as Felix does", []*pb.ToDataplane{configUpdate(), configUpdate(), anIPSet("s:a"), inSync(0)}, false},
		{"configuration not first", []*pb.ToDataplane{anIPSet("s:a"), configUpdate(), inSync(0)}, false},
		{"configuration last", []*pb.ToDataplane{anIPSet("s:a"), inSync(0), configUpdate()}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPeer(t, nil)
			if got := p.event(); got != "wait-for-ready" {
				t.Fatalf("first event: %s", got)
			}
			for _, m := range c.say[:len(c.say)-1] {
				p.send(m)
			}
			var before []string
			for len(slices.DeleteFunc(slices.Clone(before), func(s string) bool { return s == "resync" })) < len(c.say)-1 {
				before = append(before, strings.Fields(p.event())...)
			}
			if slices.Contains(before, "in-sync") || p.driver.State().InSync {
				t.Fatalf("in sync after %v", before)
			}
			p.send(c.say[len(c.say)-1])
			p.until("in-sync")
			if st := p.passedOn(uint64(len(c.say) - 1)); !st.InSync || !st.Config {
				t.Errorf("state %+v", st)
			}
			if early := strings.Contains(p.log.String(), "in sync without a configuration"); early != c.early {
				t.Errorf("warned: %v; log:\n%s", early, p.log)
			}
			p.send(anIPSet("s:b"))
			if got := p.event(); got != "ipset_update" {
				t.Errorf("after in-sync: %s", got)
			}
		})
	}
}

// Messages that can be read without blocking are one event.
func TestCoalescing(t *testing.T) {
	fromFelix, toDriver, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	w := NewWriter(toDriver)
	for _, m := range []*pb.ToDataplane{configUpdate(), anIPSet("s:a"), anIPSet("s:b"), inSync(3)} {
		if err := w.Write(m); err != nil {
			t.Fatal(err)
		}
	}
	if err := toDriver.Close(); err != nil {
		t.Fatal(err)
	}
	var got []string
	d := NewDriver(Config{In: fromFelix, Out: discard{}})
	err = d.Run(t.Context(), func(ev event.Event) {
		if ev, ok := ev.(*event.Dataplane); ok {
			for _, m := range ev.Messages {
				got = append(got, message.Name(m))
			}
			got = append(got, "|")
		}
	})
	if !errors.Is(err, ErrGone) {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"config_update", "ipset_update", "ipset_update", "in_sync", "|"}, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }
func (discard) Close() error                { return nil }

// textField encodes a field of a message.
func textField(n protowire.Number, text string) []byte {
	return protowire.AppendString(protowire.AppendTag(nil, n, protowire.BytesType), text)
}

// Unknown content is skipped or kept, with one warning of each kind.
func TestUnknownContentIsReportedOnce(t *testing.T) {
	p := newPeer(t, nil)
	say := func(b []byte) {
		t.Helper()
		m := &pb.ToDataplane{}
		m.ProtoReflect().SetUnknown(b)
		p.send(m)
	}
	for range 3 {
		say(textField(77, string(textField(1, "from the future"))))
		say(textField(78, ""))
		p.send(&pb.ToDataplane{})
		p.send(&pb.ToDataplane{Payload: &pb.ToDataplane_WorkloadEndpointRemove{WorkloadEndpointRemove: &pb.WorkloadEndpointRemove{}}})
		p.send(&pb.ToDataplane{Payload: &pb.ToDataplane_IpsetUpdate{IpsetUpdate: &pb.IPSetUpdate{Type: 9}}})
		p.send(&pb.ToDataplane{Payload: &pb.ToDataplane_ActivePolicyUpdate{ActivePolicyUpdate: &pb.ActivePolicyUpdate{
			Id: &pb.PolicyID{Tier: "t", Name: "n"}, Policy: &pb.Policy{InboundRules: []*pb.Rule{{IpVersion: 5}}},
		}}})
	}
	newer := &pb.Rule{Action: "allow"}
	newer.ProtoReflect().SetUnknown(textField(150, "from the future"))
	p.send(&pb.ToDataplane{Payload: &pb.ToDataplane_ActiveProfileUpdate{ActiveProfileUpdate: &pb.ActiveProfileUpdate{
		Id: &pb.ProfileID{Name: "n"}, Profile: &pb.Profile{OutboundRules: []*pb.Rule{newer}},
	}}})
	p.send(configUpdate())
	p.send(inSync(0))
	got := p.until("in-sync")
	got = slices.DeleteFunc(got, func(s string) bool { return s == "wait-for-ready" || s == "resync" })
	want := slices.Concat(slices.Repeat([]string{"ipset_update", "active_policy_update"}, 3), []string{"active_profile_update", "config_update", "in_sync"})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("passed on (-want +got)\n%s", diff)
	}
	if st := p.driver.State(); st.Skipped != 12 || st.Messages["unknown"] != 12 || st.Messages["ipset_update"] != 3 {
		t.Errorf("state %+v", st)
	}
	for _, what := range []string{"message of field 77", "message of field 78", "message without a payload", "workload_endpoint_remove without an id", "type 9 of a set", "IP version 5 of a rule", "field 150 of a rule"} {
		if n := strings.Count(p.log.String(), "what=\""+what+"\""); n != 1 {
			t.Errorf("%q was said %d times:\n%s", what, n, p.log)
		}
	}
}

// Each possible end of a session has its error.
func TestSessionEndHasError(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(*peer)
		want func(error) bool
	}{
		{"Felix closes", func(p *peer) { _ = p.in.Close() }, func(err error) bool { return errors.Is(err, ErrGone) }},
		{"told to", func(p *peer) { p.cancel() }, func(err error) bool { return errors.Is(err, context.Canceled) && !errors.Is(err, ErrGone) }},
		{"Felix dies within a message", func(p *peer) { _, _ = p.in.Write([]byte{9, 0, 0}); _ = p.in.Close() }, func(err error) bool {
			return errors.Is(err, ErrTruncated) && !errors.Is(err, ErrGone) && strings.Contains(err.Error(), "frame 1 at byte 10")
		}},
		{"too long", func(p *peer) { _, _ = p.in.Write(bytes.Repeat([]byte{0xff}, 8)) }, func(err error) bool { return errors.Is(err, ErrOversized) }},
		{"garbage", func(p *peer) { _, _ = p.in.Write([]byte{2, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff}) }, func(err error) bool { return errors.Is(err, ErrGarbage) }},
		{"nobody reads", func(p *peer) { // the pipe is closed: the next status message fails
			_ = p.out.Close()
			p.driver.Report(Report{EndpointID{Endpoint: "eth0"}: {Health: Up}})
		}, func(err error) bool { return errors.Is(err, ErrGone) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPeer(t, nil)
			p.next()
			p.send(inSync(0))
			p.event()
			p.event()
			c.do(p)
			if err := p.end(); !c.want(err) {
				t.Errorf("%v", err)
			}
		})
	}
}

func statusOf(m *pb.FromDataplane) string {
	id := func(w *pb.WorkloadEndpointID) string { return w.GetWorkloadId() + " " + w.GetEndpointId() }
	switch p := m.Payload.(type) {
	case *pb.FromDataplane_ProcessStatusUpdate:
		return "alive"
	case *pb.FromDataplane_WorkloadEndpointStatusUpdate:
		return id(p.WorkloadEndpointStatusUpdate.Id) + " " + p.WorkloadEndpointStatusUpdate.Status.Status
	case *pb.FromDataplane_WorkloadEndpointStatusRemove:
		return id(p.WorkloadEndpointStatusRemove.Id) + " gone"
	case *pb.FromDataplane_HostEndpointStatusUpdate:
		return p.HostEndpointStatusUpdate.Id.EndpointId + " " + p.HostEndpointStatusUpdate.Status.Status
	case *pb.FromDataplane_HostEndpointStatusRemove:
		return p.HostEndpointStatusRemove.Id.EndpointId + " gone"
	}
	return "?"
}

// Statuses are sent when they change, and withdrawn when the endpoint is removed.
func TestStatuses(t *testing.T) {
	p := newPeer(t, nil)
	web, eth0 := EndpointID{"k8s", "prod/web-0", "eth0"}, EndpointID{Endpoint: "eth0"}
	sent := &pb.WorkloadEndpoint{State: "active", Name: "cali1", Tiers: []*pb.TierInfo{{Name: "default", IngressPolicies: []string{"x"}}}}
	for i, step := range []struct {
		report Report
		want   []string
	}{
		{nil, []string{"alive"}},
		{Report{web: {Health: Down, Sent: sent}, eth0: {Health: Up}}, []string{"eth0 up", "prod/web-0 eth0 down"}},
		{Report{web: {Health: Up, Sent: sent}, eth0: {Health: Up}}, []string{"prod/web-0 eth0 up"}},
		{Report{web: {Health: Up, Sent: sent, Reason: "another"}}, []string{"eth0 gone"}},
		{Report{eth0: {Health: Error}}, []string{"eth0 error", "prod/web-0 eth0 gone"}},
		{Report{}, []string{"eth0 gone"}},
	} {
		if step.report != nil {
			p.driver.Report(step.report)
		}
		for _, want := range step.want {
			m := p.next()
			if got := statusOf(m); got != want {
				t.Errorf("step %d: %s, want %s", i, got, want)
			}
			if e := m.GetWorkloadEndpointStatusUpdate().GetEndpoint(); e != nil && (e.Name != "cali1" || len(e.Tiers) > 0) {
				t.Errorf("step %d: endpoint %v", i, e)
			}
		}
	}
}

// The driver sends its status message at once and then periodically, also before Felix has sent anything.
func TestAlive(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.FixedZone("", 3600))
	p := newPeer(t, func(c *Config) { c.Alive, c.Now = time.Millisecond, func() time.Time { return start } })
	for i := range 5 {
		m := p.next()
		if s := m.GetProcessStatusUpdate(); s.GetIsoTimestamp() != "2026-01-02T02:04:05Z" || s.GetUptime() != 0 || m.SequenceNumber != uint64(i) {
			t.Errorf("message %d: %v", i, m)
		}
	}
}

// While Felix does not read, reports do not pile up: it gets those that fit into the pipe, then the latest.
func TestSlowReader(t *testing.T) {
	p := newPeer(t, nil)
	name := strings.Repeat("x", 1000)
	for i := range 20_000 {
		health := Up
		if i%2 == 1 {
			health = Error
		}
		p.driver.Report(Report{EndpointID{Endpoint: name}: {Health: health}})
		if i%100 == 0 {
			runtime.Gosched()
		}
	}
	p.driver.Report(Report{EndpointID{Endpoint: "last"}: {Health: Up}})
	messages, last := 0, ""
	for last != name+" gone" {
		last = statusOf(p.next())
		messages++
	}
	if messages > 1000 { // a pipe holds 64 KiB: about sixty messages
		t.Errorf("%d messages", messages)
	}
}

// Sessions leave no goroutines or files behind.
func TestSessionsLeaveNothing(t *testing.T) {
	session := func() {
		p := newPeer(t, nil)
		p.send(configUpdate())
		p.send(inSync(0))
		p.until("in-sync")
		_ = p.in.Close()
		if err := p.end(); !errors.Is(err, ErrGone) {
			t.Fatal(err)
		}
		if err := p.out.Close(); err != nil {
			t.Fatal(err)
		}
	}
	session()
	files, goroutines := openFiles(t), runtime.NumGoroutine()
	for range 1000 {
		session()
	}
	for deadline := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > goroutines && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond) // a finished goroutine is counted a little longer
	}
	if f, g := openFiles(t), runtime.NumGoroutine(); f > files || g > goroutines {
		t.Errorf("%d files became %d, %d goroutines %d", files, f, goroutines, g)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// FuzzDriver reads arbitrary bytes to their end: no panic, an error at the end, and no event with an incomplete message.
func FuzzDriver(f *testing.F) {
	f.Add([]byte{})
	f.Add(frames(f, configUpdate(), anIPSet("s:a"), inSync(2)))
	f.Add(frames(f, inSync(0), configUpdate(), inSync(1)))
	f.Add(frames(f, &pb.ToDataplane{Payload: &pb.ToDataplane_WorkloadEndpointUpdate{WorkloadEndpointUpdate: &pb.WorkloadEndpointUpdate{Id: &pb.WorkloadEndpointID{WorkloadId: "a"}}}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		d := NewDriver(Config{In: io.NopCloser(bytes.NewReader(b)), Out: discard{}, Limit: 1 << 16})
		config, done := false, false
		err := d.Run(t.Context(), func(ev event.Event) {
			switch ev := ev.(type) {
			case *event.Dataplane:
				for _, m := range ev.Messages {
					if message.Name(m) == "" || !message.Complete(proto.CloneOf(m)) {
						t.Fatalf("passed on: %v", m)
					}
					config, done = config || m.GetConfigUpdate() != nil, done || m.GetInSync() != nil
				}
			case *event.SyncStatus:
				if ev.Status == event.InSync && !(config && done) {
					t.Fatal("in sync too early")
				}
			}
		})
		if !errors.Is(err, ErrGone) && !errors.Is(err, ErrTruncated) && !errors.Is(err, ErrOversized) && !errors.Is(err, ErrGarbage) {
			t.Fatal(err)
		}
	})
}
