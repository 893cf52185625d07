package encode

import (
	"fmt"
	"net/netip"
	"strconv"

	"github.com/contiv-agent/contiv-agent/calico"
	"github.com/contiv-agent/contiv-agent/calico/datastore"
	v3 "github.com/contiv-agent/contiv-agent/calico/v3"
	"github.com/contiv-agent/contiv-agent/model"
)

// encodeClosed writes what remains of a refused object: of a policy, a form that isolates; of kinds that may be refused in
// part, the valid parts. ok is false for all others.
func encodeClosed(o model.Object) (kv calico.KV, ok bool, err error) {
	switch o := o.(type) {
	case *model.Policy:
		kv, err = encodeModelPolicy(o)
	case *model.Tier:
		t := datastore.Tier{DefaultAction: string(o.DefaultAction)}
		if o.Order.Set {
			t.Order = &o.Order.Value
		}
		kv, err = datastore.NewKV(datastore.Key{Kind: datastore.KeyTier, Name: o.Name}, t)
	case *model.NetworkSet:
		kv, err = datastore.NewKV(datastore.Key{Kind: datastore.KeyNetworkSet, Name: o.Name}, datastore.NetworkSet{
			Nets: texts(o.Nets), Labels: o.Labels, ProfileIDs: o.Profiles,
		})
	case *model.HostEndpoint:
		h := datastore.HostEndpoint{Name: o.Interface, Labels: o.Labels, ProfileIDs: o.Profiles}
		for _, a := range o.Addrs {
			if a.Is4() {
				h.ExpectedIPv4Addrs = append(h.ExpectedIPv4Addrs, a.String())
			} else {
				h.ExpectedIPv6Addrs = append(h.ExpectedIPv6Addrs, a.String())
			}
		}
		for _, p := range o.Ports {
			h.Ports = append(h.Ports, datastore.EndpointPort{Name: p.Name, Protocol: datastore.Protocol(strconv.Itoa(int(p.Protocol))), Port: p.Port})
		}
		if o.ID.Node == "" {
			return calico.KV{}, true, fmt.Errorf("HostEndpoint %s: spec.node: is missing", o.ID.Name)
		}
		kv, err = datastore.NewKV(datastore.Key{Kind: datastore.KeyHostEndpoint, Node: o.ID.Node, Name: o.ID.Name}, h)
	default:
		return calico.KV{}, false, nil
	}
	return kv, true, err
}

// encodeModelPolicy writes a policy in the model's form. It serves kinds of policies and rules that Calico v3.31 does not
// convert, and refused policies, which fail closed.
func encodeModelPolicy(p *model.Policy) (calico.KV, error) {
	out := datastore.Policy{Namespace: p.Namespace, Selector: p.Selector, DoNotTrack: p.Untracked, PreDNAT: p.PreDNAT}
	if p.Namespace == "" {
		out.ApplyOnForward = p.ApplyOnForward
	}
	if p.Order.Set {
		out.Order = &p.Order.Value
	}
	if p.Ingress {
		out.Types = append(out.Types, "ingress")
	}
	if p.Egress {
		out.Types = append(out.Types, "egress")
	}
	if p.Everywhere {
		out.PerformanceHints = []string{"AssumeNeededOnEveryNode"}
	}
	out.StagedAction = string(p.StagedAction())
	for i := range p.InboundRules {
		out.InboundRules = append(out.InboundRules, encodeModelRule(&p.InboundRules[i]))
	}
	for i := range p.OutboundRules {
		out.OutboundRules = append(out.OutboundRules, encodeModelRule(&p.OutboundRules[i]))
	}
	return datastore.NewKV(datastore.Key{Kind: datastore.KeyTieredPolicy, Tier: p.Tier, Name: p.FelixName()}, out)
}

// encodeStaged writes a staged policy that data planes do not get in its own form.
func encodeStaged(p *model.Policy) ([]calico.KV, error) {
	staged := *p
	switch p.ID.Kind {
	case model.KindNetworkPolicy:
		staged.ID.Kind = model.KindStagedKubernetesPolicy
	case model.KindCalicoNetworkPolicy:
		staged.ID.Kind = model.KindStagedNetworkPolicy
	case model.KindGlobalNetworkPolicy:
		staged.ID.Kind = model.KindStagedGlobalPolicy
	default:
		return nil, nil
	}
	return one(encodeModelPolicy(&staged))
}

func encodeModelRule(in *model.Rule) datastore.Rule {
	src, dst := &in.Source, &in.Destination
	r := datastore.Rule{
		Action: string(in.Action), Protocol: modelProtocol(in.Protocol), NotProtocol: modelProtocol(in.NotProtocol),
		SrcNets: texts(src.Nets), SrcSelector: src.Selector, SrcPorts: modelPorts(src.Ports),
		SrcService: src.Service.Name, SrcServiceNamespace: src.Service.Namespace,
		DstNets: texts(dst.Nets), DstSelector: dst.Selector, DstPorts: modelPorts(dst.Ports),
		DstService: dst.Service.Name, DstServiceNamespace: dst.Service.Namespace,
		NotSrcNets: texts(src.NotNets), NotSrcSelector: src.NotSelector, NotSrcPorts: modelPorts(src.NotPorts),
		NotDstNets: texts(dst.NotNets), NotDstSelector: dst.NotSelector, NotDstPorts: modelPorts(dst.NotPorts),
		OriginalSrcSelector: src.OriginalSelector, OriginalSrcNamespaceSelector: src.OriginalNamespaceSelector,
		OriginalDstSelector: dst.OriginalSelector, OriginalDstNamespaceSelector: dst.OriginalNamespaceSelector,
		OriginalNotSrcSelector: src.OriginalNotSelector, OriginalNotDstSelector: dst.OriginalNotSelector,
		OriginalSrcServiceAccountNames: src.ServiceAccountNames, OriginalSrcServiceAccountSelector: src.ServiceAccountSelector,
		OriginalDstServiceAccountNames: dst.ServiceAccountNames, OriginalDstServiceAccountSelector: dst.ServiceAccountSelector,
	}
	if in.IPVersion != 0 {
		v := int32(in.IPVersion)
		r.IPVersion = &v
	}
	r.ICMPType, r.ICMPCode = modelICMP(in.ICMP)
	r.NotICMPType, r.NotICMPCode = modelICMP(in.NotICMP)
	if in.HTTP != nil {
		r.HTTPMatch = &v3.HTTP{Methods: in.HTTP.Methods}
		for _, p := range in.HTTP.Paths {
			r.HTTPMatch.Paths = append(r.HTTPMatch.Paths, v3.HTTPPath(p))
		}
	}
	if len(in.Annotations) > 0 {
		r.Metadata = &v3.Metadata{Annotations: in.Annotations}
	}
	return r
}

func modelProtocol(p model.RuleProtocol) *datastore.Protocol {
	w := datastore.Protocol(p.Name)
	switch {
	case p == model.RuleProtocol{}:
		return nil
	case p.Name == "":
		w = datastore.Protocol(strconv.Itoa(int(p.Number)))
	}
	return &w
}

func modelICMP(m *model.ICMPMatch) (typ, code *int32) {
	if m == nil {
		return nil, nil
	}
	t, c := int32(m.Type), int32(m.Code)
	if m.HasCode {
		code = &c
	}
	return &t, code
}

func modelPorts(list []model.PortMatch) []datastore.Port {
	var out []datastore.Port
	for _, p := range list {
		out = append(out, datastore.Port(v3.PortText(p)))
	}
	return out
}

func texts(list []netip.Prefix) []string {
	var out []string
	for _, p := range list {
		out = append(out, p.String())
	}
	return out
}
