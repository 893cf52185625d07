package sandbox

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	"github.com/contiv-agent/contiv-agent/plugins/cni/protocol"
)

// runtime is a container runtime with its kubelet: it makes sandboxes of pods and removes them, and calls the agent as the CNI plugin does.
type runtime struct {
	node   *node
	client protocol.Client
	pods   []*pod

	mu   sync.Mutex
	held map[netip.Addr]protocol.Attachment // addresses of acknowledged ADDs without an acknowledged DEL
	bad  []error
	did  map[string]int // requests that were acknowledged, by verb

	traffic *traffic
	kernels []*kernel // of all nodes
}

// pod is one pod, which has a sandbox or not.
type pod struct {
	turn sync.Mutex // one request at a time
	name string
	made int               // sandboxes so far
	req  *protocol.Request // of the acknowledged ADD; nil: the pod has none
	res  *protocol.Result
}

const namespace = "default"

// patience is how long a runtime waits for an answer, and tries for a pod.
const patience = 90 * time.Second

func newRuntime(n *node, t *traffic) *runtime {
	r := &runtime{node: n, client: protocol.Client{Dial: n.toAgent.Dial}, held: map[netip.Addr]protocol.Attachment{}, did: map[string]int{}, traffic: t}
	for i := range podsPerNode {
		r.pods = append(r.pods, &pod{name: fmt.Sprintf("p%d", n.number*podsPerNode+i)})
	}
	return r
}

func (r *runtime) failf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bad = append(r.bad, fmt.Errorf(format, args...))
}

func (r *runtime) count(verb string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.did[verb]++
}

// inTurn runs f when no other request of the pod is in progress. A mutex that is waited for would stop virtual time.
func (p *pod) inTurn(f func()) {
	for !p.turn.TryLock() {
		time.Sleep(50 * time.Millisecond)
	}
	defer p.turn.Unlock()
	f()
}

