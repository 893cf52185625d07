package podnet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/plugins/cni/protocol"
	"github.com/contiv-agent/contiv-agent/plugins/ipam"
	"github.com/contiv-agent/contiv-agent/plugins/podnet/probe"
)

// Name is the name of the source of the values.
const Name = "podnet"

// Config configures a Network.
type Config struct {
	Settings
	File string // Bolt file with the attachments
	// Memifs is the folder of the sockets of memif interfaces, which pods mount; "": no pod can have one.
	Memifs string
	// Prefer returns the kind of interface of a pod that asks for none: veth or tap; nil: veth.
	Prefer func() string
	Pool   *ipam.Pool // addresses of pods
	// Closed means that the agent enforces policies: a pod is closed until its lists are evaluated, and an Add waits for them.
	Closed bool
	// PodWait bounds how long an Add waits for the Pod object and its lists; 0: 20 s. The runtime then tries again.
	PodWait time.Duration
	// Probe asks VPP by the pod's link, as probe.Ask does, until VPP answers or ctx ends; nil: an Add does not wait for an answer.
	Probe func(ctx context.Context, l probe.Link) error
	// ProbeWait bounds how long an Add waits for that; 0: 2 s.
	ProbeWait time.Duration
	Now       func() time.Time // nil: time.Now
	Logger    *slog.Logger     // nil: silent
}

const (
	defaultPodWait   = 20 * time.Second
	defaultProbeWait = 2 * time.Second
)

// Network is the network of a node. It implements plugins/cni's Network and controller.Onlooker. It is safe for concurrent use.
//
//	sources ─ Watch ─▶ Nodes, Pods ─┐
//	CNI ─ Add, Delete ─▶ attachments┴─▶ values ─ event.External ─▶ controller ─▶ VPP, kernel
//	Add ◀─ states of its values, of its lists ◀─ Committed
type Network struct {
	cfg   Config
	store *store

	order sync.Mutex // held while events are sent, so that they have the order of the state's changes

	mu       sync.Mutex
	emit     func(event.Event) // nil before Run has sent the first values
	through  func(event.Event) // emit of the sources; nil before Watch
	cluster  cluster
	pods     map[model.PodID]known // of this node
	attached map[protocol.Attachment]*Attachment
	base     kv.Values // sent values that belong to no attachment
	states   states
	released []released
	vpp      error         // why VPP is away; nil: it is connected
	silent   func() string // why VPP is taken for hung; "": it answers. nil before Watch
}

// known is a Pod as the source has it.
type known struct {
	pod    *model.Pod
	source string
}

// New opens the file and returns a network with its attachments. Attachments whose network namespace no longer exists are dropped: the node was
// restarted, or the runtime removed the sandbox while no agent ran.
func New(cfg Config) (*Network, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("podnet: %w", err)
	}
	if cfg.PodWait == 0 {
		cfg.PodWait = defaultPodWait
	}
	if cfg.ProbeWait == 0 {
		cfg.ProbeWait = defaultProbeWait
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	st, all, err := openStore(cfg.File)
	if err != nil {
		return nil, fmt.Errorf("podnet: %w", err)
	}
	n := &Network{
		cfg: cfg, store: st, pods: map[model.PodID]known{}, attached: map[protocol.Attachment]*Attachment{},
		cluster: cluster{nodes: map[string]*model.Node{}, services: nil},
		states:  newStates(), vpp: errors.New("not connected yet"),
	}
	if err := n.restore(all); err != nil {
		return nil, fmt.Errorf("podnet: %w", errors.Join(err, st.closeFile()))
	}
	return n, nil
}

