package realvpp

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.fd.io/govpp/binapi/vlib"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/sim/packet"
	"github.com/contiv-agent/contiv-agent/source/manifest"
	"github.com/contiv-agent/contiv-agent/test/oracle"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy/generate"
	"github.com/contiv-agent/contiv-agent/verify/serving"
)

// The bounds of TestVPPPolicies.
const (
	policyCases    = 500
	policySteps    = 1
	flowsAsked     = 12 // of each cluster that comes to be
	servicesAsked  = 2
	servicePatient = 60 // attempts until every backend that may be reached was
)

// TestVPPPolicies grows random clusters with policies on real VPPs, one for each node, and simulated ones: the agents must write
// the same, packets and the answers to them must leave both alike, and what gets through is what the specifications say. So it
// is for what was connected before the policies changed.
func TestVPPPolicies(t *testing.T) {
	path := theVPP(t)
	cases, first := oracle.Setting(t, "CONTIV_VPP_CASES", policyCases), oracle.Setting(t, "CONTIV_VPP_SEED", 1)
	t.Logf("%d cases, seeds %d to %d", cases, first, first+cases-1)
	c := newCluster(path, agent.Config{})
	c.keep = true
	t.Cleanup(c.close)
	dir, start, differences := t.TempDir(), time.Now(), 0
	p := &policyCase{cluster: c, dir: dir, used: map[policy.Flow]bool{}, showing: os.Getenv("CONTIV_VPP_TRACE") != ""}
	for seed := first; seed < first+cases; seed++ {
		err := p.begin(seed)
		if err == nil {
			err = p.run()
		}
		if err == nil {
			err = p.verify(t.Context())
		}
		if err == nil && seed%restartEvery == 0 {
			err = p.everywhere((*twin).settled)
		}
		if err == nil && seed%rebootEvery == 0 {
			err = p.everywhere((*twin).restartVPPs)
		}
		for _, e := range append(p.differences, err) {
			if e != nil {
				differences++
				t.Errorf("seed %d (repeat with CONTIV_VPP_SEED=%d CONTIV_VPP_CASES=1): %v", seed, seed, e)
			}
		}
		if err != nil || differences >= enough {
			t.FailNow()
		}
	}
	t.Logf("%d cases, %d clusters, %d connections as specified (%d let through, %d of IPv6, %d through services, %d denied as policies are too big, %d that began as answers), "+
		"%d later ones (%d ended); %d to high ports that nobody declares other than specified; %s; %s",
		cases, cases*(policySteps+1), p.judged, p.passed, p.six, p.served, p.closed, p.answered, p.later, p.ended, p.undeclared, &p.proofs, time.Since(start).Round(time.Second))
}

// policyCase is a random cluster with policies, on VPPs that have had others before.
type policyCase struct {
	*cluster
	dir         string
	world       *generate.World
	law         *policy.Cluster
	talks       []policyTalk
	differences []error
	showing     bool                 // beside a difference, what the cluster is then
	used        map[policy.Flow]bool // that came from the port of the world's flows, which policies speak of

	judged, passed, six, served, later, ended int
	closed                                    int // that policies allow which are too big for VPP, and say so
	undeclared                                int // to ports of which nobody says that they are served
	proofs                                    proofs
	answered                                  int // associations that began as answers: the other side had begun one, and nobody asks for ports there
}

// policyTalk is a connection that was let through.
type policyTalk struct {
	outcome
	flow policy.Flow
	from place
	pods [2]string // at both ends, when it was opened
}

// begin forgets the cluster before, and lets VPP forget its connections: those of interfaces that went away stay, and who inherits
// them depends on the numbers of interfaces.
func (p *policyCase) begin(seed uint64) error {
	kinds := generate.AllKinds()
	kinds.Hosts = false // their objects are not bound to the pods of the test
	p.world, p.talks, p.differences = generate.NewWorld(seed, kinds), nil, nil
	p.rng = rand.New(rand.NewPCG(seed, 4)) // the ports go on: what NAT remembers of the cluster before is not asked for
	defer time.Sleep(settle)
	return p.everywhere(func(w *twin) error { return w.both(&vlib.CliInband{Cmd: "clear acl-plugin sessions"}) })
}

