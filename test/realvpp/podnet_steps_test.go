package realvpp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/contiv-agent/contiv-agent/test/oracle"
)

// steps counts what the agent does while a call runs, and has a fault at one of them.
type steps struct {
	mu    sync.Mutex
	left  int // until the fault; 0: none is to come
	fault func()
	seen  int
}

// arm makes the nth step from now on have a fault.
func (s *steps) arm(n int, fault func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left, s.fault, s.seen = n, fault, 0
}

// disarm reports whether the fault happened.
func (s *steps) disarm() (happened bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	happened = s.left == 0
	s.left = 0
	return happened
}

// happens is one step. The fault is over when it returns.
func (s *steps) happens() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen++; s.left > 0 {
		if s.left--; s.left == 0 {
			s.fault()
		}
	}
}

// relay is VPP's API socket as the agent sees it: each message to VPP is a step before VPP gets it.
func (s *steps) relay(t *testing.T, at, vpp string) {
	t.Helper()
	l, err := net.Listen("unix", at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			agent, err := l.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("unix", vpp)
			if err != nil {
				agent.Close()
				continue
			}
			go func() {
				_, _ = io.Copy(agent, to) // until one of them ends
				agent.Close()
			}()
			go func() {
				s.forward(to, agent)
				to.Close()
			}()
		}
	}()
}

// forward passes messages on, each with its header of 16 bytes, which has the length.
func (s *steps) forward(to io.Writer, from io.Reader) {
	for header := make([]byte, 16); ; {
		if _, err := io.ReadFull(from, header); err != nil {
			return
		}
		body := make([]byte, binary.BigEndian.Uint32(header[8:]))
		if _, err := io.ReadFull(from, body); err != nil {
			return
		}
		s.happens()
		if _, err := to.Write(append(header[:16:16], body...)); err != nil {
			return
		}
	}
}

// watchFiles makes each write to files of a folder a step.
func (s *steps) watchFiles(t *testing.T, dir string, names ...string) {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "inotify")
	t.Cleanup(func() { f.Close() })
	for _, name := range names {
		if _, err := unix.InotifyAddWatch(fd, filepath.Join(dir, name), unix.IN_MODIFY); err != nil {
			t.Fatal(err)
		}
	}
	go func() {
		buf := make([]byte, 1<<16)
		for {
			n, err := f.Read(buf)
			if err != nil {
				return
			}
			for b := buf[:n]; len(b) >= unix.SizeofInotifyEvent; {
				s.happens()
				b = b[unix.SizeofInotifyEvent+binary.NativeEndian.Uint32(b[12:]):]
			}
		}
	}()
}

// watchKernel makes each change of links, addresses, routes and neighbours of a namespace a step, until the file is closed.
func (s *steps) watchKernel(ns *netns) (*os.File, error) {
	f, err := ns.socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	const groups = unix.RTMGRP_LINK | unix.RTMGRP_NEIGH | unix.RTMGRP_IPV4_IFADDR | unix.RTMGRP_IPV4_ROUTE | unix.RTMGRP_IPV6_IFADDR | unix.RTMGRP_IPV6_ROUTE
	if err := onFD(f, func(fd int) error {
		return unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups})
	}); err != nil {
		f.Close()
		return nil, err
	}
	go func() {
		for buf := make([]byte, 1<<16); ; s.happens() {
			if _, err := f.Read(buf); err != nil && !errors.Is(err, unix.ENOBUFS) {
				return
			}
		}
	}()
	return f, nil
}

// victims are who is killed at a step.
var victims = []string{"agent", "VPP", "plugin", "agent and VPP"}

// stepped is a node whose steps are counted: by the messages to VPP, the writes to the agent's files, and the changes of the kernel's network.
type stepped struct {
	*killed
	messages, writes, changes steps
	stride                    int
	pod                       *os.File // watches the namespace of the latest pod
}

func openStepped(t *testing.T, path string) *stepped {
	k := &stepped{}
	c := newPodCluster(t, clusterShape{})
	c.relayed = func(n *podNode) {
		if n.number == 1 {
			n.relay = filepath.Join(n.dir, "relay.sock")
			k.messages.relay(t, n.relay, n.socket())
		}
	}
	c.addNode(path, 1)
	c.addNode(path, 2)
	k.killed = killNodes(c)
	k.calm = true
	k.writes.watchFiles(t, k.n.dir, "addresses.db", "attachments.db")
	f, err := k.changes.watchKernel(k.n.ns)
	k.check(err)
	t.Cleanup(func() { f.Close() })
	k.enters = func(ns *netns) {
		k.unwatch()
		k.pod, err = k.changes.watchKernel(ns)
		k.check(err)
	}
	return k
}

