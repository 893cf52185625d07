package podnet

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/plugins/cni/protocol"
	"github.com/contiv-agent/contiv-agent/plugins/ipam"
	"github.com/contiv-agent/contiv-agent/plugins/podnet/probe"
)

// Add connects a sandbox. It returns when VPP and the kernel have acknowledged everything of the pod, and VPP its access lists, and when VPP has
// answered a frame of the pod.
//
//	address ─▶ file ─▶ values ─ acknowledged ─▶ Pod with addresses ─▶ lists ─ acknowledged ─▶ frame ─ answered ─▶ result
//
// The Pod object may arrive after the call: the pod stays closed meanwhile, and Add waits for Config.PodWait. Then it returns the code 11, with
// which the runtime tries again.
func (n *Network) Add(ctx context.Context, r protocol.Request) (*protocol.Result, error) {
	if err := n.refuse(&r); err != nil {
		return nil, err
	}
	a, err := n.attach(r)
	if err != nil {
		return nil, err
	}
	keys := (&cluster{}).podValues(&n.cfg.Settings, a).Keys()
	if err := n.until(ctx, func() string { return n.states.firstMissing(keys) }); err != nil {
		return nil, protocol.Errorf(protocol.CodeTryAgainLater, "pod %s: %v", a.podID(), err)
	}
	if n.cfg.Closed {
		if err := n.evaluated(ctx, a); err != nil {
			return nil, err
		}
	}
	if err := answered(ctx, &n.cfg, a); err != nil {
		return nil, err
	}
	return result(a), nil
}

// answered waits until VPP answers a question of the pod's end. It acknowledges an af_packet interface before it receives frames, and a few never do:
// the runtime's next try has another interface. A memif has no program yet.
func answered(ctx context.Context, cfg *Config, a *Attachment) error {
	if cfg.Probe == nil || a.Memif != "" {
		return nil
	}
	ctx, stop := context.WithTimeout(ctx, cfg.ProbeWait)
	defer stop()
	addr := a.Addresses[0]
	err := cfg.Probe(ctx, probe.Link{Netns: a.Netns, Name: a.IfName, MAC: podMAC(a.Attachment), Addr: addr, Gateway: gatewayOf(addr)})
	if err != nil {
		return protocol.Errorf(protocol.CodeTryAgainLater, "pod %s: VPP receives nothing of its interface: %v", a.podID(), err)
	}
	return nil
}

