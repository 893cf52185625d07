package sim

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"

	"go.fd.io/govpp/api"
	interfaces_ "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/memclnt"
	"go.fd.io/govpp/binapi/nat44_ed"
	"go.fd.io/govpp/binapi/vlib"
	"go.fd.io/govpp/binapi/vpe"
)

func TestHandshakeOverSocket(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	v, socket, wait, err := Start(ctx, t.TempDir(), Config{Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	nc, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	c := shake(t, nc)
	ping := call1[*memclnt.ControlPingReply](c, &memclnt.ControlPing{})
	if ping.ClientIndex != c.index || ping.VpePID == 0 {
		t.Errorf("control_ping says %+v, client index is %d", ping, c.index)
	}
	if got := call1[*vpe.ShowVersionReply](c, &vpe.ShowVersion{}); got.Version != "24.06-release" || got.Program != "vpe" {
		t.Errorf("show_version says %+v", got)
	}
	if got := call1[*vlib.ShowThreadsReply](c, &vlib.ShowThreads{}); len(got.ThreadData) != 2 || got.ThreadData[1].Type != "workers" {
		t.Errorf("show_threads says %+v", got)
	}
	for _, m := range call1[*memclnt.APIVersionsReply](c, &memclnt.APIVersions{}).APIVersions {
		if m.Major == 0 && m.Minor == 0 {
			t.Errorf("api version of %s is %d.%d.%d", m.Name, m.Major, m.Minor, m.Patch)
		}
	}
	if got := call1[*memclnt.SockclntDeleteReply](c, &memclnt.SockclntDelete{Index: c.index}); got.Response != 1 {
		t.Errorf("sockclnt_delete says %+v", got)
	}
	if v.Crashed() != nil {
		t.Error(v.Crashed())
	}
	cancel()
	wait()
	if _, err := net.Dial("unix", socket); err == nil {
		t.Error("still listening after its context ended")
	}
}

func TestUnknownAndTruncatedMessagesAreDropped(t *testing.T) {
	c := dial(t, New(Config{}))
	c.raw([]byte{0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 1})
	c.raw([]byte{1})
	id := c.id(&nat44_ed.Nat44AddDelLbStaticMapping{})
	huge := make([]byte, requestHeader+77+4)
	huge[0], huge[1] = byte(id>>8), byte(id)
	for i := range 4 {
		huge[requestHeader+77+i] = 0xff // 4 billion locals
	}
	c.raw(huge)
	c.raw(huge[:30])
	c.must(&memclnt.ControlPing{}) // and the next one is answered
}

// The position of local_num is a fact of the generated binding.
func TestLBMappingFits(t *testing.T) {
	m := &nat44_ed.Nat44AddDelLbStaticMapping{Locals: make([]nat44_ed.Nat44LbAddrPort, 3)}
	c := dial(t, New(Config{}))
	if rv := c.retval(m); rv != -126 {
		t.Errorf("disabled plugin: retval %d", rv)
	}
}

func TestRestartChangesIDsAndCutsConnections(t *testing.T) {
	v := New(Config{})
	v.AddInterface(Interface{Name: "tap7", Tag: "pod"})
	before := dial(t, v)
	before.must(&interfaces_.CreateLoopbackInstance{})
	pid := call1[*memclnt.ControlPingReply](before, &memclnt.ControlPing{}).VpePID
	for i := range 9 {
		v.Restart()
		if !before.dead() {
			t.Fatal("connection lived through a restart")
		}
		c := dial(t, v)
		for name, id := range c.ids {
			if old := before.ids[name]; old == id && id >= firstID {
				t.Fatalf("restart %d: %s kept id %d", i, name, id)
			}
			if id < firstID && before.ids[name] != id {
				t.Fatalf("restart %d: %s of the handshake moved", i, name)
			}
		}
		names := map[string]bool{}
		for _, d := range dump[*interfaces_.SwInterfaceDetails](c, &interfaces_.SwInterfaceDump{SwIfIndex: ^interface_types.InterfaceIndex(0)}) {
			names[d.InterfaceName] = true
		}
		if len(names) != 2 || !names["tap7"] || !names["local0"] {
			t.Fatalf("restart %d: interfaces %v", i, names)
		}
		now := call1[*memclnt.ControlPingReply](c, &memclnt.ControlPing{}).VpePID
		if now == pid {
			t.Fatalf("restart %d: pid is still %d", i, now)
		}
		before, pid = c, now
	}
}

func TestFaults(t *testing.T) {
	v := New(Config{})
	c := dial(t, v)
	v.Fail(func(name string) (int32, bool) {
		switch name {
		case "create_loopback_instance", "sw_interface_dump":
			return -99, false
		case "delete_loopback":
			return 0, true
		}
		return 0, false
	})
	if rv := c.retval(&interfaces_.CreateLoopbackInstance{}); rv != -99 {
		t.Errorf("retval %d, want the injected one", rv)
	}
	if d := dump[*interfaces_.SwInterfaceDetails](c, &interfaces_.SwInterfaceDump{}); len(d) != 0 {
		t.Errorf("a failing dump sent %d details", len(d))
	}
	writes := v.Writes()
	c.ask(&interfaces_.DeleteLoopback{SwIfIndex: 1})
	if !c.dead() {
		t.Error("connection was not dropped")
	}
	if v.Writes() != writes {
		t.Error("a request VPP never saw is in the log")
	}
	v.Fail(nil)
	dial(t, v).must(&interfaces_.CreateLoopbackInstance{})
	if got := v.Interfaces(); len(got) != 2 {
		t.Errorf("interfaces %v: the refused request had an effect", got)
	}
}

// An onlooker sees VPP between two requests that were sent together.
func TestAfter(t *testing.T) {
	v := New(Config{})
	c := dial(t, v)
	var seen []string
	v.After(func(r Record) { seen = append(seen, fmt.Sprintf("%s %d: %d", r.Name, r.Retval, len(v.Interfaces()))) })
	c.ask(&interfaces_.CreateLoopbackInstance{})
	c.ask(&vpe.ShowVersion{})
	c.ask(&interfaces_.CreateLoopbackInstance{})
	for range 3 {
		if _, _, err := c.next(); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"create_loopback_instance 0: 2", "create_loopback_instance 0: 3"}
	if !slices.Equal(seen, want) {
		t.Errorf("seen %q, want %q", seen, want)
	}
	v.Fail(func(string) (int32, bool) { return -1, false })
	c.retval(&interfaces_.CreateLoopbackInstance{})
	v.Fail(nil)
	if v.After(func(Record) { v.Restart() }); len(seen) != 2 {
		t.Errorf("the onlooker saw a refused request: %q", seen)
	}
	c.ask(&interfaces_.CreateLoopbackInstance{})
	if !c.dead() {
		t.Error("a VPP that restarted under the onlooker's eyes answers")
	}
}

// together sends requests in one write.
func (c *client) together(list ...api.Message) {
	nc := c.nc
	g := &gathered{Conn: nc}
	c.nc = g
	for _, m := range list {
		c.ask(m)
	}
	c.nc = nc
	if _, err := nc.Write(g.bytes); err != nil {
		c.t.Fatal(err)
	}
}

// gathered keeps what is written.
type gathered struct {
	net.Conn
	bytes []byte
}

func (g *gathered) Write(b []byte) (int, error) {
	g.bytes = append(g.bytes, b...)
	return len(b), nil
}

// No packet is forwarded between requests that VPP reads at once.
func TestNothingBetweenRequests(t *testing.T) {
	v := New(Config{})
	c := dial(t, v)
	const index = 1
	c.retval(&interfaces_.CreateLoopbackInstance{})
	up := &interfaces_.SwInterfaceSetFlags{SwIfIndex: index, Flags: interface_types.IF_STATUS_API_FLAG_ADMIN_UP}
	c.retval(up)
	ctx, stop := context.WithCancel(t.Context())
	var forwards sync.WaitGroup
	rounds, down := 0, 0
	forwards.Go(func() {
		for ctx.Err() == nil {
			v.Wired(v.Now(), func(g Graph) {
				if rounds++; !g.v.ifs.get(index).up {
					down++
				}
			})
		}
	})
	for range 3000 {
		c.together(&interfaces_.SwInterfaceSetFlags{SwIfIndex: index}, up)
		for range 2 {
			if m, _, err := c.next(); err != nil || getRetval(m) != 0 {
				t.Fatal(m, err)
			}
		}
	}
	stop()
	forwards.Wait()
	if rounds == 0 || down > 0 {
		t.Errorf("in %d of %d rounds the interface was down", down, rounds)
	}
}

// Many clients write many requests before they read anything; each gets its replies in order.
func TestManyClientsPipelined(t *testing.T) {
	v := New(Config{})
	const clients, requests = 8, 300
	var wg sync.WaitGroup
	for n := range clients {
		c := dial(t, v)
		wg.Go(func() {
			for i := range requests {
				if i%3 == 0 {
					c.ask(&interfaces_.CreateLoopbackInstance{IsSpecified: true, UserInstance: uint32(n*requests + i)})
				} else {
					c.ask(&memclnt.ControlPing{})
				}
			}
			for i := range requests {
				m, ctx, err := c.next()
				if err != nil || ctx != uint32(i+1) || getRetval(m) != 0 {
					t.Errorf("client %d: reply %d has context %d, retval %d, error %v", n, i, ctx, getRetval(m), err)
					return
				}
			}
		})
	}
	for i := range 50 { // sends packets and reads the state meanwhile
		v.Send("loop0", Packet{})
		_ = v.Dump()
		_ = v.Log()
		_ = i
	}
	wg.Wait()
	if got := len(v.Interfaces()); got != clients*requests/3+1 {
		t.Errorf("%d interfaces", got)
	}
	v.Close()
}

func TestInterfaceEvents(t *testing.T) {
	v := New(Config{})
	c, quiet := dial(t, v), dial(t, v)
	if rv := c.retval(&interfaces_.WantInterfaceEvents{}); rv != -31 {
		t.Errorf("disabling what is not enabled: %d", rv)
	}
	c.must(&interfaces_.WantInterfaceEvents{EnableDisable: 1, PID: 42})
	if rv := c.retval(&interfaces_.WantInterfaceEvents{EnableDisable: 1, PID: 42}); rv != -31 {
		t.Errorf("enabling twice: %d", rv)
	}
	i := interface_types.InterfaceIndex(v.AddInterface(Interface{Name: "tap1"}))
	c.must(&interfaces_.SwInterfaceSetFlags{SwIfIndex: i})
	v.RemoveInterface("tap1")
	c.must(&memclnt.ControlPing{})
	quiet.must(&memclnt.ControlPing{})
	want := []string{"1 0 false", "1 3 false", "1 0 false", "1 0 true"}
	var got []string
	for _, e := range c.events {
		m := e.(*interfaces_.SwInterfaceEvent)
		got = append(got, fmt.Sprintf("%d %d %v", m.SwIfIndex, m.Flags, m.Deleted))
		if m.PID != 42 {
			t.Errorf("event for pid %d", m.PID)
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("events %v, want %v", got, want)
	}
	if len(quiet.events) != 0 {
		t.Errorf("%d events for a client that did not ask", len(quiet.events))
	}
}

func TestLog(t *testing.T) {
	v := New(Config{LogLimit: 100})
	v.AddInterface(Interface{Name: "tap1"})
	c := dial(t, v)
	c.must(&interfaces_.SwInterfaceTagAddDel{IsAdd: true, SwIfIndex: 1, Tag: "ca1:x"}, &memclnt.ControlPing{})
	c.retval(&interfaces_.SwInterfaceSetFlags{SwIfIndex: 9, Flags: 1})
	want := []string{
		`sw_interface_tag_add_del is_add=true sw_if_index=tap1 tag=ca1:x`,
		`control_ping`,
		`sw_interface_set_flags sw_if_index=unknown:9 flags=IF_STATUS_API_FLAG_ADMIN_UP => -2`,
	}
	for i, r := range v.Log() {
		if r.String() != want[i] || r.Seq != i+1 || r.Write != (i != 1) {
			t.Errorf("record %d: %+v, want %s", i, r, want[i])
		}
	}
	if v.Writes() != 2 {
		t.Errorf("%d writes", v.Writes())
	}
	v.ClearLog()
	if len(v.Log()) != 0 || v.Writes() != 0 {
		t.Error("the log was not cleared")
	}
	for range 450 {
		c.must(&memclnt.ControlPing{})
	}
	if list := v.Log(); len(list) != 100 || list[99].Seq != 453 {
		t.Errorf("log of %d records ends at %+v", len(list), list[len(list)-1])
	}
}

// Every message that the sim answers has a reply, details and events that the client finds in the table.
func TestMessageTableIsComplete(t *testing.T) {
	table := messages()
	for name := range table.handlers {
		if _, ok := table.index[name]; !ok {
			t.Errorf("%s has a handler and no id", name)
		}
	}
	seen := map[uint16]string{}
	for epoch := range 3 {
		clear(seen)
		for i, name := range table.names {
			id := table.idOf(i, epoch)
			if other, dup := seen[id]; dup {
				t.Fatalf("%s and %s share id %d", name, other, id)
			}
			seen[id] = name
			if h := table.handler(id, epoch); h != table.handlers[name] {
				t.Fatalf("epoch %d: id %d of %s finds another handler", epoch, id, name)
			}
		}
	}
}

// FuzzServer: the server survives any bytes of one client, and serves another client; after a request that crashes VPP, once it is restarted.
func FuzzServer(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0, 15, 0, 0, 0, 1})
	for _, m := range []api.Message{&nat44_ed.Nat44AddDelLbStaticMapping{}, &interfaces_.SwInterfaceDump{}, &vlib.CliInband{}} {
		id := messages().id(m, 0)
		f.Add(append([]byte{byte(id >> 8), byte(id)}, make([]byte, 120)...))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		v := New(Config{})
		bad := dial(t, v)
		bad.raw(body)
		ping := make([]byte, 16+requestHeader)
		ping[11] = requestHeader
		binary.BigEndian.PutUint16(ping[16:], messages().id(&memclnt.ControlPing{}, 0))
		_, _ = bad.nc.Write(ping) // the server may have closed the connection
		if bad.dead() && v.Crashed() != nil {
			t.Log(v.Crashed())
			v.Restart()
		}
		_ = bad.nc.Close()
		dial(t, v).must(&memclnt.ControlPing{})
		v.Close()
	})
}
