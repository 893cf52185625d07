// Package verify turns the access lists and translations of a running VPP and the objects of a cluster into a proof that the lists do what the
// policies mean, for all packet headers, and the translations what the Services mean, for all frontends; or into a packet about which they differ.
//
//	VPP ── dump ─▶ lists ──── space.List ──▶ headers that VPP passes ┐
//	                                                                 ├─ equal, or a counterexample: packet, both verdicts, line for trace
//	objects ────── meaning ────────────────▶ headers that are allowed ┘
//
//	VPP ── dump/translation ─▶ mappings, interfaces, routes ┐
//	                                                        ├─ equal, or the first packet of a connection
//	objects ────── serving ──▶ frontends of the node ───────┘
//
// Invariant: the verdict Equal covers every header of the check. The headers that a check leaves out do not depend on the access lists;
// docs/verify.md lists them.
package verify

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/contiv-agent/contiv-agent/fields"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/space"
	"github.com/contiv-agent/contiv-agent/verify/dump"
	"github.com/contiv-agent/contiv-agent/verify/dump/translation"
	"github.com/contiv-agent/contiv-agent/verify/example"
	"github.com/contiv-agent/contiv-agent/verify/meaning"
	"github.com/contiv-agent/contiv-agent/verify/serving"
)

// Config selects the VPP, and the node whose pods are checked.
type Config struct {
	// Socket is the path of VPP's binary-API socket. Dial, if set, replaces it.
	Socket string
	Dial   func(context.Context) (net.Conn, error)
	Node   string
	// HostAddresses are the addresses that only the node's own processes send from. Packets from them are not compared.
	HostAddresses []netip.Addr
	// Services is the configuration of the node's agent, as far as Services depend on it.
	Services serving.Config
	// Timeout is how long VPP may take for all answers; 0: 10 s.
	Timeout time.Duration
	// NoPolicies and NoServices say why the node's agent enforces no policies from objects, or serves no Services; "": it does. The report omits
	// their checks.
	NoPolicies, NoServices string
	// NoSourceCheck: the node's agent does not check the source addresses of pods.
	NoSourceCheck bool
	// Refused has the policies that the node's agent refuses because they ask for too much, each with the reason. They count as policies that deny all
	// that they apply to.
	Refused map[model.Ref]string
	// Shared says which other programs configure the same VPP through the agent; "": none. A mapping without a Service may be theirs, and is not
	// compared.
	Shared string
	// MostEdges bounds the memory of the sets of headers: a number of edges beyond which further pods are not compared; 0: none. An edge needs about
	// 60 bytes.
	MostEdges int
}

// Verdict is the result of a check.
type Verdict string

// The verdicts.
const (
	Equal     Verdict = "equal"
	Different Verdict = "different"
	Unknown   Verdict = "not compared"
)

// Report is the result for a node.
type Report struct {
	Node string `json:"node"`
	// Verdict is Equal if every check is.
	Verdict Verdict `json:"verdict"`
	// Why is the reason for Unknown without checks. Omitted has the checks that the node does not need, each with its reason.
	Why     string   `json:"why,omitempty"`
	Omitted []string `json:"omitted,omitempty"`
	// Refused has the policies that count as ones that deny all that they apply to, each with the reason.
	Refused []string `json:"refused,omitempty"`
	// OmittedChecks and RefusedPolicies have Omitted and Refused as fields.
	OmittedChecks   []Omission `json:"omittedChecks,omitempty"`
	RefusedPolicies []Refusal  `json:"refusedPolicies,omitempty"`
	// ServiceCIDRs are the ranges of cluster IPs beside those of ServiceCIDR objects.
	ServiceCIDRs []netip.Prefix `json:"serviceCIDRs,omitempty"`
	// Checks are sorted by pod, in a fixed order for each.
	Checks []Check `json:"checks"`
	// Services has a check of each Service, sorted, and then of what is not one Service's.
	Services []ServiceCheck `json:"services"`
	// Probes has a check of each pod that packets were sent from, sorted; nil: none were. PacketsSent is their number.
	Probes      []Check `json:"probes,omitempty"`
	PacketsSent int     `json:"packetsSent,omitempty"`
}