// everywhere does something with the VPPs of all nodes.
func (p *policyCase) everywhere(do func(*twin) error) error {
	for _, name := range p.names() {
		if err := do(p.nodes[name]); err != nil {
			return fmt.Errorf("node %s: %w", name, err)
		}
	}
	return nil
}

func (p *policyCase) run() error {
	changes, err := p.replaceAll()
	for step := 0; err == nil; step++ {
		if err = p.apply(changes); err != nil {
			return err
		}
		if p.law, err = policy.Read(p.world.Objects()); err != nil {
			return err
		}
		if err = errors.Join(p.goOn(), p.ask()); err != nil || step == policySteps {
			return err
		}
		changes, err = p.step()
	}
	return err
}

// verify proves that the lists and mappings of every VPP are right.
func (p *policyCase) verify(ctx context.Context) error {
	objects := slices.Collect(maps.Values(p.objects))
	return p.everywhere(func(w *twin) error {
		different, err := p.proofs.prove(ctx, w, objects, serving.Config{})
		p.differences = append(p.differences, different...)
		return err
	})
}

// step changes the world until a connected pair is no longer allowed, if that happens soon.
func (p *policyCase) step() ([]event.Change, error) {
	const patient = 12
	var list []generate.Change
	for range patient {
		for _, c := range p.world.Step() {
			list = append(slices.DeleteFunc(list, func(was generate.Change) bool { return was.Key == c.Key }), c)
		}
		law, err := policy.Read(p.world.Objects())
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(p.talks, func(t policyTalk) bool { return !law.Judge(&t.flow).Allowed }) {
			break
		}
	}
	return p.read(list)
}

// replaceAll takes all objects away and returns those of the world.
func (p *policyCase) replaceAll() ([]event.Change, error) {
	var removed []event.Change
	for ref := range p.objects {
		removed = append(removed, event.Change{Ref: ref})
	}
	slices.SortFunc(removed, func(a, b event.Change) int { return strings.Compare(a.Ref.String(), b.Ref.String()) })
	if err := p.apply(removed); err != nil {
		return nil, err
	}
	var list []generate.Change
	for _, o := range p.world.Objects() {
		list = append(list, generate.Change{Key: policy.KeyOf(o), Object: o})
	}
	return p.read(list)
}

// read returns the changes as a folder of manifests yields them.
func (p *policyCase) read(changes []generate.Change) ([]event.Change, error) {
	var out []event.Change
	var objects []policy.Object
	for _, c := range changes {
		if c.Object != nil {
			objects = append(objects, c.Object)
			continue
		}
		kind := c.Key.Kind
		if kind == "NetworkPolicy" && c.Key.APIVersion == "projectcalico.org/v3" {
			kind = string(model.KindCalicoNetworkPolicy)
		}
		out = append(out, event.Change{Ref: model.Ref{Kind: model.Kind(kind), Namespace: c.Key.Namespace, Name: c.Key.Name}})
	}
	if len(objects) == 0 {
		return out, nil
	}
	file := filepath.Join(p.dir, "objects.yaml")
	if err := os.WriteFile(file, []byte(policy.YAML(objects)), 0o600); err != nil {
		return nil, err
	}
	puts, err := manifest.Load(file)
	for _, ch := range puts {
		if ch.Err != nil && !strings.Contains(ch.Err.Error(), "domainNames") { // nobody resolves those
			err = errors.Join(err, ch.Err)
		}
	}
	if len(puts) != len(objects) {
		err = errors.Join(err, fmt.Errorf("%d objects became %d", len(objects), len(puts)))
	}
	return append(out, puts...), err
}

// tolerate notes what is wrong with a packet and lets the case go on; other errors end it.
func (p *policyCase) tolerate(err error) error {
	var d *difference
	var w *wrongVerdict
	if errors.As(err, &d) || errors.As(err, &w) {
		p.differences = append(p.differences, err)
		if p.showing {
			p.differences = append(p.differences, errors.New(policy.YAML(p.world.Objects())))
		}
		return nil
	}
	return err
}

