package adversary

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim/packet"
	"github.com/contiv-agent/contiv-agent/test/adversary/kube"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy"
	"github.com/contiv-agent/contiv-agent/trace"
)

// Breach is an arrival that the law forbids. The zero value is none.
type Breach struct {
	Class Class
	Text  string
}

// Class is what is particular about a breach: the first of these that holds.
type Class string

// The classes.
const (
	Forged  Class = "a forged source"
	SCTP    Class = "SCTP"
	Hidden  Class = "a client behind another address"
	Revoked Class = "a connection that was allowed once"
	Open    Class = "an open door"
	Lost    Class = "an allowed connection that fails"
	Dead    Class = "a VPP that dies" // never left out: nothing can be played on
)

// Law decides which arrivals are allowed.
type Law struct {
	now     *policy.Cluster
	objects []policy.Object   // of now
	past    []*policy.Cluster // that may still be enforced, the newest first: before the change under way, and while an agent is away
	state                     // of agents and interfaces
	addrs   map[string]*party
	// masks are frontends that hide their clients from endpoints, node ports and addresses of load balancers; fresh are those of now.
	masks, fresh map[netip.AddrPort]bool
	ranges       []netip.Prefix            // of pods, by node
	homes        map[string][]netip.Prefix // addresses that only one node has, by node
	nodes        map[netip.Addr]bool       // addresses of nodes
	ports        []uint16                  // between which policies make no difference
	// filters: some policy asks for ports of SCTP.
	filters bool
	memory
	Counts
}

// state is how far agents are.
type state struct {
	settled  bool            // no change is under way
	breaks   int             // VPPs that restarted, and time that passed
	services string          // all there are, with their endpoints
	changes  int             // so far
	stopped  map[string]bool // nodes whose agents are away
	unlisted map[string]bool // pods, and uplinks by uplinkOf, at whose interfaces no agent has put lists since VPP made them
	lives    map[string]int  // how often the VPP of a node restarted
}

// memory is what was sent, and what arrived.
type memory struct {
	begun     map[flow]*conn               // by the first packet that arrived and was allowed
	dials     map[attempt]*conn            // the same, by the address that was dialled
	seen      map[attempt]*conn            // the same, by what the server has to send to
	fronts    map[flow]netip.AddrPort      // those of them that were allowed by the frontend that was dialled
	sent      map[attempt]try              // all that were sent from own addresses, as they were last seen
	revived   map[flow]bool                // by a packet that passed for ADR 12's sake and made a session where it arrived
	pairs     map[pair]int                 // of SCTP: after how many changes the last one was sent
	disturbed map[ends]bool                // by packets from outside under foreign addresses
	forged    map[forgery][]netip.AddrPort // what packets under foreign addresses dialled, from outside and of pods to Services
	headers   map[datagram]packet.Packet   // of datagrams in fragments, by the first fragment that was sent, until time passes
}

// conn is a connection that was opened.
type conn struct {
	first  policy.Flow // behind any Service
	key    flow        // of begun
	client string
	node   string // the server's
	// spoke: when the client's last packet came to the server's interface, the policies allowed the connection, or the server's ingress did.
	spoke      bool
	free       bool // the egress of its server allowed an answer by itself
	translated bool // a Service was dialled

	sent     packet.Packet // the first one
	server   string
	kept     bool // policies allowed it ever since, and both have their addresses still
	services string
	breaks   int // what NAT sessions did not outlive, when it began
}

// attempt is a packet with its own source, arrived or not.
type attempt struct {
	sender       string
	dst          netip.Addr
	proto        model.Protocol
	cport, sport uint16
}

// try is the last packet of an attempt.
type try struct {
	allowed    bool // the sender's egress did
	translated bool // the sender dialled a Service
	life       int  // of the VPP of the sender's node
}

// pair is who sent SCTP to which address.
type pair struct {
	sender string
	dst    netip.Addr
}

