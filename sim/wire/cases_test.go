package wire_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/af_packet"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/vxlan"

	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/sim/frame"
	"github.com/contiv-agent/contiv-agent/sim/wire"
	"github.com/contiv-agent/contiv-agent/sim/wire/cases"
	"github.com/contiv-agent/contiv-agent/vpp"
)

// memory is a wire without Linux: frames are put in and taken out.
type memory struct {
	edge  *wire.Edge
	v     *sim.VPP
	now   time.Time
	link  map[uint32]int // the number of an interface, by VPP's index
	most  int            // that an interface takes; 0: any length
	out   []cases.Frame
	state map[uint32]bool
}

func (m *memory) Open(index uint32, link *sim.HostLink) error {
	n := 0
	if _, err := fmt.Sscanf(link.Name, "v%d", &n); err != nil {
		return err
	}
	m.link[index] = n
	return nil
}
func (m *memory) Close(index uint32)          { delete(m.link, index); m.edge.Forget(index) }
func (m *memory) SetUp(index uint32, up bool) { m.state[index] = up }
func (m *memory) SetMAC(uint32, frame.MAC)    {}
func (m *memory) Reset()                      { clear(m.link); m.edge.Reset() }

func (m *memory) Send(index uint32, b []byte) bool {
	if m.most > 0 && len(b) > m.most {
		return false
	}
	m.out = append(m.out, cases.Frame{On: m.link[index], Bytes: b})
	return true
}

// exchange lets a frame arrive and returns those that leave. 10 ms later than the last.
func (m *memory) exchange(f cases.Frame) []cases.Frame {
	m.out, m.now = nil, m.now.Add(10*time.Millisecond)
	m.v.Wired(m.now, func(g sim.Graph) {
		for index, n := range m.link {
			if n == f.On {
				m.edge.Receive(g, m.now, index, append([]byte(nil), f.Bytes...))
			}
		}
	})
	return m.out
}

// client makes requests of a VPP.
type client struct {
	t    testing.TB
	conn *vpp.Conn
}

func (c client) do(msgs ...api.Message) []vpp.Reply {
	c.t.Helper()
	calls := make([]vpp.Call, len(msgs))
	for i, m := range msgs {
		calls[i] = vpp.Call{Msg: m, Dump: m.GetMessageName() == "ip_punt_redirect_v2_dump"}
	}
	replies := c.conn.Do(context.Background(), calls...)
	for i, r := range replies {
		if r.Err != nil {
			c.t.Fatalf("%s: %v", msgs[i].GetMessageName(), r.Err)
		}
	}
	return replies
}

// open returns a VPP without interfaces.
func open(t testing.TB) (*memory, client) {
	const ethernet = 1514
	m := &memory{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), link: map[uint32]int{}, state: map[uint32]bool{}, most: ethernet}
	m.edge = wire.New(m)
	m.v = sim.New(sim.Config{Version: "25.10-release", Now: m.now, Wire: m, Seed: 1})
	up := make(chan struct{}, 1)
	conn := vpp.New(vpp.Config{Dial: m.v.Dial, Guard: &vpp.Guard{AllowDisable: true}, OnState: func(s vpp.State) {
		if s.Connected {
			select {
			case up <- struct{}{}:
			default:
			}
		}
	}})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = conn.Run(ctx) // ends by stop
	}()
	t.Cleanup(func() { stop(); <-ended; m.v.Close() })
	<-up
	return m, client{t, conn}
}

func attach(c client, n int) interface_types.InterfaceIndex {
	r := c.do(&af_packet.AfPacketCreateV3{HwAddr: cases.VPPMAC(n), HostIfName: fmt.Sprintf("v%d", n)})
	return r[0].Msg.(*af_packet.AfPacketCreateV3Reply).SwIfIndex
}

// configured returns the VPP of the cases.
func configured(t testing.TB) (*memory, client, [cases.Last + 1]interface_types.InterfaceIndex) {
	m, c := open(t)
	var at [cases.Last + 1]interface_types.InterfaceIndex
	for n := 1; n <= cases.Last; n++ {
		at[n] = attach(c, n)
	}
	r := c.do(append(cases.Loopbacks(), cases.Tunnel())...)
	loop := func(i int) interface_types.InterfaceIndex {
		return r[i].Msg.(*interfaces.CreateLoopbackInstanceReply).SwIfIndex
	}
	at[0] = r[2].Msg.(*vxlan.VxlanAddDelTunnelV3Reply).SwIfIndex
	c.do(cases.Redirects())
	c.do(cases.Rest(at, loop(0), loop(1))...)
	return m, c, at
}

// TestFramesAsVPP sends the frames that VPP 25.10 got, and compares every byte of what leaves.
func TestFramesAsVPP(t *testing.T) {
	record, err := os.ReadFile("cases/testdata/25.10.txt")
	if err != nil {
		t.Fatal(err)
	}
	want := sections(string(record))
	m, requests, at := configured(t)
	seen := map[string]bool{}
	for i, c := range append(cases.List(), cases.NATList()...) {
		if i == len(cases.List()) {
			requests.do(cases.NAT(at)...)
		}
		got := ""
		for _, f := range c.In {
			got += cases.Show(m.exchange(f))
		}
		if _, recorded := want[c.Name]; !recorded || seen[c.Name] {
			t.Errorf("%s: not recorded, or twice in the list", c.Name)
		}
		seen[c.Name] = true
		if got != want[c.Name] {
			t.Errorf("%s (-VPP +sim):\n%s\n%v", c.Name, gocmp.Diff(strings.Split(want[c.Name], "\n"), strings.Split(got, "\n")), m.edge.Drops())
		}
	}
}

// sections are the indented lines below each line of a text.
func sections(text string) map[string]string {
	out, name := map[string]string{}, ""
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, " ") {
			name = strings.TrimSpace(line)
			out[name] = ""
			continue
		}
		out[name] += line
	}
	return out
}
