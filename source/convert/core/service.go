package core

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/source/convert/check"
)

// ProxyNameLabel on a Service assigns it to the service proxy of that name.
const ProxyNameLabel = "service.kubernetes.io/service-proxy-name"

// Service reads a Service. Source: core/v1 validation and defaults of Kubernetes 1.36.
func Service(o *corev1.Service) (*model.Service, *check.Problems) {
	ps := &problems{check.Problems{Ref: Namespaced(model.KindService, &o.ObjectMeta)}}
	ps.Names(&o.ObjectMeta, check.Label)
	s := &model.Service{
		ID:                       model.ServiceID{Namespace: ps.Ref.Namespace, Name: o.Name},
		Created:                  o.CreationTimestamp.UTC(),
		UID:                      string(o.UID),
		Type:                     ps.serviceType(o.Spec.Type),
		PublishNotReadyAddresses: o.Spec.PublishNotReadyAddresses,
		Selectorless:             len(o.Spec.Selector) == 0,
		ProxyName:                o.Labels[ProxyNameLabel],
	}
	ps.clusterIPs(s, &o.Spec)
	ps.servicePorts(s, &o.Spec)
	s.ExternalIPs = ps.Addrs("spec.externalIPs", o.Spec.ExternalIPs, ps.HostAddr)
	slices.SortFunc(s.ExternalIPs, netip.Addr.Compare)
	ps.loadBalancer(s, o)
	ps.policies(s, &o.Spec)
	ps.affinity(s, &o.Spec)
	if s.Type == model.ExternalName {
		ps.externalName(o.Spec.ExternalName)
	}
	for k, v := range o.Annotations {
		if strings.HasPrefix(k, model.AnnotationPrefix) {
			if s.Annotations == nil {
				s.Annotations = map[string]string{}
			}
			s.Annotations[k] = v
		}
	}
	return s, &ps.Problems
}

func (ps *problems) serviceType(t corev1.ServiceType) model.ServiceType {
	switch t {
	case "", corev1.ServiceTypeClusterIP:
		return model.ClusterIP
	case corev1.ServiceTypeNodePort:
		return model.NodePort
	case corev1.ServiceTypeLoadBalancer:
		return model.LoadBalancer
	case corev1.ServiceTypeExternalName:
		return model.ExternalName
	}
	ps.Add("spec.type", "must be ClusterIP, NodePort, LoadBalancer or ExternalName", string(t))
	return model.ClusterIP
}

// clusterIPs reads spec.clusterIP and spec.clusterIPs; either may be missing. An ExternalName service has none, whatever
// the fields contain: kube-proxy ignores them too.
func (ps *problems) clusterIPs(s *model.Service, spec *corev1.ServiceSpec) {
	if s.Type == model.ExternalName {
		return
	}
	field, list := "spec.clusterIPs", spec.ClusterIPs
	if len(list) == 0 && spec.ClusterIP != "" {
		field, list = "spec.clusterIP", []string{spec.ClusterIP}
	} else if len(list) > 0 && spec.ClusterIP != "" && spec.ClusterIP != list[0] {
		ps.Add("spec.clusterIP", "must be the first of spec.clusterIPs", spec.ClusterIP)
	}
	if slices.Contains(list, corev1.ClusterIPNone) {
		if s.Headless = true; len(list) > 1 {
			ps.Add(field, "must have no address beside None", nil)
		}
		if s.Type != model.ClusterIP {
			ps.Add(field, "must not be None unless the type is ClusterIP", nil)
		}
		return
	}
	for i, ip := range list {
		f := field
		if field == "spec.clusterIPs" {
			f = check.ElementPath(field, i)
		}
		a := ps.HostAddr(f, ip)
		if !a.IsValid() {
			continue
		}
		s.ClusterIPs = append(s.ClusterIPs, a)
		if i < len(spec.IPFamilies) && (spec.IPFamilies[i] == corev1.IPv6Protocol) != a.Is6() {
			ps.Add(f, "must be of family "+string(spec.IPFamilies[i])+" as spec.ipFamilies says", ip)
		}
	}
	ps.DualStack(field, check.AddrFamilies(s.ClusterIPs))
}

