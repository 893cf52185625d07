package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/fib_types"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip_types"
	"go.fd.io/govpp/binapi/nat44_ed"
	"go.fd.io/govpp/binapi/nat_types"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/agent/config"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/sim/packet"
	"github.com/contiv-agent/contiv-agent/test/pace"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

// These variables make this test program an agent: see TestMain.
const (
	socketVariable  = "CONTIV_BENCH_AGENT_SOCKET"
	journalVariable = "CONTIV_BENCH_AGENT_JOURNAL"
	inSync          = "in sync"
)

// TestMain lets the program be an agent, so that there is a process to kill.
func TestMain(m *testing.M) {
	if path := os.Getenv(socketVariable); path != "" {
		fmt.Fprintln(os.Stderr, agentProcess(path, os.Getenv(journalVariable)))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// agentProcess is an agent of the restarted cluster that says when it is in sync, and runs until it is killed.
func agentProcess(path, journal string) error {
	src := make(source)
	a, err := agent.New(agent.Config{
		NodeName: nodeName, VPP: vpp.Config{Socket: path, MaxBackoff: 10 * time.Millisecond}, VPPAgent: vppagent.Config{Journal: journal}, Override: cni.Located(),
		Sources: map[string]agent.Source{sourceName: src},
		Process: config.Process{OnCommitted: func(c *event.Committed) {
			if c.Resync == event.Full && c.Err == nil {
				fmt.Println(inSync)
			}
		}},
	})
	if err != nil {
		return err
	}
	go func() {
		src <- &event.Update{Source: sourceName, Changes: restarted().changes()}
		src <- &event.SyncStatus{Source: sourceName, Status: event.InSync}
	}()
	return a.Run(context.Background())
}

// restarted has 1,000 services of every kind that NAT44 distinguishes.
func restarted() *cluster {
	return newCluster(max(250, pace.Fewer(1000, 4)), 5, func(i int, svc *model.Service) {
		if i%4 == 0 {
			svc.Type, svc.Ports[0].NodePort = model.NodePort, uint16(30000+i)
		}
		if i%8 == 0 {
			svc.ExternalTrafficPolicy = model.PolicyLocal
		}
		if i%5 == 0 {
			svc.SessionAffinityTimeout = time.Hour
		}
		if i%7 == 0 {
			svc.ExternalIPs = []netip.Addr{netip.AddrFrom4([4]byte{203, 0, byte(i >> 8), byte(i)})}
		}
		if i%10 == 0 {
			svc.Ports = append(svc.Ports, model.ServicePort{Name: "dns", Protocol: model.UDP, Port: 53})
		}
	})
}

// process is an agent in a separate process.
type process struct {
	cmd *exec.Cmd
	out *bufio.Reader
}

func spawn(t *testing.T, path, journal string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(os.Args[0], append([]string{"-test.run=^$"}, os.Args[1:]...)...)} // with -test.short it has fewer Services, too
	p.cmd.Env = append(os.Environ(), socketVariable+"="+path, journalVariable+"="+journal)
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.out = bufio.NewReader(out)
	t.Cleanup(p.kill)
	return p
}

// kill ends the process without a word to it.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	_ = p.cmd.Wait()         // killed
}

// wait blocks until the agent is in sync; false: it ended before.
func (p *process) wait(t *testing.T) bool {
	t.Helper()
	line, err := p.out.ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	return line == inSync+"\n"
}

