package encode

import (
	"crypto/sha1"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/contiv-agent/contiv-agent/calico"
	"github.com/contiv-agent/contiv-agent/calico/datastore"
	"github.com/contiv-agent/contiv-agent/model"
)

// Annotations in which CNI plugins record a pod's addresses before the kubelet reports them.
const (
	annotationPodIP     = "cni.projectcalico.org/podIP"
	annotationPodIPs    = "cni.projectcalico.org/podIPs"
	annotationAWSPodIPs = "vpc.amazonaws.com/pod-ips"
	annotationFloating  = "cni.projectcalico.org/floatingIPs"
	annotationSpoof     = "cni.projectcalico.org/allowedSourcePrefixes"
	annotationNetworks  = "k8s.v1.cni.cncf.io/network-status"
)

// encodePod writes the endpoint of a pod that is scheduled, is not on the host's network, and has an address.
func encodePod(o *corev1.Pod) ([]calico.KV, error) {
	if o.Spec.HostNetwork || o.Spec.NodeName == "" {
		return nil, nil
	}
	fail := func(field string, err error) ([]calico.KV, error) {
		return nil, fmt.Errorf("%s: %s: %w", model.Ref{Kind: model.KindPod, Namespace: o.Namespace, Name: o.Name}, field, err)
	}
	var nets []netip.Prefix
	for _, s := range podAddresses(o) {
		p, err := encodeNet(s)
		if err != nil {
			return fail("status.podIPs", err)
		}
		nets = append(nets, p)
	}
	if len(nets) == 0 || finished(o) {
		return nil, nil
	}
	out := datastore.WorkloadEndpoint{
		State: "active", Name: vethName(o.Namespace, o.Name), ProfileIDs: []string{"kns." + o.Namespace},
		Labels: podLabels(o), Ports: podPorts(&o.Spec), GenerateName: o.GenerateName, QoS: podQoS(o.Annotations),
	}
	if o.Spec.ServiceAccountName != "" {
		out.ProfileIDs = append(out.ProfileIDs, accountProfile(o.Namespace, o.Spec.ServiceAccountName))
	}
	for _, p := range nets {
		if p.Addr().Is4() {
			out.IPv4Nets = append(out.IPv4Nets, p.String())
		} else {
			out.IPv6Nets = append(out.IPv6Nets, p.String())
		}
	}
	if err := addFloating(&out, o.Annotations[annotationFloating], nets); err != nil {
		return fail("metadata.annotations["+annotationFloating+"]", err)
	}
	if err := setSpoofing(&out, o.Annotations[annotationSpoof]); err != nil {
		return fail("metadata.annotations["+annotationSpoof+"]", err)
	}
	if o.Annotations[model.AnnotationSourceCheck] == "false" {
		out.AllowSpoofedSources = []string{"0.0.0.0/0", "::/0"}
	}
	if v, ok := o.Annotations[annotationNetworks]; ok {
		out.Annotations = map[string]string{annotationNetworks: v}
	}
	return one(datastore.NewKV(datastore.Key{
		Kind: datastore.KeyWorkload, Node: o.Spec.NodeName, Orchestrator: model.OrchestratorKubernetes,
		Workload: o.Namespace + "/" + o.Name, Name: "eth0",
	}, out))
}

// podAddresses returns a pod's addresses: those that the kubelet reports, else those that a CNI plugin recorded.
func podAddresses(o *corev1.Pod) []string {
	var out []string
	for _, ip := range o.Status.PodIPs {
		out = append(out, ip.IP)
	}
	switch a := o.Annotations; {
	case len(out) > 0:
		return out
	case o.Status.PodIP != "":
		return []string{o.Status.PodIP}
	case a[annotationPodIPs] != "":
		return strings.Split(a[annotationPodIPs], ",")
	case a[annotationPodIP] != "":
		return []string{a[annotationPodIP]}
	case a[annotationAWSPodIPs] != "":
		return strings.Split(a[annotationAWSPodIPs], ",")
	}
	return nil
}

