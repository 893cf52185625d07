package simulate

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/plugins/extconfig"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/interfaces"
	"github.com/contiv-agent/contiv-agent/test/simulate/servers"
)

// clients is a program that gives its values to the agent of one node: loopback interfaces, each with an MTU. It remembers what was
// acknowledged.
type clients struct {
	mu    sync.Mutex
	turn  sync.Mutex        // one request at a time
	acked map[string]uint32 // MTU by name; 0: acknowledged as removed
	sent  uint32
}

// names are the interfaces of the clients.
var names = []string{"ext-a", "ext-b", "ext-c", "ext-d"}

// patience is how long a client waits for an answer.
const patience = 2 * time.Minute

// request sends one request, and records the answer: without one, or with an error, it is not known what is in force.
func (c *clients) request(n *node, rng *rand.Rand) {
	for !c.turn.TryLock() { // a mutex that is waited for stops virtual time
		time.Sleep(100 * time.Millisecond)
	}
	defer c.turn.Unlock()
	l := n.present()
	if l == nil {
		return
	}
	name, req := names[rng.IntN(len(names))], extconfig.Request{}
	c.mu.Lock()
	c.sent++
	value := &interfaces.Interface{Name: name, Type: interfaces.Interface_SOFTWARE_LOOPBACK, Enabled: true, Mtu: 1500 + c.sent}
	req.Items = []proto.Message{value}
	mtu := value.Mtu
	if rng.IntN(3) == 0 {
		req.Op, mtu = extconfig.Delete, 0
	}
	delete(c.acked, name)
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if _, err := l.keeper.Apply(ctx, req); err != nil || l.dead.Load() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.acked[name] = mtu
}

// forget forgets what was acknowledged, because a disk has lied.
func (c *clients) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.acked)
}

// check compares what was acknowledged with VPP, which never has two interfaces for one value.
func (c *clients) check(dump string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for _, name := range names {
		if list := servers.Interfaces(dump, name); len(list) > 1 {
			errs = append(errs, fmt.Errorf("VPP has %d interfaces for a client's %s: %q", len(list), name, list))
		}
	}
	for name, mtu := range c.acked {
		line := strings.Join(servers.Interfaces(dump, name), "")
		if want := fmt.Sprintf(" mtu %d", mtu); mtu == 0 && line != "" || mtu != 0 && !strings.Contains(line, want) {
			errs = append(errs, fmt.Errorf("a client's interface %s was acknowledged with MTU %d (0: removed), and VPP has %q", name, mtu, line))
		}
	}
	return errors.Join(errs...)
}
