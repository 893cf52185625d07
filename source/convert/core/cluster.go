package core

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/source/convert/check"
)

// Pod reads a Pod: its node, its addresses, and its named ports.
func Pod(o *corev1.Pod) (*model.Pod, *check.Problems) {
	ps := &problems{check.Problems{Ref: Namespaced(model.KindPod, &o.ObjectMeta)}}
	ps.Names(&o.ObjectMeta, check.Subdomain)
	p := &model.Pod{
		ID:             model.PodID{Namespace: ps.Ref.Namespace, Name: o.Name},
		Labels:         check.Cloned(o.Labels),
		NodeName:       o.Spec.NodeName,
		HostNetwork:    o.Spec.HostNetwork,
		Finished:       o.Status.Phase == corev1.PodSucceeded || o.Status.Phase == corev1.PodFailed,
		ServiceAccount: o.Spec.ServiceAccountName,
	}
	if p.NodeName != "" {
		check.Subdomain(&ps.Problems, "spec.nodeName", p.NodeName)
	}
	var ips []string
	for _, ip := range o.Status.PodIPs {
		ips = append(ips, ip.IP)
	}
	field := "status.podIPs"
	if len(ips) == 0 && o.Status.PodIP != "" {
		field, ips = "status.podIP", []string{o.Status.PodIP}
	} else if len(ips) > 0 && o.Status.PodIP != "" && o.Status.PodIP != ips[0] {
		ps.Add("status.podIP", "must be the first of status.podIPs", o.Status.PodIP)
	}
	p.IPs = ps.Addrs(field, ips, func(f, s string) netip.Addr {
		if field == "status.podIP" {
			f = field
		}
		return ps.HostAddr(f, s)
	})
	ps.DualStack(field, check.AddrFamilies(p.IPs))
	p.Ports, p.ContainerPorts = ps.containerPorts(&o.Spec)
	for _, name := range []string{model.AnnotationSourceCheck, model.AnnotationAllowedSources} {
		if v, ok := o.Annotations[name]; ok {
			if p.Annotations == nil {
				p.Annotations = map[string]string{}
			}
			p.Annotations[name] = v
		}
	}
	return p, &ps.Problems
}

// containerPorts reads the ports of containers and sidecars (init containers that keep running): the named ones, and all. A
// name given twice means the first port with it, as for endpoint controllers.
func (ps *problems) containerPorts(spec *corev1.PodSpec) (out []model.NamedPort, all []model.ContainerPort) {
	read := func(field string, c *corev1.Container) {
		for i := range c.Ports {
			in, f := &c.Ports[i], check.ElementPath(field+".ports", i)
			p := model.NamedPort{
				Name:     in.Name,
				Protocol: ps.Protocol(f+".protocol", in.Protocol),
				Port:     ps.ReadPort(f+".containerPort", in.ContainerPort),
			}
			taken := slices.ContainsFunc(out, func(o model.NamedPort) bool { return o.Name == p.Name && o.Protocol == p.Protocol })
			if p.Name != "" && !taken {
				out = append(out, p)
			}
			all = append(all, model.ContainerPort{Protocol: p.Protocol, Port: p.Port})
		}
	}
	for i := range spec.Containers {
		read(check.ElementPath("spec.containers", i), &spec.Containers[i])
	}
	for i := range spec.InitContainers {
		if r := spec.InitContainers[i].RestartPolicy; r != nil && *r == corev1.ContainerRestartPolicyAlways {
			read(check.ElementPath("spec.initContainers", i), &spec.InitContainers[i])
		}
	}
	slices.SortFunc(all, model.ContainerPort.Compare)
	return out, slices.Compact(all)
}