// AddProbes adds the checks of packets that were sent.
func (r *Report) AddProbes(checks []Check, sent int) {
	r.Probes, r.PacketsSent = checks, sent
	for i := range checks {
		r.conclude(checks[i].Verdict)
	}
}

// Omission is checks that a node does not need: "policies" or "Services".
type Omission struct {
	Checks string `json:"checks"`
	Why    string `json:"why"`
}

// Refusal is a policy that counts as one that denies.
type Refusal struct {
	fields.Object
	Why string `json:"why"`
}

// Check compares one kind of packets of a pod.
type Check struct {
	Pod       string `json:"pod"`
	Interface string `json:"interface,omitempty"`
	// Packets names what was compared: ingress, ingress from local pods, egress, forged sources, answers.
	Packets string  `json:"packets"`
	Verdict Verdict `json:"verdict"`
	// Why is the reason for Unknown.
	Why string `json:"why,omitempty"`
	// Difference is a counterexample; nil unless the verdict is Different.
	Difference *Difference `json:"difference,omitempty"`
}

// Difference is a packet about which VPP and the policies differ. Header, VPPPasses, Lists and Decisions have its texts as fields.
type Difference struct {
	Packet string          `json:"packet"`
	Header *example.Header `json:"header,omitempty"`
	// VPP is what VPP does with the packet, and the list and rule that decide. Policy is what the objects say, and why.
	VPP    string `json:"vpp"`
	Policy string `json:"policy"`
	// Trace is the question about this packet for the trace command; "": it has no question for such packets.
	Trace string `json:"trace,omitempty"`

	VPPPasses bool          `json:"vppPasses"` // policies want the opposite, or, of answers, that the packet makes a session
	Lists     []ListVerdict `json:"lists,omitempty"`
	// Decisions are those of the policies of the pods at the packet's ends. None: no policy decides about forged sources and answers.
	Decisions []example.Decision `json:"decisions,omitempty"`
}

// ListVerdict is what the access lists of an interface do with a packet.
type ListVerdict struct {
	Pod       string `json:"pod"`
	Interface string `json:"interface"`
	Direction string `json:"direction"` // input or output, as VPP sees it
	Passes    bool   `json:"passes"`
	// List is the place of the deciding list among those of the interface and direction, ACL its number in VPP, Rule the rule in the list, from 0;
	// -1: no rule matched, or there is no list.
	List int    `json:"list"`
	ACL  int    `json:"acl"`
	Name string `json:"name,omitempty"` // of the list
	Rule int    `json:"rule"`
	Text string `json:"text"`
}

// answerTime is how long VPP may take for all answers by default.
const answerTime = 10 * time.Second

func (cfg *Config) inTime(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, cmp.Or(max(cfg.Timeout, 0), answerTime))
}

// Run reads VPP and compares.
func Run(ctx context.Context, cfg Config, objects []model.Object) (*Report, error) {
	reading, cancel := cfg.inTime(ctx)
	defer cancel()
	s := space.New()
	objects, names, refused := closeRefused(objects, cfg.Refused)
	cluster := meaning.Read(s, objects)
	do, stop, err := dump.Open(reading, cfg.Socket, cfg.Dial)
	if err != nil {
		return nil, err
	}
	defer stop()
	state, err := readLists(reading, do, cfg.Node, cluster)
	if err != nil {
		return nil, err
	}
	report := Compare(s, cluster, state, cfg)
	report.Refused, report.RefusedPolicies, report.ServiceCIDRs = names, refused, cfg.Services.ServiceCIDRs
	if cfg.NoServices != "" {
		report.omit("Services", cfg.NoServices)
		return report, nil
	}
	if cfg.Services.Uplink, err = translation.UplinkOf(reading, do); err != nil {
		return nil, err
	}
	node := serving.Read(cfg.Node, cfg.Services, objects)
	now, err := translation.Read(reading, do, state, node)
	if err != nil {
		return nil, err
	}
	report.Services = CompareServices(s, node, state, now, cfg)
	for i := range report.Services {
		report.conclude(report.Services[i].Verdict)
	}
	return report, nil
}

