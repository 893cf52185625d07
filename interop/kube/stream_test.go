package kube

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/contiv-agent/contiv-agent/model"
)

// stream is connections to the shop from a client on each node, one after the other.
type stream struct {
	w      *world
	cancel context.CancelFunc
	done   chan struct{}

	made  int // these once done is closed
	late  int // packets sent again: a policy that does not know all yet denies what it will allow
	lacks []lack
}

// lack is a connection that was not made.
type lack struct {
	from *node
	to   netip.AddrPort // its destination
	pod  corev1.Pod     // the receiver
	err  error
}

// stream begins one.
func (w *world) stream(t *testing.T) *stream {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	s := &stream{w: w, cancel: cancel, done: make(chan struct{})}
	vip, clients := w.vip(t), map[*node]corev1.Pod{}
	for _, n := range w.nodes {
		clients[n], _ = w.kubelet.one(t, n.name, "client")
	}
	go func() {
		defer close(s.done)
		for ctx.Err() == nil && len(s.lacks) < 100 {
			for n, client := range clients {
				s.connect(n, &client, vip)
			}
			select {
			case <-ctx.Done():
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-s.done })
	return s
}

func (s *stream) connect(n *node, client *corev1.Pod, vip netip.AddrPort) {
	to, again, err := s.w.dialAgain(client, model.TCP, vip, 40)
	s.late += again
	pod, ok := s.w.kubelet.at(to.Addr())
	if err == nil && (!ok || pod.Labels["app"] != "web") {
		err = errors.New("that is none of the shop")
	}
	if s.made++; err != nil {
		s.made--
		s.lacks = append(s.lacks, lack{n, to, pod, err})
	}
}

// end ends it. No connection may have failed, but for those that nat44 ends as Kubernetes takes their endpoint out of the Service
// (docs/services.md): first packets arrive there, too.
func (s *stream) end(t *testing.T) {
	t.Helper()
	s.cancel()
	<-s.done
	cut := 0
	for _, l := range s.lacks {
		if errors.Is(l.err, errCut) && !slices.Contains(l.from.flags, "cnat") && s.w.withdrawn(t, &l.pod) {
			cut++
			continue
		}
		t.Error(blame("%s: connection to %s %s: %v", l.from.name, l.to, l.pod.Name, l.err))
	}
	t.Logf("%d connections; %d ended as their endpoint was taken out; %d packets were sent again", s.made, cut, s.late)
	if s.made < 100 {
		t.Errorf("only %d connections were made", s.made)
	}
}

// wired reports whether the agent of a Pod's node has prepared its interface: what nobody waits for may get connections before. (An agent
// may hear of an endpoint here before it hears of the Pod, most of all when it has to look at everything again.)
func (w *world) wired(pod *corev1.Pod) bool {
	at, err := w.spotOf(pod)
	if err != nil {
		return false
	}
	dump := at.node.sim.Dump()
	return strings.Contains(dump, "\nnat44 interface "+at.in+" ") || strings.Contains(dump, "\nfeature "+at.in+" ")
}

// spare reports whether no VPP leads to a Pod by a Service.
func (w *world) spare(pod *corev1.Pod) bool {
	for _, n := range w.nodes {
		if strings.Contains(n.sim.Dump(), fmt.Sprintf(" %s:", pod.Status.PodIP)) {
			return false
		}
	}
	return true
}