// refuse returns why a request cannot be served.
func (n *Network) refuse(r *protocol.Request) error {
	switch {
	case r.ContainerID == "" || r.IfName == "" || len(r.IfName) > 15:
		return protocol.Errorf(protocol.CodeInvalidEnvironment, "container %q, interface %q: both are needed, and a name of a link has at most 15 bytes", r.ContainerID, r.IfName)
	case !slices.Contains(kinds, r.Interface):
		return protocol.Errorf(protocol.CodeInvalidConfig, "annotation %s: %.64q is none of %s", protocol.AnnotationInterface, r.Interface, strings.Join(kinds[1:], ", "))
	case n.cfg.Closed && (r.Pod.Namespace == "" || r.Pod.Name == ""):
		return protocol.Errorf(protocol.CodeInvalidEnvironment, "CNI_ARGS: K8S_POD_NAMESPACE and K8S_POD_NAME are needed, because policies are enforced")
	}
	if why := namespaceGone(r.Netns); why != nil {
		return protocol.Errorf(protocol.CodeInvalidEnvironment, "CNI_NETNS: %v", why)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if why := n.unready(); why != "" {
		return protocol.Errorf(protocol.CodeTryAgainLater, "%s", why)
	}
	return nil
}

// attach gives an attachment its addresses, writes it to the file, and sends its values. An attachment that exists stays as it is, unless it is in
// another namespace.
func (n *Network) attach(r protocol.Request) (*Attachment, error) {
	if r.Interface == "" && n.cfg.Prefer != nil {
		r.Interface = n.cfg.Prefer()
	}
	n.order.Lock()
	defer n.order.Unlock()
	n.mu.Lock()
	defer n.mu.Unlock()
	if a := n.attached[r.Attachment]; a != nil {
		if a.Netns == r.Netns && a.Pod == r.Pod {
			return a, nil
		}
		return nil, protocol.Errorf(protocol.CodeTryAgainLater, "%s is attached in %s, as pod %s", r.Attachment, a.Netns, a.podID())
	}
	socket, err := memifs(n.cfg.Memifs).socketOf(&r, n.attached)
	if err == nil {
		err = collision(&r, n.attached)
	}
	if err != nil {
		return nil, err
	}
	a := &Attachment{Memif: socket, Tap: r.Interface == protocol.InterfaceTap, Attachment: r.Attachment, Netns: r.Netns, Pod: r.Pod, MTU: n.mtu(r.MTU), At: n.cfg.Now(), Ports: r.PortMappings, Bandwidth: limitsOf(&r)}
	if a.Addresses, a.Given, err = n.addresses(&r); err != nil {
		return nil, err
	}
	if err := makeMemif(a); err != nil {
		return nil, protocol.Errorf(protocol.CodeIO, "%v", err)
	}
	if err := n.store.put(a); err != nil {
		return nil, protocol.Errorf(protocol.CodeIO, "attachment %s: %v", a, err)
	}
	n.attached[a.Attachment] = a
	n.watch(a)
	emit, values := n.emit, n.cluster.podValues(&n.cfg.Settings, a)
	if emit == nil {
		return nil, protocol.Errorf(protocol.CodeTryAgainLater, "contiv-agent is stopping")
	}
	stale := stalePods(n.pods, a)
	n.mu.Unlock()
	emit(event.ExternalConfigChange(Name, values))
	n.passOn(stale...)
	n.mu.Lock()
	return a, nil
}

// mtu is the MTU of a pod: the given one, unless it does not fit a tunnel.
func (n *Network) mtu(given int) int {
	most := n.cfg.PodMTU(n.cluster.over6(&n.cfg.Settings))
	if given > 0 && given < most {
		return given
	}
	return most
}

// addresses returns the addresses of another IPAM plugin, or allocates some. The caller holds mu.
func (n *Network) addresses(r *protocol.Request) (out []netip.Addr, given bool, err error) {
	for _, ip := range r.IPs {
		a := ip.Address.Addr()
		for _, other := range n.attached {
			if slices.Contains(other.Addresses, a) {
				return nil, true, protocol.Errorf(protocol.CodeTryAgainLater, "address %s still belongs to pod %s", a, other.podID())
			}
		}
		out = append(out, a)
	}
	if len(out) > 0 {
		return out, true, nil
	}
	leases, err := n.cfg.Pool.Allocate(n.cfg.Now(), r.Attachment)
	switch {
	case errors.Is(err, ipam.ErrNoCIDR), errors.Is(err, ipam.ErrIncomplete), errors.Is(err, ipam.ErrExhausted):
		return nil, false, protocol.Errorf(protocol.CodeTryAgainLater, "%v", err)
	case err != nil:
		return nil, false, protocol.Errorf(protocol.CodeIO, "%v", err)
	}
	for _, l := range leases {
		out = append(out, l.Addr)
	}
	return out, false, nil
}

// watch keeps the states of a pod's values and lists. The caller holds mu, or nobody else has n yet.
func (n *Network) watch(a *Attachment) {
	n.states.watch(n.cluster.podValues(&n.cfg.Settings, a))
	n.states.watchKey(kv.InterfaceACLsKey(a.iface()))
}

// evaluated gives the Pod its addresses and waits until VPP has the lists that follow from its policies.
func (n *Network) evaluated(ctx context.Context, a *Attachment) error {
	ctx, stop := context.WithTimeoutCause(ctx, n.cfg.PodWait, errPodWait)
	defer stop()
	err := n.until(ctx, func() string {
		if _, ok := n.pods[a.podID()]; !ok {
			return "its Pod object is not known yet"
		}
		return ""
	})
	if err == nil {
		n.announce(a.podID())
		err = n.until(ctx, func() string {
			if why := n.states.missing(kv.InterfaceACLsKey(a.iface())); why != "" {
				return "its policies are not evaluated yet: " + why
			}
			return ""
		})
	}
	if err != nil {
		return protocol.Errorf(protocol.CodeTryAgainLater, "pod %s is closed: %v", a.podID(), err)
	}
	return nil
}

var errPodWait = errors.New("the agent waited long enough")

// announce passes a Pod on again, with the addresses of its attachment.
func (n *Network) announce(id model.PodID) {
	n.order.Lock()
	defer n.order.Unlock()
	n.passOn(id)
}

// passOn is announce for a caller that holds order.
func (n *Network) passOn(ids ...model.PodID) {
	for _, id := range ids {
		n.mu.Lock()
		k, ok := n.pods[id]
		through := n.through
		var pod *model.Pod
		if ok {
			pod = n.withAddresses(k.pod)
		}
		n.mu.Unlock()
		if ok && through != nil {
			through(&event.Update{Source: k.source, Changes: []event.Change{{Ref: pod.Ref(), Object: pod}}})
		}
	}
}

// stalePods are other Pods that have an address of an attachment in the API server: see withAddresses. When it is new, or was removed, they are passed on again.
func stalePods(pods map[model.PodID]known, a *Attachment) (ids []model.PodID) {
	for id, k := range pods {
		if id != a.podID() && slices.ContainsFunc(k.pod.IPs, func(ip addr) bool { return slices.Contains(a.Addresses, ip) }) {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b model.PodID) int { return strings.Compare(a.String(), b.String()) })
	return ids
}

// result is what a runtime gets for an attachment.
func result(a *Attachment) *protocol.Result {
	out := &protocol.Result{
		Interface: protocol.Interface{Name: a.IfName, MAC: podMAC(a.Attachment), MTU: a.MTU, Sandbox: a.Netns, Socket: a.Memif},
	}
	if a.Memif == "" && !a.Tap {
		out.Host = &protocol.Interface{Name: a.peer(), MAC: peerMAC, MTU: a.MTU}
	}
	for _, addr := range a.Addresses {
		out.IPs = append(out.IPs, protocol.IP{Address: netip.PrefixFrom(addr, addr.BitLen()), Gateway: gatewayOf(addr)})
		out.Routes = append(out.Routes, protocol.Route{Destination: netip.MustParsePrefix(everything(addr.Is6())), Gateway: gatewayOf(addr)})
	}
	return out
}

// Delete removes everything of an attachment: first from the file, so that no restart makes it again, then from VPP and the kernel. While VPP is
// away it does not wait: the removal is part of what VPP gets when it returns.
func (n *Network) Delete(ctx context.Context, r protocol.Request) error {
	gone, err := n.detach(r.Attachment)
	if err != nil || gone == nil {
		return err
	}
	err = n.until(ctx, func() string {
		if n.vpp != nil || n.states.last != nil || n.emit == nil {
			return ""
		}
		return gone.rest()
	})
	if err != nil {
		n.cfg.Logger.Warn("not removed yet", "attachment", r.Attachment.String(), "err", err)
	}
	return nil
}

// detach removes an attachment and sends the change; nil: there was nothing to remove.
func (n *Network) detach(at protocol.Attachment) (*removal, error) {
	n.order.Lock()
	defer n.order.Unlock()
	n.mu.Lock()
	defer n.mu.Unlock()
	a := n.attached[at]
	if a != nil {
		if err := n.store.remove(at); err != nil {
			return nil, protocol.Errorf(protocol.CodeIO, "attachment %s: %v", at, err)
		}
		delete(n.attached, at)
		if err := removeMemif(a, n.attached); err != nil { // VPP may still have it open, and needs it no more
			return nil, protocol.Errorf(protocol.CodeIO, "%v", err)
		}
	}
	freed, err := n.cfg.Pool.Release(n.cfg.Now(), at)
	if err != nil {
		return nil, protocol.Errorf(protocol.CodeIO, "addresses of %s: %v", at, err)
	}
	gone := &removal{keys: map[string]bool{}}
	for _, r := range freed {
		n.released = append(n.released, released{r, gone})
	}
	if a == nil || n.emit == nil {
		return nil, nil
	}
	values := map[string]proto.Message{}
	for key := range n.cluster.podValues(&n.cfg.Settings, a) {
		values[key], gone.keys[key], n.states.leaving[key] = nil, true, gone
	}
	n.states.unwatch(values)
	delete(n.states.of, kv.InterfaceACLsKey(a.iface()))
	emit, stale := n.emit, stalePods(n.pods, a)
	n.mu.Unlock()
	emit(event.ExternalConfigChange(Name, values))
	n.passOn(a.podID()) // without the addresses
	n.passOn(stale...)
	n.mu.Lock()
	return gone, nil
}

// Collect removes all attachments that are not valid.
func (n *Network) Collect(ctx context.Context, valid []protocol.Attachment) error {
	keep := map[protocol.Attachment]bool{}
	for _, a := range valid {
		keep[a] = true
	}
	n.mu.Lock()
	all := slices.Collect(maps.Keys(n.attached))
	n.mu.Unlock()
	for _, a := range n.cfg.Pool.Attachments() {
		if !slices.Contains(all, a) {
			all = append(all, a)
		}
	}
	var errs []error
	for _, a := range all {
		if !keep[a] {
			errs = append(errs, n.Delete(ctx, protocol.Request{Attachment: a}))
		}
	}
	return errors.Join(errs...)
}