// TestRestartWritesNothing kills an agent with 1,000 services and starts it again, with connections open and things in VPP that
// are not the agent's.
func TestRestartWritesNothing(t *testing.T) {
	for _, c := range []struct {
		name          string
		journal, lost bool
		foreign       bool
	}{
		{name: "journal", journal: true},
		{name: "no journal"},
		{name: "journal lost", journal: true, lost: true},
		{name: "foreign objects and no journal", foreign: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			cluster := restarted()
			v := startSim(t, cluster)
			journal := ""
			if c.journal {
				journal = filepath.Join(t.TempDir(), "journal")
			}
			first := spawn(t, v.path, journal)
			if !first.wait(t) {
				t.Fatal("the first agent did not get in sync")
			}
			if c.foreign {
				addForeign(t, v)
			}
			connections := connect(t, v, cluster)
			dump, sessions := v.Dump(), texts(v)
			first.kill()
			if c.lost {
				if err := os.Remove(journal); err != nil {
					t.Fatal(err)
				}
			}
			v.ClearLog()
			if !spawn(t, v.path, journal).wait(t) {
				t.Fatal("the second agent did not get in sync")
			}
			if n := v.Writes(); n != 0 {
				t.Errorf("the second start wrote %d messages: %v", n, written(v))
			}
			if diff := cmp.Diff(sessions, texts(v)); diff != "" {
				t.Errorf("sessions (-before +after):\n%s", diff)
			}
			if diff := cmp.Diff(dump, v.Dump()); diff != "" {
				t.Errorf("configuration (-before +after):\n%s", diff)
			}
			for _, conn := range connections {
				if got := conn.send(v, packet.ACK); got != conn.leads {
					t.Errorf("%v: %s, before the restart %s", conn.first, got, conn.leads)
				}
			}
		})
	}
}

// written are the requests that changed VPP.
func written(v *plumbed) (out []string) {
	for _, r := range v.Log() {
		if r.Write {
			out = append(out, r.String())
		}
	}
	return out
}

func texts(v *plumbed) (out []string) {
	for _, s := range v.Sessions() {
		out = append(out, s.String())
	}
	return out
}

// connection is one that a client opened.
type connection struct {
	in    string // interface it enters by
	first packet.Packet
	leads string // where its packets go
}

// connect opens connections from a pod and from outside to services of all kinds.
func connect(t *testing.T, v *plumbed, c *cluster) (out []connection) {
	t.Helper()
	open := func(in string, src netip.Addr, dst netip.AddrPort) {
		conn := connection{in: in, first: packet.NewTCP(netip.AddrPortFrom(src, uint16(20000+len(out))), dst)}
		conn.leads = conn.send(v, packet.SYN)
		out = append(out, conn)
	}
	outside, node := netip.MustParseAddr("198.51.100.7"), c.nodes[0].InternalIPs[0]
	for i, svc := range c.services[:200] {
		pod := c.pods[i%len(c.pods)]
		open(cni.PodInterface(pod.ID), pod.IPs[0], netip.AddrPortFrom(svc.ClusterIPs[0], servicePort))
		if port := svc.Ports[0].NodePort; port != 0 && svc.ExternalTrafficPolicy == model.PolicyCluster {
			open(cni.Uplink, outside, netip.AddrPortFrom(node, port))
		}
		for _, addr := range svc.ExternalIPs {
			open(cni.Uplink, outside, netip.AddrPortFrom(addr, servicePort))
		}
	}
	if n := len(v.Sessions()); n < len(out) {
		t.Fatalf("%d connections made %d sessions only", len(out), n)
	}
	return out
}

// send sends a packet of the connection and returns the packets that leave VPP.
func (c connection) send(v *plumbed, flags uint8) string {
	p := c.first
	p.TCPFlags = flags
	fate := v.Send(c.in, p)
	for i := range fate.Out {
		fate.Out[i].Packet.TCPFlags = 0
	}
	return fmt.Sprint(fate.Out)
}

