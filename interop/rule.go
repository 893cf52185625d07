package interop

import (
	"net/netip"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/api/pkg/lib/numorstring"
	v1 "github.com/projectcalico/calico/libcalico-go/lib/backend/model"
	"github.com/projectcalico/calico/libcalico-go/lib/net"

	"github.com/contiv-agent/contiv-agent/model"
)

func ruleList(rules []model.Rule) (out []v1.Rule) {
	for i := range rules {
		out = append(out, rule(&rules[i]))
	}
	return out
}

func rule(r *model.Rule) v1.Rule {
	src, dst := &r.Source, &r.Destination
	out := v1.Rule{
		Action: string(r.Action), Protocol: protocol(r.Protocol), NotProtocol: protocol(r.NotProtocol),
		SrcNets: nets(src.Nets), SrcSelector: src.Selector, SrcPorts: ports(src.Ports),
		SrcService: src.Service.Name, SrcServiceNamespace: src.Service.Namespace,
		DstNets: nets(dst.Nets), DstSelector: dst.Selector, DstPorts: ports(dst.Ports),
		DstService: dst.Service.Name, DstServiceNamespace: dst.Service.Namespace,
		NotSrcNets: nets(src.NotNets), NotSrcSelector: src.NotSelector, NotSrcPorts: ports(src.NotPorts),
		NotDstNets: nets(dst.NotNets), NotDstSelector: dst.NotSelector, NotDstPorts: ports(dst.NotPorts),
		OriginalSrcSelector: src.OriginalSelector, OriginalDstSelector: dst.OriginalSelector,
		OriginalSrcNamespaceSelector: src.OriginalNamespaceSelector,
		OriginalDstNamespaceSelector: dst.OriginalNamespaceSelector,
		OriginalNotSrcSelector:       src.OriginalNotSelector, OriginalNotDstSelector: dst.OriginalNotSelector,
		OriginalSrcServiceAccountNames:    src.ServiceAccountNames,
		OriginalSrcServiceAccountSelector: src.ServiceAccountSelector,
		OriginalDstServiceAccountNames:    dst.ServiceAccountNames,
		OriginalDstServiceAccountSelector: dst.ServiceAccountSelector,
	}
	if r.IPVersion != 0 {
		version := int(r.IPVersion)
		out.IPVersion = &version
	}
	out.ICMPType, out.ICMPCode = icmp(r.ICMP)
	out.NotICMPType, out.NotICMPCode = icmp(r.NotICMP)
	if r.HTTP != nil {
		out.HTTPMatch = &v1.HTTPMatch{Methods: r.HTTP.Methods}
		for _, p := range r.HTTP.Paths {
			out.HTTPMatch.Paths = append(out.HTTPMatch.Paths, apiv3.HTTPPath{Exact: p.Exact, Prefix: p.Prefix})
		}
	}
	if len(r.Annotations) > 0 {
		out.Metadata = &v1.RuleMetadata{Annotations: r.Annotations}
	}
	return out
}

func protocolNamed(name string) numorstring.Protocol { return numorstring.ProtocolFromString(name) }

func protocol(p model.RuleProtocol) *numorstring.Protocol {
	var out numorstring.Protocol
	switch {
	case p.Name != "":
		out = numorstring.ProtocolFromStringV1(p.Name)
	case p.Number != 0:
		out = numorstring.ProtocolFromInt(p.Number)
	default:
		return nil
	}
	return &out
}

func nets(list []netip.Prefix) (out []*net.IPNet) {
	for _, p := range list {
		n := ipNet(p)
		out = append(out, &n)
	}
	return out
}

func ports(list []model.PortMatch) (out []numorstring.Port) {
	for _, p := range list {
		if p.Name != "" {
			out = append(out, numorstring.NamedPort(p.Name))
			continue
		}
		out = append(out, numorstring.Port{MinPort: p.First, MaxPort: p.Last})
	}
	return out
}

func icmp(m *model.ICMPMatch) (kind, code *int) {
	if m == nil {
		return nil, nil
	}
	t := int(m.Type)
	if !m.HasCode {
		return &t, nil
	}
	c := int(m.Code)
	return &t, &c
}
