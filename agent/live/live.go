// Package live turns a pod of this node and a destination into the path of a real packet between them through VPP, as VPP's packet tracer shows it.
//
// Invariant: it sends no packet unless the question says so, and changes nothing that packets meet. A verdict has a reason only if the lists that the agent sent decide by the same rule.
package live

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/plugins/controller"
	"github.com/contiv-agent/contiv-agent/plugins/policy"
	"github.com/contiv-agent/contiv-agent/sim/packet"
	"github.com/contiv-agent/contiv-agent/trace/hops"
	"github.com/contiv-agent/contiv-agent/verify/probes"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vpp/capture"
	"github.com/contiv-agent/contiv-agent/vpp/tracer"
)

// Pods traces packets of the node's pods.
type Pods struct {
	node   string
	do     tracer.Do
	inLoop func(context.Context, func()) error
	tracer tracer.Tracer
	Loop
	located func() *event.Located // called in the loop, too
}

// Loop is what Pods needs of an agent, and calls in its loop.
type Loop struct {
	Objects  func() []model.Object
	Policies *policy.Processor // nil: policies are not enforced
	Sent     func(key string) proto.Message
	// Namespace returns the path of a pod's network namespace. It is safe for concurrent use.
	Namespace func(model.PodID) (string, error)
}

// New returns Pods of a node.
func New(node string, do tracer.Do, inLoop func(context.Context, func()) error, c *controller.Controller, loop Loop) *Pods {
	return &Pods{node: node, do: do, inLoop: inLoop, Loop: loop, located: func() *event.Located { return c.Status().Located }}
}

// connectWait is how often EndTraces looks whether the agent is connected.
const connectWait = time.Second

// EndTraces ends, when the agent is connected to VPP, the trace of an agent that ended before its trace. If that fails, the next trace does it. It returns nil.
func EndTraces(ctx context.Context, conn *vpp.Conn) error {
	look := time.NewTicker(connectWait)
	defer look.Stop()
	for {
		if st := conn.State(); st.Connected {
			if !st.Simulated { // it has no tracer
				_ = tracer.EndLeft(ctx, conn.Do)
			}
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-look.C:
		}
	}
}

// Question selects packets.
type Question struct {
	From model.PodID
	// To is an address and a port, or NAMESPACE/NAME:PORT, the name of a Service or, if there is no such Service, of a pod; "pod:" or "service:" before a
	// name says which. ICMP has no port.
	To       string
	Protocol string        // TCP, UDP or ICMP; "": TCP
	Time     time.Duration // that VPP looks for such a packet, at most a minute
	// Inject sends one such packet as the pod sends it, and shows the path of this packet alone.
	Inject     bool
	SourcePort uint16 // of that packet, or the identifier of an echo; 0: one that the pod does not use
}

// Answer is the path of a packet.
type Answer struct {
	Node   string      `json:"node"`
	From   string      `json:"from"` // namespace/name
	To     string      `json:"to"`   // address and port
	Packet hops.Header `json:"packet"`
	// Flags are those of TCP, as a question of trace names them: "S".
	Flags string `json:"flags,omitempty"`
	// Session: VPP let the packet pass because of an earlier packet of its connection.
	Session bool       `json:"session"`
	Path    []hops.Hop `json:"path"`
	// Injected: the agent has sent the packet. Left are the sessions that it made in VPP; they expire.
	Injected bool     `json:"injected,omitempty"`
	Left     []string `json:"left,omitempty"`
}

// Errors of a trace without a packet.
var (
	ErrNone   = errors.New("no such packet came from the pod in that time: let the pod send one meanwhile, or use --inject")
	ErrUnseen = errors.New("the pod's kernel has sent the packet, and VPP has not received it in that time: see the pod's routes, and whether a packet filter or proxy in the pod takes its packets")
)

// Until returns Trace for traces that end when ctx ends.
func (p *Pods) Until(ctx context.Context) func(context.Context, Question) (*Answer, error) {
	return func(request context.Context, q Question) (*Answer, error) {
		request, cancel := context.WithCancel(request)
		defer cancel()
		defer context.AfterFunc(ctx, cancel)()
		return p.Trace(request, q)
	}
}

// Trace returns the path of the first packet from the pod to the destination that VPP gets from now on. It prefers the first packet of a connection: one of
// a session is the answer only if no other came.
func (p *Pods) Trace(ctx context.Context, q Question) (*Answer, error) {
	var filter tracer.Filter
	var failed error
	if err := p.inLoop(ctx, func() { filter, failed = p.resolveQuestion(q) }); err != nil {
		return nil, err
	}
	if failed != nil {
		return nil, failed
	}
	index, err := capture.InterfaceOf(ctx, capture.Do(p.do), filter.Source)
	if err != nil {
		return nil, fmt.Errorf("pod %s: %w", q.From, err)
	}
	known, err := tracer.ReadInterfaces(ctx, p.do)
	if err != nil {
		return nil, err
	}
	if known[index] == nil {
		return nil, fmt.Errorf("pod %s: its interface has disappeared", q.From)
	}
	node, err := known[index].InputNode()
	if err != nil {
		return nil, fmt.Errorf("pod %s: %w", q.From, err)
	}
	sender, err := p.openSender(q, filter)
	if err != nil {
		return nil, err
	}
	defer sender.closeSockets()
	var best *tracer.Packet
	_, err = p.tracer.Trace(ctx, p.do, node, filter, q.Time, sender.send, func(packets []tracer.Packet) bool {
		packets = slices.DeleteFunc(packets, sender.isForeign)
		found, opens := choosePacket(packets, index)
		if found != nil && (best == nil || opens || best.Session()) {
			best = found
		}
		return opens || q.Inject && found != nil // no other packet will come
	})
	if err != nil {
		return nil, err
	}
	switch {
	case best == nil && q.Inject:
		return nil, ErrUnseen
	case best == nil:
		return nil, ErrNone
	}
	a := &Answer{Node: p.node, From: q.From.String(), To: destinationOf(filter), Injected: q.Inject}
	return a, p.inLoop(ctx, func() { p.describePath(a, best, known) })
}

