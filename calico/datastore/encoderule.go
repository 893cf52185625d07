package datastore

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/selector"
)

// v3Rule is a rule of projectcalico.org/v3.
type v3Rule struct {
	Action      string        `json:"action"`
	IPVersion   *int          `json:"ipVersion,omitempty"`
	Protocol    *Protocol     `json:"protocol,omitempty"`
	ICMP        *v3ICMP       `json:"icmp,omitempty"`
	NotProtocol *Protocol     `json:"notProtocol,omitempty"`
	NotICMP     *v3ICMP       `json:"notICMP,omitempty"`
	Source      v3Entity      `json:"source"`
	Destination v3Entity      `json:"destination"`
	HTTP        *HTTPMatch    `json:"http,omitempty"`
	Metadata    *RuleMetadata `json:"metadata,omitempty"`
}

type v3ICMP struct {
	Type *int `json:"type,omitempty"`
	Code *int `json:"code,omitempty"`
}

type v3Entity struct {
	Nets              []string    `json:"nets,omitempty"`
	Selector          string      `json:"selector,omitempty"`
	NamespaceSelector string      `json:"namespaceSelector,omitempty"`
	Services          *v3Service  `json:"services,omitempty"`
	Ports             []Port      `json:"ports,omitempty"`
	NotNets           []string    `json:"notNets,omitempty"`
	NotSelector       string      `json:"notSelector,omitempty"`
	NotPorts          []Port      `json:"notPorts,omitempty"`
	ServiceAccounts   *v3Accounts `json:"serviceAccounts,omitempty"`
}

type v3Service struct {
	Name      string `json:"name,omitempty"`
	Namespace string `json:"namespace,omitempty"`
}

type v3Accounts struct {
	Names    []string `json:"names,omitempty"`
	Selector string   `json:"selector,omitempty"`
}

// encodeRules writes the rules of a policy; namespace is "" for a cluster-wide policy or a profile.
func encodeRules(list []v3Rule, namespace string) ([]Rule, error) {
	var out []Rule
	for i := range list {
		r, err := encodeRule(&list[i], namespace)
		if err != nil {
			return nil, fmt.Errorf("rule %d: %w", i+1, err)
		}
		out = append(out, r)
	}
	return out, nil
}

