package realvpp

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/test/oracle"
)

// TestVPPClients runs clients with open connections and a stream of new ones while the pods of a Service are replaced, agents are upgraded, a
// VPP is killed, and a node restarts. docs/traffic.md has what a run counted. CONTIV_VPP_CLIENTS is the number of open connections: a
// multiple of 4.
func TestVPPClients(t *testing.T) {
	path := theVPP(t)
	slots := int(oracle.Setting(t, "CONTIV_VPP_CLIENTS", 200)) / perCluster
	var rows []string
	version := ""
	for _, k := range []struct {
		name  string
		flags []string
		servedLaws
	}{
		{"nat44", nil, servedLaws{drains: true, severs: true}},
		{"nat44 keep", []string{"--terminating-endpoints", "keep"}, servedLaws{cuts: true, drains: true, severs: true}},
		{"cnat", []string{"--service-renderer", string(agent.RendererCNAT)}, servedLaws{drains: true}},
	} {
		t.Run(k.name, func(t *testing.T) {
			s := openServed(t, path, servedShape{servedLaws: k.servedLaws, clients: perCluster, slots: slots, endpoints: perCluster, vips: []bool{false}, policies: onlyClients}, k.flags...)
			if version = release.FindString(s.nodes[0].version()); isSimulated(path) {
				version = "sim"
			}
			for _, e := range clientEvents() {
				s.play(e)
				all := s.count(false)
				rows = append(rows, fmt.Sprintf("| %s | %s | %s |", e.name, k.name, all))
				t.Log(rows[len(rows)-1])
				s.judge(e, all)
			}
		})
	}
	t.Logf("%d cores, load %s", runtime.NumCPU(), loadOf())
	recordClients(t, version, rows)
}

// loadOf is the average load of the machine, of one minute.
func loadOf() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Fields(string(text))[0]
}

// recordClients writes the table of a run if CONTIV_TRAFFIC_RECORD is set.
func recordClients(t *testing.T, version string, rows []string) {
	recordTable(t, "clients "+version, fmt.Sprintf("\nA machine with %d cores that also did other work; its load was %s at the end of the run.\n%s%s\n\n",
		runtime.NumCPU(), loadOf(), clientsHead, strings.Join(rows, "\n")))
}

const clientsHead = `
| event | renderer | took | open connections | **broken: pods that stay** | broken: pods that end | ended in order | requests | failed | longest gap | new connections | **refused** | **timed out** | **cut** | longest gap |
|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|
`

// servedCluster is a podCluster with a Service whose pods are on both nodes, and two clients on each node.
type servedCluster struct {
	*podCluster
	servedShape
	load     *load
	backends []*servedPod
	left     map[string]time.Duration // when pods were marked, or ended
	next     int
	from, to time.Duration // of the event
}

// servedLaws are those of a renderer.
type servedLaws struct {
	// drains: connections to a pod that terminates continue until its program ends them. cuts: when an endpoint leaves the Service, connections
	// to it end, also those that are just being opened.
	// severs: open connections whose translations a VPP has lost end; they do not hang.
	drains, cuts, severs bool
}

// servedShape is what differs between such clusters.
type servedShape struct {
	servedLaws
	clients   int    // pods; half of them on each node
	slots     int    // of each client and family
	endpoints int    // of the Service
	vips      []bool // families of the Service; false stands for IPv4
	policies  string // a manifest; "": none
}

// servedPod is a backend as the API server has it.
type servedPod struct {
	*podOf
	backend          *backend
	unready, leaving bool
}

// clientVIPs are the addresses of the Service, by family.
var clientVIPs = map[bool]netip.AddrPort{false: netip.MustParseAddrPort("10.96.0.10:80"), true: netip.MustParseAddrPort("[2001:db8:96::10]:80")}

// perCluster is the number of client pods, and of the Service's pods in TestVPPClients.
const perCluster = 4

func openServed(t *testing.T, path string, shape servedShape, flags ...string) *servedCluster {
	s := &servedCluster{servedShape: shape, left: map[string]time.Duration{}, load: newLoad()}
	s.podCluster = newPodCluster(t, clusterShape{flags: flags})
	s.addNode(path, 1)
	s.addNode(path, 2)
	for _, n := range s.nodes {
		s.until("STATUS of "+n.name, func() error { return n.client().Status(t.Context()) })
	}
	if s.policies != "" {
		s.write("policy.yaml", s.policies)
	}
	t.Cleanup(func() {
		for _, b := range s.backends {
			b.backend.end()
			b.netns.close()
		}
	})
	for i := range s.endpoints {
		s.deploy(s.nodes[i%2])
	}
	s.publish()
	for i := range s.clients {
		n := s.nodes[i%2]
		p := s.attach(n, fmt.Sprintf("client-%d", i), "client")
		for _, six := range s.vips {
			s.load.add(n.name, p.netns, p.addr(six), clientVIPs[six], s.slots)
		}
	}
	t.Cleanup(func() { s.load.leave("")() }) // before the namespaces of clients end
	s.recovered(0)
	return s
}