// restore takes over the attachments of the file.
func (n *Network) restore(all []*Attachment) error {
	in := map[protocol.Attachment][]addr{}
	for _, a := range all {
		if why := namespaceGone(a.Netns); why != nil {
			n.cfg.Logger.Warn("attachment dropped", "pod", a.podID().String(), "attachment", a.String(), "reason", why)
			if err := n.store.remove(a.Attachment); err != nil {
				return err
			}
			continue
		}
		n.attached[a.Attachment] = a
		n.watch(a)
		if !a.Given {
			in[a.Attachment] = a.Addresses
		}
	}
	if err := n.cfg.Pool.Restore(in); err != nil {
		n.cfg.Logger.Error("addresses", "err", err)
	}
	if err := memifs(n.cfg.Memifs).restore(n.attached); err != nil {
		return err
	}
	for _, a := range n.cfg.Pool.Attachments() { // an Add was killed before it wrote the attachment
		if n.attached[a] == nil {
			if _, err := n.cfg.Pool.Release(n.cfg.Now(), a); err != nil {
				return err
			}
		}
	}
	for _, r := range n.cfg.Pool.Waiting() {
		n.released = append(n.released, released{Released: r})
	}
	return nil
}

// String returns the name of the source.
func (*Network) String() string { return Name }

// Show implements controller.Onlooker; the network reads no values of others.
func (*Network) Show(func() []event.Value) {}

// Run sends the values of all attachments and serves Adds until ctx ends.
func (n *Network) Run(ctx context.Context, emit func(event.Event)) error {
	n.order.Lock()
	n.mu.Lock()
	n.base = n.cluster.values(&n.cfg.Settings, nil)
	n.states.watch(n.base)
	all := maps.Clone(n.base)
	for _, a := range n.attached {
		maps.Copy(all, n.cluster.podValues(&n.cfg.Settings, a))
	}
	n.emit = emit
	n.mu.Unlock()
	emit(event.ExternalConfigResync(Name, all))
	n.order.Unlock()
	n.forgetWhenDue(ctx)
	n.order.Lock() // no Add is sending
	defer n.order.Unlock()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.emit = nil
	return errors.Join(ctx.Err(), n.store.closeFile())
}

// Watch returns an emit for sources: the network learns of Nodes, ServiceCIDRs and Pods before it passes the events on, and the Pods it has
// attached get their addresses, which the API server learns only from the runtime. silent returns why VPP is taken for hung, although it is connected; "": it
// answers. Nobody waits for such a VPP.
func (n *Network) Watch(emit func(event.Event), silent func() string) func(event.Event) {
	n.mu.Lock()
	n.through, n.silent = emit, silent
	n.mu.Unlock()
	return func(ev event.Event) {
		switch ev := ev.(type) {
		case *event.Update:
			n.takeUpdate(ev, emit)
			return
		case *event.VPPStatus:
			n.mu.Lock()
			if n.vpp = nil; !ev.Connected {
				n.vpp = ev.Err
				if n.vpp == nil {
					n.vpp = errors.New("not connected")
				}
			}
			n.mu.Unlock()
		}
		emit(ev)
	}
}

// takeUpdate takes the Nodes and Pods of an update. The values that follow from Nodes are sent first.
func (n *Network) takeUpdate(up *event.Update, emit func(event.Event)) {
	n.order.Lock()
	defer n.order.Unlock()
	n.mu.Lock()
	changed := false
	out := *up
	for i, ch := range up.Changes {
		switch ch.Ref.Kind {
		case model.KindNode:
			node, _ := ch.Object.(*model.Node)
			changed = n.cluster.setNode(ch.Ref.Name, node) || changed
		case model.KindServiceCIDR:
			cidr, _ := ch.Object.(*model.ServiceCIDR)
			changed = n.cluster.setServiceCIDR(ch.Ref.Name, cidr) || changed
		case model.KindPod:
			pod, _ := ch.Object.(*model.Pod)
			if given := n.setPod(ch.Ref, pod, up.Source); given != pod {
				if len(out.Changes) > 0 && &out.Changes[0] == &up.Changes[0] {
					out.Changes = slices.Clone(up.Changes)
				}
				out.Changes[i].Object = given
			}
		}
	}
	var ev *event.External
	if changed {
		ev = n.rebase()
	}
	send := n.emit
	n.mu.Unlock()
	if ev != nil && send != nil {
		send(ev)
	}
	emit(&out)
}