// start makes a sandbox. After a failed ADD it removes the sandbox and tries with another, as runtimes do. limit is the time of the first ADD.
func (r *runtime) start(p *pod, kind string, limit time.Duration) {
	if p.req != nil {
		return
	}
	r.node.cluster.putPod(p.name, nil)
	for began := time.Now(); time.Since(began) < patience; time.Sleep(time.Second) {
		p.made++
		req := protocol.Request{
			Attachment: protocol.Attachment{ContainerID: fmt.Sprintf("%s-%d", p.name, p.made), IfName: "eth0"}, Network: "contiv", Interface: kind,
			Pod: protocol.Pod{Namespace: namespace, Name: p.name, UID: "uid-" + p.name},
		}
		var err error
		if req.Netns, err = r.node.namespaceOf(req.ContainerID); err != nil {
			r.failf("%w", err)
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		res, err := r.client.Add(ctx, req)
		cancel()
		if limit = patience; err == nil {
			r.acknowledged(p, &req, res)
			return
		}
		r.remove(req)
	}
}

// acknowledged records an ADD, none of whose addresses another pod may have.
func (r *runtime) acknowledged(p *pod, req *protocol.Request, res *protocol.Result) {
	r.count("ADD")
	p.req, p.res = req, res
	var ips []netip.Addr
	r.mu.Lock()
	for _, ip := range res.IPs {
		a := ip.Address.Addr()
		if other, has := r.held[a]; has && other != req.Attachment {
			r.bad = append(r.bad, fmt.Errorf("address %s is given to %s, and %s has it", a, req.Attachment, other))
		}
		r.held[a], ips = req.Attachment, append(ips, a)
	}
	if len(ips) == 0 {
		r.bad = append(r.bad, fmt.Errorf("%s gets no address", req.Attachment))
	}
	r.mu.Unlock()
	r.node.cluster.putPod(p.name, ips)
	r.traffic.join(p, req, ips)
}

// stop removes the pod's sandbox and the pod.
func (r *runtime) stop(p *pod) {
	if p.req == nil {
		return
	}
	req := *p.req
	r.traffic.leave(p)
	r.remove(req)
	p.req, p.res = nil, nil
	r.mu.Lock()
	for a, at := range r.held {
		if at == req.Attachment {
			delete(r.held, a)
		}
	}
	r.mu.Unlock()
	for _, k := range r.kernels {
		k.closeConnections(req.Netns, p.name)
	}
	r.node.cluster.removePod(p.name)
}

// remove repeats a DEL until it is acknowledged.
func (r *runtime) remove(req protocol.Request) {
	for r.deleteOrRecord(req) != nil {
		time.Sleep(time.Second)
	}
	r.count("DEL")
}

// deleteOrRecord sends a DEL. If no agent answers it records the DEL and asks again, as the plugin does.
func (r *runtime) deleteOrRecord(req protocol.Request) error {
	ask := func() error {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		return r.client.Delete(ctx, req)
	}
	away := func(err error) bool {
		return errors.Is(err, protocol.ErrNoAgent) || errors.Is(err, protocol.ErrNoAnswer) && !errors.Is(err, context.DeadlineExceeded)
	}
	err := ask()
	if !away(err) {
		return err
	}
	for r.node.isDying() { // a killed agent would still read the record
		time.Sleep(10 * time.Millisecond)
	}
	spool := protocol.Spool{Dir: r.node.spool()}
	if err := spool.Record(req); err != nil {
		return err
	}
	if err = ask(); away(err) {
		return nil
	}
	return errors.Join(err, spool.Remove(req.Attachment))
}

// repeat sends the ADD of a pod again: the answer has the same addresses.
func (r *runtime) repeat(p *pod) {
	if p.req == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	r.traffic.leave(p) // the agent may undo it
	switch res, err := r.client.Add(ctx, *p.req); {
	case err != nil: // the agent undoes an ADD that fails, and a runtime then deletes the sandbox
		r.stop(p)
	case fmt.Sprint(res.IPs) != fmt.Sprint(p.res.IPs):
		r.failf("the ADD of %s is repeated, and has the addresses %v instead of %v", p.req.Attachment, res.IPs, p.res.IPs)
	default:
		var ips []netip.Addr
		for _, ip := range res.IPs {
			ips = append(ips, ip.Address.Addr())
		}
		r.traffic.join(p, p.req, ips)
		r.count("ADD again")
	}
}

// removeUnknown sends a DEL of a sandbox that never existed, or of the pod's previous one.
func (r *runtime) removeUnknown(p *pod, rng *rand.Rand) {
	at := protocol.Attachment{ContainerID: fmt.Sprintf("%s-%d", p.name, max(1, p.made-1)), IfName: "eth0"}
	if rng.IntN(2) == 0 || p.req != nil && at == p.req.Attachment {
		at.ContainerID = "never"
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if r.client.Delete(ctx, protocol.Request{Attachment: at}) == nil {
		r.count("DEL of an unknown sandbox")
	}
}

// check sends a CHECK. It may fail while a fault lasts, but the agent knows the sandbox.
func (r *runtime) check(p *pod) error {
	if p.req == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err := r.client.Check(ctx, *p.req, p.res)
	var e *protocol.Error
	if errors.As(err, &e) && e.Code == protocol.CodeUnknownContainer {
		r.failf("CHECK of an acknowledged ADD: %w", err)
	}
	if err == nil {
		r.count("CHECK")
	}
	return err
}

// collect sends a GC with the sandboxes that exist, while no other request is in progress.
func (r *runtime) collect() {
	var valid []protocol.Attachment
	for _, p := range r.pods {
		if !p.turn.TryLock() {
			return
		}
		defer p.turn.Unlock()
		if p.req != nil {
			valid = append(valid, p.req.Attachment)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if valid = append([]protocol.Attachment{}, valid...); r.client.Collect(ctx, valid) == nil {
		r.count("GC")
	}
}