// onlyClients is the policy that only clients may reach the Service.
const onlyClients = `apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web, namespace: default}
spec: {podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {matchLabels: {app: client}}}]}]}
`

// recovered waits until each client is served as before.
func (s *servedCluster) recovered(since time.Duration) {
	s.t.Helper()
	s.until("all clients are served", func() error {
		for _, u := range s.load.all() {
			count, last := 0, ""
			for _, r := range u.log() {
				switch {
				case r.begun < since || r.how == "":
				case r.how == wasServed || r.how == goodbye:
					count++
				default:
					count, last = 0, fmt.Sprintf("%s %s: %s", r.pod, r.how, r.text)
				}
			}
			if want := map[bool]int{true: 2, false: 20}[u.kept]; count < want {
				return fmt.Errorf("a client on %s (open connection: %v) has %d answers without a failure; the last: %s", u.node, u.kept, count, last)
			}
		}
		return nil
	})
}

// clientCount is what clients saw of an event.
type clientCount struct {
	took                       time.Duration
	slots, requests            int
	brokenStays, brokenEnds    int // open connections, to pods that stay and to pods that end
	moved                      int // connections that a pod ended with an answer
	failed                     int // requests on connections that are kept open, with those to open them again
	keptGap, freshGap          time.Duration
	fresh, refused, timed, cut int
	hung                       int      // requests on open connections that ended by the client's limit
	text                       []string // failures
}

func (n *clientCount) String() string {
	gap := func(d time.Duration) string { return d.Round(gapUnit).String() }
	return fmt.Sprintf("%s | %d | %d | %d | %d | %d | %d | %s | %d | %d | %d | %d | %s", gap(n.took), n.slots, n.brokenStays, n.brokenEnds, n.moved,
		n.requests, n.failed, gap(n.keptGap), n.fresh, n.refused, n.timed, n.cut, gap(n.freshGap))
}

// count waits for the end of all requests of an event in a family, and counts them.
func (s *servedCluster) count(six bool) *clientCount {
	s.t.Helper()
	n := &clientCount{took: s.to - s.from}
	for _, u := range s.load.all() {
		if u.addr.Is6() != six {
			continue
		}
		var mine []sight
		s.until("the requests end", func() error {
			mine = slices.DeleteFunc(u.log(), func(r sight) bool { return r.begun > s.to })
			if slices.ContainsFunc(mine, func(r sight) bool { return r.how == "" }) {
				return errors.New("one has not ended")
			}
			return nil
		})
		var heard []time.Duration
		for _, r := range mine {
			if r.how == wasServed || r.how == goodbye {
				heard = append(heard, r.ended)
			}
		}
		slices.Sort(heard)
		gap := longest(heard, s.from, s.to)
		if u.kept {
			n.slots++
			n.keptGap = max(n.keptGap, gap)
		} else {
			n.freshGap = max(n.freshGap, gap)
		}
		for _, r := range mine {
			if r.ended >= s.from {
				n.add(u, r, s.left[r.pod])
			}
		}
	}
	return n
}

// add counts a request; left is when its pod was marked as one that ends, 0: it was not.
func (n *clientCount) add(u *user, r sight, left time.Duration) {
	switch {
	case u.kept:
		n.requests++
	default:
		n.fresh++
	}
	switch {
	case r.how == wasServed:
		return
	case r.how == goodbye:
		n.moved++
		return
	case r.how == broken && left > 0 && r.ended > left:
		n.brokenEnds++
	case r.how == broken:
		n.brokenStays++
	case u.kept: // not opened again at once
	case r.how == cut:
		n.cut++
	case r.how == refused:
		n.refused++
	default:
		n.timed++
	}
	if u.kept {
		n.failed++
	}
	if u.kept && r.how == broken && r.ended-r.begun >= answerLimit {
		n.hung++
	}
	n.text = append(n.text, fmt.Sprintf("%s to %s: %s on %s, %q: %s", r.begun.Round(gapUnit), r.ended.Round(gapUnit), r.how, u.node, r.pod, r.text))
}

// judge fails the test for what an event must not do to clients. That all are served afterwards is known already.
func (s *servedCluster) judge(e clientEvent, n *clientCount) {
	s.t.Helper()
	lost := n.refused + n.timed + n.cut
	excused := 0
	if s.cuts && e.replaces {
		excused = 2 * perCluster
	}
	bad := ""
	if !e.loses && n.brokenStays > 0 {
		bad = fmt.Sprintf("%d open connections to pods that stay were broken", n.brokenStays)
	}
	if s.drains && e.replaces && n.failed > 0 {
		bad = fmt.Sprintf("%d requests on open connections failed", n.failed)
	}
	if e.spares && lost > excused {
		bad = fmt.Sprintf("%d new connections were lost, %d are excused", lost, excused)
	}
	if s.severs && e.loses && n.hung > 0 {
		bad = fmt.Sprintf("%d open connections hung, although VPP had lost their translations", n.hung)
	}
	if bad != "" {
		s.t.Errorf("%s%s\n%s: %s", s.tails(), strings.Join(n.text[:min(40, len(n.text))], "\n"), e.name, bad)
	}
}
