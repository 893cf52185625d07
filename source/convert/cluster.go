package convert

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/contiv-agent/contiv-agent/model"
)

// pod reads a Pod: its node, its addresses, and its named ports.
func pod(o *corev1.Pod) (*model.Pod, *problems) {
	ps := &problems{ref: namespaced(model.KindPod, &o.ObjectMeta)}
	ps.names(&o.ObjectMeta, subdomain)
	p := &model.Pod{
		ID:             model.PodID{Namespace: ps.ref.Namespace, Name: o.Name},
		Labels:         cloned(o.Labels),
		NodeName:       o.Spec.NodeName,
		HostNetwork:    o.Spec.HostNetwork,
		Finished:       o.Status.Phase == corev1.PodSucceeded || o.Status.Phase == corev1.PodFailed,
		ServiceAccount: o.Spec.ServiceAccountName,
	}
	if p.NodeName != "" {
		subdomain(ps, "spec.nodeName", p.NodeName)
	}
	var ips []string
	for _, ip := range o.Status.PodIPs {
		ips = append(ips, ip.IP)
	}
	field := "status.podIPs"
	if len(ips) == 0 && o.Status.PodIP != "" {
		field, ips = "status.podIP", []string{o.Status.PodIP}
	} else if len(ips) > 0 && o.Status.PodIP != "" && o.Status.PodIP != ips[0] {
		ps.addProblem("status.podIP", "must be the first of status.podIPs", o.Status.PodIP)
	}
	p.IPs = ps.addrs(field, ips, func(f, s string) netip.Addr {
		if field == "status.podIP" {
			f = field
		}
		return ps.hostAddr(f, s)
	})
	ps.dualStack(field, addrFamilies(p.IPs))
	p.Ports, p.ContainerPorts = ps.containerPorts(&o.Spec)
	for _, name := range []string{model.AnnotationSourceCheck, model.AnnotationAllowedSources} {
		if v, ok := o.Annotations[name]; ok {
			if p.Annotations == nil {
				p.Annotations = map[string]string{}
			}
			p.Annotations[name] = v
		}
	}
	return p, ps
}

// containerPorts reads the ports of containers and sidecars (init containers that keep running): the named ones, and all. A
// name given twice means the first port with it, as for endpoint controllers.
func (ps *problems) containerPorts(spec *corev1.PodSpec) (out []model.NamedPort, all []model.ContainerPort) {
	read := func(field string, c *corev1.Container) {
		for i := range c.Ports {
			in, f := &c.Ports[i], elementPath(field+".ports", i)
			p := model.NamedPort{
				Name:     in.Name,
				Protocol: ps.protocol(f+".protocol", in.Protocol),
				Port:     ps.readPort(f+".containerPort", in.ContainerPort),
			}
			taken := slices.ContainsFunc(out, func(o model.NamedPort) bool { return o.Name == p.Name && o.Protocol == p.Protocol })
			if p.Name != "" && !taken {
				out = append(out, p)
			}
			all = append(all, model.ContainerPort{Protocol: p.Protocol, Port: p.Port})
		}
	}
	for i := range spec.Containers {
		read(elementPath("spec.containers", i), &spec.Containers[i])
	}
	for i := range spec.InitContainers {
		if r := spec.InitContainers[i].RestartPolicy; r != nil && *r == corev1.ContainerRestartPolicyAlways {
			read(elementPath("spec.initContainers", i), &spec.InitContainers[i])
		}
	}
	slices.SortFunc(all, model.ContainerPort.Compare)
	return out, slices.Compact(all)
}

// readNode reads a Node: its addresses and the pod ranges routed to it. It drops addresses without a route, such as a loopback
// address on a development cluster; Kubernetes accepts them.
func readNode(o *corev1.Node) (*model.Node, *problems) {
	ps := &problems{ref: model.Ref{Kind: model.KindNode, Name: o.Name}}
	ps.names(&o.ObjectMeta, subdomain)
	n := &model.Node{Name: o.Name, Labels: cloned(o.Labels), Zone: o.Labels[corev1.LabelTopologyZone], Leaving: leaving(o)}
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
		ip := ps.addr(elementPath("status.addresses", i)+".address", a.Address)
		if ip.IsValid() && (special(ip) == "" || ip.IsLinkLocalUnicast()) && !slices.Contains(*to, ip) {
			*to = append(*to, ip)
		}
	}
	cidrs := o.Spec.PodCIDRs
	if len(cidrs) == 0 && o.Spec.PodCIDR != "" {
		if p := ps.prefix("spec.podCIDR", o.Spec.PodCIDR); p.IsValid() {
			n.PodCIDRs = []netip.Prefix{p}
		}
		return n, ps
	}
	if len(cidrs) > 0 && o.Spec.PodCIDR != "" && o.Spec.PodCIDR != cidrs[0] {
		ps.addProblem("spec.podCIDR", "must be the first of spec.podCIDRs", o.Spec.PodCIDR)
	}
	n.PodCIDRs = ps.prefixes("spec.podCIDRs", cidrs)
	ps.dualStack("spec.podCIDRs", prefixFamilies(n.PodCIDRs))
	return n, ps
}

// autoscalerTaint is the taint that a cluster autoscaler sets on a node before it deletes the node
// (cluster-autoscaler/utils/taints).
const autoscalerTaint = "ToBeDeletedByClusterAutoscaler"

func leaving(o *corev1.Node) bool {
	return o.DeletionTimestamp != nil || slices.ContainsFunc(o.Spec.Taints, func(t corev1.Taint) bool { return t.Key == autoscalerTaint })
}

func namespace(o *corev1.Namespace) (*model.Namespace, *problems) {
	ps := &problems{ref: model.Ref{Kind: model.KindNamespace, Name: o.Name}}
	ps.names(&o.ObjectMeta, label)
	return &model.Namespace{Name: o.Name, Labels: cloned(o.Labels)}, ps
}

func serviceAccount(o *corev1.ServiceAccount) (*model.ServiceAccount, *problems) {
	ps := &problems{ref: namespaced(model.KindServiceAccount, &o.ObjectMeta)}
	ps.names(&o.ObjectMeta, subdomain)
	return &model.ServiceAccount{Namespace: ps.ref.Namespace, Name: o.Name, Labels: cloned(o.Labels)}, ps
}

// serviceCIDR reads a range of cluster IPs.
func serviceCIDR(o *networkingv1.ServiceCIDR) (*model.ServiceCIDR, *problems) {
	ps := &problems{ref: model.Ref{Kind: model.KindServiceCIDR, Name: o.Name}}
	ps.names(&o.ObjectMeta, subdomain)
	if len(o.Spec.CIDRs) == 0 {
		ps.addProblem("spec.cidrs", "must have at least one range", nil)
	}
	c := &model.ServiceCIDR{Name: o.Name, CIDRs: ps.prefixes("spec.cidrs", o.Spec.CIDRs)}
	ps.dualStack("spec.cidrs", prefixFamilies(c.CIDRs))
	return c, ps
}