// ReadLists reads the access lists of a VPP, and which pods are behind its interfaces.
func ReadLists(ctx context.Context, cfg Config, objects []model.Object) (*dump.State, error) {
	ctx, cancel := cfg.inTime(ctx)
	defer cancel()
	do, stop, err := dump.Open(ctx, cfg.Socket, cfg.Dial)
	if err != nil {
		return nil, err
	}
	defer stop()
	return readLists(ctx, do, cfg.Node, meaning.Read(space.New(), objects))
}

func readLists(ctx context.Context, do dump.Do, node string, cluster *meaning.Cluster) (*dump.State, error) {
	var addrs []netip.Addr
	for _, p := range cluster.Pods {
		if p.NodeName == node {
			addrs = append(addrs, p.IPs...)
		}
	}
	return dump.Read(ctx, do, addrs)
}

// omit notes checks that the node does not need.
func (r *Report) omit(checks, why string) {
	r.Omitted, r.OmittedChecks = append(r.Omitted, checks+": "+why), append(r.OmittedChecks, Omission{checks, why})
}

// conclude joins a check's verdict with those before.
func (r *Report) conclude(v Verdict) {
	if v == Different || v == Unknown && r.Verdict == Equal {
		r.Verdict = v
	}
}

// Compare compares the state of a VPP with a cluster of the same space.
func Compare(s *space.Space, cluster *meaning.Cluster, state *dump.State, cfg Config) *Report {
	r := &Report{Node: cfg.Node, Verdict: Equal, Checks: []Check{}, Services: []ServiceCheck{}}
	if cfg.NoPolicies != "" {
		r.omit("policies", cfg.NoPolicies)
		return r
	}
	n := newNode(s, cluster, state, cfg)
	for _, p := range n.pods {
		r.Checks = append(r.Checks, n.check(p)...)
	}
	for i := range r.Checks {
		r.conclude(r.Checks[i].Verdict)
	}
	return r
}

// pod is a local pod with what policies allow it.
type pod struct {
	*meaning.Pod
	iface           *dump.Interface // nil: VPP has none
	ingress, egress space.Set       // with what always passes
	doubts          [2]string       // of ingress, of egress; "": none
}

// node is all that the checks of a node's pods share.
type node struct {
	space   *space.Space
	cluster *meaning.Cluster
	state   *dump.State
	cfg     Config
	pods    []*pod
	lists   map[string]space.Decisions // by the end of a vector of lists

	blind                  space.Set // headers that no check compares
	fromSpecial, toSpecial space.Set // of addresses with other rights than policies give: nodes, Services, NAT
	fromLocal              space.Set // headers from local pods
	toLocal                space.Set
	sent, permitted        space.Set // what local pods may send, by VPP's inputs and by policies
	udpServed              space.Set // of UDP, from ports that pods serve
}

func newNode(s *space.Space, cluster *meaning.Cluster, state *dump.State, cfg Config) *node {
	n := &node{space: s, cluster: cluster, state: state, cfg: cfg, lists: map[string]space.Decisions{}}
	n.readRegions()
	for _, p := range cluster.Pods {
		if p.NodeName != cfg.Node {
			continue
		}
		q := &pod{Pod: p}
		n.pods = append(n.pods, q)
		if n.full() != "" {
			continue
		}
		for egress, to := range map[bool]*space.Set{false: &q.ingress, true: &q.egress} {
			allowed, doubts := cluster.Allowed(p, egress)
			*to = s.Union(allowed, n.alwaysPasses(egress))
			if len(doubts) > 0 {
				q.doubts[direction(egress)] = doubts[0]
			}
		}
		n.locate(q)
		own := q.Nets()
		n.fromLocal = s.Union(n.fromLocal, s.Sources(own...))
		n.toLocal = s.Union(n.toLocal, s.Destinations(own...))
		n.sent = s.Union(n.sent, s.Intersect(s.Sources(own...), n.passes(q, true)))
		n.permitted = s.Union(n.permitted, s.Intersect(s.Sources(own...), q.egress))
	}
	return n
}

