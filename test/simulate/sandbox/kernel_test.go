package sandbox

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/linux"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/linux/nodeports"
)

// kernel keeps the values of the host's network stack in memory, by key. It survives VPPs and agents, and refuses nothing.
type kernel struct {
	mu   sync.Mutex
	have map[string]any
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
