package cleanup

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	contivlinux "github.com/contiv-agent/contiv-agent/proto/contiv/linux"
	contivl3 "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/l3"
	"github.com/contiv-agent/contiv-agent/proto/ligato/linux/interfaces"
	"github.com/contiv-agent/contiv-agent/proto/ligato/linux/l3"
	"github.com/contiv-agent/contiv-agent/proto/ligato/linux/namespace"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/all"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/linux"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/linux/nodeports"
)

// machine is a node: a network namespace with a NIC, a pod's namespace, a VPP, and folders.
type machine struct {
	t        *testing.T
	own, pod string // paths of namespaces
	nl       *netlink.Handle
	sim      *sim.VPP
	dir      string
}

// newNamespace returns the path of a namespace that ends with the test.
func newNamespace(t *testing.T) string {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	old, err := netns.Get()
	if err != nil {
		t.Fatal(err)
	}
	fresh, err := netns.New()
	if errors.Is(err, os.ErrPermission) {
		t.Skipf("cannot make a network namespace: %v: run as root", err)
	}
	if err := errors.Join(err, netns.Set(old), old.Close()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = fresh.Close() })
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), int(fresh))
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	m := &machine{t: t, own: newNamespace(t), pod: newNamespace(t), sim: sim.New(sim.Config{}), dir: t.TempDir()}
	t.Cleanup(m.sim.Close)
	at, err := netns.GetFromPath(m.own)
	if err != nil {
		t.Fatal(err)
	}
	defer at.Close()
	if m.nl, err = netlink.NewHandleAt(at); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.nl.Close)
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "eth0"
	if err := m.nl.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "cv-foreign"}); err != nil {
		t.Fatal(err)
	}
	m.write("net.d/99-other.conflist", "state/foreign", "bin/other")
	return m
}

func (m *machine) write(names ...string) {
	m.t.Helper()
	for _, name := range names {
		path := filepath.Join(m.dir, name)
		err := os.MkdirAll(filepath.Dir(path), 0o700)
		if err == nil {
			err = os.WriteFile(path, []byte(name), 0o600)
		}
		if err != nil {
			m.t.Fatal(err)
		}
	}
}

// agent lets an agent make values and files, and end.
func (m *machine) agent() {
	m.t.Helper()
	m.write("net.d/10-contiv.conflist", "bin/contiv-cni", "state/addresses.db", "state/attachments.db", "state/cni/0123.json", "net.d/.10-contiv.conflist.1.tmp", "run/grpc.sock")
	ctx, stop := context.WithCancel(m.t.Context())
	up, done := make(chan struct{}, 10), make(chan struct{})
	conn := vpp.New(vpp.Config{Dial: m.sim.Dial, OnState: func(s vpp.State) {
		if s.Connected {
			up <- struct{}{}
		}
	}})
	go func() { defer close(done); _ = conn.Run(ctx) }()
	<-up
	a := vppagent.New(vppagent.Config{
		Caller: &linux.Caller{VPP: conn, Own: m.own}, Journal: m.journal(), Descriptors: slices.Concat(all.All(), linux.All(), nodeports.All()),
	})
	veth := func(name, peer string, at *namespace.NetNamespace, addresses ...string) proto.Message {
		return &interfaces.Interface{
			Name: name, HostIfName: name, Type: interfaces.Interface_VETH, Enabled: true, Namespace: at, IpAddresses: addresses,
			Link: &interfaces.Interface_Veth{Veth: &interfaces.VethLink{PeerIfName: peer}},
		}
	}
	pod := &namespace.NetNamespace{Type: namespace.NetNamespace_FD, Reference: m.pod}
	values := kv.Values{}
	for _, v := range []proto.Message{
		veth("contiv-host", "cv-host", nil, "10.1.1.1/32"), veth("cv-host", "contiv-host", nil),
		veth("cv-0123", "pod", nil), veth("pod", "cv-0123", pod, "10.1.1.2/32"), veth("one", "two", pod), veth("two", "one", pod),
		&interfaces.Interface{Name: "uplink", Type: interfaces.Interface_EXISTING, HostIfName: "eth0", Enabled: true, IpAddresses: []string{"192.168.7.7/24"}},
		&l3.Route{OutgoingInterface: "uplink", DstNetwork: "10.3.0.0/16", Scope: l3.Route_LINK},
		&contivlinux.Handover{Interface: "contiv-host", VppLinks: []string{"cv-"}},
		&contivl3.RejectRoute{DstNetwork: "10.96.0.1/32"},
	} {
		values.Put(v)
	}
	c := a.Commit(m.t.Context(), &event.Txn{Resync: event.Full, Values: values})
	for _, s := range c.Statuses {
		if s.State != event.Configured {
			m.t.Errorf("%s: %s %s", s.Key, s.State, s.Err)
		}
	}
	stop()
	<-done
}

func (m *machine) journal() string { return filepath.Join(m.dir, "run/journal") }

func (m *machine) config(dial func(context.Context) (net.Conn, error)) Config {
	in := func(name string) string { return filepath.Join(m.dir, name) }
	return Config{
		Dial: dial, Journal: m.journal(), StatusSocket: in("run/agent.sock"), Files: []string{in("net.d/10-contiv.conflist"), in("bin/contiv-cni")},
		Node: &Node{
			Own: m.own, Databases: []string{in("state/addresses.db"), in("state/attachments.db")}, Folders: []string{in("state"), in("run")},
			Patterns: []string{in("state/addresses.db*"), in("state/attachments.db*"), in("state/cni"), in("run/grpc.sock"), in("net.d/.10-contiv.conflist.*.tmp"), in("run/journal.new-*")},
		},
	}
}

