package adversary

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/contiv-agent/contiv-agent/test/adversary/kube"
	"github.com/contiv-agent/contiv-agent/test/oracle/hear"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy/generate"
	"github.com/contiv-agent/contiv-agent/trace"
)

// Event is one thing that happens: a packet, or what a step says happens before one, or changed objects.
type Event struct {
	trace.Step
	Changes []generate.Change
	// Check: the packet is a question whether a new connection works. It leaves no state.
	Check bool
	// Continues: the packet belongs to a connection that the law may keep, from its client ("there") or its server ("back"); then it must arrive.
	Continues string
	// Extra: the attacker does not remember the packet.
	Extra bool
	// Stop is a node whose agent ends; an event that restarts it, or the end of the sequence, starts it again.
	Stop string
	// Bare, of an event that restarts a VPP, draws the order in which its interfaces and routes are made again while the agent writes;
	// 0: they exist before the agent connects.
	Bare uint64
	// Between are packets between two messages to a VPP while the event happens.
	Between []Between
}

// Between is a packet that is sent when a node's VPP has processed so many of an event's messages.
type Between struct {
	Node  string
	After int
	trace.Step
}

// String is a line of comment.
func (b *Between) String() string {
	text, err := json.Marshal(b.Step)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("# during the next question, after message %d to the VPP of %s: %s", b.After, b.Node, text)
}

// comments are what a question has no field for.
func (e *Event) comments() (out []string) {
	for i := range e.Between {
		out = append(out, e.Between[i].String())
	}
	if e.Stop != "" {
		out = append(out, "# the agent of "+e.Stop+" ends here, and begins with the question that restarts it")
	}
	if e.Bare != 0 {
		out = append(out, "# with the next question, interfaces and routes are made again while the agent writes")
	}
	return out
}

// IsPacket reports whether the event is a packet.
func (e *Event) IsPacket() bool { return e.From != "" }

// String is what a question of trace --stateful has for it; objects are those of a manifest that is named by n.
func (e *Event) question(n int) (line, manifest string) {
	s := e.Step
	var put []policy.Object
	for _, ch := range e.Changes {
		if ch.Object != nil {
			put = append(put, ch.Object)
		} else {
			s.Delete = append(s.Delete, hear.Ref(ch.Key).String())
		}
	}
	if len(put) > 0 {
		s.Apply = []string{fmt.Sprintf("change-%d.yaml", n)}
		manifest = policy.YAML(put)
	}
	text, err := json.Marshal(s)
	if err != nil {
		return err.Error(), ""
	}
	return string(text), manifest
}

// Story is events as questions, with the manifests that they name.
func Story(objects []policy.Object, events []Event) string {
	var questions, files strings.Builder
	fmt.Fprintf(&files, "-- objects.yaml --\n%s", policy.YAML(objects))
	for i := range events {
		for _, c := range events[i].comments() {
			questions.WriteString(c + "\n")
		}
		line, manifest := events[i].question(i + 1)
		if events[i].Stop == "" {
			questions.WriteString(line + "\n")
		}
		if manifest != "" {
			fmt.Fprintf(&files, "-- change-%d.yaml --\n%s", i+1, manifest)
		}
	}
	return "contiv-agent trace --stateful --manifests objects.yaml\n" + questions.String() + files.String()
}

// party is a possible sender: a pod, a node, an address outside.
type party struct {
	name  string // as in questions: pod:<ns>/<name>, node:<name>, external:<ip>@<node>
	node  string
	addrs []netip.Addr
}

// of is the party's address of a family; false: it has none.
func (p *party) of(v4 bool) (netip.Addr, bool) {
	for _, a := range p.addrs {
		if a.Is4() == v4 {
			return a, true
		}
	}
	return netip.Addr{}, false
}

// outsiders are addresses of nobody in the cluster.
var outsiders = []string{"198.51.100.7", "2001:db8:51::7"}

// parties are all who can send, pods first. Those of the host network are their nodes.
func parties(objects []policy.Object) (pods, nodes, outside []party) {
	for _, p := range kube.Running(objects) {
		q := party{name: "pod:" + p.Namespace + "/" + p.Name, node: p.Spec.NodeName}
		for _, ip := range p.Status.PodIPs {
			q.addrs = append(q.addrs, netip.MustParseAddr(ip.IP))
		}
		pods = append(pods, q)
	}
	for _, o := range objects {
		n, ok := o.(*corev1.Node)
		if !ok {
			continue
		}
		q := party{name: "node:" + n.Name, node: n.Name}
		for _, a := range n.Status.Addresses {
			if a.Type == corev1.NodeInternalIP {
				q.addrs = append(q.addrs, netip.MustParseAddr(a.Address))
			}
		}
		nodes = append(nodes, q)
		for _, a := range outsiders {
			outside = append(outside, party{name: "external:" + a + "@" + n.Name, node: n.Name, addrs: []netip.Addr{netip.MustParseAddr(a)}})
		}
	}
	slices.SortFunc(nodes, func(a, b party) int { return strings.Compare(a.name, b.name) })
	return pods, nodes, outside
}

// Party is who has a name that questions have: node, and addresses; false: nobody.
func Party(objects []policy.Object, name string) (node string, addrs []netip.Addr, found bool) {
	pods, nodes, outside := parties(objects)
	for _, p := range slices.Concat(pods, nodes, outside) {
		if p.name == name {
			return p.node, p.addrs, true
		}
	}
	return "", nil, false
}
