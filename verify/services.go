package verify

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/contiv-agent/contiv-agent/fields"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/space"
	"github.com/contiv-agent/contiv-agent/verify/dump"
	"github.com/contiv-agent/contiv-agent/verify/dump/translation"
	"github.com/contiv-agent/contiv-agent/verify/example"
	"github.com/contiv-agent/contiv-agent/verify/question"
	"github.com/contiv-agent/contiv-agent/verify/serving"
)

// ServiceCheck compares what VPP translates with one Service, or with what all Services of the node need.
type ServiceCheck struct {
	// Of is "namespace/name" of a Service, or names a part of the node: an interface, a mapping without a Service, a range.
	Of string `json:"of"`
	// Service is nil for a part of the node.
	Service *fields.Object `json:"serviceRef,omitempty"`
	// Frontends is how many addresses with port and protocol of the Service were compared.
	Frontends int     `json:"frontends,omitempty"`
	Verdict   Verdict `json:"verdict"`
	// Why has the reasons for Unknown.
	Why []string `json:"why,omitempty"`
	// Differences are counterexamples, at most one of each frontend; none unless the verdict is Different.
	Differences []Translated `json:"differences,omitempty"`
}

// Translated is a packet to a Service that VPP treats in another manner than the Service says.
type Translated struct {
	Packet string `json:"packet"`
	// Header is the packet as fields; nil: Packet names no single packet.
	Header *example.Header `json:"header,omitempty"`
	// VPP is what VPP does with the packet, or with the answer to it. Service is what the objects say.
	VPP     string `json:"vpp"`
	Service string `json:"service"`
	Trace   string `json:"trace,omitempty"` // as in Difference
}

// services is all that the checks of Services share.
type services struct {
	space *space.Space
	cfg   Config
	node  *serving.Node
	state *dump.State
	vpp   *translation.State
	// at has the mappings of VPP that no frontend has claimed yet.
	at map[serving.At][]*translation.Mapping
}

// CompareServices compares the state of a VPP with the frontends of its node.
func CompareServices(s *space.Space, node *serving.Node, state *dump.State, now *translation.State, cfg Config) []ServiceCheck {
	c := &services{space: s, cfg: cfg, node: node, state: state, vpp: now, at: map[serving.At][]*translation.Mapping{}}
	for i := range now.Mappings {
		m := &now.Mappings[i]
		c.at[m.At] = append(c.at[m.At], m)
	}
	of := map[model.ServiceID]*ServiceCheck{}
	for _, id := range node.Services {
		of[id] = &ServiceCheck{Of: id.String(), Service: &fields.Object{Kind: string(model.KindService), Namespace: id.Namespace, Name: id.Name}, Verdict: Equal}
	}
	for _, f := range node.Frontends {
		k := of[f.Service]
		k.Frontends++
		if f.Refused != "" {
			k.Why = append(k.Why, fmt.Sprintf("%s: %s", f.At, f.Refused))
		}
		if d := c.checkFrontend(f); d != nil {
			k.Differences = append(k.Differences, *d)
		}
	}
	for _, a := range slices.SortedFunc(maps.Keys(node.Rejecting), netip.Addr.Compare) {
		k := of[node.Rejecting[a]]
		if d := c.checkRejection(a); d != nil {
			k.Differences = append(k.Differences, *d)
		}
	}
	var out []ServiceCheck
	for _, id := range node.Services {
		out = append(out, *of[id])
	}
	out = append(out, c.superfluous()...)
	out = append(out, c.surroundings()...)
	out = append(out, c.checkNode()...)
	for i := range out {
		switch k := &out[i]; {
		case len(k.Differences) > 0:
			k.Verdict = Different
		case len(k.Why) > 0:
			k.Verdict = Unknown
		}
	}
	return out
}

// takeMapping takes the mapping of a frontend.
func (c *services) takeMapping(f *serving.Frontend) *translation.Mapping {
	engine := c.cfg.Services.EngineOf(f.Addr)
	at := slices.IndexFunc(c.at[f.At], func(m *translation.Mapping) bool { return m.Engine == engine })
	if at < 0 {
		return nil
	}
	m := c.at[f.At][at]
	c.at[f.At] = slices.Delete(slices.Clone(c.at[f.At]), at, at+1)
	return m
}

// superfluous are the mappings that no Service has, and exemptions at addresses of Services.
func (c *services) superfluous() (out []ServiceCheck) {
	for i := range c.vpp.Mappings {
		m := &c.vpp.Mappings[i]
		if !slices.Contains(c.at[m.At], m) {
			continue
		}
		at := m.At
		if at.Port == 0 {
			at.Port, at.Protocol = 80, model.TCP
		}
		if c.cfg.Shared != "" {
			out = append(out, ServiceCheck{Of: fmt.Sprintf("%s mapping %s", m.Engine, m.At), Why: []string{"no Service has it, and it may be of another program: " + c.cfg.Shared}})
			continue
		}
		d := c.packet(at, false)
		d.VPP, d.Service = describeMapping(m), "no Service has this frontend on this node"
		out = append(out, ServiceCheck{Of: fmt.Sprintf("%s mapping %s", m.Engine, m.At), Differences: []Translated{d}})
	}
	for _, at := range c.vpp.Exempt {
		for _, f := range c.node.Frontends {
			if f.Fate == serving.Rejected || f.Addr != at.Addr || at.Port != 0 && f.At != at || c.cfg.Services.EngineOf(f.Addr) != serving.NAT44 {
				continue
			}
			d := c.packet(f.At, false)
			d.VPP, d.Service = fmt.Sprintf("not translated: an identity mapping exempts %s", at), f.Why
			out = append(out, ServiceCheck{Of: fmt.Sprintf("identity mapping %s", at), Differences: []Translated{d}})
			break
		}
	}
	return out
}

// packet is the first packet of a connection to a frontend: from a pod of this node, or from outside.
func (c *services) packet(to serving.At, outside bool) Translated {
	h := space.Header{Src: netip.MustParseAddr("198.51.100.7"), Dst: to.Addr, Protocol: uint8(to.Protocol), SrcPort: 40000, DstPort: to.Port}
	if to.Addr.Is6() {
		h.Src = netip.MustParseAddr("2001:db8::7")
	}
	if h.Protocol == space.TCP {
		h.Flags = space.SYN
	}
	from := ""
	for _, p := range c.node.Pods {
		if !outside && from == "" && p.Addr.Is4() == to.Addr.Is4() {
			h.Src, from = p.Addr, question.Pod(p.ID.String())
		}
	}
	if from == "" {
		from = question.External(h.Src, c.cfg.Node)
	}
	return Translated{Packet: h.String(), Header: example.HeaderOf(h), Trace: question.Line(from, h, false)}
}

// describeMapping is what VPP does with packets of a mapping.
func describeMapping(m *translation.Mapping) string {
	if m.Ends {
		return "ends: the weights of the mapping add up to 0"
	}
	var to []string
	for _, t := range m.Targets {
		if t.Share > 0 {
			to = append(to, describeTarget(m, t))
		}
	}
	text := "translated to " + strings.Join(to, ", ")
	if m.Tag != "" {
		text += fmt.Sprintf(" (mapping %q)", m.Tag)
	}
	return text
}

func describeTarget(m *translation.Mapping, t translation.Target) string {
	text := t.At.String()
	if t.Odd != "" {
		text += " " + t.Odd
	}
	if n := m.Total(); n > t.Share {
		text += fmt.Sprintf(" (%d of %d)", t.Share, n)
	}
	return text
}
