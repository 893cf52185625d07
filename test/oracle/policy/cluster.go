package policy

import (
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// Cluster is all objects of a moment, ready to be asked about flows.
type Cluster struct {
	nodes      map[string]*node
	namespaces map[string]map[string]string // labels by name
	accounts   map[string]map[string]string // labels of service accounts by namespace/name
	pods       []*pod
	at         map[netip.Addr]*pod
	entities   []*entity
	slices     []*discoveryv1.EndpointSlice
	profiles   map[string]*policy // rules of Calico's own profiles
	// profileLabels are the labels that these profiles give to their endpoints.
	profileLabels map[string]map[string]string
	tiers         []*tier
	hosts         []*host
	directions    map[direction][]*tier
}

type node struct {
	name   string
	labels map[string]string
	addrs  []netip.Addr
}

// pod is a running pod with a separate address, which policies apply to.
type pod struct {
	namespace, name string
	node            string
	labels          map[string]string
	addrs           []netip.Addr
	ports           []port
	calico          *entity
}

type port struct {
	name   string
	proto  Protocol
	number uint16
}

// entity is what Calico's selectors select: pods, network sets, host endpoints.
type entity struct {
	labels map[string]string // with the inherited ones
	nets   []netip.Prefix
	ports  []port
	isPod  bool
}

// readPlaces reads what others refer to: nodes, namespaces, service accounts, endpoints of services.
func (c *Cluster) readPlaces(o Object) error {
	switch o := o.(type) {
	case *corev1.Node:
		n := &node{name: o.Name, labels: o.Labels}
		for _, a := range o.Status.Addresses {
			if a.Type == corev1.NodeInternalIP || a.Type == corev1.NodeExternalIP {
				ip, err := netip.ParseAddr(a.Address)
				if err != nil {
					return err
				}
				n.addrs = append(n.addrs, ip)
			}
		}
		c.nodes[o.Name] = n
	case *corev1.Namespace:
		labels := clone(o.Labels)
		labels[corev1.LabelMetadataName] = o.Name // the API server sees to it
		c.namespaces[o.Name] = labels
	case *corev1.ServiceAccount:
		c.accounts[o.Namespace+"/"+o.Name] = o.Labels
	case *CalicoProfile:
		c.profileLabels[o.Name] = o.Spec.LabelsToApply
	case *discoveryv1.EndpointSlice:
		c.slices = append(c.slices, o)
	}
	return nil
}

// readEndpoints reads what selectors select.
func (c *Cluster) readEndpoints(o Object) error {
	switch o := o.(type) {
	case *corev1.Pod:
		return c.readPod(o)
	case *CalicoNetworkSet:
		e := &entity{labels: clone(o.Labels)}
		if o.Namespace != "" {
			c.inherit(e.labels, o.Namespace)
		}
		for _, text := range o.Spec.Nets {
			net, err := readNet(text)
			if err != nil {
				return err
			}
			e.nets = append(e.nets, net)
		}
		c.entities = append(c.entities, e)
	case *CalicoHostEndpoint:
		return c.readHost(o)
	}
	return nil
}

// readNet reads a prefix, or an address alone.
func readNet(text string) (netip.Prefix, error) {
	if !strings.Contains(text, "/") {
		a, err := netip.ParseAddr(text)
		if err != nil {
			return netip.Prefix{}, err
		}
		return a.Prefix(a.BitLen())
	}
	p, err := netip.ParsePrefix(text)
	return p.Masked(), err
}

func (c *Cluster) readPod(o *corev1.Pod) error {
	if o.Spec.HostNetwork || o.Status.Phase == corev1.PodSucceeded || o.Status.Phase == corev1.PodFailed {
		return nil
	}
	p := &pod{namespace: o.Namespace, name: o.Name, node: o.Spec.NodeName, labels: o.Labels, ports: readPorts(&o.Spec)}
	e := &entity{labels: clone(o.Labels), ports: p.ports, isPod: true}
	for _, ip := range o.Status.PodIPs {
		a, err := netip.ParseAddr(ip.IP)
		if err != nil {
			return err
		}
		if twin := c.at[a]; twin != nil {
			return fmt.Errorf("%s is %s/%s's address too", a, twin.namespace, twin.name)
		}
		p.addrs = append(p.addrs, a)
		e.nets = append(e.nets, netip.PrefixFrom(a, a.BitLen()))
		c.at[a] = p
	}
	c.inherit(e.labels, o.Namespace)
	e.labels["projectcalico.org/orchestrator"] = "k8s"
	if account := o.Spec.ServiceAccountName; account != "" { // an API server sees to it that only mirror pods have none
		e.labels["projectcalico.org/serviceaccount"] = account
		below(e.labels, "pcsa.", c.accounts[o.Namespace+"/"+account])
		below(e.labels, "pcsa.", map[string]string{"projectcalico.org/name": account})
	}
	p.calico = e
	c.pods = append(c.pods, p)
	c.entities = append(c.entities, e)
	return nil
}

// namespace is the labels of a namespace; one without an object has its name's.
func (c *Cluster) namespace(name string) map[string]string {
	if labels, exists := c.namespaces[name]; exists {
		return labels
	}
	return map[string]string{corev1.LabelMetadataName: name}
}

// inherit gives labels what Calico derives from the namespace.
func (c *Cluster) inherit(labels map[string]string, namespace string) {
	below(labels, "pcns.", c.namespace(namespace))
	below(labels, "pcns.", map[string]string{"projectcalico.org/name": namespace})
	labels["projectcalico.org/namespace"] = namespace
}

// below adds labels with a prefix; the object's own win.
func below(to map[string]string, prefix string, from map[string]string) {
	for k, v := range from {
		if _, has := to[prefix+k]; !has {
			to[prefix+k] = v
		}
	}
}

func clone(m map[string]string) map[string]string {
	out := make(map[string]string, len(m)+8)
	for k, v := range m {
		out[k] = v
	}
	return out
}

// readPorts are the named ports of the containers and of the init containers that keep running; a name and protocol given
// twice means its first bearer.
func readPorts(spec *corev1.PodSpec) []port {
	containers := append([]corev1.Container(nil), spec.Containers...)
	for _, ct := range spec.InitContainers {
		if ct.RestartPolicy != nil && *ct.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			containers = append(containers, ct)
		}
	}
	var out []port
	taken := map[string]bool{}
	for _, ct := range containers {
		for _, p := range ct.Ports {
			proto := protocolOf(string(p.Protocol))
			key := p.Name + "/" + proto.String()
			if p.Name == "" || taken[key] {
				continue
			}
			taken[key] = true
			out = append(out, port{p.Name, proto, uint16(p.ContainerPort)})
		}
	}
	return out
}

// protocolOf reads a protocol of a port; TCP if there is none.
func protocolOf(name string) Protocol {
	switch name {
	case "UDP":
		return UDP
	case "SCTP":
		return SCTP
	}
	return TCP
}

// host is a host endpoint: a node's interface to the world outside.
type host struct {
	name, node string
	entity     *entity
	profiles   []string
}