func encodeRule(in *v3Rule, namespace string) (Rule, error) {
	r := Rule{
		Action: encodeAction(in.Action), IPVersion: in.IPVersion, Protocol: lower(in.Protocol), NotProtocol: lower(in.NotProtocol),
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
	var errs [10]error
	r.SrcNets, errs[0] = encodeNets(in.Source.Nets)
	r.NotSrcNets, errs[1] = encodeNets(in.Source.NotNets)
	r.DstNets, errs[2] = encodeNets(in.Destination.Nets)
	r.NotDstNets, errs[3] = encodeNets(in.Destination.NotNets)
	r.SrcPorts, errs[4] = encodePorts(in.Source.Ports)
	r.NotSrcPorts, errs[5] = encodePorts(in.Source.NotPorts)
	r.DstPorts, errs[6] = encodePorts(in.Destination.Ports)
	r.NotDstPorts, errs[7] = encodePorts(in.Destination.NotPorts)
	r.SrcSelector, errs[8] = in.Source.selector(namespace)
	r.DstSelector, errs[9] = in.Destination.selector(namespace)
	return r, errors.Join(errs[:]...)
}

func encodeAction(action string) string {
	if action == "Pass" {
		return string(model.ActionPass)
	}
	return strings.ToLower(action)
}

func lower(p *Protocol) *Protocol {
	if p == nil {
		return nil
	}
	l := Protocol(strings.ToLower(string(*p)))
	return &l
}

// encodeNet returns a network without host bits; an address becomes the network of itself.
func encodeNet(s string) (netip.Prefix, error) {
	if _, n, err := net.ParseCIDR(s); err == nil {
		p, _ := netip.ParsePrefix(n.String())
		return p, nil
	}
	if ip := net.ParseIP(s); ip != nil {
		a, _ := netip.AddrFromSlice(ip)
		a = a.Unmap()
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	return netip.Prefix{}, fmt.Errorf("must be an address or a range (%q)", s)
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

// portMatch is a parsed port: a range or a name.
type portMatch struct {
	first, last uint16
	name        string
}

func (p portMatch) port() Port {
	switch {
	case p.name != "":
		return Port(p.name)
	case p.first == p.last:
		return Port(strconv.Itoa(int(p.first)))
	}
	return Port(fmt.Sprintf("%d:%d", p.first, p.last))
}

func parsePort(s string) (portMatch, error) {
	first, last, isRange := strings.Cut(s, ":")
	if !isRange {
		last = first
	}
	a, errA := strconv.ParseUint(first, 10, 16)
	b, errB := strconv.ParseUint(last, 10, 16)
	switch {
	case errA == nil && errB == nil && a <= b:
		return portMatch{first: uint16(a), last: uint16(b)}, nil
	case isRange || digits(s) || !regexp.MustCompile(`^[a-zA-Z0-9_.-]{1,128}$`).MatchString(s):
		return portMatch{}, fmt.Errorf("must be a port, a range of ports, or the name of a port (%q)", s)
	}
	return portMatch{name: s}, nil
}

func digits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

func encodePorts(list []Port) ([]Port, error) {
	var out []Port
	for _, s := range list {
		p, err := parsePort(string(s))
		if err != nil {
			return nil, err
		}
		out = append(out, p.port())
	}
	return out, nil
}

// simplify puts names first and joins numbers that touch or overlap. A list with at most one port number stays as it is.
func simplify(list []portMatch) []portMatch {
	var names, numbers []portMatch
	count := 0
	for _, p := range list {
		if p.name != "" {
			names = append(names, p)
		} else {
			numbers = append(numbers, p)
			count += int(p.last-p.first) + 1
		}
	}
	if len(list) <= 1 || count <= 1 {
		return list
	}
	slices.SortStableFunc(numbers, func(a, b portMatch) int { return int(a.first) - int(b.first) })
	out := names
	for i, p := range numbers {
		if i > 0 {
			if last := &out[len(out)-1]; int(p.first) <= int(last.last)+1 {
				last.last = max(last.last, p.last)
				continue
			}
		}
		out = append(out, p)
	}
	return out
}

// selector joins all conditions that one side of a rule puts on endpoints. If a policy in a namespace has any selector but
// no namespace selector, it means its own namespace.
func (e *v3Entity) selector(namespace string) (string, error) {
	namespaces := ""
	switch {
	case e.NamespaceSelector != "":
		s, err := prefixed(e.NamespaceSelector, model.PrefixNamespace)
		if err != nil {
			return "", err
		}
		namespaces = strings.ReplaceAll(s, "all()", "has("+model.LabelNamespace+")")
		namespaces = strings.ReplaceAll(namespaces, "global()", "!has("+model.LabelNamespace+")")
	case namespace != "":
		namespaces = model.LabelNamespace + " == '" + namespace + "'"
	}
	text, err := e.ServiceAccounts.selector()
	if err != nil {
		return "", err
	}
	switch {
	case text != "" && e.Selector != "":
		text = "(" + text + ") && (" + e.Selector + ")"
	case text == "":
		text = e.Selector
	}
	if namespaces == "" || text == "" && e.NotSelector == "" && e.NamespaceSelector == "" {
		return text, nil
	}
	if text == "" {
		return namespaces, nil
	}
	return "(" + namespaces + ") && (" + text + ")", nil
}

// selector joins the names and labels of service accounts; nil adds no condition.
func (a *v3Accounts) selector() (string, error) {
	if a == nil {
		return "", nil
	}
	byLabel, err := prefixed(a.Selector, model.PrefixServiceAccount)
	if err != nil || len(a.Names) == 0 {
		return byLabel, err
	}
	byName, err := prefixed(model.LabelServiceAccount+" in { '"+strings.Join(a.Names, "', '")+"' }", "")
	if byLabel != "" {
		byName = "(" + byLabel + ") && (" + byName + ")"
	}
	return byName, err
}

// prefixed returns the canonical text of a selector with prefix before each label; an empty selector stays empty.
func prefixed(text, prefix string) (string, error) {
	if text == "" {
		return "", nil
	}
	s, err := selector.ParsePrefixed(text, prefix)
	if err != nil {
		return "", err
	}
	return s.String(), nil
}

// also joins a selector with one of inherited labels.
func also(text, inherited, prefix string) (string, error) {
	more, err := prefixed(inherited, prefix)
	if err != nil || more == "" || text == "" {
		return text + more, err
	}
	return "(" + text + ") && " + more, nil
}