// wrongVerdict is a packet of which both VPPs made the same, but not what the specifications say.
type wrongVerdict struct {
	flow  policy.Flow
	got   string
	want  policy.Verdict
	about string
}

func (w *wrongVerdict) Error() string {
	return fmt.Sprintf("%s%v: %s, should be allowed %v: %s", w.about, w.flow, w.got, w.want.Allowed, w.want.Why)
}

// ask sends the first packets of some connections.
func (p *policyCase) ask() error {
	for _, flow := range p.world.Sample(p.world.Flows(1), flowsAsked) {
		if flow.Src == flow.Dst || flow.Proto == policy.SCTP && flow.Src.Is4() || p.namesPeer(flow) {
			continue // it never leaves the pod; nat44 hides who sends, behind an address it takes from any session to the same place
		}
		if err := p.tolerate(p.connect(flow)); err != nil {
			return err
		}
	}
	return p.askServices()
}

// namesPeer reports whether a flow to a pod comes from an address of another node: with nat44 only a rule without sources lets it in.
func (p *policyCase) namesPeer(flow policy.Flow) bool {
	node := p.nodeOf(flow.Src)
	pod, to := p.who(flow.Dst, flow.Node)
	return flow.Src.Is4() && node != "" && pod != "" && to.node != node
}

// who is the pod that has an address, "" if none; and where packets of that address enter a node.
func (p *policyCase) who(a netip.Addr, node string) (pod string, from place) {
	from = place{node: node, door: cni.Uplink, addr: a}
	for _, x := range all[*model.Pod](p.cluster) {
		if slices.Contains(x.IPs, a) && !x.HostNetwork && !x.Finished {
			return x.ID.String(), place{node: x.NodeName, door: cni.PodInterface(x.ID), addr: a}
		}
	}
	if p.nodeOf(a) == node {
		from.door = cni.Host
	}
	return "", from
}

// nextPort is one nobody has used for a while.
func (p *policyCase) nextPort() uint16 {
	if p.port++; p.port < 33000 {
		p.port = 33000 // beyond the node ports
	}
	if p.port == spokenOf {
		p.port++
	}
	return p.port
}

// spokenOf is the source port that policies speak of.
const spokenOf = 40000

func (p *policyCase) connect(flow policy.Flow) error {
	k, judged := p.packet(&flow)
	pod, from := p.who(flow.Src, flow.Node)
	peer, _ := p.who(flow.Dst, flow.Node)
	if p.nodes[from.node] == nil {
		return fmt.Errorf("%v: there is no node %q", flow, from.node)
	}
	k.Src = p.speaking(from, k.Dst)
	o, err := p.exchange(from, same(k))
	if err != nil || !judged {
		return err
	}
	want, got := p.law.Judge(&flow), o.verdict == "delivered"
	p.judged++
	if flow.Src.Is6() {
		p.six++
	}
	if !got && want.Allowed && p.tooBig(pod, peer) {
		p.closed++
		return nil
	}
	if !got && flow.Proto == policy.SCTP && strings.Contains(o.why+o.way, "no-sctp") {
		return nil // nothing tracks it: policies restrict the pod's other direction
	}
	if got && !want.Allowed && flow.Proto == policy.SCTP && beginsAsAnswer(o.way, want.Why) {
		p.answered++
		return nil
	}
	if !got && want.Allowed && flow.Proto == policy.UDP && flow.Undeclared() {
		p.undeclared++
		return nil
	}
	if got != want.Allowed {
		return &wrongVerdict{flow: flow, got: o.verdict + " " + o.why + o.way, want: want}
	}
	if got {
		p.passed++
		p.talks = append(p.talks, policyTalk{flow: flow, from: from, outcome: o, pods: [2]string{pod, peer}})
	}
	return nil
}

// beginsAsAnswer reports whether a list that should have denied an association took its INIT for an answer, because the other side had begun
// one before: lists do not compare ports of SCTP. Where rules name such ports, the filter does.
func beginsAsAnswer(way, why string) bool {
	asked, at := "-outacl:", way[max(0, strings.LastIndex(way, "acl-plugin-out-")):]
	if strings.HasPrefix(why, "egress ") {
		asked = "-inacl:"
		at, _, _ = strings.Cut(way, "-lookup:")
	}
	return strings.Contains(at, ": session of acl ") && !strings.Contains(at, asked)
}

