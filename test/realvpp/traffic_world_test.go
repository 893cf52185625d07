package realvpp

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/agent/control"
	"github.com/contiv-agent/contiv-agent/agent/status"
	"github.com/contiv-agent/contiv-agent/sim/cni"
)

// traffic is a site whose pods talk all the time, and one round after another in which something happens.
type traffic struct {
	*site
	renderer agent.ServiceRenderer
	families []bool // IPv6?
	clients  map[*role]*netns
	now      atomic.Pointer[round] // nil: between two rounds
	first    uint32                // of the flows to come
	port     uint16                // of the client that spoke last
	dial     uint16                // the last one of a flow that uses one after another
}

// openTraffic makes the cluster, its programs and its agents.
func openTraffic(t *testing.T, path string, renderer agent.ServiceRenderer) *traffic {
	dir := t.TempDir()
	for name, text := range trafficManifests() {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w := &traffic{site: openSite(t, path, dir), renderer: renderer, families: []bool{false}, clients: map[*role]*netns{}, port: firstPort}
	if renderer == agent.RendererCNAT {
		w.families = append(w.families, true)
	}
	w.agentFlags = []string{"--service-renderer", string(renderer)}
	for _, r := range roles {
		w.clients[r] = w.hosts["traffic/"+r.name]
		w.check(w.watchPackets(w.clients[r], false))
	}
	for _, s := range servers {
		w.check(w.populate(s))
	}
	w.write("30-endpoints.yaml", endpointsManifest(false))
	w.write("40-policies.yaml", policiesManifest(func(r *role) bool { return r.before }, false))
	began := time.Now()
	for _, n := range w.nodes {
		w.startAgent(n)
	}
	w.settled(began)
	return w
}

// populate gives a server's pod its program.
func (w *traffic) populate(s *server) error {
	at := w.hosts["traffic/"+s.name]
	if err := w.watchPackets(at, true); err != nil {
		return err
	}
	return w.serveTraffic(at)
}

func (w *traffic) watchPackets(at *netns, atServer bool) error {
	f, err := at.listen(func(b []byte) { w.arrived(b, atServer) })
	if err == nil {
		w.t.Cleanup(func() { f.Close() })
	}
	return err
}

// settled waits until the agents of some nodes, or all, have ended a transaction since, know all pods of their nodes, and have nothing
// left to do. It returns when VPP acknowledged the last of it.
func (w *traffic) settled(since time.Time, names ...string) time.Time {
	w.t.Helper()
	var last time.Time
	for _, n := range w.nodes {
		if len(names) > 0 && !slices.Contains(names, n.node.Name) {
			continue
		}
		w.until("the agent of "+n.node.Name+" has done its work", func() error {
			st, err := control.FetchStatus(w.t.Context(), w.status(n), true)
			switch {
			case err != nil:
				return err
			case !st.InSync || !st.VPP.Connected:
				return fmt.Errorf("not in sync: %s", st.Waiting)
			case len(st.History) == 0 || st.History[len(st.History)-1].At.Before(since):
				return errors.New("nothing was done yet")
			case len(st.Unwell) > 0:
				return fmt.Errorf("not configured: %+v", st.Unwell)
			}
			if err := w.found(n, st.Ifs); err != nil {
				return err
			}
			if end := st.History[len(st.History)-1]; end.At.Add(end.Took).After(last) {
				last = end.At.Add(end.Took)
			}
			return nil
		})
	}
	return last
}

// found is what an agent does not know of its node's interfaces.
func (w *traffic) found(n *siteNode, ifs *status.Interfaces) error {
	if ifs == nil || ifs.Uplink != cni.Uplink || ifs.Overlay != overlayLoop {
		return fmt.Errorf("uplink and overlay are not known: %+v", ifs)
	}
	for _, p := range w.pods {
		for _, a := range p.IPs {
			if p.NodeName == n.node.Name && ifs.Pods[a.String()] != cni.PodInterface(p.ID) {
				return fmt.Errorf("the interface of %s is not known", a)
			}
		}
	}
	return nil
}