// portKey must be unique among the ports of a service: a number and a protocol.
type portKey struct {
	protocol model.Protocol
	port     uint16
}

func (ps *problems) servicePorts(s *model.Service, spec *corev1.ServiceSpec) {
	if len(spec.Ports) == 0 && !s.Headless && s.Type != model.ExternalName {
		ps.Add("spec.ports", "must have at least one port", nil)
	}
	names, ports, nodePorts := map[string]bool{}, map[portKey]bool{}, map[portKey]bool{}
	for i := range spec.Ports {
		in, f := &spec.Ports[i], check.ElementPath("spec.ports", i)
		ps.portName(f+".name", in.Name, names, len(spec.Ports) > 1)
		p := model.ServicePort{
			Name:     in.Name,
			Protocol: ps.Protocol(f+".protocol", in.Protocol),
			Port:     ps.ReadPort(f+".port", in.Port),
			NodePort: ps.OptionalPort(f+".nodePort", in.NodePort),
		}
		ps.targetPort(f+".targetPort", in.TargetPort)
		if p.NodePort != 0 && s.Type != model.NodePort && s.Type != model.LoadBalancer {
			ps.Add(f+".nodePort", "must not be set unless the type is NodePort or LoadBalancer", in.NodePort)
		}
		ps.unique(f+".port", ports, portKey{p.Protocol, p.Port})
		ps.unique(f+".nodePort", nodePorts, portKey{p.Protocol, p.NodePort})
		s.Ports = append(s.Ports, p)
	}
}

func (ps *problems) portName(field, name string, seen map[string]bool, required bool) {
	switch {
	case name == "" && required:
		ps.Add(field, "is missing: it is required when there are several ports", nil)
	case name == "":
	case seen[name]:
		ps.Add(field, "must be unique within the service", name)
	default:
		check.Label(&ps.Problems, field, name)
	}
	seen[name] = true
}

// unique reports a number that occurs twice with one protocol. It does not compare missing or wrong parts.
func (ps *problems) unique(field string, seen map[portKey]bool, k portKey) {
	if k.port == 0 || k.protocol == 0 {
		return
	}
	if seen[k] {
		ps.Add(field, "must be unique per protocol within the service", k.protocol.String()+" "+itoa(k.port))
	}
	seen[k] = true
}

// targetPort is checked though not used: endpoint slices have the resolved numbers. The zero value means "same as port".
func (ps *problems) targetPort(field string, t intstr.IntOrString) {
	switch {
	case t.Type == intstr.Int && t.IntVal != 0:
		ps.ReadPort(field, t.IntVal)
	case t.Type == intstr.String && t.StrVal != "":
		if len(validation.IsValidPortName(t.StrVal)) > 0 {
			ps.Add(field, "must be a port number, or a port name: at most 15 lower-case letters, digits and '-', one of them a letter", t.StrVal)
		}
	}
}

