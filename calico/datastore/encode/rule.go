package encode

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/contiv-agent/contiv-agent/calico/datastore"
	v3 "github.com/contiv-agent/contiv-agent/calico/v3"
	"github.com/contiv-agent/contiv-agent/model"
)

// encodeRules writes the rules of a policy; namespace is "" for a cluster-wide policy or a profile.
func encodeRules(list []v3.Rule, namespace string) ([]datastore.Rule, error) {
	var out []datastore.Rule
	for i := range list {
		r, err := encodeRule(&list[i], namespace)
		if err != nil {
			return nil, fmt.Errorf("rule %d: %w", i+1, err)
		}
		out = append(out, r)
	}
	return out, nil
}

func encodeRule(in *v3.Rule, namespace string) (datastore.Rule, error) {
	r := datastore.Rule{
		Action: encodeAction(in.Action), IPVersion: in.IPVersion,
		NotSrcSelector: in.Source.NotSelector, NotDstSelector: in.Destination.NotSelector,

		OriginalSrcSelector:          in.Source.Selector,
		OriginalSrcNamespaceSelector: in.Source.NamespaceSelector,
		OriginalDstSelector:          in.Destination.Selector,
		OriginalDstNamespaceSelector: in.Destination.NamespaceSelector,
		OriginalNotSrcSelector:       in.Source.NotSelector,
		OriginalNotDstSelector:       in.Destination.NotSelector,

		HTTPMatch: in.HTTP,
	}
	if in.ICMP != nil {
		r.ICMPType, r.ICMPCode = in.ICMP.Type, in.ICMP.Code
	}
	if in.NotICMP != nil {
		r.NotICMPType, r.NotICMPCode = in.NotICMP.Type, in.NotICMP.Code
	}
	if in.Metadata != nil && in.Metadata.Annotations != nil {
		r.Metadata = in.Metadata
	}
	if a := in.Source.ServiceAccounts; a != nil {
		r.OriginalSrcServiceAccountNames, r.OriginalSrcServiceAccountSelector = a.Names, a.Selector
	}
	if a := in.Destination.ServiceAccounts; a != nil {
		r.OriginalDstServiceAccountNames, r.OriginalDstServiceAccountSelector = a.Names, a.Selector
	}
	if s := in.Source.Services; s != nil {
		r.SrcService, r.SrcServiceNamespace = s.Name, s.Namespace
	}
	if s := in.Destination.Services; s != nil {
		r.DstService, r.DstServiceNamespace = s.Name, s.Namespace
	}
	var errs [12]error
	r.SrcNets, errs[0] = encodeNets(in.Source.Nets)
	r.NotSrcNets, errs[1] = encodeNets(in.Source.NotNets)
	r.DstNets, errs[2] = encodeNets(in.Destination.Nets)
	r.NotDstNets, errs[3] = encodeNets(in.Destination.NotNets)
	r.SrcPorts, errs[4] = encodePorts(in.Source.Ports)
	r.NotSrcPorts, errs[5] = encodePorts(in.Source.NotPorts)
	r.DstPorts, errs[6] = encodePorts(in.Destination.Ports)
	r.NotDstPorts, errs[7] = encodePorts(in.Destination.NotPorts)
	r.SrcSelector, errs[8] = in.Source.PeerSelector(namespace)
	r.DstSelector, errs[9] = in.Destination.PeerSelector(namespace)
	r.Protocol, errs[10] = storedProtocol(in.Protocol)
	r.NotProtocol, errs[11] = storedProtocol(in.NotProtocol)
	return r, errors.Join(errs[:]...)
}

func encodeAction(action string) string {
	if action == "Pass" {
		return string(model.ActionPass)
	}
	return strings.ToLower(action)
}

// storedProtocol writes a protocol in lower case. It checks numbers only: Calico writes every name.
func storedProtocol(p *v3.Protocol) (*datastore.Protocol, error) {
	if p == nil {
		return nil, nil
	}
	if n := p.IntVal; p.Type == intstr.Int && (n < 0 || n > 255) {
		return nil, fmt.Errorf("must be the name of a protocol or 0 to 255 (%d)", n)
	}
	l := datastore.Protocol(strings.ToLower(p.String()))
	return &l, nil
}

func encodeNet(s string) (netip.Prefix, error) {
	p, ok := v3.ParseNet(s)
	if !ok {
		return netip.Prefix{}, fmt.Errorf("must be an address or a range (%q)", s)
	}
	return p, nil
}

func encodeNets(list []string) ([]string, error) {
	var out []string
	for _, s := range list {
		p, err := encodeNet(s)
		if err != nil {
			return nil, err
		}
		out = append(out, p.String())
	}
	return out, nil
}

func encodePorts(list []v3.Port) ([]datastore.Port, error) {
	var out []datastore.Port
	for _, s := range list {
		p, ok := s.Model()
		if !ok {
			return nil, errPort(s.String())
		}
		out = append(out, datastore.Port(v3.PortText(p)))
	}
	return out, nil
}

func errPort(text string) error {
	return fmt.Errorf("must be a port, a range of ports, or the name of a port (%q)", text)
}

// simplify puts names first and joins numbers that touch or overlap. A list with at most one port number stays as it is.
func simplify(list []model.PortMatch) []model.PortMatch {
	var names, numbers []model.PortMatch
	count := 0
	for _, p := range list {
		if p.Name != "" {
			names = append(names, p)
		} else {
			numbers = append(numbers, p)
			count += int(p.Last-p.First) + 1
		}
	}
	if len(list) <= 1 || count <= 1 {
		return list
	}
	slices.SortStableFunc(numbers, func(a, b model.PortMatch) int { return int(a.First) - int(b.First) })
	out := names
	for i, p := range numbers {
		if i > 0 {
			if last := &out[len(out)-1]; int(p.First) <= int(last.Last)+1 {
				last.Last = max(last.Last, p.Last)
				continue
			}
		}
		out = append(out, p)
	}
	return out
}
