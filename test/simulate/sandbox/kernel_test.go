package sandbox

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/linux"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/linux/nodeports"
)

// kernel keeps the values of the host's network stack in memory, by key. It survives VPPs and agents, but no loss of power, and refuses nothing.
type kernel struct {
	mu    sync.Mutex
	have  map[string]any
	open  connections
	ended int // connections
	bad   []error
}

// kinds are the agent's kinds for the kernel: they validate, compare and depend as those of a true kernel do. A dead agent changes nothing.
func (k *kernel) kinds(dead *atomic.Bool) []*descriptor.Descriptor {
	all := slices.Concat(linux.All(), nodeports.All())
	for _, d := range all {
		change := func(state any, has bool) ([]descriptor.Op, error) {
			k.mu.Lock()
			defer k.mu.Unlock()
			if key := kv.Key(d.Message(state)); dead.Load() {
			} else if has {
				k.have[key] = state
			} else {
				delete(k.have, key)
			}
			return nil, nil
		}
		d.Lifecycle = descriptor.Lifecycle{
			After:  d.After,
			Create: func(_ *descriptor.World, state any) ([]descriptor.Op, error) { return change(state, true) },
			Update: func(_ *descriptor.World, _, want any) ([]descriptor.Op, error) { return change(want, true) },
			Delete: func(_ *descriptor.World, state any) ([]descriptor.Op, error) { return change(state, false) },
		}
		d.Retrieval = descriptor.Retrieval{
			Dumps: func(*descriptor.World, descriptor.Candidates, *descriptor.Dump) []descriptor.Request { return nil },
			Retrieve: func(*descriptor.World, *descriptor.Dump, descriptor.Candidates) (out []descriptor.Found, err error) {
				k.mu.Lock()
				defer k.mu.Unlock()
				for _, key := range slices.Sorted(maps.Keys(k.have)) {
					if d.Has(key) {
						out = append(out, descriptor.Found{Key: key, State: k.have[key], Ours: d.Tagged})
					}
				}
				return out, nil
			},
		}
	}
	return all
}

// connections are the TCP connections of pods to Services, by network namespace and Service.
type connections map[string]map[netip.AddrPort]*connection

// connection stands for some connections of a pod with a Service.
type connection struct {
	lost bool            // VPP does not have the translations any more
	ends map[string]bool // their endpoints, by pod
}

// openConnection opens a connection with an endpoint, whose translation VPP has. It does not bring back one that has lost its translation.
func (k *kernel) openConnection(namespace string, to netip.AddrPort, endpoint string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.open[namespace] == nil {
		k.open[namespace] = map[netip.AddrPort]*connection{}
	}
	c := k.open[namespace][to]
	if c == nil {
		c = &connection{ends: map[string]bool{}}
		k.open[namespace][to] = c
	}
	if !c.lost {
		c.ends[endpoint] = true
	}
}

// closeConnections ends those of a pod and its namespace, with their programs: it ends its connections in order.
func (k *kernel) closeConnections(namespace, pod string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.open, namespace)
	for _, of := range k.open {
		for to, c := range of {
			if delete(c.ends, pod); len(c.ends) == 0 {
				delete(of, to)
			}
		}
	}
}

// loseTranslations is the end of a VPP.
func (k *kernel) loseTranslations() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, of := range k.open {
		for _, c := range of {
			c.lost = true
		}
	}
}

// end ends the kernel: the next one has nothing.
func (k *kernel) end() {
	k.mu.Lock()
	defer k.mu.Unlock()
	clear(k.have)
	clear(k.open)
}

// connectionsOf ends connections of a namespace in place of a true kernel. A dead agent ends none.
func (k *kernel) connectionsOf(dead *atomic.Bool) func(string, func(netip.AddrPort) bool) (int, error) {
	return func(namespace string, isDead func(netip.AddrPort) bool) (ended int, err error) {
		k.mu.Lock()
		defer k.mu.Unlock()
		for to, c := range k.open[namespace] {
			if dead.Load() || !isDead(to) {
				continue
			}
			if !c.lost {
				k.bad = append(k.bad, fmt.Errorf("the agent ends a connection to %s in %s, and VPP has its translation", to, namespace))
			}
			delete(k.open[namespace], to)
			k.ended++
			ended++
		}
		return ended, nil
	}
}

// endedConnections is how many connections agents have ended.
func (k *kernel) endedConnections() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.ended
}

// hanging is an error if a connection without a translation is still open.
func (k *kernel) hanging() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	errs := slices.Clone(k.bad)
	for namespace, of := range k.open {
		for to, c := range of {
			if c.lost {
				errs = append(errs, fmt.Errorf("a connection to %s in %s hangs: VPP has lost its translation, and the agent has not ended it", to, namespace))
			}
		}
	}
	return errors.Join(errs...)
}

// links are the names of the interfaces in pods.
func (k *kernel) links() (out []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(k.have)) {
		if name, is := strings.CutPrefix(key, kv.LinuxInterfaceKey("")); is && strings.HasSuffix(name, "-pod") {
			out = append(out, name)
		}
	}
	return out
}
