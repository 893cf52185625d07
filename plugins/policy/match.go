package policy

import (
	"fmt"
	"strings"

	"github.com/contiv-agent/contiv-agent/proto/felix"
)

// matchText is what a rule matches in one line, "" for everything: "tcp from pods app == 'web' to ports 80,8000-8080".
func matchText(r *felix.Rule) string {
	var words []string
	add := func(format string, args ...any) { words = append(words, fmt.Sprintf(format, args...)) }
	if r.IpVersion != felix.IPVersion_ANY {
		add("IPv%d", r.IpVersion)
	}
	if r.Protocol != nil {
		add("%s", protocolText(r.Protocol))
	}
	if r.NotProtocol != nil {
		add("not %s", protocolText(r.NotProtocol))
	}
	switch m := r.Icmp.(type) {
	case *felix.Rule_IcmpType:
		add("type %d", m.IcmpType)
	case *felix.Rule_IcmpTypeCode:
		add("type %d code %d", m.IcmpTypeCode.Type, m.IcmpTypeCode.Code)
	}
	switch m := r.NotIcmp.(type) {
	case *felix.Rule_NotIcmpType:
		add("not type %d", m.NotIcmpType)
	case *felix.Rule_NotIcmpTypeCode:
		add("not type %d code %d", m.NotIcmpTypeCode.Type, m.NotIcmpTypeCode.Code)
	}
	from, to := sides(r)
	for _, s := range []struct{ word, text string }{{"from", from.String()}, {"to", to.String()}} {
		if s.text != "" {
			add("%s %s", s.word, s.text)
		}
	}
	return strings.Join(words, " ")
}

func protocolText(p *felix.Protocol) string {
	if n, ok := p.NumberOrName.(*felix.Protocol_Name); ok {
		return n.Name
	}
	return fmt.Sprintf("protocol %d", p.GetNumber())
}

// peer is one side of a rule on the wire.
type peer struct {
	nets, notNets           []string
	ports, notPorts         []*felix.PortRange
	named, notNamed         int // named ports
	selector, namespace     string
	notSelector             string
	service                 string
	sets, notSets, services int
}

func sides(r *felix.Rule) (from, to peer) {
	from = peer{
		nets: r.SrcNet, notNets: r.NotSrcNet, ports: r.SrcPorts, notPorts: r.NotSrcPorts,
		named: len(r.SrcNamedPortIpSetIds), notNamed: len(r.NotSrcNamedPortIpSetIds), selector: r.OriginalSrcSelector,
		namespace: r.OriginalSrcNamespaceSelector, notSelector: r.OriginalNotSrcSelector,
		service: serviceText(r.OriginalSrcServiceNamespace, r.OriginalSrcService), sets: len(r.SrcIpSetIds), notSets: len(r.NotSrcIpSetIds),
	}
	to = peer{
		nets: r.DstNet, notNets: r.NotDstNet, ports: r.DstPorts, notPorts: r.NotDstPorts,
		named: len(r.DstNamedPortIpSetIds), notNamed: len(r.NotDstNamedPortIpSetIds), selector: r.OriginalDstSelector,
		namespace: r.OriginalDstNamespaceSelector, notSelector: r.OriginalNotDstSelector,
		service: serviceText(r.OriginalDstServiceNamespace, r.OriginalDstService), sets: len(r.DstIpSetIds), notSets: len(r.NotDstIpSetIds),
		services: len(r.DstIpPortSetIds),
	}
	return from, to
}

func serviceText(namespace, name string) string {
	if name == "" {
		return ""
	}
	return "Service " + namespace + "/" + name
}

// String is "" for a side that matches everything.
func (p peer) String() string {
	var words []string
	add := func(when bool, format string, args ...any) {
		if when {
			words = append(words, fmt.Sprintf(format, args...))
		}
	}
	add(p.namespace != "", "namespaces %s", p.namespace)
	add(p.selector != "", "pods %s", p.selector)
	add(p.selector == "" && p.namespace == "" && p.service == "" && p.sets > 0, "selected endpoints")
	add(p.notSelector != "", "not pods %s", p.notSelector)
	add(p.notSelector == "" && p.notSets > 0, "not selected endpoints")
	add(p.service != "", "%s", p.service)
	add(len(p.nets) > 0, "%s", strings.Join(p.nets, ","))
	add(len(p.notNets) > 0, "not %s", strings.Join(p.notNets, ","))
	add(len(p.ports)+p.named > 0, "ports %s", portsText(p.ports, p.named))
	add(len(p.notPorts)+p.notNamed > 0, "not ports %s", portsText(p.notPorts, p.notNamed))
	return strings.Join(words, " ")
}

// portsText is "80,8000-8080", with the number of named ports, whose numbers differ from pod to pod.
func portsText(list []*felix.PortRange, named int) string {
	var words []string
	for _, r := range list {
		if r.First == r.Last {
			words = append(words, fmt.Sprint(r.First))
		} else {
			words = append(words, fmt.Sprintf("%d-%d", r.First, r.Last))
		}
	}
	if named > 0 {
		words = append(words, fmt.Sprintf("%d by name", named))
	}
	return strings.Join(words, ",")
}