// rebase computes the values that belong to no attachment again, and returns the difference; nil: none. The caller holds mu.
func (n *Network) rebase() *event.External {
	if own := n.cluster.ownNode(&n.cfg.Settings); own != nil {
		if err := n.cfg.Pool.SetCIDRs(own.PodCIDRs); err != nil {
			n.cfg.Logger.Error("pod CIDRs", "err", err)
		}
	}
	if n.emit == nil {
		return nil
	}
	now := n.cluster.values(&n.cfg.Settings, nil)
	changes := difference(n.base, now)
	n.states.unwatch(changes)
	n.base = now
	n.states.watch(now)
	if len(changes) == 0 {
		return nil
	}
	return event.ExternalConfigChange(Name, changes)
}

// difference returns the changes from one set of values to another; nil deletes.
func difference(was, now kv.Values) map[string]proto.Message {
	out := map[string]proto.Message{}
	for key, m := range now {
		if old := was[key]; old == nil || !kv.Equal(old, m) {
			out[key] = m
		}
	}
	for key := range was {
		if now[key] == nil {
			out[key] = nil
		}
	}
	return out
}

// setPod records a Pod of this node; nil: it was deleted. It returns the Pod with the addresses of its attachment, if it has none. The caller
// holds mu.
func (n *Network) setPod(ref model.Ref, pod *model.Pod, source string) *model.Pod {
	id := model.PodID{Namespace: ref.Namespace, Name: ref.Name}
	if pod == nil || pod.NodeName != n.cfg.NodeName || pod.HostNetwork {
		delete(n.pods, id)
		n.states.happened()
		return pod
	}
	n.pods[id] = known{pod, source}
	n.states.happened()
	return n.withAddresses(pod)
}

// withAddresses returns a Pod with the addresses of its attachment. Those that the API server has may be of an earlier sandbox. A Pod without an attachment keeps
// them, except those that an attachment has: another pod has these now, and rules about this Pod are not about the other one. The caller holds mu.
func (n *Network) withAddresses(pod *model.Pod) *model.Pod {
	if pod.Finished {
		return pod
	}
	ips := pod.IPs
	if a := n.attachmentOf(pod.ID); a != nil {
		ips = a.Addresses
	} else {
		for _, other := range n.attached {
			ips = slices.DeleteFunc(slices.Clone(ips), func(ip addr) bool { return slices.Contains(other.Addresses, ip) })
		}
	}
	if slices.Equal(ips, pod.IPs) {
		return pod
	}
	given := *pod
	given.IPs = ips
	return &given
}

// attachmentOf returns the attachment of a pod that counts. The caller holds mu.
func (n *Network) attachmentOf(id model.PodID) (found *Attachment) {
	for _, a := range n.attached {
		if a.podID() == id && (found == nil || a.before(found)) {
			found = a
		}
	}
	return found
}

func (c *cluster) setNode(name string, node *model.Node) (changed bool) {
	was := c.nodes[name]
	if node == nil {
		delete(c.nodes, name)
		return was != nil
	}
	c.nodes[name] = node
	return was == nil || !slices.Equal(was.InternalIPs, node.InternalIPs) || !slices.Equal(was.ExternalIPs, node.ExternalIPs) || !slices.Equal(was.PodCIDRs, node.PodCIDRs) ||
		was.Uplink != node.Uplink
}

func (c *cluster) setServiceCIDR(name string, cidr *model.ServiceCIDR) (changed bool) {
	if cidr == nil {
		_, changed = c.services[name]
		delete(c.services, name)
		return changed
	}
	if slices.Equal(c.services[name], cidr.CIDRs) {
		return false
	}
	if c.services == nil {
		c.services = map[string][]addrRange{}
	}
	c.services[name] = cidr.CIDRs
	return true
}
