package realvpp

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/contiv-agent/contiv-agent/agent/control"
)

// rollouts is a servedCluster whose Service is replaced again and again.
type rollouts struct {
	*servedCluster
	drains  map[string]map[string]time.Duration // pod → node → when its agent had acknowledged that the pod drains
	settled []settledTime
}

// settledTime is a time in which VPP's mappings do not change.
type settledTime struct {
	from, to time.Duration
	pods     []string // that get new connections
}

const (
	// wave is the number of pods that are replaced at a time, as by a Deployment with maxSurge 2 and maxUnavailable 0.
	wave = 2
	// readyAfter is the time between a pod's address and its readiness, as of a probe.
	readyAfter = 300 * time.Millisecond
	// rolloutClients is the number of clients: so many that none uses a port twice in 100 rolling updates. cnat of VPP has the session of a
	// connection long after its end, and gives another one from the same port the same endpoint, which no longer exists.
	rolloutClients = 8
	// rolloutPace is the time between two new connections of a client and family.
	rolloutPace = 30 * time.Millisecond
	// graceTime is how long a pod that got its SIGTERM may have connections.
	graceTime = answerLimit
)

func openRollouts(s *servedCluster) *rollouts {
	if s.load.pace = rolloutPace; isSimulated(s.nodes[0].path) {
		s.load.pace *= 6 // it forwards fewer packets
	}
	r := &rollouts{servedCluster: s, drains: map[string]map[string]time.Duration{}}
	for _, p := range s.backends {
		r.hear(p)
	}
	return r
}

// hear counts the first packets of connections that arrive at a pod, until the pod ends.
func (r *rollouts) hear(p *servedPod) {
	r.t.Helper()
	f, err := p.netns.listen(func(b []byte) {
		packet, ok := parse(b)
		if !ok || packet.protocol != unix.IPPROTO_TCP || packet.dstPort != backendPort || !opens(b) {
			return
		}
		r.load.mu.Lock()
		defer r.load.mu.Unlock()
		if d := r.load.conns[netip.AddrPortFrom(packet.src, packet.srcPort)]; d != nil {
			d.arrived++
		}
	})
	r.check(err)
	p.backend.heard = f
}

// opens reports that a packet of TCP that parse accepts has SYN and no ACK.
func opens(b []byte) bool {
	header := 40
	if b[0]>>4 == 4 {
		header = int(b[0]&15) * 4
	}
	const flags, syn, ack = 13, 2, 16
	return len(b) > header+flags && b[header+flags]&(syn|ack) == syn
}

// run replaces all pods of the Service n times. The pods of a wave are marked as terminating when their successors are ready. When the next wave has been
// attached they get their SIGTERM; their programs end the connections with their next answers. They end when those of the next wave are marked.
func (r *rollouts) run(n int) {
	r.t.Helper()
	wait(r.t.Context(), 2*keptPace)
	r.from = r.load.now()
	var draining []*servedPod
	for range n {
		for old := range slices.Chunk(slices.Clone(r.backends[len(draining):]), wave) {
			for _, p := range old {
				r.deploy(p.node)
				r.hear(r.backends[len(r.backends)-1])
			}
			for _, p := range draining {
				close(p.backend.draining)
			}
			wait(r.t.Context(), readyAfter)
			r.change()
			r.idle(draining)
			for _, p := range old {
				p.leaving = true
				r.drains[p.req.Pod.Name], r.left[p.req.Pod.Name] = map[string]time.Duration{}, r.load.now()
			}
			r.backends = slices.DeleteFunc(r.backends, func(p *servedPod) bool { return slices.Contains(draining, p) })
			r.change()
			for _, p := range draining {
				r.delete(p)
			}
			draining = old
		}
	}
	wait(r.t.Context(), keptPace)
	r.to = r.load.now()
	r.endSettled()
	wait(r.t.Context(), keptPace) // hear reads what has arrived
	for _, p := range draining {
		close(p.backend.draining)
	}
}

// idle waits until pods have no connection any more, as long as a kubelet would.
func (r *rollouts) idle(pods []*servedPod) {
	r.t.Helper()
	end := r.load.now() + graceTime
	for _, p := range pods {
		for p.backend.busy() > 0 && r.load.now() < end {
			wait(r.t.Context(), 10*time.Millisecond)
		}
	}
}

// change publishes the pods, and waits until VPPs have acknowledged them.
func (r *rollouts) change() {
	r.t.Helper()
	r.endSettled()
	r.publish()
	acknowledged := map[*podNode]bool{}
	r.until("all agents have the endpoints", func() error {
		for _, n := range r.nodes {
			if acknowledged[n] {
				continue
			}
			if err := r.applied(n); err != nil {
				return err
			}
			acknowledged[n] = true
			for _, p := range r.backends {
				if p.leaving && r.drains[p.req.Pod.Name][n.name] == 0 {
					r.drains[p.req.Pod.Name][n.name] = r.load.now()
				}
			}
		}
		return nil
	})
	r.settled = append(r.settled, settledTime{from: r.load.now(), pods: r.ready()})
}

// drained fails unless NAT44 has drained every pod that was marked, on every node.
func (r *rollouts) drained() {
	r.t.Helper()
	for _, n := range r.nodes {
		r.until("the drains of "+n.name+" are counted", func() error {
			st, err := control.FetchStatus(r.t.Context(), n.status(), false)
			switch {
			case err != nil:
				return err
			case st.NAT == nil:
				return errors.New("the session table is not counted")
			case st.NAT.Lost > 0 || int(st.NAT.Drained) < len(r.drains):
				return fmt.Errorf("%d of %d endpoints were drained, and %d could not be", st.NAT.Drained, len(r.drains), st.NAT.Lost)
			}
			return nil
		})
	}
}

// endSettled ends the settled time that lasts, if one does.
func (r *rollouts) endSettled() {
	if n := len(r.settled); n > 0 && r.settled[n-1].to == 0 {
		r.settled[n-1].to = r.load.now()
	}
}

// ready returns the names of the pods that get new connections.
func (r *rollouts) ready() (names []string) {
	for _, p := range r.backends {
		if !p.leaving {
			names = append(names, p.req.Pod.Name)
		}
	}
	return names
}

// applied returns nil if VPP has acknowledged the present endpoints to the agent of a node.
func (r *rollouts) applied(n *podNode) error {
	st, err := control.FetchStatus(r.t.Context(), n.status(), false)
	switch {
	case err != nil:
		return err
	case !st.InSync:
		return fmt.Errorf("%s is not in sync: %s", n.name, st.Waiting)
	case len(st.Unwell) > 0:
		return fmt.Errorf("%s has not configured %+v", n.name, st.Unwell)
	case len(st.Services) != 1:
		return errors.New(n.name + " does not have the Service")
	}
	_, lists, _ := strings.Cut(st.Services[0].Text, " -> ")
	taking, terminating, _ := strings.Cut(lists, " terminating ")
	for _, p := range r.backends {
		for _, six := range r.vips {
			addr := hostPort(p.addr(six), backendPort)
			if strings.Contains(taking, addr) == p.leaving || strings.Contains(terminating, addr) != p.leaving {
				return fmt.Errorf("%s has other endpoints: %s", n.name, st.Services[0].Text)
			}
		}
	}
	return nil
}
