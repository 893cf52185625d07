package convert

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	v3 "github.com/contiv-agent/contiv-agent/calico/v3"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/source/convert/check"
)

// metadataAnnotation is the annotation in which objects of crd.projectcalico.org store their labels as of
// projectcalico.org/v3.
const metadataAnnotation = GroupCalico + "/metadata"

// labels returns the object's labels as users of Calico see them.
func (o *object) labels() map[string]string {
	var meta metav1.ObjectMeta
	if text, ok := o.Annotations[metadataAnnotation]; ok && json.Unmarshal([]byte(text), &meta) == nil {
		return check.Cloned(meta.Labels)
	}
	return check.Cloned(o.Labels)
}

// tier reads a Tier. Built-in tiers get their fixed order and action, which older versions of Calico omit. An unreadable
// tier precedes all others and ends with a deny.
func tier(o *calicoTier, ps *problems) *model.Tier {
	ps.Names(&o.ObjectMeta, check.Subdomain)
	t := &model.Tier{Name: o.Name, DefaultAction: model.TierDeny}
	switch o.Spec.DefaultAction {
	case "", string(model.TierDeny):
	case string(model.TierPass):
		t.DefaultAction = model.TierPass
	default:
		ps.Add("spec.defaultAction", "must be Deny or Pass", o.Spec.DefaultAction)
	}
	if ps.Spoilt("spec.order") {
		t.Order = first()
	} else if o.Spec.Order != nil {
		t.Order = model.OrderOf(*o.Spec.Order)
	}
	for _, b := range model.BuiltinTiers() {
		if b.Name != t.Name {
			continue
		}
		if t.Order.Set && t.Order != b.Order {
			ps.Add("spec.order", "must be that of the built-in tier", nil)
		}
		if o.Spec.DefaultAction != "" && t.DefaultAction != b.DefaultAction {
			ps.Add("spec.defaultAction", "must be that of the built-in tier, "+string(b.DefaultAction), nil)
		}
		return b
	}
	if !t.Order.Set {
		t.Order = model.OrderOf(orderOfTiers)
	}
	return t
}

// orderOfTiers is the order of a Tier without one. It equals that of the default tier (Calico v3.31 fills it in when it
// reads a Tier).
const orderOfTiers = 1_000_000

// profile reads a Profile. A refused Profile counts as missing, and a missing profile denies everything.
func profile(o *calicoProfile, ps *problems) (*model.Profile, *check.Problems) {
	ps.Names(&o.ObjectMeta, check.Subdomain)
	return &model.Profile{
		Name: o.Name, Labels: check.Cloned(o.Spec.LabelsToApply),
		Rules: &model.ProfileRules{
			Inbound:  ps.calicoRules("spec.ingress", true, o.Spec.Ingress, ""),
			Outbound: ps.calicoRules("spec.egress", false, o.Spec.Egress, ""),
		},
	}, &ps.Problems
}

// netset reads a NetworkSet, which inherits its namespace's labels, or a GlobalNetworkSet. It drops invalid ranges, since
// it cannot know whether policies allow or deny them.
func netset(o *networkSet, ps *problems) *model.NetworkSet {
	ps.Names(&o.ObjectMeta, check.Subdomain)
	s := &model.NetworkSet{Name: ps.Ref.Name, Labels: o.labels()}
	if ns := ps.Ref.Namespace; ns != "" {
		s.Name = ns + "/" + s.Name
		s.Profiles = []string{"kns." + ns}
		if s.Labels == nil {
			s.Labels = map[string]string{}
		}
		s.Labels[model.LabelNamespace] = ns
	}
	for i, text := range o.Spec.Nets {
		if ps.Spoilt(check.ElementPath("spec.nets", i)) {
			continue
		}
		if p := ps.netOrAddr(check.ElementPath("spec.nets", i), text); p.IsValid() && !slices.Contains(s.Nets, p) {
			s.Nets = append(s.Nets, p)
		}
	}
	slices.SortFunc(s.Nets, netip.Prefix.Compare)
	return s
}

// hep reads a HostEndpoint. It drops invalid parts; the interface stays policed.
func hep(o *hostEndpoint, ps *problems) *model.HostEndpoint {
	ps.Names(&o.ObjectMeta, check.Subdomain)
	h := &model.HostEndpoint{
		ID: model.HostEndpointID{Node: o.Spec.Node, Name: o.Name}, Interface: o.Spec.InterfaceName,
		Profiles: slices.Clone(o.Spec.Profiles), Labels: o.labels(),
	}
	if h.ID.Node == "" {
		ps.Add("spec.node", "is missing", nil)
		return nil
	}
	for i, text := range o.Spec.ExpectedIPs {
		if !ps.Spoilt(check.ElementPath("spec.expectedIPs", i)) {
			if a := ps.Addr(check.ElementPath("spec.expectedIPs", i), text); a.IsValid() {
				h.Addrs = append(h.Addrs, a)
			}
		}
	}
	if h.Interface == "" && len(h.Addrs) == 0 {
		ps.Add("spec", "must have an interfaceName or expectedIPs", nil)
	}
	for i := range o.Spec.Ports {
		in, f := &o.Spec.Ports[i], check.ElementPath("spec.ports", i)
		known := len(ps.List)
		p := model.NamedPort{Name: in.Name, Protocol: ps.portProtocol(f+".protocol", &in.Protocol), Port: ps.ReadPort(f+".port", in.Port)}
		if !v3.IsPortName(p.Name) {
			ps.Add(f+".name", "must be the name of a port", p.Name)
		}
		if ps.understood(known) && !ps.Spoilt(f) {
			h.Ports = append(h.Ports, p)
		}
	}
	return h
}

// portProtocol reads the protocol of a host endpoint's port.
func (ps *problems) portProtocol(field string, p *intstr.IntOrString) model.Protocol {
	for _, known := range []model.Protocol{model.TCP, model.UDP, model.SCTP} {
		if strings.EqualFold(p.StrVal, known.String()) || p.Type == intstr.Int && p.IntVal == int32(known) {
			return known
		}
	}
	ps.Add(field, check.WantProtocol, p.String())
	return 0
}
