package realvpp

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"syscall"
	"time"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/cnat"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/nat44_ed"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim/cni"
)

// The files that events change.
const policiesFile, endpointsFile, lateFile = "40-policies.yaml", "30-endpoints.yaml", "50-late.yaml"

func nobodys(*role) bool       { return false }
func everybodys(*role) bool    { return true }
func beforeEvent(r *role) bool { return r.before }

// trafficEvents are what happens to the traffic of a world, one after another.
func trafficEvents() []happens {
	return []happens{
		{name: "policies revoke", moves: beforeEvent, do: (*traffic).changePolicies},
		{name: "policies allow", moves: func(r *role) bool { return r.after }, do: (*traffic).changePolicies},
		{name: "an unrelated rule of the same policies", moves: nobodys, do: func(w *traffic, _ string) time.Time {
			return w.changePolicies(policiesManifest(beforeEvent, true))
		}},
		{name: "a Service gets an endpoint and loses it", moves: nobodys, do: (*traffic).changeEndpoints},
		{name: "agents killed, policies change, agents start", moves: everybodys, do: (*traffic).restartAgents},
		{name: "VPPs killed and started at once", moves: nobodys, loses: true, do: func(w *traffic, _ string) time.Time { return w.restartVPPs(0, "") }},
		{name: "VPPs away for 20 s, policies change", moves: everybodys, loses: true, do: func(w *traffic, policies string) time.Time {
			return w.restartVPPs(20*time.Second, policies)
		}},
		{name: "VPPs stopped for 3 s (SIGSTOP), policies change", moves: everybodys, do: (*traffic).stopVPPs},
		{name: "a new pod", moves: nobodys, late: true, do: func(w *traffic, _ string) time.Time {
			since := time.Now()
			w.placeLate()
			return w.settled(since, "node-1")
		}},
		{name: "a new pod, agents away for 5 s", moves: nobodys, late: true, do: func(w *traffic, _ string) time.Time {
			w.killAgents()
			w.placeLate()
			wait(w.t.Context(), 5*time.Second)
			return w.startAgents()
		}},
		{name: "another API client removes mappings", moves: nobodys, loses: true, do: (*traffic).removeMappings},
		{name: "another API client removes lists", moves: nobodys, do: (*traffic).removeLists},
	}
}

func (w *traffic) changePolicies(policies string) time.Time {
	since := time.Now()
	w.write(policiesFile, policies)
	return w.settled(since)
}

func (w *traffic) changeEndpoints(string) time.Time {
	var done time.Time
	for _, spare := range []bool{true, false} {
		since := time.Now()
		w.write(endpointsFile, endpointsManifest(spare))
		done = w.settled(since)
	}
	return done
}

func (w *traffic) killAgents() {
	for _, n := range w.nodes {
		w.kill(n.node.Name)
	}
}

func (w *traffic) startAgents() time.Time {
	since := time.Now()
	for _, n := range w.nodes {
		w.startAgent(n)
	}
	return w.settled(since)
}

func (w *traffic) restartAgents(policies string) time.Time {
	w.killAgents()
	w.write(policiesFile, policies)
	wait(w.t.Context(), time.Second)
	return w.startAgents()
}

// eachNode does something with all nodes at once.
func (w *traffic) eachNode(do func(*siteNode) error) {
	w.t.Helper()
	errs := make(chan error)
	for _, n := range w.nodes {
		go func() { errs <- do(n) }()
	}
	var err error
	for range w.nodes {
		err = errors.Join(err, <-errs)
	}
	w.check(err)
}

func (w *traffic) restartVPPs(away time.Duration, policies string) time.Time {
	w.eachNode(func(n *siteNode) error { n.end(); return nil })
	since := time.Now()
	if policies != "" {
		w.write(policiesFile, policies)
	}
	wait(w.t.Context(), away)
	w.eachNode(w.begin)
	return w.settled(since)
}

func (w *traffic) stopVPPs(policies string) time.Time {
	signal := func(s os.Signal) func(*siteNode) error {
		return func(n *siteNode) error { return n.cmd.Process.Signal(s) }
	}
	w.eachNode(signal(syscall.SIGSTOP))
	since := time.Now()
	w.write(policiesFile, policies)
	wait(w.t.Context(), 3*time.Second)
	w.eachNode(signal(syscall.SIGCONT))
	return w.settled(since)
}

func latePod() *model.Pod {
	return &model.Pod{ID: model.PodID{Namespace: "traffic", Name: late.name}, NodeName: "node-1", IPs: []netip.Addr{late.addr(false), late.addr(true)}}
}

// placeLate is a CNI that adds the late pod, while the API server says so.
func (w *traffic) placeLate() {
	w.check(w.place(latePod()))
	w.write(lateFile, late.manifest())
	w.check(w.populate(late))
}

// removeLate is the CNI that removes it.
func (w *traffic) removeLate() {
	since := time.Now()
	w.write(lateFile, "")
	w.check(w.displace(latePod()))
	w.settled(since, "node-1")
}