// Counts has the numbers of evaluated arrivals.
type Counts struct {
	Packets, Arrived, Allowed, Answers, Checks, Sequences int
	Established                                           int // packets of connections that had to arrive
	Pieces, Whole                                         int // fragments that made no datagram whole where they arrived, and datagrams that became whole
	Forged                                                int // packets that arrived, and that an outsider sent under an address of the cluster
	Disturbed                                             int // connections that a forged packet may have ended, from outside or from a pod of the server's node
	Excused                                               map[string]int
	Known                                                 map[Class]int // breaches of classes that were left out
}

// Add sums up.
func (c *Counts) Add(o Counts) {
	c.Packets, c.Arrived, c.Allowed, c.Answers = c.Packets+o.Packets, c.Arrived+o.Arrived, c.Allowed+o.Allowed, c.Answers+o.Answers
	c.Established, c.Pieces, c.Whole, c.Forged = c.Established+o.Established, c.Pieces+o.Pieces, c.Whole+o.Whole, c.Forged+o.Forged
	c.Disturbed += o.Disturbed
	c.Checks, c.Sequences = c.Checks+o.Checks, c.Sequences+o.Sequences
	for k, n := range o.Known {
		if c.Known == nil {
			c.Known = map[Class]int{}
		}
		c.Known[k] += n
	}
	for k, n := range o.Excused {
		c.excuse(k, n)
	}
}

func (c *Counts) excuse(why string, n int) {
	if c.Excused == nil {
		c.Excused = map[string]int{}
	}
	c.Excused[why] += n
}

// flow has both ends of a connection, the one that opened it first. ICMP has no ports.
type flow struct {
	client, server string
	proto          model.Protocol
	cport, sport   uint16
}

// NewLaw is a law without objects.
func NewLaw() *Law {
	return &Law{
		masks: map[netip.AddrPort]bool{}, state: state{stopped: map[string]bool{}, unlisted: map[string]bool{}, lives: map[string]int{}},
		memory: memory{
			begun: map[flow]*conn{}, dials: map[attempt]*conn{}, seen: map[attempt]*conn{}, fronts: map[flow]netip.AddrPort{}, sent: map[attempt]try{}, revived: map[flow]bool{},
			pairs: map[pair]int{}, headers: map[datagram]packet.Packet{}, disturbed: map[ends]bool{}, forged: map[forgery][]netip.AddrPort{},
		},
	}
}

// Become makes these the objects of now.
func (l *Law) Become(objects []policy.Object) error {
	c, err := policy.Read(objects)
	if err != nil {
		return err
	}
	if l.now != nil {
		l.past = append([]*policy.Cluster{l.now}, l.past...)
	}
	l.now, l.objects, l.settled = c, objects, false
	l.changes++
	l.nodes = map[netip.Addr]bool{}
	l.ranges, l.ports, l.filters, l.homes = nil, kube.Bounds(objects), kube.AskSCTP(objects), homes(objects)
	l.fresh = kube.Masks(objects)
	maps.Copy(l.masks, l.fresh)
	for _, o := range objects {
		if n, ok := o.(*corev1.Node); ok {
			for _, text := range n.Spec.PodCIDRs {
				l.ranges = append(l.ranges, netip.MustParsePrefix(text))
			}
		}
	}
	pods, nodes, outside := parties(objects)
	for _, n := range nodes {
		for _, a := range n.addrs {
			l.nodes[a] = true
		}
	}
	was := l.addrs
	l.addrs = map[string]*party{}
	for _, list := range [][]party{pods, nodes, outside} {
		for i := range list {
			l.addrs[list[i].name] = &list[i]
		}
	}
	for i := range pods {
		if old := was[pods[i].name]; old == nil || old.node != pods[i].node || !slices.Equal(old.addrs, pods[i].addrs) {
			l.unlisted[pods[i].name] = true // its interface is made anew
		}
	}
	l.services = kube.ServicesText(objects)
	l.keep(was)
	return nil
}

// keep finds out which connections policies allow still.
func (l *Law) keep(was map[string]*party) {
	same := func(name string) bool {
		return was[name] != nil && l.addrs[name] != nil && was[name].node == l.addrs[name].node && slices.Equal(was[name].addrs, l.addrs[name].addrs)
	}
	for _, c := range l.begun {
		c.kept = c.kept && same(c.client) && same(c.server) && l.now.JudgePods(&c.first).Allowed
	}
}