// finished reports whether the pod's addresses may already belong to another pod.
func finished(o *corev1.Pod) bool {
	if o.DeletionTimestamp != nil {
		for _, name := range []string{annotationPodIP, annotationAWSPodIPs} {
			if v, ok := o.Annotations[name]; ok && v == "" {
				return true
			}
		}
	}
	switch o.Status.Phase {
	case corev1.PodFailed, corev1.PodSucceeded, "Completed":
		return true
	}
	return false
}

// vethName returns the name that Calico's CNI plugin gives to the host's end of a pod's interface.
func vethName(namespace, pod string) string {
	sum := sha1.Sum([]byte(namespace + "." + pod))
	return "cali" + hex.EncodeToString(sum[:])[:11]
}

// podLabels returns a pod's labels with those of its namespace and account. A pod cannot set the labels of another
// namespace or account.
func podLabels(o *corev1.Pod) map[string]string {
	out := map[string]string{}
	for k, v := range o.Labels {
		if !strings.HasPrefix(k, model.PrefixNamespace) && !strings.HasPrefix(k, model.PrefixServiceAccount) {
			out[k] = v
		}
	}
	out[model.LabelNamespace], out[model.LabelOrchestrator] = o.Namespace, model.OrchestratorKubernetes
	if o.Spec.ServiceAccountName != "" {
		out[model.LabelServiceAccount] = o.Spec.ServiceAccountName
	}
	return out
}

// podPorts returns the named ports of all containers.
func podPorts(spec *corev1.PodSpec) []datastore.EndpointPort {
	var out []datastore.EndpointPort
	for _, list := range [][]corev1.Container{spec.Containers, spec.InitContainers} {
		for i := range list {
			for _, p := range list[i].Ports {
				protocol := datastore.Protocol(strings.ToLower(string(p.Protocol)))
				switch p.Protocol {
				case "":
					protocol = "tcp"
				case corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP:
				default:
					continue
				}
				if p.ContainerPort > 0 && p.ContainerPort <= math.MaxUint16 && p.Name != "" {
					out = append(out, datastore.EndpointPort{Name: p.Name, Protocol: protocol, Port: uint16(p.ContainerPort)})
				}
			}
		}
	}
	return out
}

// addFloating reads the annotation with floating addresses: each maps to the pod's last address of its family.
func addFloating(w *datastore.WorkloadEndpoint, annotation string, nets []netip.Prefix) error {
	if annotation == "" {
		return nil
	}
	var list []string
	if err := json.Unmarshal([]byte(annotation), &list); err != nil {
		return err
	}
	var v4, v6 netip.Addr
	for _, p := range nets {
		if !p.IsSingleIP() {
			return fmt.Errorf("needs pod addresses, but %s is a range", p)
		}
		if p.Addr().Is4() {
			v4 = p.Addr()
		} else {
			v6 = p.Addr()
		}
	}
	for _, s := range list {
		inside := v4
		if strings.Contains(s, ":") {
			inside = v6
		}
		outside, err := netip.ParseAddr(s)
		if !inside.IsValid() || err != nil {
			continue
		}
		nat := datastore.IPNAT{Internal: inside.String(), External: outside.Unmap().String()}
		if inside.Is4() {
			w.IPv4NAT = append(w.IPv4NAT, nat)
		} else {
			w.IPv6NAT = append(w.IPv6NAT, nat)
		}
	}
	return nil
}

// setSpoofing reads the annotation with source addresses that the pod may use beside its own.
func setSpoofing(w *datastore.WorkloadEndpoint, annotation string) error {
	if annotation == "" {
		return nil
	}
	var list []string
	if err := json.Unmarshal([]byte(annotation), &list); err != nil {
		return err
	}
	var err error
	w.AllowSpoofedSources, err = encodeNets(list)
	return err
}
