package realvpp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/contiv-agent/contiv-agent/plugins/cni/protocol"
)

// clientEvent is what happens to a servedCluster.
type clientEvent struct {
	name string
	do   func(s *servedCluster)
	// spares: no new connection is lost. replaces: pods end in order. loses: a VPP loses its translations.
	spares, replaces, loses bool
}

func clientEvents() []clientEvent {
	return []clientEvent{
		{name: "rolling update", do: (*servedCluster).roll, spares: true, replaces: true},
		{name: "agents upgraded", do: (*servedCluster).upgrade, spares: true},
		{name: "a VPP killed", do: func(s *servedCluster) { s.crash(s.nodes[0]) }, loses: true},
		{name: "a node restarts", do: (*servedCluster).reboot},
	}
}

// play lets the clients run before, during and after an event.
func (s *servedCluster) play(e clientEvent) {
	s.t.Helper()
	wait(s.t.Context(), 2*keptPace)
	s.from = s.load.now()
	e.do(s)
	s.recovered(s.load.now())
	s.to = s.load.now()
}

// publish writes the pods of the Service as the API server has them.
func (s *servedCluster) publish() {
	s.t.Helper()
	var b strings.Builder
	var vips []string
	for _, six := range s.vips {
		vips = append(vips, strconv.Quote(clientVIPs[six].Addr().String()))
	}
	fmt.Fprintf(&b, "apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: default}\nspec: {clusterIP: %s, clusterIPs: [%s], selector: {app: web}, ports: [{name: http, port: 80, targetPort: %d, protocol: TCP}]}\n",
		vips[0], strings.Join(vips, ", "), backendPort)
	for _, six := range s.vips {
		family := map[bool]string{false: "IPv4", true: "IPv6"}[six]
		fmt.Fprintf(&b, "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: web-%s, namespace: default, labels: {kubernetes.io/service-name: web}}\naddressType: %s\nports: [{name: http, port: %d, protocol: TCP}]\nendpoints:\n",
			strings.ToLower(family), family, backendPort)
		for _, p := range s.backends {
			fmt.Fprintf(&b, "- {addresses: [%q], nodeName: %s, conditions: {ready: %v, serving: %v, terminating: %v}, targetRef: {kind: Pod, namespace: default, name: %s}}\n",
				p.addr(six), p.node.name, !p.leaving && !p.unready, !p.unready, p.leaving, p.req.Pod.Name)
		}
	}
	s.write("service.yaml", b.String())
}

const (
	// preStop is the time between the mark of a pod that terminates and its SIGTERM, drainTime that until its probe fails, and ended that until its end.
	preStop, drainTime, probing = time.Second, 2 * time.Second, time.Second
)

// roll replaces the pods one after the other, as a Deployment with maxSurge 1 and maxUnavailable 0.
func (s *servedCluster) roll() {
	for _, old := range slices.Clone(s.backends) {
		s.deploy(old.node)
		s.publish()
		wait(s.t.Context(), preStop)
		s.retire(old)
	}
}

// retire ends a pod as the API server, the kubelet and a program that terminates in order do it together.
func (s *servedCluster) retire(p *servedPod) {
	s.t.Helper()
	p.leaving = true
	s.left[p.req.Pod.Name] = s.load.now()
	s.publish()
	wait(s.t.Context(), preStop)
	close(p.backend.draining)
	wait(s.t.Context(), drainTime)
	p.unready = true
	s.publish()
	wait(s.t.Context(), probing)
	s.delete(p)
	s.publish()
}

// delete ends a pod's program and the pod, and deletes its object.
func (s *servedCluster) delete(p *servedPod) {
	s.t.Helper()
	p.backend.end()
	s.invoke(p.node, "DEL", p.req.ContainerID, p.req.Pod.Name, p.netns)
	p.netns.close()
	s.backends = slices.DeleteFunc(s.backends, func(o *servedPod) bool { return o == p })
	s.removeManifest("pod-" + p.req.Pod.Name + ".yaml")
}