// unwatch ends the watch of a pod's namespace, which exists as long as a socket in it.
func (k *stepped) unwatch() {
	if k.pod != nil {
		k.pod.Close()
		k.pod = nil
	}
}

// at is a fault at the nth step of a kind. It reports, later, whether the call came that far.
func (k *stepped) at(of *steps, n int, victim string) (during fault, happened func() bool) {
	var failed error
	var busy sync.WaitGroup
	during = func(plugin *exec.Cmd) error {
		of.arm(n, func() {
			over := make(chan struct{})
			busy.Go(func() {
				failed = k.kill(plugin, victim, 20*time.Millisecond, func() { close(over) })
			})
			<-over // the step is not done before
		})
		return nil
	}
	return during, func() bool {
		k.t.Helper()
		hit := of.disarm()
		busy.Wait()
		k.check(failed)
		return hit
	}
}

// tries has a call with a fault at the nth step.
var tries = []struct {
	verb string
	try  func(k *stepped, during fault)
}{
	{"ADD", func(k *stepped, during fault) {
		if p := k.connectNext(during); p != nil {
			k.asks(k.friend, p)
			k.remove(p)
		}
	}},
	{"DEL", func(k *stepped, during fault) {
		if p := k.connectNext(nil); p != nil {
			if _, err := k.call("DEL", p.name, p.ns, during); err != nil {
				k.remove(p)
				return
			}
			k.forget(p)
		}
	}},
	{"GC", func(k *stepped, during fault) {
		if p := k.connectNext(nil); p != nil {
			k.lose(p)
		}
		k.collect(during)
	}},
	{"CHECK", func(k *stepped, during fault) {
		if p := k.connectNext(nil); p != nil {
			k.list["prevResult"] = p.output
			_, _ = k.call("CHECK", p.name, p.ns, during) // it may fail for now
			delete(k.list, "prevResult")
			k.remove(p)
		}
	}},
	{"STATUS", func(k *stepped, during fault) { _, _ = k.call("STATUS", "", nil, during) }}, // likewise
}

// walk has a fault at each step of a kind in a call, one after the other; it returns the number of steps.
func (k *stepped) walk(verb, kind string, of *steps, try func(*stepped, fault)) (n int) {
	k.t.Helper()
	for n = 1; !k.t.Failed(); n += k.stride {
		victim := "agent"
		if of == &k.messages {
			victim = victims[n/k.stride%len(victims)]
		}
		k.story = append(k.story, fmt.Sprintf("%s: %s is killed at %s %d", verb, victim, kind, n))
		k.ready()
		during, happened := k.at(of, n, victim)
		try(k, during)
		hit := happened()
		k.unwatch()
		if !hit || n/k.stride%4 == 0 {
			k.settle(nil)
			k.files(false)
			k.story = nil
		}
		if !hit {
			break
		}
		k.kills[victim]++
	}
	return n - 1
}

// TestVPPPodNetworkSteps kills the agent, VPP or the plugin once at each step of each verb: before each message to VPP, and the agent after each
// write to its files and each change of the kernel's network. Some four steps later the node must be as before. CONTIV_VPP_STRIDE=n: every nth step.
func TestVPPPodNetworkSteps(t *testing.T) {
	k := openStepped(t, theVPP(t))
	k.stride = int(oracle.Setting(t, "CONTIV_VPP_STRIDE", 1))
	for _, v := range tries {
		messages := k.walk(v.verb, "message to VPP", &k.messages, v.try)
		writes := k.walk(v.verb, "write to a file", &k.writes, v.try)
		changes := k.walk(v.verb, "change of the kernel", &k.changes, v.try)
		t.Logf("%s: killed at %d messages to VPP, %d writes to files, %d changes of the kernel's network", v.verb, messages, writes, changes)
		if (v.verb == "ADD" || v.verb == "DEL") && (messages < 10 || writes < 2 || changes < 3) {
			t.Errorf("%s has too few steps: the faults miss it", v.verb)
		}
	}
	t.Logf("killed: %v", k.kills)
}