// choosePacket returns the first packet that came by an interface and opens a connection, or the last one that came by it. A packet whose trace has no end
// is still in VPP.
func choosePacket(packets []tracer.Packet, index uint32) (found *tracer.Packet, opens bool) {
	for i := range packets {
		k := &packets[i]
		if at := receivedBy(k); !k.Ended() || at != 0 && at != index || k.Opening() == nil {
			continue
		}
		if found = k; !k.Session() && (k.Opening().Protocol != uint8(model.TCP) || k.Opening().Flags&(packet.SYN|packet.ACK) == packet.SYN) {
			return k, true
		}
	}
	return found, false
}

// destinationOf returns the address and, if it has one, the port of a filter's destination.
func destinationOf(f tracer.Filter) string {
	if f.Port == 0 {
		return f.Destination.String()
	}
	return netip.AddrPortFrom(f.Destination, f.Port).String()
}

// resolveQuestion returns the filter for the packets of a question; in the loop.
func (p *Pods) resolveQuestion(q Question) (tracer.Filter, error) {
	pod, services, pods := (*model.Pod)(nil), map[string]*model.Service{}, map[string]*model.Pod{}
	for _, o := range p.Objects() {
		switch o := o.(type) {
		case *model.Pod:
			pods[o.ID.String()] = o
			if o.ID == q.From {
				pod = o
			}
		case *model.Service:
			services[o.ID.Namespace+"/"+o.ID.Name] = o
		}
	}
	if err := pod.WithoutInterface(q.From, p.node); err != nil {
		return tracer.Filter{}, err
	}
	protocol, err := protocolOf(q.Protocol)
	if err != nil {
		return tracer.Filter{}, err
	}
	addrs, port, err := destination(q.To, protocol, services, pods)
	if err != nil {
		return tracer.Filter{}, err
	}
	for _, to := range addrs {
		for _, from := range pod.IPs {
			if from.Is4() == to.Is4() {
				return tracer.Filter{Source: from, Destination: to, Protocol: protocolIn(protocol, to), Port: port}, nil
			}
		}
	}
	return tracer.Filter{}, fmt.Errorf("to %q: it has no address of a family that pod %s has", q.To, q.From)
}

// protocolIn returns the number of a protocol in the family of an address.
func protocolIn(protocol model.Protocol, a netip.Addr) uint8 {
	if protocol == model.ICMP && a.Is6() {
		return uint8(model.ICMPv6)
	}
	return uint8(protocol)
}

func protocolOf(name string) (model.Protocol, error) {
	for _, p := range []model.Protocol{model.TCP, model.UDP, model.ICMP} {
		if strings.EqualFold(name, p.String()) || name == "" {
			return p, nil
		}
	}
	return 0, fmt.Errorf("protocol %q: must be TCP, UDP or ICMP", name)
}

// destination returns the addresses and the port of a question's destination.
func destination(to string, protocol model.Protocol, services map[string]*model.Service, pods map[string]*model.Pod) ([]netip.Addr, uint16, error) {
	name, port := to, uint16(0)
	if at := strings.LastIndexByte(to, ':'); protocol != model.ICMP {
		n, err := strconv.ParseUint(to[at+1:], 10, 16)
		if at < 0 || err != nil || n == 0 {
			return nil, 0, fmt.Errorf("to %q: want a port, 1 to 65535, after the last colon", to)
		}
		name, port = to[:at], uint16(n)
	}
	if addr, err := netip.ParseAddr(strings.Trim(name, "[]")); err == nil {
		return []netip.Addr{addr}, port, nil
	}
	bare, isService := strings.CutPrefix(name, "service:")
	bare, isPod := strings.CutPrefix(bare, "pod:")
	if s := services[bare]; s != nil && !isPod {
		if len(s.ClusterIPs) == 0 {
			return nil, 0, fmt.Errorf("to %q: the Service has no cluster IP", to)
		}
		if port != 0 && !slices.ContainsFunc(s.Ports, func(p model.ServicePort) bool { return p.Port == port && p.Protocol == protocol }) {
			return nil, 0, fmt.Errorf("to %q: the Service has no port %d/%s", to, port, protocol)
		}
		return s.ClusterIPs, port, nil
	}
	if k := pods[bare]; k != nil && !isService {
		return k.IPs, port, nil
	}
	return nil, 0, fmt.Errorf("to %q: the agent knows neither a Service nor a pod of this name", to)
}

// Fate is what the path says of the packet.
func (a *Answer) Fate() *probes.Fate {
	f := &probes.Fate{Session: a.Session}
	if len(a.Path) == 0 {
		return f
	}
	for i := range a.Path {
		f.Passed = f.Passed || a.Path[i].ACL != nil && a.Path[i].ACL.Permit
	}
	last := &a.Path[len(a.Path)-1]
	f.Text = last.String()
	switch {
	case last.Kind == hops.AccessList && last.Dropped:
		f.Denied = true
	case last.Kind == hops.Output && !last.Dropped:
		f.Left = last.Interface
	}
	return f
}
