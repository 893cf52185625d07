package realvpp

import (
	"errors"
	"syscall"
	"testing"
)

// TestVPPPodNetworkConnections kills the VPP of a node under open TCP connections, and starts another. Those that NAT44 translated there end with an error. All
// others continue, also those of pods to the outside: the kernel gives them the node's address, and it has not lost its translations.
func TestVPPPodNetworkConnections(t *testing.T) {
	c := openPodCluster(t, theVPP(t))
	one, two := c.nodes[0], c.nodes[1]
	a, b, far := c.attach(one, "a", "client"), c.attach(one, "b", "web"), c.attach(two, "far", "client")
	for _, family := range []string{"tcp4", "tcp6"} {
		for at, port := range map[*netns]int{c.world: 7001, one.ns: 9001, two.ns: 9001, b.netns: 8080, far.netns: 8081} {
			c.repeats(at, family, port)
		}
	}
	c.service(b)
	var ends, continues []streamed
	open := func(list *[]streamed, name string, from *netns, to string) {
		*list = append(*list, streamed{name, c.openLine(from, to)})
	}
	for _, v6 := range c.families() {
		open(&continues, "pod to the outside", a.netns, map[bool]string{false: "198.51.100.10:7001", true: "[2001:db8:ffff::10]:7001"}[v6])
		open(&continues, "pod to its node", a.netns, hostPort(one.nodeAddr(v6), 9001))
		open(&continues, "pod to another node", a.netns, hostPort(two.nodeAddr(v6), 9001))
		open(&continues, "pod to pod of its node", a.netns, hostPort(b.addr(v6), 8080))
		open(&continues, "pod to pod of another node", a.netns, hostPort(far.addr(v6), 8081))
		open(&continues, "node to its pod", one.ns, hostPort(b.addr(v6), 8080))
	}
	const service = "10.96.0.10:80"
	open(&continues, "pod of another node to Service", far.netns, service)
	open(&ends, "pod to Service", a.netns, service)
	open(&ends, "node to Service", one.ns, service)

	one.kill()
	c.check(one.start())
	for _, s := range ends {
		if err := s.echoes(); !errors.Is(err, syscall.ECONNABORTED) {
			t.Errorf("%s: %v, want: connection aborted", s.name, err)
		}
	}
	for _, s := range continues {
		if err := s.echoes(); err != nil {
			t.Errorf("%s%s: %v", c.tails(), s.name, err)
		}
	}
	t.Logf("%d connections ended, %d continued", len(ends), len(continues))
}

// streamed is an open connection with its name.
type streamed struct {
	name string
	*line
}