// shown are the links, addresses and routes of both namespaces, and all files, but for numbers.
func (m *machine) shown() string {
	m.t.Helper()
	var b strings.Builder
	for _, path := range []string{m.own, m.pod} {
		at, err := netns.GetFromPath(path)
		if err != nil {
			m.t.Fatal(err)
		}
		defer at.Close()
		nl, err := netlink.NewHandleAt(at)
		if err != nil {
			m.t.Fatal(err)
		}
		defer nl.Close()
		links, err := nl.LinkList()
		if err != nil {
			m.t.Fatal(err)
		}
		for _, l := range links {
			addrs, err := nl.AddrList(l, netlink.FAMILY_V4)
			routes, failed := nl.RouteList(l, netlink.FAMILY_V4)
			if err != nil || failed != nil {
				m.t.Fatal(err, failed)
			}
			fmt.Fprintf(&b, "%s %q %v\n", l.Attrs().Name, l.Attrs().Alias, addrs)
			for _, r := range routes {
				fmt.Fprintf(&b, "  %s %d\n", r.Dst, r.Protocol)
			}
		}
	}
	err := filepath.WalkDir(m.dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			fmt.Fprintln(&b, strings.TrimPrefix(path, m.dir))
		}
		return err
	})
	if err != nil {
		m.t.Fatal(err)
	}
	return b.String()
}

// down sets the NIC down again: an agent that has set an existing link up leaves it up.
func (m *machine) down() {
	m.t.Helper()
	l, err := m.nl.LinkByName("eth0")
	if err == nil {
		err = m.nl.LinkSetDown(l)
	}
	if err != nil {
		m.t.Fatal(err)
	}
}

func refused(context.Context) (net.Conn, error) { return nil, syscall.ECONNREFUSED }

// mute is a VPP that accepts connections and never answers.
func mute(ctx context.Context) (net.Conn, error) {
	a, b := net.Pipe()
	context.AfterFunc(ctx, func() { _, _ = a.Close(), b.Close() })
	return a, nil
}

// TestNode: a node is as before the agent, with its VPP and without one, and a dry run says what is removed. A second cleanup finds nothing.
func TestNode(t *testing.T) {
	for _, with := range []string{"VPP", "no VPP"} {
		t.Run(with, func(t *testing.T) {
			m := newMachine(t)
			dial := refused
			if with == "VPP" {
				dial = m.sim.Dial
			}
			before := m.shown()
			m.agent()
			full := m.shown()
			for i, want := range []bool{true, false} {
				c, err := New(t.Context(), m.config(dial))
				if err != nil {
					t.Fatal(err)
				}
				plan, err := c.Plan(t.Context())
				if err != nil || plan.Empty() == want || (plan.Away == "") != (with == "VPP") {
					t.Errorf("%d: %v, %v", i, plan, err)
				}
				if now := strings.Replace(m.shown(), "/run/agent.sock\n", "", 1); want && now != full {
					t.Errorf("a dry run changed\n%s\nto\n%s", full, now)
				}
				for _, line := range []string{"delete link contiv-host\n", "delete table inet contiv\n", "cni/0123.json", "bin/contiv-cni\n", "1.tmp\n", "two"} {
					if line == "cni/0123.json" {
						line = "state/cni\n"
					}
					if strings.Contains(plan.String(), line) != want {
						t.Errorf("%d: %q in the plan %t:\n%s", i, line, !want, plan)
					}
				}
				report, err := c.Clean(t.Context())
				if err != nil || !report.Whole() || len(report.Files) > 0 != want {
					t.Errorf("%d: %+v, %v", i, report, err)
				}
				c.Close()
				m.down()
				if now := m.shown(); now != before {
					t.Errorf("%d: before:\n%s\nafter:\n%s", i, before, now)
				}
			}
			c, err := New(t.Context(), m.config(dial))
			if err != nil {
				t.Fatal(err)
			}
			_, err = c.Plan(t.Context())
			c.Close()
			if _, stays := os.Stat(filepath.Join(m.dir, "run")); stays == nil || err != nil {
				t.Errorf("the agent's folder exists after a dry run of a clean node, %v", err)
			}
		})
	}
}

// TestNodeWithoutJournal: what has a mark is removed without VPP and journal.
func TestNodeWithoutJournal(t *testing.T) {
	m := newMachine(t)
	m.agent()
	if err := os.Remove(m.journal()); err != nil {
		t.Fatal(err)
	}
	c, err := New(t.Context(), m.config(refused))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	report, err := c.Clean(t.Context())
	if err != nil || !report.Whole() || strings.Contains(m.shown(), `"contiv-agent contiv-host`) || strings.Contains(m.shown(), " 202\n") {
		t.Errorf("%+v, %v\n%s", report, err, m.shown())
	}
}

// TestNodeVPPIsSilent: the kernel is cleaned, and what a later cleanup of VPP needs stays.
func TestNodeVPPIsSilent(t *testing.T) {
	m := newMachine(t)
	m.agent()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	c, err := New(ctx, m.config(mute))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	report, err := c.Clean(t.Context())
	if err != nil || report.Whole() || len(report.Kernel) == 0 || !strings.Contains(report.Failed[0], "VPP's objects: ") {
		t.Errorf("%+v, %v", report, err)
	}
	for _, path := range []string{m.journal(), filepath.Join(m.dir, "state/attachments.db")} {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
}

// TestNodeInUse: an agent that waits for its VPP has its files open.
func TestNodeInUse(t *testing.T) {
	m := newMachine(t)
	m.agent()
	f, err := os.Open(filepath.Join(m.dir, "state/attachments.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	before := m.shown()
	if _, err := New(t.Context(), m.config(refused)); !errors.Is(err, ErrInUse) || m.shown() != before {
		t.Errorf("%v\n%s", err, m.shown())
	}
}