// invoke is a runtime that repeats a call of the plugin until it succeeds; it returns its output.
func (s *servedCluster) invoke(n *podNode, verb, container, pod string, ns *netns) (out []byte) {
	s.t.Helper()
	list := s.readList(n)
	s.until(verb+" of "+pod, func() (err error) {
		cmd := s.runtime(n, verb, container, pod, ns, list)
		var failed bytes.Buffer
		cmd.Stderr = &failed
		if out, err = cmd.Output(); err != nil {
			return fmt.Errorf("%w: %s%s", err, out, failed.String())
		}
		return nil
	})
	return out
}

// deploy starts a new pod of the Service.
func (s *servedCluster) deploy(n *podNode) {
	s.t.Helper()
	s.next++
	name := fmt.Sprintf("web-%d", s.next)
	p := &servedPod{podOf: &podOf{node: n, req: protocol.Request{Attachment: protocol.Attachment{ContainerID: name}, Pod: protocol.Pod{Name: name}}}}
	s.sandbox(p)
	s.backends = append(s.backends, p)
}

// sandbox gives a pod a network namespace, by an ADD, and starts its program.
func (s *servedCluster) sandbox(p *servedPod) {
	s.t.Helper()
	name := p.req.Pod.Name
	var err error
	p.netns, err = newNetns()
	s.check(err)
	s.object(p.node, name, "web", "phase: Pending")
	var result struct {
		IPs []struct{ Address netip.Prefix }
	}
	s.check(json.Unmarshal(s.invoke(p.node, "ADD", p.req.ContainerID, name, p.netns), &result))
	p.result = &protocol.Result{}
	for _, ip := range result.IPs {
		p.result.IPs = append(p.result.IPs, protocol.IP{Address: ip.Address})
	}
	s.object(p.node, name, "web", fmt.Sprintf("phase: Running, podIP: %s, podIPs: [{ip: %s}, {ip: \"%s\"}]", p.addr(false), p.addr(false), p.addr(true)))
	p.backend, err = startBackend(s.load, name, p.netns)
	s.check(err)
}

// upgrade replaces the agents one after the other, as a DaemonSet does.
func (s *servedCluster) upgrade() {
	s.t.Helper()
	for _, n := range s.nodes {
		s.check(n.agent.Process.Signal(syscall.SIGTERM))
		_ = n.agent.Wait() // by the signal
		n.agent = nil
		wait(s.t.Context(), time.Second)
		s.startAgent(n)
		s.until("STATUS of "+n.name, func() error { return n.client().Status(s.t.Context()) })
	}
}

// crash kills a node's VPP; its supervisor starts it again.
func (s *servedCluster) crash(n *podNode) {
	n.kill()
	wait(s.t.Context(), 100*time.Millisecond)
	s.check(n.process.start())
	s.until("STATUS of "+n.name, func() error { return n.client().Status(s.t.Context()) })
}

// reboot restarts the second node: its processes, links and sandboxes are gone, and the kubelet starts the same pods again.
func (s *servedCluster) reboot() {
	s.t.Helper()
	n := s.nodes[1]
	n.stopAgent()
	n.kill()
	ended := s.load.leave(n.name)
	var gone []*servedPod
	for _, p := range s.backends {
		if p.node == n {
			gone = append(gone, p)
			s.left[p.req.Pod.Name] = s.load.now()
			p.backend.end()
			p.netns.close()
		}
	}
	n.ns.close()
	wait(s.t.Context(), time.Second)
	s.podCluster.boot(n)
	s.startAgent(n)
	s.until("STATUS of "+n.name, func() error { return n.client().Status(s.t.Context()) })
	for _, p := range gone {
		s.invoke(n, "DEL", p.req.ContainerID, p.req.Pod.Name, nil)
		p.req.ContainerID = "again-" + p.req.Pod.Name
		s.sandbox(p)
		s.publish()
	}
	ended()
}
