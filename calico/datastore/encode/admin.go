package encode

import (
	"errors"
	"fmt"
	"math"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/contiv-agent/contiv-agent/calico"
	v3 "github.com/contiv-agent/contiv-agent/calico/v3"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/source/convert"
)

// errPolicyBeyond means that Calico v3.31 cannot convert a policy; the model's form is written instead.
var errPolicyBeyond = errors.New("cannot be converted by Calico v3.31")

// adminPolicy is policy.networking.k8s.io/v1alpha1 AdminNetworkPolicy or BaselineAdminNetworkPolicy, with the fields that
// Calico v3.31 reads (sigs.k8s.io/network-policy-api v0.1.5). Of a ClusterNetworkPolicy, which Calico does not read, it
// holds the kind only.
type adminPolicy struct {
	metav1.TypeMeta
	metav1.ObjectMeta `json:"metadata"`
	Spec              adminSpec `json:"spec"`
}

type adminSpec struct {
	Priority int32                `json:"priority"`
	Subject  convert.AdminSubject `json:"subject"`
	Ingress  []adminRule          `json:"ingress"`
	Egress   []adminRule          `json:"egress"`
}

type adminRule struct {
	Name   string              `json:"name"`
	Action string              `json:"action"`
	From   []adminPeer         `json:"from"`
	To     []adminPeer         `json:"to"`
	Ports  []convert.AdminPort `json:"ports"`
}

type adminPeer struct {
	convert.AdminSubject
	Networks []string `json:"networks"`
}

// DeepCopyObject implements runtime.Object.
func (o *adminPolicy) DeepCopyObject() runtime.Object {
	c := *o
	o.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	return &c
}

// encodeKV writes the policy. A rule that Calico cannot read fails closed: an allow is dropped; a deny or pass denies
// everything. Calico would read a named port as every port of every protocol, so a policy with one is written in the
// model's form.
func (o *adminPolicy) encodeKV() (calico.KV, error) {
	tier, prefix, order := model.TierAdmin, "kanp.", float64(o.Spec.Priority)
	switch o.Kind {
	case string(model.KindBaselinePolicy):
		tier, prefix, order = model.TierBaseline, "kbanp.", 1000
	case string(model.KindClusterNetworkPolicy):
		return calico.KV{}, fmt.Errorf("ClusterNetworkPolicy %s: %w", o.Name, errPolicyBeyond)
	}
	p := &v3.Policy{}
	p.Tier, p.Order = tier, &order
	switch s := &o.Spec.Subject; {
	case s.Namespaces != nil:
		p.NamespaceSelector, p.Selector = namespaceSelector(s.Namespaces), podSelector(nil)
	case s.Pods != nil:
		p.NamespaceSelector, p.Selector = namespaceSelector(&s.Pods.NamespaceSelector), podSelector(&s.Pods.PodSelector)
	default:
		return calico.KV{}, fmt.Errorf("%s %s: spec.subject: %w", o.Kind, o.Name, errPolicyBeyond)
	}
	for i := range o.Spec.Ingress {
		p.Ingress = append(p.Ingress, o.convertRule(&o.Spec.Ingress[i], true)...)
	}
	for i := range o.Spec.Egress {
		p.Egress = append(p.Egress, o.convertRule(&o.Spec.Egress[i], false)...)
	}
	if len(p.Ingress) > 0 {
		p.Types = append(p.Types, "Ingress")
	}
	if len(p.Egress) > 0 {
		p.Types = append(p.Types, "Egress")
	}
	if o.namedPorts() {
		return calico.KV{}, fmt.Errorf("%s %s: a named port: %w", o.Kind, o.Name, errPolicyBeyond)
	}
	return encodePolicy(p, "", prefix+tier+"."+o.Name, false)
}

func (o *adminPolicy) namedPorts() bool {
	for _, list := range [][]adminRule{o.Spec.Ingress, o.Spec.Egress} {
		for i := range list {
			for _, p := range list[i].Ports {
				if p.NamedPort != nil {
					return true
				}
			}
		}
	}
	return false
}

func (o *adminPolicy) convertRule(in *adminRule, ingress bool) []v3.Rule {
	baseline := o.Kind == string(model.KindBaselinePolicy)
	known := in.Action == "Allow" || in.Action == "Deny" || in.Action == "Pass" && !baseline
	by, ok := adminPorts(in.Ports)
	ends, readable := in.peers(ingress)
	if known && ok && readable {
		r := v3.Rule{Action: in.Action}
		if in.Name != "" {
			r.Metadata = &v3.Metadata{Annotations: map[string]string{"name": in.Name}}
		}
		return by.cross(ends, ingress, r)
	}
	if in.Action == "Deny" || in.Action == "Pass" && !baseline {
		return []v3.Rule{{Action: "Deny"}}
	}
	return nil
}

func (in *adminRule) peers(ingress bool) (ends []v3.Entity, ok bool) {
	list := in.To
	if ingress {
		list = in.From
	}
	for i := range list {
		p, e, found := &list[i], v3.Entity{}, false
		if p.Namespaces != nil {
			e.NamespaceSelector, found = namespaceSelector(p.Namespaces), true
		}
		if p.Pods != nil {
			e.Selector, e.NamespaceSelector = podSelector(&p.Pods.PodSelector), namespaceSelector(&p.Pods.NamespaceSelector)
			found = true
		}
		if len(p.Networks) > 0 && !ingress {
			nets, err := encodeNets(p.Networks)
			if err != nil {
				return nil, false
			}
			e.Nets, found = nets, true
		}
		if !found {
			return nil, false
		}
		ends = append(ends, e)
	}
	return ends, true
}

// adminPorts reads ports by protocol; a protocol without ports means all its ports.
func adminPorts(list []convert.AdminPort) (portsBy, bool) {
	by := portsBy{}
	for i := range list {
		var protocol corev1.Protocol
		var p model.PortMatch
		switch in := &list[i]; {
		case in.PortNumber != nil:
			if in.PortNumber.Port < 0 || in.PortNumber.Port > math.MaxUint16 {
				return nil, false
			}
			n := uint16(in.PortNumber.Port)
			protocol, p = in.PortNumber.Protocol, model.PortMatch{First: n, Last: n}
		case in.PortRange != nil && (in.PortRange.Start < 0 || in.PortRange.End > math.MaxUint16 || in.PortRange.Start > in.PortRange.End):
			return nil, false
		case in.PortRange != nil:
			protocol, p = in.PortRange.Protocol, model.PortMatch{First: uint16(in.PortRange.Start), Last: uint16(in.PortRange.End)}
		default:
			clear(by)
			return by, true
		}
		if protocol == "" {
			protocol = corev1.ProtocolTCP
		}
		by.addPorts(protocolName(string(protocol)), []model.PortMatch{p})
	}
	return by, true
}
