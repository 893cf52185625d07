package linux_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/nftables"
	"github.com/google/nftables/userdata"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/proto/ligato/linux/namespace"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/all"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/linux"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/linux/nodeports"
)

// netNS is a network namespace without a name that ends with the test.
type netNS struct {
	path string
	nl   *netlink.Handle
}

// newNS makes a namespace. It needs root or a user namespace.
func newNS(t *testing.T) *netNS {
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
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(netns.Set(old), old.Close()); err != nil {
		t.Fatal(err)
	}
	nl, err := netlink.NewHandleAt(fresh)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		nl.Close()
		if err := fresh.Close(); err != nil {
			t.Error(err)
		}
	})
	return &netNS{path: fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), int(fresh)), nl: nl}
}

func (n *netNS) ref() *namespace.NetNamespace {
	return &namespace.NetNamespace{Type: namespace.NetNamespace_FD, Reference: n.path}
}

// text returns the whole configuration of the namespace, without numbers and names that the kernel chooses.
func (n *netNS) text(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	links, err := n.nl.LinkList()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		a := l.Attrs()
		fmt.Fprintf(&b, "%s %s %q mtu %d up %t offloaded %t\n", a.Name, l.Type(), a.Alias, a.MTU, a.RawFlags&1 != 0, n.checksums(a.Name))
		addrs, err := n.nl.AddrList(l, netlink.FAMILY_ALL)
		if err != nil {
			t.Fatal(err)
		}
		for _, addr := range addrs {
			if !addr.IP.IsLinkLocalUnicast() {
				fmt.Fprintf(&b, "  %s\n", addr.IPNet)
			}
		}
		routes, err := n.nl.RouteList(l, netlink.FAMILY_ALL)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range routes {
			if r.Protocol != 2 { // the kernel's own
				fmt.Fprintf(&b, "  route %s via %s metric %d scope %s protocol %d\n", r.Dst, r.Gw, r.Priority, r.Scope, r.Protocol)
			}
		}
		for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
			neighs, err := n.nl.NeighList(a.Index, family)
			if err != nil {
				t.Fatal(err)
			}
			for _, k := range neighs {
				if k.State&netlink.NUD_PERMANENT != 0 {
					fmt.Fprintf(&b, "  neighbour %s %s\n", k.IP, k.HardwareAddr)
				}
			}
		}
	}
	b.WriteString(n.filter(t))
	return b.String()
}

// filter returns the chains of the packet filter, with the numbers of their rules, the rules' comments, and the elements of its sets.
func (n *netNS) filter(t *testing.T) string {
	t.Helper()
	at, err := netns.GetFromPath(n.path)
	if err != nil {
		t.Fatal(err)
	}
	defer at.Close()
	c, err := nftables.New(nftables.WithNetNSFd(int(at)))
	if err != nil {
		t.Fatal(err)
	}
	chains, err := c.ListChains()
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, chain := range chains {
		rules, err := c.GetRules(chain.Table, chain)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, fmt.Sprintf("filter %d %s %s: %d rules\n", chain.Table.Family, chain.Table.Name, chain.Name, len(rules)))
		for _, r := range rules {
			if comment, has := userdata.GetString(r.UserData, userdata.TypeComment); has {
				lines = append(lines, fmt.Sprintf("filter %d %s %s: %s\n", chain.Table.Family, chain.Table.Name, chain.Name, comment))
			}
		}
	}
	tables, err := c.ListTables()
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range tables {
		sets, err := c.GetSets(table)
		if err != nil {
			t.Fatal(err)
		}
		for _, set := range sets {
			elements, err := c.GetSetElements(set)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range elements {
				lines = append(lines, fmt.Sprintf("filter %d %s %s: %x\n", table.Family, table.Name, set.Name, e.Key))
			}
		}
	}
	return strings.Join(slices.Sorted(slices.Values(lines)), "")
}

