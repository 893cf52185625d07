package trace

import (
	"fmt"
	"io"
	"strings"

	"github.com/contiv-agent/contiv-agent/model"
)

// WriteText writes an answer as text: the verdict and its reason, then each backend with its hops.
func WriteText(w io.Writer, a Answer) {
	if a.Error != "" {
		fmt.Fprintf(w, "%s -> %s %s: error: %s\n", a.From, a.To, a.Protocol, a.Error)
		return
	}
	fmt.Fprintf(w, "%s -> %s %s: %s\n  %s\n", a.From, a.To, a.Protocol, a.Verdict, a.Reason)
	if a.Sender != "" {
		fmt.Fprintf(w, "  sent by %s\n", a.Sender)
	}
	for _, o := range a.Outcomes {
		fmt.Fprintf(w, "  %-9s %s %s, seen from %s: %s\n", o.Verdict, o.Backend, o.Address, o.Source, o.Reason)
	}
	if len(a.Outcomes) > 0 {
		for _, hop := range a.Outcomes[0].Hops {
			fmt.Fprintf(w, "    %s\n", hop)
		}
	}
}

// Suggest returns up to four questions with different answers: a pod that dials a cluster IP, an outside client that dials a
// node port, a pod that dials a Service without endpoints, and a pod whose packets to a Service a policy denies.
func (c *Cluster) Suggest() []Question {
	c.world.refresh()
	var client, idle string
	var clusterIP, outside *Question
	busy := map[model.PodID]bool{}
	backed := map[model.ServiceID]bool{}
	all := c.world.allChanges()
	for _, ch := range all {
		if slice, ok := ch.Object.(*model.EndpointSlice); ok {
			for _, ep := range slice.Endpoints {
				busy[ep.Pod] = true
				backed[slice.Service] = backed[slice.Service] || ep.Ready
			}
		}
	}
	for _, ch := range all {
		if p, ok := ch.Object.(*model.Pod); ok && !p.HostNetwork && !p.Finished && c.nodes[p.NodeName] != nil && (client == "" || !busy[p.ID]) {
			client = "pod:" + p.ID.String()
		}
	}
	for _, ch := range all {
		svc, ok := ch.Object.(*model.Service)
		if !ok || svc.Type == model.ExternalName || svc.Headless || len(svc.ClusterIPs) == 0 || len(svc.Ports) == 0 || client == "" {
			continue
		}
		port := svc.Ports[0]
		to := fmt.Sprintf("service:%s:%d", svc.ID, port.Port)
		switch {
		case !backed[svc.ID] && !svc.Selectorless:
			idle = to
		case port.NodePort != 0 && len(c.names) > 0:
			if addr, err := ofFamily(c.nodes[c.names[0]].object.Addrs(), true); err == nil {
				outside = &Question{"external:198.51.100.7@" + c.names[0], target{addr, port.NodePort}.String(), port.Protocol.String()}
			}
			fallthrough
		default:
			clusterIP = &Question{client, to, port.Protocol.String()}
		}
	}
	var out []Question
	for _, q := range []*Question{clusterIP, outside} {
		if q != nil {
			out = append(out, *q)
		}
	}
	if idle != "" {
		out = append(out, Question{client, idle, "TCP"})
	}
	if q, found := c.denied(); found {
		out = append(out, q)
	}
	return out
}

// maxTries bounds the connections that are tried to find a denied one.
const maxTries = 200

// denied returns the first connection of a pod to a Service that a policy denies; false if it finds none within maxTries.
func (c *Cluster) denied() (Question, bool) {
	tries := 0
	for _, ch := range c.world.allChanges() {
		svc, ok := ch.Object.(*model.Service)
		if !ok || len(svc.ClusterIPs) == 0 || len(svc.Ports) == 0 {
			continue
		}
		for _, p := range c.matrixPods() {
			port := svc.Ports[0]
			q := Question{"pod:" + p.ID.String(), fmt.Sprintf("service:%s:%d", svc.ID, port.Port), port.Protocol.String()}
			if a := c.Answer(q); a.Verdict == Dropped && strings.Contains(a.Reason, "denied") {
				return q, true
			}
			if tries++; tries == maxTries {
				return Question{}, false
			}
		}
	}
	return Question{}, false
}