// tooBig reports whether an agent says that it could not write out all that policies allow: negations on a VPP that compares whole
// bytes of IPv6 addresses, or that many ports of SCTP, of one of those pods.
func (p *policyCase) tooBig(pods ...string) bool {
	for _, n := range p.nodes {
		st := n.sides[0].agent.Status()
		for _, note := range st.Notes {
			if name, is := strings.CutPrefix(note.Object, "Pod "); is && slices.Contains(pods, name) && strings.Contains(note.Reason, "too many rules for SCTP") {
				return true
			}
		}
		for _, pol := range st.Policies {
			if slices.ContainsFunc(pol.Reasons, func(r string) bool {
				return strings.Contains(r, "too big to be written out") || strings.Contains(r, "too many rules")
			}) {
				return true
			}
		}
	}
	return false
}

// packet is the first one of a flow, with an unused source port; decided reports whether the specifications decide about it.
func (p *policyCase) packet(flow *policy.Flow) (k packet.Packet, decided bool) {
	k = packet.Packet{Src: flow.Src, Dst: flow.Dst, Proto: model.Protocol(flow.Proto)}
	if flow.Proto.Ports() {
		if before := *flow; p.used[before] || p.rng.IntN(4) > 0 { // now and then the port that policies speak of, once for a pair
			flow.SrcPort = p.nextPort()
		} else {
			p.used[before] = true
		}
		k.SrcPort, k.DstPort = flow.SrcPort, flow.DstPort
		return k.Opening(), true
	}
	k.ICMPType, k.ICMPCode = flow.Type, flow.Code
	switch {
	case k.IsICMPError():
		inner := packet.NewUDP(netip.AddrPortFrom(flow.Dst, p.nextPort()), netip.AddrPortFrom(flow.Src, 53))
		k.Inner = &inner
		return k, false
	case k.IsEcho():
		k.ICMPID = p.nextPort()
	}
	return k, k.IsEcho() && k.ICMPCode == 0
}

// goOn sends another packet of what was connected before the last change: it gets through exactly if it still may.
func (p *policyCase) goOn() error {
	for i := range p.talks {
		t := &p.talks[i]
		pod, _ := p.who(t.flow.Src, t.flow.Node)
		peer, _ := p.who(t.flow.Dst, t.flow.Node)
		if t.pods != [2]string{pod, peer} || t.flow.Src == t.flow.Dst {
			continue // one of the two addresses has another owner now
		}
		if err := p.tolerate(p.next(t)); err != nil {
			return err
		}
	}
	p.talks = nil
	return nil
}

func (p *policyCase) next(t *policyTalk) error {
	if p.rng.IntN(2) == 0 { // the dialled side speaks first
		if _, err := p.travel(t.back, t.answer.both(packet.Packet.GoingOn)); err != nil {
			return err
		}
	}
	o, err := p.exchange(t.from, t.sent.both(packet.Packet.GoingOn))
	if err != nil {
		return err
	}
	p.later++
	want, got := p.law.Judge(&t.flow), o.verdict == "delivered"
	if !got {
		p.ended++
	}
	if got != want.Allowed && t.flow.Undeclared() {
		p.undeclared++
		return nil
	}
	if got != want.Allowed && t.flow.Proto != policy.SCTP {
		return &wrongVerdict{flow: t.flow, got: o.verdict + " " + o.why + o.way, want: want, about: "later: "}
	}
	return nil
}