// full says that the sets have more edges than they may; "": they have not.
func (n *node) full() string {
	if _, edges := n.space.Size(); n.cfg.MostEdges > 0 && edges > n.cfg.MostEdges {
		return fmt.Sprintf("the sets of headers have more than %d edges", n.cfg.MostEdges)
	}
	return ""
}

func direction(egress bool) int {
	if egress {
		return 1
	}
	return 0
}

// locate finds the interface of a pod.
func (n *node) locate(p *pod) {
	for _, a := range p.IPs {
		if i, ok := n.state.Behind[a]; ok {
			p.iface = n.state.Interfaces[i]
			return
		}
	}
	if i, ok := n.state.Tagged(p.ID.String()); ok {
		p.iface = n.state.Interfaces[i]
	}
}

// decisions are those of an interface's lists in one direction; false: it has no lists, and everything passes.
func (n *node) decisions(p *pod, egress bool) (space.Decisions, bool) {
	if p.iface == nil {
		return space.Decisions{}, false
	}
	vector := p.iface.Output
	if egress {
		vector = p.iface.Input
	}
	if len(vector) == 0 {
		return space.Decisions{}, false
	}
	return n.vector(vector), true
}

// vector joins lists from the last to the first: interfaces share the last ones.
func (n *node) vector(lists []uint32) (d space.Decisions) {
	if len(lists) == 0 {
		return d
	}
	key := fmt.Sprint(lists)
	if known, ok := n.lists[key]; ok {
		return known
	}
	first := n.lists[fmt.Sprint("one ", lists[0])]
	if first == (space.Decisions{}) && n.state.Lists[lists[0]] != nil {
		first = n.space.List(n.state.Lists[lists[0]].Space)
		n.lists[fmt.Sprint("one ", lists[0])] = first
	}
	d = n.space.Override(first, n.vector(lists[1:]))
	n.lists[key] = d
	return d
}

// passes is the headers that VPP passes in a direction of a pod.
func (n *node) passes(p *pod, egress bool) space.Set {
	d, listed := n.decisions(p, egress)
	if !listed {
		return n.space.All()
	}
	return n.space.Where(d, dump.Permit, dump.Reflect)
}