// checksums reports whether packets get their checksums only after the link.
func (n *netNS) checksums(link string) (offloaded bool) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		at, err := netns.GetFromPath(n.path)
		if err != nil || netns.Set(at) != nil {
			return
		}
		defer at.Close()
		features, err := ethtool(link)
		offloaded = err == nil && features != 0
	}()
	<-done
	return offloaded
}

// ethtool asks for ETHTOOL_GTXCSUM (linux/ethtool.h).
func ethtool(link string) (uint32, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	value := &[2]uint32{unix.ETHTOOL_GTXCSUM, 0}
	var request struct {
		name  [unix.IFNAMSIZ]byte
		value unsafe.Pointer
		_     [16]byte
	}
	copy(request.name[:], link)
	request.value = unsafe.Pointer(value)
	_, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request)))
	if e != 0 {
		return 0, e
	}
	return value[1], nil
}

// lab is an agent between two namespaces and a VPP.
type lab struct {
	t        *testing.T
	own, pod *netNS
	sim      *sim.VPP
	caller   *linux.Caller
	journal  string
	agent    *vppagent.Agent
	want     kv.Values
}

func newLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{t: t, own: newNS(t), pod: newNS(t), sim: sim.New(sim.Config{}), journal: filepath.Join(t.TempDir(), "journal"), want: kv.Values{}}
	up := make(chan struct{}, 10)
	conn := vpp.New(vpp.Config{Dial: l.sim.Dial, OnState: func(s vpp.State) {
		if s.Connected {
			up <- struct{}{}
		}
	}})
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = conn.Run(ctx) }()
	t.Cleanup(func() { stop(); <-done })
	<-up
	l.caller = &linux.Caller{VPP: conn, Own: l.own.path}
	l.restart()
	return l
}

// restart replaces the agent by one that has only the journal.
func (l *lab) restart() {
	l.agent = vppagent.New(vppagent.Config{Caller: l.caller, Journal: l.journal, Descriptors: slices.Concat(all.All(), linux.All(), nodeports.All())})
}

func (l *lab) commit(kind event.ResyncKind, values map[string]proto.Message) *event.Committed {
	l.t.Helper()
	c := l.agent.Commit(l.t.Context(), &event.Txn{Resync: kind, Values: values})
	if c.Err != nil {
		l.t.Fatal(c.Err)
	}
	return c
}

func (l *lab) put(ms ...proto.Message) *event.Committed {
	l.t.Helper()
	values := kv.Values{}
	for _, m := range ms {
		values.Put(m)
		l.want.Put(m)
	}
	return l.commit(event.NoResync, values)
}

func (l *lab) del(ms ...proto.Message) *event.Committed {
	l.t.Helper()
	values := map[string]proto.Message{}
	for _, m := range ms {
		values[kv.Key(m)] = nil
		delete(l.want, kv.Key(m))
	}
	return l.commit(event.NoResync, values)
}

func (l *lab) resync() *event.Committed {
	l.t.Helper()
	return l.commit(event.Full, l.want)
}

// checkApplied fails unless every status is CONFIGURED or removed.
func (l *lab) checkApplied(what string, c *event.Committed) {
	l.t.Helper()
	for _, s := range c.Statuses {
		if s.State != event.Configured && s.State != event.Removed {
			l.t.Errorf("%s: %s %s %s %v", what, s.Key, s.State, s.Err, s.Details)
		}
	}
}

// checkQuiet resyncs with this agent and with a fresh one; neither writes.
func (l *lab) checkQuiet(what string) {
	l.t.Helper()
	for range 2 {
		c := l.resync()
		l.checkApplied(what, c)
		if c.Writes > 0 {
			l.t.Errorf("%s: a resync writes %d times, %d added, %d changed, %d removed", what, c.Writes, c.Add, c.Mod, c.Del)
		}
		l.restart()
	}
	l.resync()
}

func state(c *event.Committed, m proto.Message) event.ValueStatus {
	for _, s := range c.Statuses {
		if s.Key == kv.Key(m) {
			return s
		}
	}
	return event.ValueStatus{}
}