// displace removes a pod's interface and routes.
func (s *site) displace(p *model.Pod) error {
	for _, n := range s.nodes {
		if n.node.Name == p.NodeName {
			for _, a := range p.IPs {
				n.RemoveRoute(0, netip.PrefixFrom(a, a.BitLen()))
			}
			n.RemoveInterface(cni.PodInterface(p.ID))
			s.pods = without(s.pods, p.ID)
			return n.err
		}
	}
	return fmt.Errorf("pod %s is on no node there is", p.ID)
}

func without(pods []*model.Pod, id model.PodID) (out []*model.Pod) {
	for _, p := range pods {
		if p.ID != id {
			out = append(out, p)
		}
	}
	return out
}

// repairing bounds the test, not the agent. The agent's rechecks take half a minute, and minutes on a busy machine: each waits 50 times as long as VPP
// took for the one before (ADR 15).
const repairing = 10 * time.Minute

// repaired waits until all VPPs have again what another client removed, and returns when.
func (w *traffic) repaired(lacks func(*siteNode) error) time.Time {
	w.t.Helper()
	for end := time.Now().Add(repairing); ; wait(w.t.Context(), 20*time.Millisecond) {
		var err error
		for _, n := range w.nodes {
			err = errors.Join(err, lacks(n))
		}
		now := time.Now()
		if err == nil {
			return now
		}
		if now.After(end) {
			w.t.Fatalf("%snot repaired within %s: %v", w.tails(), repairing, err)
		}
	}
}

func (w *traffic) removeMappings(string) time.Time {
	had := map[string]int{}
	for _, n := range w.nodes {
		count, _, err := n.mappings()
		w.check(err)
		had[n.node.Name] = count
	}
	w.eachNode(func(n *siteNode) error {
		_, dels, err := n.mappings()
		if err == nil {
			_, err = n.do(dels...)
		}
		return err
	})
	return w.repaired(func(n *siteNode) error {
		if count, _, err := n.mappings(); err != nil || count < had[n.node.Name] {
			return errors.Join(err, fmt.Errorf("%s has %d of %d mappings", n.node.Name, count, had[n.node.Name]))
		}
		return nil
	})
}

// mappings counts what serves the VIPs, and returns the messages that remove it.
func (n *siteNode) mappings() (count int, dels []api.Message, err error) {
	for _, dump := range []api.Message{&nat44_ed.Nat44LbStaticMappingDump{}, &nat44_ed.Nat44StaticMappingDump{}, &cnat.CnatTranslationDump{}} {
		details, failed := n.dump(dump)
		err = errors.Join(err, failed)
		for _, d := range details {
			switch d := d.(type) {
			case *nat44_ed.Nat44LbStaticMappingDetails:
				dels = append(dels, &nat44_ed.Nat44AddDelLbStaticMapping{
					Flags: d.Flags, ExternalAddr: d.ExternalAddr, ExternalPort: d.ExternalPort,
					Protocol: d.Protocol, Affinity: d.Affinity, Locals: d.Locals, Tag: d.Tag,
				})
			case *nat44_ed.Nat44StaticMappingDetails:
				if bytes.HasPrefix(d.ExternalIPAddress[:], []byte{10, 96}) {
					dels = append(dels, &nat44_ed.Nat44AddDelStaticMappingV2{
						Flags: d.Flags, LocalIPAddress: d.LocalIPAddress, ExternalIPAddress: d.ExternalIPAddress,
						Protocol: d.Protocol, LocalPort: d.LocalPort, ExternalPort: d.ExternalPort, ExternalSwIfIndex: d.ExternalSwIfIndex, VrfID: d.VrfID, Tag: d.Tag,
					})
				}
			case *cnat.CnatTranslationDetails:
				dels = append(dels, &cnat.CnatTranslationDel{ID: d.Translation.ID})
			}
		}
	}
	return len(dels), dels, err
}

func (w *traffic) removeLists(string) time.Time {
	doors := func(n *siteNode) (out []interface_types.InterfaceIndex) {
		for _, s := range servers {
			if at, ok := n.index[cni.PodInterface(model.PodID{Namespace: "traffic", Name: s.name})]; ok {
				out = append(out, at)
			}
		}
		return out
	}
	w.eachNode(func(n *siteNode) (err error) {
		for _, at := range doors(n) {
			_, failed := n.do(&acl.ACLInterfaceSetACLList{SwIfIndex: at})
			err = errors.Join(err, failed)
		}
		return err
	})
	return w.repaired(func(n *siteNode) error {
		for _, at := range doors(n) {
			details, err := n.dump(&acl.ACLInterfaceListDump{SwIfIndex: at})
			if err != nil || len(details) == 0 || details[0].(*acl.ACLInterfaceListDetails).Count == 0 {
				return errors.Join(err, fmt.Errorf("%s: interface %d has no lists", n.node.Name, at))
			}
		}
		return nil
	})
}

// tidy undoes what is left of an event.
func (w *traffic) tidy(e *happens) {
	w.t.Helper()
	if e.late {
		w.removeLate()
	}
}