// check compares everything about one pod.
func (n *node) check(p *pod) []Check {
	s := n.space
	name := ""
	if p.iface != nil {
		name = p.iface.Name
	}
	var out []Check
	add := func(packets string, egress bool, vpp, policy, region space.Set, doubt string) {
		c := Check{Pod: p.ID.String(), Interface: name, Packets: packets, Verdict: Equal}
		region = s.Minus(region, n.blind)
		switch different := s.Union(s.Minus(s.Intersect(vpp, region), policy), s.Minus(s.Intersect(policy, region), vpp)); {
		case doubt != "":
			c.Verdict, c.Why = Unknown, doubt
		case !different.Empty():
			c.Verdict, c.Difference = Different, n.difference(p, packets, egress, different, vpp)
		}
		out = append(out, c)
	}
	switch {
	case n.full() != "":
		return []Check{{Pod: p.ID.String(), Interface: name, Packets: "all", Verdict: Unknown, Why: n.full()}}
	case len(p.IPs) == 0:
		return []Check{{Pod: p.ID.String(), Interface: name, Packets: "all", Verdict: Unknown, Why: "the pod has no address yet"}}
	case p.iface == nil:
		return []Check{{Pod: p.ID.String(), Packets: "all", Verdict: Unknown, Why: "VPP has no interface for the pod: no route for its address, no tag with its name"}}
	}
	from, to := s.Sources(p.Nets()...), s.Destinations(p.Nets()...)
	in, out2 := n.passes(p, false), n.passes(p, true)
	add("ingress", false, in, p.ingress, s.Minus(to, s.Union(n.fromLocal, n.fromSpecial)), p.doubts[0])

	near := s.Minus(s.Intersect(to, n.fromLocal), from)
	doubt := p.doubts[0]
	for _, q := range n.pods {
		if doubt == "" && q != p && q.doubts[1] != "" {
			doubt = q.ID.String() + ": " + q.doubts[1]
		}
	}
	both := s.Intersect(n.permitted, p.ingress)
	add("ingress from local pods", false, s.Intersect(n.sent, in), both, near, doubt)
	if n.state.NAT44 {
		add("ingress from local pods by Services", false, in, both, s.Intersect(near, n.translated()), doubt)
	}
	add("egress", true, out2, p.egress, s.Minus(from, s.Union(n.toLocal, n.toSpecial)), n.egressDoubt(p))
	if !n.cfg.NoSourceCheck {
		add("forged sources", true, out2, space.Set{}, s.Minus(s.Complement(from), s.Union(n.discovery(), s.Sources(p.allowedSources()...))), "")
	}
	add("answers to ingress", false, n.answered(p, false), s.All(), s.Minus(to, n.fromSpecial), "")
	add("answers to egress", true, n.answered(p, true), s.All(), s.Minus(from, n.toSpecial), "")
	return out
}

// answered is all headers but those that begin a flow and pass without a session, although answers need one.
func (n *node) answered(p *pod, egress bool) space.Set {
	s := n.space
	d, listed := n.decisions(p, egress)
	if !listed {
		return n.unlisted(p, egress)
	}
	without := s.Intersect(s.Where(d, dump.Permit), n.begins(egress))
	if without.Empty() || n.answersPass(p, egress) {
		return s.All()
	}
	return s.Complement(without)
}

// unlisted is the same for a direction without lists: no packet of it makes a session.
func (n *node) unlisted(p *pod, egress bool) space.Set {
	if n.answersPass(p, egress) {
		return n.space.All()
	}
	return n.space.Complement(n.begins(egress))
}

// answersPass reports that the opposite direction passes every compared packet of the pod. Packets to and from addresses of Services are not
// compared: a list of source ranges may deny them.
func (n *node) answersPass(p *pod, egress bool) bool {
	s := n.space
	answers := s.Minus(s.Sources(p.Nets()...), n.toSpecial)
	if egress {
		answers = s.Minus(s.Destinations(p.Nets()...), n.fromSpecial)
	}
	return s.Within(s.Minus(answers, n.blind), n.passes(p, !egress))
}

// allowedSources are the addresses that annotations of the pod allow it to send from, beside its own.
func (p *pod) allowedSources() (list []netip.Prefix) {
	if p.Annotations[model.AnnotationSourceCheck] == "false" {
		return []netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0)}
	}
	var texts []string
	if err := json.Unmarshal([]byte(p.Annotations[model.AnnotationAllowedSources]), &texts); err != nil {
		return nil // no annotation, or one that allows nothing
	}
	for _, text := range texts {
		if !strings.Contains(text, "/") {
			if a, err := netip.ParseAddr(text); err == nil {
				list = append(list, netip.PrefixFrom(a, a.BitLen()))
			}
		} else if q, err := netip.ParsePrefix(text); err == nil {
			list = append(list, q)
		}
	}
	return list
}

// egressDoubt says why the egress of a pod is not compared; "": it is.
func (n *node) egressDoubt(p *pod) string {
	if at := slices.IndexFunc(n.cluster.Hosts, func(h *model.HostEndpoint) bool { return h.ID.Node == n.cfg.Node }); at >= 0 {
		return fmt.Sprintf("%s of this node may decide about forwarded packets", n.cluster.Hosts[at].Ref())
	}
	return p.doubts[1]
}