// askServices dials some services from where they may be dialled.
func (p *policyCase) askServices() error {
	var dials []dial
	for _, svc := range all[*model.Service](p.cluster) {
		for _, pod := range all[*model.Pod](p.cluster) {
			if i := slices.IndexFunc(pod.IPs, netip.Addr.Is4); i >= 0 && !pod.HostNetwork && !pod.Finished {
				from := place{node: pod.NodeName, door: cni.PodInterface(pod.ID), addr: pod.IPs[i]}
				dials = append(dials, dial{from, svc, netip.AddrPortFrom(svc.ClusterIPs[0], svc.Ports[0].Port), true})
			}
		}
		for _, n := range all[*model.Node](p.cluster) {
			if port := svc.Ports[0].NodePort; port != 0 {
				from := place{node: n.Name, door: cni.Uplink, addr: netip.MustParseAddr("198.51.100.7")}
				dials = append(dials, dial{from, svc, netip.AddrPortFrom(n.InternalIPs[0], port), false})
			}
		}
	}
	p.rng.Shuffle(len(dials), func(i, j int) { dials[i], dials[j] = dials[j], dials[i] })
	for _, d := range dials[:min(len(dials), servicesAsked)] {
		if err := p.tolerate(p.dial(d)); err != nil {
			return err
		}
	}
	return nil
}

// dial is a client's attempt to dial a service.
type dial struct {
	from place
	svc  *model.Service
	to   netip.AddrPort
	open bool // the backend sees who it is, but for itself
}

// dial tries until every backend has answered that may: none that may not ever does.
func (p *policyCase) dial(d dial) error {
	flow := policy.Flow{Node: d.from.node, Src: d.from.addr, Proto: policy.Protocol(d.svc.Ports[0].Protocol)}
	missing, denied := map[string]policy.Verdict{}, false
	for _, b := range p.backends(d.svc) {
		flow.Dst, flow.DstPort, flow.SrcPort = b.Addr(), b.Port(), 50000
		if b.Addr() == d.from.addr { // what it sees of itself is an address that others have, too
			denied = true
			continue
		}
		if _, at := p.who(b.Addr(), d.from.node); d.from.door == cni.Host && at.node == d.from.node {
			denied = true // a service is dialled from the node's address, which reaches no pod of the node that has policies
			continue
		}
		if want := p.law.Judge(&flow); want.Allowed && d.open {
			missing[b.String()] = want
		} else if !want.Allowed {
			denied = true
		}
	}
	few := fewTries
	if len(p.backends(d.svc)) == 0 {
		few = 1 // VPP answers few at a time
	}
	for try := 0; try < few || len(missing) > 0 && try < servicePatient; try++ {
		k := packet.Packet{Src: d.from.addr, Dst: d.to.Addr(), Proto: d.svc.Ports[0].Protocol, DstPort: d.to.Port()}
		k = k.Opening()
		if p.port == spokenOf-1 {
			p.port++
		}
		o, err := p.attempt(d.from, k)
		if err != nil {
			return err
		}
		if o.verdict != "delivered" {
			if d.open && !denied && len(p.backends(d.svc)) > 0 {
				return &wrongVerdict{flow: flow, got: o.verdict + " " + o.why + o.way, about: "service " + d.to.String() + ": ", want: policy.Verdict{Allowed: true, Why: "every backend may be reached"}}
			}
			continue
		}
		p.served++
		seen, there := flow, netip.MustParseAddrPort(o.address)
		seen.Src, seen.Dst, seen.DstPort, seen.SrcPort = netip.MustParseAddr(o.source), there.Addr(), there.Port(), o.sent.sim.SrcPort
		want := p.law.Judge(&seen)
		_, at := p.who(seen.Dst, d.from.node)
		if hidden := seen.Src != d.from.addr && at.node == d.from.node; !want.Allowed && !hidden {
			return &wrongVerdict{flow: seen, got: "reached", about: "service " + d.to.String() + ": ", want: want}
		}
		delete(missing, o.address)
	}
	for b, want := range missing {
		return &wrongVerdict{flow: flow, got: "never reached " + b, about: "service " + d.to.String() + ": ", want: want}
	}
	return nil
}

// backends are the IPv4 endpoints of a service.
func (p *policyCase) backends(svc *model.Service) []netip.AddrPort {
	var out []netip.AddrPort
	for _, s := range all[*model.EndpointSlice](p.cluster) {
		for _, e := range s.Endpoints {
			if s.Service == svc.ID && e.Addr.Is4() && e.Ready {
				out = append(out, netip.AddrPortFrom(e.Addr, s.Ports[0].Port))
			}
		}
	}
	return out
}
