package agent

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/encoding/prototext"

	"github.com/contiv-agent/contiv-agent/agent/attachment"
	"github.com/contiv-agent/contiv-agent/agent/config"
	"github.com/contiv-agent/contiv-agent/agent/control"
	"github.com/contiv-agent/contiv-agent/agent/status"
	"github.com/contiv-agent/contiv-agent/calico/felix"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	pb "github.com/contiv-agent/contiv-agent/proto/felix"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/sim/packet"
	"github.com/contiv-agent/contiv-agent/test/logbuffer"
	"github.com/contiv-agent/contiv-agent/vpp"
)

// parseMessages reads messages from text: one per paragraph.
func parseMessages(t testing.TB, text string) []*pb.ToDataplane {
	t.Helper()
	var out []*pb.ToDataplane
	for paragraph := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		m := &pb.ToDataplane{}
		if err := prototext.Unmarshal([]byte(paragraph), m); err != nil {
			t.Fatalf("%s\n%v", paragraph, err)
		}
		out = append(out, m)
	}
	return out
}

// above is a Felix with an agent as its dataplane driver, on a VPP that outlives both.
type above struct {
	t         *testing.T
	vpp       *sim.VPP
	log       *logbuffer.Buffer
	to        *felix.Writer
	in, out   *os.File
	statuses  chan string // the agent's status messages, as text
	reading   chan error  // why the read ended
	committed chan *event.Committed
	socket    string
	registry  *prometheus.Registry
	ended     chan error
	stop      context.CancelFunc
	seq       uint64
}

// plainVPP returns a VPP with two pods of this node, one of another node, and a node's addresses.
func plainVPP(t *testing.T) *sim.VPP {
	t.Helper()
	v := sim.New(sim.Config{PuntLocal: true})
	t.Cleanup(v.Close)
	node := func(name, addr, pods string) event.Change {
		n := &model.Node{Name: name, InternalIPs: []netip.Addr{netip.MustParseAddr(addr)}, PodCIDRs: []netip.Prefix{netip.MustParsePrefix(pods)}}
		return event.Change{Ref: n.Ref(), Object: n}
	}
	pod := func(name, on, addr string) event.Change {
		p := &model.Pod{ID: model.PodID{Namespace: "prod", Name: name}, NodeName: on, IPs: []netip.Addr{netip.MustParseAddr(addr)}}
		return event.Change{Ref: p.Ref(), Object: p}
	}
	err := cni.New(v, "node-1").Apply([]event.Change{
		node("node-1", "192.168.16.1", "10.1.1.0/24"), node("node-2", "192.168.16.2", "10.1.2.0/24"),
		pod("web-0", "node-1", "10.1.1.2"), pod("client", "node-1", "10.1.1.3"), pod("far", "node-2", "10.1.2.3"),
	})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// under starts an agent under a Felix that has not sent anything yet.
func under(t *testing.T, v *sim.VPP) *above {
	t.Helper()
	return underDialled(t, v, v.Dial)
}

func underDialled(t *testing.T, v *sim.VPP, dial func(context.Context) (net.Conn, error)) *above {
	t.Helper()
	fromFelix, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	from, toFelix, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	f := &above{
		t: t, vpp: v, log: &logbuffer.Buffer{}, to: felix.NewWriter(to), in: to, out: from, statuses: make(chan string, 1000), reading: make(chan error, 1),
		committed: make(chan *event.Committed, 1000), ended: make(chan error, 1), socket: filepath.Join(t.TempDir(), "s"), registry: prometheus.NewRegistry(),
	}
	log := slog.New(slog.NewTextHandler(f.log, nil))
	a, err := New(Config{
		NodeName: "node-1", VPP: vpp.Config{Dial: dial, MaxBackoff: 10 * time.Millisecond}, Policies: config.Policies{AllowUnknown: true, PostDNAT: true, Felix: &attachment.Felix{Driver: felix.NewDriver(felix.Config{In: fromFelix, Out: toFelix, Logger: log})}}, Override: cni.Located(), Services: config.Services{Off: true}, Process: config.Process{Logger: log, Registry: f.registry, OnCommitted: func(c *event.Committed) { f.committed <- c }}, Listen: config.Listeners{Status: f.socket},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	f.stop = cancel
	go func() { f.ended <- a.Run(ctx) }()
	go f.read()
	t.Cleanup(func() { _ = f.in.Close(); cancel(); _ = f.out.Close() })
	return f
}

func (f *above) read() {
	r := felix.NewReader(f.out, 0)
	for {
		m := &pb.FromDataplane{}
		if err := r.Read(m); err != nil {
			f.reading <- err
			return
		}
		if u := m.GetWorkloadEndpointStatusUpdate(); u != nil {
			f.statuses <- u.Id.WorkloadId + " " + u.Status.Status
		}
		if u := m.GetWorkloadEndpointStatusRemove(); u != nil {
			f.statuses <- u.Id.WorkloadId + " gone"
		}
		if u := m.GetHostEndpointStatusUpdate(); u != nil {
			f.statuses <- u.Id.EndpointId + " " + u.Status.Status
		}
		if u := m.GetHostEndpointStatusRemove(); u != nil {
			f.statuses <- u.Id.EndpointId + " gone"
		}
	}
}

func (f *above) send(messages ...*pb.ToDataplane) {
	f.t.Helper()
	for _, m := range messages {
		m.SequenceNumber = f.seq
		f.seq++
		if err := f.to.Write(m); err != nil {
			f.t.Fatal(err)
		}
	}
}

// expectStatus waits until the agent sends a status.
func (f *above) expectStatus(want string) {
	f.t.Helper()
	limit := time.After(30 * time.Second)
	var heard []string
	for {
		select {
		case got := <-f.statuses:
			if heard = append(heard, got); got == want {
				return
			}
		case <-limit:
			st, err := control.FetchStatus(f.t.Context(), f.socket, false)
			f.t.Fatalf("no status %q; got %q; status %+v, %v; log:\n%s", want, heard, st.Felix, err, f.log)
		}
	}
}

// settled waits until VPP has the effect of all messages, and returns the agent's status.
func (f *above) settled() *status.Status {
	f.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(2 * time.Millisecond) {
		st, err := control.FetchStatus(f.t.Context(), f.socket, false)
		if err == nil && st.InSync && st.Felix.Sequence == f.seq-1 {
			return st
		}
		if time.Now().After(deadline) {
			f.t.Fatalf("not settled: %+v, Felix %+v, want sequence %d, %v; log:\n%s", st, st.Felix, f.seq-1, err, f.log)
		}
	}
}

// gone closes Felix's end, and waits for the agent's end.
func (f *above) gone() {
	f.t.Helper()
	if err := f.in.Close(); err != nil {
		f.t.Fatal(err)
	}
	if err := <-f.ended; !errors.Is(err, felix.ErrGone) {
		f.t.Fatalf("ended with %v", err)
	}
	<-f.reading
}

// passes reports whether a new TCP connection from an interface passes.
func (f *above) passes(in, from, to string) bool {
	f.t.Helper()
	fate := f.vpp.Send(in, packet.NewTCP(netip.MustParseAddrPort(from), netip.MustParseAddrPort(to)))
	return len(fate.Out) == 1
}