// Passed says that so much time passed that NAT may have forgotten sessions.
func (l *Law) Passed() {
	l.breaks++
	clear(l.headers)
}

// Stopped says that the agent of a node is away: until Started the policies of before count at that node, and nobody closes new interfaces.
func (l *Law) Stopped(node string) { l.stopped[node] = true }

// Started ends what Stopped began.
func (l *Law) Started(node string) {
	delete(l.stopped, node)
	l.Settled()
}

// Restarted says that the VPP of a node begins without lists.
func (l *Law) Restarted(node string) {
	l.breaks++
	l.lives[node]++
	l.unlisted[uplinkOf(node)] = true
	for name, p := range l.addrs {
		if p.node == node && strings.HasPrefix(name, "pod:") {
			l.unlisted[name] = true
		}
	}
}

// Wrote says that the agent of a node wrote more than lists: by then it has closed what interfaces there are.
func (l *Law) Wrote(node string) {
	for name := range l.unlisted {
		if p := l.addrs[name]; p != nil && p.node == node && !l.stopped[node] {
			delete(l.unlisted, name)
		}
	}
}

// Listed says that the interface of a pod, or an uplink by uplinkOf, got lists.
func (l *Law) Listed(name string) { delete(l.unlisted, name) }

// uplinkOf names the uplink of a node beside pods.
func uplinkOf(node string) string { return "uplink:" + node }

// Tolerate reports whether a breach is none, or of one of the known classes, which are counted.
func (l *Law) Tolerate(b Breach, known map[Class]bool) bool {
	if known[b.Class] {
		if l.Known == nil {
			l.Known = map[Class]int{}
		}
		l.Known[b.Class]++
	}
	return b.None() || known[b.Class]
}

// None reports that nothing is forbidden.
func (b Breach) None() bool { return b.Class == "" }

// Settled ends a change: what was before does not count any more, but where an agent is away.
func (l *Law) Settled() {
	l.settled = true
	if len(l.stopped) == 0 {
		l.past, l.masks = nil, maps.Clone(l.fresh)
	}
	for name := range l.unlisted {
		node := strings.TrimPrefix(name, uplinkOf(""))
		if p := l.addrs[name]; p != nil {
			node = p.node
		}
		if !l.stopped[node] {
			delete(l.unlisted, name)
		}
	}
}

// ever reports whether policies that may be enforced now allow something.
func (l *Law) ever(allow func(*policy.Cluster) bool) bool {
	return allow(l.now) || slices.ContainsFunc(l.past, allow)
}

// dialled names a packet by what its sender dialled.
func dialled(a *trace.Arrival) attempt {
	return attempt{a.Sender, a.Sent.Dst, a.Sent.Proto, a.Sent.SrcPort, a.Sent.DstPort}
}

// flowsOf are the connection that a packet would open, and the one that it would be an answer of.
func flowsOf(a *trace.Arrival) (there, back flow) {
	there = flow{a.Sender, a.At, a.Sent.Proto, a.Sent.SrcPort, a.Packet.DstPort}
	back = flow{a.At, a.Sender, a.Sent.Proto, a.Packet.DstPort, a.Sent.SrcPort}
	return there, back
}

// opening reports whether a packet can be no answer.
func opening(p *packet.Packet) bool {
	switch p.Proto {
	case model.TCP:
		return p.TCPFlags&packet.SYN != 0 && p.TCPFlags&packet.ACK == 0
	case model.SCTP:
		return p.Chunk == packet.Init
	}
	return p.IsEchoRequest()
}

// flowOf is what a packet is to the oracle of policies.
func flowOf(node string, src, dst netip.Addr, p *packet.Packet) policy.Flow {
	f := policy.Flow{Node: node, Src: src, Dst: dst, Proto: policy.Protocol(p.Proto)}
	if p.HasPorts() {
		f.SrcPort, f.DstPort = p.SrcPort, p.DstPort
		return f
	}
	f.Type, f.Code = p.ICMPType, p.ICMPCode
	return f
}
