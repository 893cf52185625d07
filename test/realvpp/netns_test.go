package realvpp

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// netns is a network namespace that exists as long as its thread: all that it holds ends with the test process, too.
type netns struct {
	calls chan func()
	ended chan struct{}
	path  string // where the kernel shows it, for as long as it exists
	over  sync.Once
}

func newNetns() (*netns, error) {
	lookForIPv6()
	return emptyNetns()
}

// lookForIPv6 lets package net look for IPv6 where a thread can bind to ::1. It looks once in a process: if the first thread to ask was in a namespace
// whose loopback is down, all sockets of the process would be of IPv4 only.
var lookForIPv6 = sync.OnceFunc(func() {
	n, err := emptyNetns()
	if err != nil {
		return // so the caller has no namespace either
	}
	defer n.close()
	_ = n.ip("link set lo up\n") // without IPv6 in the kernel none is found
	n.do(func() {
		if c, err := net.ListenPacket("udp", ":0"); err == nil {
			_ = c.Close()
		}
	})
})

func emptyNetns() (*netns, error) {
	n := &netns{calls: make(chan func()), ended: make(chan struct{})}
	started := make(chan error)
	go func() {
		defer close(n.ended)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine, and the namespace with the thread
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			started <- fmt.Errorf("make a network namespace: %w", err)
			return
		}
		n.path = fmt.Sprintf("/proc/%d/task/%d/ns/net", os.Getpid(), unix.Gettid())
		started <- nil
		for f := range n.calls {
			f()
		}
	}()
	return n, <-started
}

// do runs f in the namespace.
func (n *netns) do(f func()) {
	done := make(chan struct{})
	n.calls <- func() { defer close(done); f() }
	<-done
}

// beside runs f in the namespace, on a separate thread; the channel is closed at its end.
func (n *netns) beside(f func()) (<-chan struct{}, error) {
	ended := make(chan struct{})
	started := make(chan error)
	go func() {
		defer close(ended)
		runtime.LockOSThread() // never unlocked, as above
		fd, err := unix.Open(n.path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err == nil {
			err = unix.Setns(fd, unix.CLONE_NEWNET)
			_ = unix.Close(fd) // it was read only
		}
		if started <- err; err == nil {
			f()
		}
	}()
	return ended, <-started
}

// ip executes commands of iproute2, one in a line.
func (n *netns) ip(batch string) error {
	var err error
	n.do(func() {
		cmd := exec.Command("ip", "-batch", "-")
		cmd.Stdin = strings.NewReader(batch)
		var out []byte
		if out, err = cmd.CombinedOutput(); err != nil {
			err = fmt.Errorf("ip -batch: %w: %s", err, out)
		}
	})
	return err
}

// set writes a setting of the namespace's network, a file in /proc/sys/net.
func (n *netns) set(name, value string) (err error) {
	n.do(func() { err = os.WriteFile("/proc/sys/net/"+name, []byte(value), 0) })
	return err
}

// close may be called again.
func (n *netns) close() {
	n.over.Do(func() { close(n.calls) })
	<-n.ended
}

// veths is how many pairs there are: more interfaces than any test needs at once.
const veths = 48

// vethName is VPP's end of pair i, peerName the one the test holds.
func vethName(i int) string { return fmt.Sprintf("v%d", i) }
func peerName(i int) string { return fmt.Sprintf("w%d", i) }

// wire makes the veth pairs, without IPv6: its solicitations would look like packets of VPP.
func (n *netns) wire() error {
	var batch strings.Builder
	for i := range veths {
		fmt.Fprintf(&batch, "link add %s mtu 1500 type veth peer name %s mtu 1500\n", vethName(i), peerName(i))
		fmt.Fprintf(&batch, "link set %s up\nlink set %s up\n", vethName(i), peerName(i))
	}
	var err error
	n.do(func() {
		if err = os.WriteFile("/proc/sys/net/ipv6/conf/default/disable_ipv6", []byte("1"), 0); os.IsNotExist(err) {
			err = nil
		}
	})
	if err != nil {
		return err
	}
	return n.ip(batch.String())
}