// loadBalancer reads the fields of a service of type LoadBalancer.
func (ps *problems) loadBalancer(s *model.Service, o *corev1.Service) {
	if len(o.Spec.LoadBalancerSourceRanges) > 0 && s.Type != model.LoadBalancer {
		ps.Add("spec.loadBalancerSourceRanges", "must not be set unless the type is LoadBalancer", nil)
	}
	s.LoadBalancerSourceRanges = ps.Prefixes("spec.loadBalancerSourceRanges", o.Spec.LoadBalancerSourceRanges)
	slices.SortFunc(s.LoadBalancerSourceRanges, netip.Prefix.Compare)

	ingress := o.Status.LoadBalancer.Ingress
	if len(ingress) > 0 && s.Type != model.LoadBalancer {
		ps.Add("status.loadBalancer.ingress", "must not be set unless the type is LoadBalancer", nil)
	}
	for i, in := range ingress {
		if in.IP == "" {
			continue // a host name: clients resolve it, nodes do not
		}
		f := check.ElementPath("status.loadBalancer.ingress", i)
		lb := model.LoadBalancerIP{Addr: ps.Addr(f+".ip", in.IP)}
		if why := check.Special(lb.Addr); why != "" && !lb.Addr.IsLinkLocalUnicast() {
			ps.Add(f+".ip", "must not be "+why, in.IP)
		}
		if in.IPMode != nil {
			lb.Proxy = *in.IPMode == corev1.LoadBalancerIPModeProxy
			if !lb.Proxy && *in.IPMode != corev1.LoadBalancerIPModeVIP {
				ps.Add(f+".ipMode", "must be VIP or Proxy", string(*in.IPMode))
			}
		}
		if !slices.Contains(s.LoadBalancerIPs, lb) {
			s.LoadBalancerIPs = append(s.LoadBalancerIPs, lb)
		}
	}
	// The API server sets it for these services only. It has no effect elsewhere, so a value there is not refused.
	if s.Type == model.LoadBalancer && o.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal {
		s.HealthCheckNodePort = ps.OptionalPort("spec.healthCheckNodePort", o.Spec.HealthCheckNodePort)
	}
}

func (ps *problems) policies(s *model.Service, spec *corev1.ServiceSpec) {
	s.ExternalTrafficPolicy = ps.trafficPolicy("spec.externalTrafficPolicy", string(spec.ExternalTrafficPolicy))
	if p := spec.InternalTrafficPolicy; p != nil {
		s.InternalTrafficPolicy = ps.trafficPolicy("spec.internalTrafficPolicy", string(*p))
	}
	for i, f := range spec.IPFamilies {
		if f != corev1.IPv4Protocol && f != corev1.IPv6Protocol {
			ps.Add(check.ElementPath("spec.ipFamilies", i), "must be IPv4 or IPv6", string(f))
		}
	}
	if d := spec.TrafficDistribution; d != nil {
		switch *d {
		case "", corev1.ServiceTrafficDistributionPreferClose, corev1.ServiceTrafficDistributionPreferSameZone,
			corev1.ServiceTrafficDistributionPreferSameNode:
			s.TrafficDistribution = *d
		default:
			ps.Add("spec.trafficDistribution", "must be PreferSameZone, PreferSameNode or PreferClose", *d)
		}
	}
}

func (ps *problems) trafficPolicy(field, value string) model.TrafficPolicy {
	switch value {
	case "", "Cluster":
		return model.PolicyCluster
	case "Local":
		return model.PolicyLocal
	}
	ps.Add(field, "must be Cluster or Local", value)
	return model.PolicyCluster
}

// affinity reads session affinity. Its timeout is 10800 s by default, and a day at most.
func (ps *problems) affinity(s *model.Service, spec *corev1.ServiceSpec) {
	switch spec.SessionAffinity {
	case "", corev1.ServiceAffinityNone:
		return
	case corev1.ServiceAffinityClientIP:
	default:
		ps.Add("spec.sessionAffinity", "must be None or ClientIP", string(spec.SessionAffinity))
		return
	}
	seconds := corev1.DefaultClientIPServiceAffinitySeconds
	if c := spec.SessionAffinityConfig; c != nil && c.ClientIP != nil && c.ClientIP.TimeoutSeconds != nil {
		seconds = *c.ClientIP.TimeoutSeconds
	}
	if seconds < 1 || seconds > 86400 {
		ps.Add("spec.sessionAffinityConfig.clientIP.timeoutSeconds", "must be 1 to 86400", seconds)
		return
	}
	s.SessionAffinityTimeout = time.Duration(seconds) * time.Second
}

func (ps *problems) externalName(name string) {
	if name == "" {
		ps.Add("spec.externalName", "is missing: it is required when the type is ExternalName", nil)
		return
	}
	check.Subdomain(&ps.Problems, "spec.externalName", strings.TrimSuffix(name, "."))
}
