package served

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/contiv-agent/contiv-agent/test/oracle/policy"
)

// span is a range of ports of one protocol, both ends included. "" stands for all protocols.
type span struct {
	proto       string
	first, last uint16
}

// mostNamed is the widest range of ports by which a policy says what a pod serves.
const mostNamed = 1024

func (s span) declares(proto policy.Protocol, number uint16) bool {
	return (s.proto == "" || s.proto == proto.String()) && s.first <= number && number <= s.last && s.last-s.first < mostNamed
}

// newSpan reads "" as TCP.
func newSpan(proto string, first, last int32) span {
	if proto == "" {
		proto = "TCP"
	}
	return span{proto, uint16(first), uint16(last)}
}

func podSpans(o *corev1.Pod, pod netip.Addr) (out []span) {
	if !slices.ContainsFunc(o.Status.PodIPs, func(ip corev1.PodIP) bool { return ip.IP == pod.String() }) {
		return nil
	}
	for _, c := range o.Spec.Containers {
		for _, p := range c.Ports {
			out = append(out, newSpan(string(p.Protocol), p.ContainerPort, p.ContainerPort))
		}
	}
	return out
}

func sliceSpans(o *discoveryv1.EndpointSlice, pod netip.Addr) (out []span) {
	if !slices.ContainsFunc(o.Endpoints, func(e discoveryv1.Endpoint) bool { return slices.Contains(e.Addresses, pod.String()) }) {
		return nil
	}
	for _, p := range o.Ports {
		if p.Protocol != nil && p.Port != nil {
			out = append(out, newSpan(string(*p.Protocol), *p.Port, *p.Port))
		}
	}
	return out
}

func networkPolicySpans(o *networkingv1.NetworkPolicy) (out []span) {
	for _, r := range o.Spec.Ingress {
		for _, p := range r.Ports {
			if p.Port == nil || p.Port.Type == intstr.String {
				continue
			}
			s := newSpan("", p.Port.IntVal, p.Port.IntVal)
			if p.Protocol != nil {
				s.proto = string(*p.Protocol)
			}
			if p.EndPort != nil {
				s.last = uint16(*p.EndPort)
			}
			out = append(out, s)
		}
	}
	return out
}

func adminSpans(rules []policy.AdminRule) (out []span) {
	for _, r := range rules {
		if r.Action != "Allow" || r.Ports == nil {
			continue
		}
		for _, p := range *r.Ports {
			if n := p.PortNumber; n != nil {
				out = append(out, newSpan(n.Protocol, n.Port, n.Port))
			}
			if n := p.PortRange; n != nil {
				out = append(out, newSpan(n.Protocol, n.Start, n.End))
			}
		}
	}
	return out
}

func clusterSpans(rules []policy.ClusterRule) (out []span) {
	for _, r := range rules {
		if r.Action != "Accept" {
			continue
		}
		for _, p := range r.Protocols {
			for proto, l4 := range map[string]*policy.ClusterL4{"TCP": p.TCP, "UDP": p.UDP} {
				switch {
				case l4 == nil || l4.DestinationPort == nil:
				case l4.DestinationPort.Range != nil:
					out = append(out, newSpan(proto, l4.DestinationPort.Range.Start, l4.DestinationPort.Range.End))
				default:
					out = append(out, newSpan(proto, l4.DestinationPort.Number, l4.DestinationPort.Number))
				}
			}
		}
	}
	return out
}

// calicoSpans reads numbers, and ranges like "80:90".
func calicoSpans(rules []policy.CalicoRule) (out []span) {
	for _, r := range rules {
		if r.Action != "Allow" || r.Destination == nil {
			continue
		}
		proto := ""
		if r.Protocol != nil {
			proto = r.Protocol.String()
		}
		for _, p := range r.Destination.Ports {
			low, high, isRange := strings.Cut(p.String(), ":")
			if !isRange {
				high = low
			}
			first, err := strconv.ParseUint(low, 10, 16)
			last, err2 := strconv.ParseUint(high, 10, 16)
			if err == nil && err2 == nil {
				out = append(out, span{proto, uint16(first), uint16(last)})
			}
		}
	}
	return out
}