// addForeign configures what an operator might: nothing of it carries the agent's tag.
func addForeign(t *testing.T, v *plumbed) {
	t.Helper()
	none := ^interface_types.InterfaceIndex(0)
	target := fib_types.FibPath{SwIfIndex: 0, Type: fib_types.FIB_API_PATH_TYPE_DROP, Weight: 1}
	conn := dialBare(t, v.dial)
	defer conn.stop()
	for _, m := range []api.Message{
		&interfaces.CreateLoopback{},
		&ip.IPTableAddDel{IsAdd: true, Table: ip.IPTable{TableID: 77, Name: "somebody else"}},
		&ip.IPRouteAddDel{IsAdd: true, Route: ip.IPRoute{
			Prefix: ip_types.Prefix{Address: ip_types.NewAddress([]byte{198, 18, 0, 0}), Len: 15}, NPaths: 1, Paths: []fib_types.FibPath{target},
		}},
		&nat44_ed.Nat44AddDelAddressRange{
			IsAdd: true, FirstIPAddress: ip_types.IP4Address{203, 0, 113, 50}, LastIPAddress: ip_types.IP4Address{203, 0, 113, 51}, VrfID: ^uint32(0),
		},
		&nat44_ed.Nat44AddDelStaticMappingV2{
			IsAdd: true, Protocol: 6, ExternalSwIfIndex: none, ExternalIPAddress: ip_types.IP4Address{203, 0, 113, 50}, ExternalPort: 443,
			LocalIPAddress: ip_types.IP4Address{10, 0, 0, 2}, LocalPort: 443, Tag: "somebody else",
		},
		&nat44_ed.Nat44AddDelLbStaticMapping{
			IsAdd: true, Flags: nat_types.NAT_IS_OUT2IN_ONLY, Protocol: 17, ExternalAddr: ip_types.IP4Address{203, 0, 113, 60}, ExternalPort: 53, LocalNum: 2,
			Locals: []nat44_ed.Nat44LbAddrPort{{Addr: ip_types.IP4Address{10, 0, 0, 2}, Port: 53, Probability: 1}, {Addr: ip_types.IP4Address{10, 0, 0, 3}, Port: 53, Probability: 1}},
		},
	} {
		conn.do(t, []vpp.Call{{Msg: m}})
	}
}

// endsSessions is the request between the lists of one direction and those of both (ADR 12).
const endsSessions = "acl_interface_set_etype_whitelist"

// TestKilledHalfWay kills an agent in the middle of its first sync: the next one writes what is missing and nothing else.
func TestKilledHalfWay(t *testing.T) {
	c := restarted()
	whole := startSim(t, c)
	if !spawn(t, whole.path, "").wait(t) {
		t.Fatal("the undisturbed agent did not get in sync")
	}
	all := written(whole)
	for _, k := range []struct {
		at      int
		journal string
	}{{20, ""}, {len(all) / 2, filepath.Join(t.TempDir(), "journal")}, {len(all) - 1, ""}} {
		at, journal := k.at, k.journal
		for strings.Contains(all[at-1], endsSessions) || strings.Contains(all[at], endsSessions) {
			at++ // VPP reads this request together with those before and after it
		}
		v := startSim(t, c)
		victim := spawn(t, v.path, journal)
		writes := 0
		v.Fail(func(name string) (int32, bool) {
			if (&exchange{name: name}).write() {
				writes++
			}
			if writes <= at {
				return 0, false
			}
			_ = victim.cmd.Process.Kill() // seen by its silence
			return 0, true
		})
		if victim.wait(t) {
			t.Fatal("the agent outlived its killing")
		}
		v.Fail(nil)
		if n := v.Writes(); n != at {
			t.Fatalf("%d writes before the kill, want %d", n, at)
		}
		if !spawn(t, v.path, journal).wait(t) {
			t.Fatalf("killed after %d writes, the agent did not get in sync", at)
		}
		if n := v.Writes(); n != len(all) {
			t.Errorf("killed after %d writes: %d in both lives, want %d: %v", at, n, len(all), strange(written(v), all))
		}
		if diff := cmp.Diff(whole.Dump(), v.Dump()); diff != "" {
			t.Errorf("killed after %d writes (-undisturbed +killed):\n%s", at, diff)
		}
	}
}

// strange are the requests of got that are not in want as often.
func strange(got, want []string) (out []string) {
	rest := slices.Clone(want)
	for _, g := range got {
		if i := slices.Index(rest, g); i >= 0 {
			rest = slices.Delete(rest, i, i+1)
		} else {
			out = append(out, g)
		}
	}
	return out
}