// Node reads a Node: its addresses and the pod ranges routed to it. It drops addresses without a route, such as a loopback
// address on a development cluster; Kubernetes accepts them.
func Node(o *corev1.Node) (*model.Node, *check.Problems) {
	ps := &problems{check.Problems{Ref: model.Ref{Kind: model.KindNode, Name: o.Name}}}
	ps.Names(&o.ObjectMeta, check.Subdomain)
	n := &model.Node{Name: o.Name, Labels: check.Cloned(o.Labels), Zone: o.Labels[corev1.LabelTopologyZone], Uplink: o.Annotations[model.AnnotationUplink], Leaving: leaving(o)}
	for i, a := range o.Status.Addresses {
		var to *[]netip.Addr
		switch a.Type {
		case corev1.NodeInternalIP:
			to = &n.InternalIPs
		case corev1.NodeExternalIP:
			to = &n.ExternalIPs
		default:
			continue
		}
		ip := ps.Addr(check.ElementPath("status.addresses", i)+".address", a.Address)
		if ip.IsValid() && (check.Special(ip) == "" || ip.IsLinkLocalUnicast()) && !slices.Contains(*to, ip) {
			*to = append(*to, ip)
		}
	}
	cidrs := o.Spec.PodCIDRs
	if len(cidrs) == 0 && o.Spec.PodCIDR != "" {
		if p := ps.Prefix("spec.podCIDR", o.Spec.PodCIDR); p.IsValid() {
			n.PodCIDRs = []netip.Prefix{p}
		}
		return n, &ps.Problems
	}
	if len(cidrs) > 0 && o.Spec.PodCIDR != "" && o.Spec.PodCIDR != cidrs[0] {
		ps.Add("spec.podCIDR", "must be the first of spec.podCIDRs", o.Spec.PodCIDR)
	}
	n.PodCIDRs = ps.Prefixes("spec.podCIDRs", cidrs)
	ps.DualStack("spec.podCIDRs", check.PrefixFamilies(n.PodCIDRs))
	return n, &ps.Problems
}

// autoscalerTaint is the taint that a cluster autoscaler sets on a node before it deletes the node
// (cluster-autoscaler/utils/taints).
const autoscalerTaint = "ToBeDeletedByClusterAutoscaler"

func leaving(o *corev1.Node) bool {
	return o.DeletionTimestamp != nil || slices.ContainsFunc(o.Spec.Taints, func(t corev1.Taint) bool { return t.Key == autoscalerTaint })
}

// Namespace reads a Namespace.
func Namespace(o *corev1.Namespace) (*model.Namespace, *check.Problems) {
	ps := &problems{check.Problems{Ref: model.Ref{Kind: model.KindNamespace, Name: o.Name}}}
	ps.Names(&o.ObjectMeta, check.Label)
	return &model.Namespace{Name: o.Name, Labels: check.Cloned(o.Labels)}, &ps.Problems
}

// ServiceAccount reads a ServiceAccount.
func ServiceAccount(o *corev1.ServiceAccount) (*model.ServiceAccount, *check.Problems) {
	ps := &problems{check.Problems{Ref: Namespaced(model.KindServiceAccount, &o.ObjectMeta)}}
	ps.Names(&o.ObjectMeta, check.Subdomain)
	return &model.ServiceAccount{Namespace: ps.Ref.Namespace, Name: o.Name, Labels: check.Cloned(o.Labels)}, &ps.Problems
}

// ServiceCIDR reads a range of cluster IPs.
func ServiceCIDR(o *networkingv1.ServiceCIDR) (*model.ServiceCIDR, *check.Problems) {
	ps := &problems{check.Problems{Ref: model.Ref{Kind: model.KindServiceCIDR, Name: o.Name}}}
	ps.Names(&o.ObjectMeta, check.Subdomain)
	if len(o.Spec.CIDRs) == 0 {
		ps.Add("spec.cidrs", "must have at least one range", nil)
	}
	c := &model.ServiceCIDR{Name: o.Name, CIDRs: ps.Prefixes("spec.cidrs", o.Spec.CIDRs)}
	ps.DualStack("spec.cidrs", check.PrefixFamilies(c.CIDRs))
	return c, &ps.Problems
}

// Namespaced returns the reference of an object in a namespace.
func Namespaced(k model.Kind, m *metav1.ObjectMeta) model.Ref {
	return model.Ref{Kind: k, Namespace: namespaceOf(m), Name: m.Name}
}

// namespaceOf returns the namespace in which an API server stores the object: "default" if it names none.
func namespaceOf(m *metav1.ObjectMeta) string {
	if m.Namespace == "" {
		return metav1.NamespaceDefault
	}
	return m.Namespace
}
