package hubble

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/contiv-agent/contiv-agent/proto/hubble/flow"
)

// match reports whether a flow matches.
type match func(*flow.Flow) bool

// compileLists compiles the filters of a request: a flow matches one of the whitelist, if it has any, and none of the blacklist.
func compileLists(whitelist, blacklist []*flow.FlowFilter) (match, error) {
	white, errWhite := compileList("whitelist", whitelist)
	for i, f := range whitelist { // an answer without flows would look as if there were no connections
		if len(f.GetSourceFqdn()) > 0 {
			errWhite = errors.Join(errWhite, fmt.Errorf("whitelist[%d].source_fqdn: %w", i, errUnseen))
		}
		if len(f.GetDestinationFqdn()) > 0 {
			errWhite = errors.Join(errWhite, fmt.Errorf("whitelist[%d].destination_fqdn: %w", i, errUnseen))
		}
	}
	black, errBlack := compileList("blacklist", blacklist)
	matchesOne := func(list []match, f *flow.Flow) bool {
		return slices.ContainsFunc(list, func(m match) bool { return m(f) })
	}
	return func(f *flow.Flow) bool {
		return (len(white) == 0 || matchesOne(white, f)) && !matchesOne(black, f)
	}, errors.Join(errWhite, errBlack)
}

func compileList(name string, filters []*flow.FlowFilter) ([]match, error) {
	var errs []error
	out := make([]match, len(filters))
	for i, f := range filters {
		m, err := compileFilter(f)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s[%d].%w", name, i, err))
		}
		out[i] = m
	}
	return out, errors.Join(errs...)
}

// compileFilter compiles a filter: a flow matches all its fields. The error names the first field that it cannot evaluate.
func compileFilter(f *flow.FlowFilter) (match, error) {
	m := f.ProtoReflect()
	if unknown := m.GetUnknown(); len(unknown) > 0 {
		return nil, errors.New("field that is newer than Cilium 1.20: this agent does not know it")
	}
	var all []match
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		if !m.Has(fields.Get(i)) {
			continue
		}
		one, err := compileField(f, fields.Get(i).Name())
		if err != nil {
			return nil, fmt.Errorf("%s: %w", fields.Get(i).Name(), err)
		}
		all = append(all, one)
	}
	return func(f *flow.Flow) bool {
		for _, m := range all {
			if !m(f) {
				return false
			}
		}
		return true
	}, nil
}

// errUnseen is about a property that flows of an agent do not have.
var errUnseen = errors.New("flows of this agent do not have it, so it cannot select by it")

// compileField compiles a field of a filter.
func compileField(f *flow.FlowFilter, name protoreflect.Name) (match, error) {
	switch name {
	case "uuid":
		return oneOf(f.GetUuid(), (*flow.Flow).GetUuid), nil
	case "verdict":
		return oneOf(f.GetVerdict(), (*flow.Flow).GetVerdict), nil
	case "traffic_direction":
		return oneOf(f.GetTrafficDirection(), (*flow.Flow).GetTrafficDirection), nil
	case "ip_version":
		return oneOf(f.GetIpVersion(), func(f *flow.Flow) flow.IPVersion { return f.GetIP().GetIpVersion() }), nil
	case "drop_reason_desc":
		reason := oneOf(f.GetDropReasonDesc(), (*flow.Flow).GetDropReasonDesc)
		return func(f *flow.Flow) bool { return f.GetVerdict() == flow.Verdict_DROPPED && reason(f) }, nil
	case "event_type":
		return matchEvent(f.GetEventType()), nil
	case "reply":
		return matchReply(f.GetReply()), nil
	case "protocol":
		return compileProtocols(f.GetProtocol())
	case "node_name":
		return compileNodes(f.GetNodeName())
	case "source_fqdn", "destination_fqdn": // flows have no names of DNS: Hubble UI's page excludes some in each request
		return func(*flow.Flow) bool { return false }, nil
	case "source_ip_xlated":
		return compileAddresses(f.GetSourceIpXlated(), func(f *flow.Flow) string { return f.GetIP().GetSourceXlated() })
	}
	if m, err := compileEnd(f, name, "source", sourceEnd); m != nil || err != nil {
		return m, err
	}
	if m, err := compileEnd(f, name, "destination", destinationEnd); m != nil || err != nil {
		return m, err
	}
	return nil, errUnseen
}

// end is one side of flows, and what filters say about it.
type end struct {
	ip, pods, services, labels, ports, clusters []string
	identities                                  []uint32
	workloads                                   []*flow.Workload
	endpoint                                    func(*flow.Flow) *flow.Endpoint
	service                                     func(*flow.Flow) *flow.Service
	address                                     func(*flow.Flow) string
	port                                        func(*flow.Flow) uint32
}

func sourceEnd(f *flow.FlowFilter) end {
	return end{
		ip: f.GetSourceIp(), pods: f.GetSourcePod(), services: f.GetSourceService(), labels: f.GetSourceLabel(), ports: f.GetSourcePort(),
		clusters: f.GetSourceClusterName(), identities: f.GetSourceIdentity(), workloads: f.GetSourceWorkload(),
		endpoint: (*flow.Flow).GetSource, service: (*flow.Flow).GetSourceService, address: func(f *flow.Flow) string { return f.GetIP().GetSource() },
		port: func(f *flow.Flow) uint32 { from, _ := portsOf(f); return from },
	}
}

func destinationEnd(f *flow.FlowFilter) end {
	return end{
		ip: f.GetDestinationIp(), pods: f.GetDestinationPod(), services: f.GetDestinationService(), labels: f.GetDestinationLabel(), ports: f.GetDestinationPort(),
		clusters: f.GetDestinationClusterName(), identities: f.GetDestinationIdentity(), workloads: f.GetDestinationWorkload(),
		endpoint: (*flow.Flow).GetDestination, service: (*flow.Flow).GetDestinationService, address: func(f *flow.Flow) string { return f.GetIP().GetDestination() },
		port: func(f *flow.Flow) uint32 { _, to := portsOf(f); return to },
	}
}

// compileEnd compiles a field about one end. nil: the field is not about that end, or cannot be evaluated.
func compileEnd(f *flow.FlowFilter, name protoreflect.Name, side string, of func(*flow.FlowFilter) end) (match, error) {
	field, found := strings.CutPrefix(string(name), side+"_")
	if !found {
		return nil, nil
	}
	e := of(f)
	switch field {
	case "ip":
		return compileAddresses(e.ip, e.address)
	case "pod":
		return compileNames(e.pods, func(f *flow.Flow) (string, string) { return e.endpoint(f).GetNamespace(), e.endpoint(f).GetPodName() })
	case "service":
		return compileNames(e.services, func(f *flow.Flow) (string, string) { return e.service(f).GetNamespace(), e.service(f).GetName() })
	case "label":
		return compileSelectors(e.labels, func(f *flow.Flow) []string { return e.endpoint(f).GetLabels() })
	case "port":
		return compilePorts(e.ports, e.port)
	case "identity":
		return oneOf(e.identities, func(f *flow.Flow) uint32 { return e.endpoint(f).GetIdentity() }), nil
	case "cluster_name":
		if slices.Contains(e.clusters, "") {
			return nil, errors.New("a name must not be empty")
		}
		return oneOf(e.clusters, func(f *flow.Flow) string { return e.endpoint(f).GetClusterName() }), nil
	case "workload":
		return compileWorkloads(e.workloads, e.endpoint)
	}
	return nil, nil
}

func oneOf[T comparable](wanted []T, of func(*flow.Flow) T) match {
	return func(f *flow.Flow) bool { return slices.Contains(wanted, of(f)) }
}

func matchEvent(wanted []*flow.EventTypeFilter) match {
	return func(f *flow.Flow) bool {
		is := f.GetEventType()
		return is != nil && slices.ContainsFunc(wanted, func(w *flow.EventTypeFilter) bool {
			return (w.GetType() == 0 || w.GetType() == is.GetType()) && (!w.GetMatchSubType() || w.GetSubType() == is.GetSubType())
		})
	}
}

// matchReply takes a dropped packet of unknown direction for no reply, as Cilium does.
func matchReply(wanted []bool) match {
	return func(f *flow.Flow) bool {
		return (f.GetIsReply() != nil || f.GetVerdict() == flow.Verdict_DROPPED) && slices.Contains(wanted, f.GetIsReply().GetValue())
	}
}

func compileProtocols(names []string) (match, error) {
	var kinds []string
	for _, name := range names {
		switch name = strings.ToLower(name); name {
		case "tcp", "udp", "sctp", "icmpv4", "icmpv6":
			kinds = append(kinds, name)
		case "icmp":
			kinds = append(kinds, "icmpv4", "icmpv6")
		default:
			return nil, fmt.Errorf("protocol %q: must be tcp, udp, sctp, icmp, icmpv4 or icmpv6; flows of this agent have no others", name)
		}
	}
	return func(f *flow.Flow) bool {
		m := f.GetL4().ProtoReflect()
		is := m.WhichOneof(m.Descriptor().Oneofs().ByName("protocol"))
		return is != nil && slices.Contains(kinds, strings.ToLower(string(is.Name())))
	}, nil
}

// compileNodes compiles patterns NODE and CLUSTER/NODE, in which * stands for any letters; an empty part matches all.
func compileNodes(patterns []string) (match, error) {
	var list []*regexp.Regexp
	for _, p := range patterns {
		inCluster, node, both := strings.Cut(p, "/")
		if !both {
			inCluster, node = "", p
		}
		whole, err := regexp.Compile("^" + partOf(inCluster) + "/" + partOf(node) + "$")
		if err != nil || p == "" || strings.Contains(node, "/") || strings.ContainsAny(p, " ?[]{}()+^$|\\,;:") {
			return nil, fmt.Errorf("pattern %q: must be NODE or CLUSTER/NODE with letters, digits, -, _, . and *", p)
		}
		list = append(list, whole)
	}
	return func(f *flow.Flow) bool {
		name := cluster + "/" + f.GetNodeName()
		return slices.ContainsFunc(list, func(r *regexp.Regexp) bool { return r.MatchString(name) })
	}, nil
}

func partOf(pattern string) string {
	if pattern == "" {
		return `[^/]+`
	}
	pattern = strings.ToLower(strings.TrimSuffix(pattern, "."))
	return strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, `[-.0-9a-z]*`)
}

func compileAddresses(texts []string, of func(*flow.Flow) string) (match, error) {
	var list []netip.Prefix
	for _, t := range texts {
		p, err := netip.ParsePrefix(t)
		if !strings.Contains(t, "/") {
			var a netip.Addr
			if a, err = netip.ParseAddr(t); err == nil {
				p = netip.PrefixFrom(a, a.BitLen())
			}
		}
		if err != nil {
			return nil, fmt.Errorf("%q: must be an address or a prefix: %w", t, err)
		}
		list = append(list, p)
	}
	return func(f *flow.Flow) bool {
		a, err := netip.ParseAddr(of(f))
		return err == nil && slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(a) })
	}, nil
}

// compileNames compiles NAMESPACE/PREFIX, NAMESPACE/, /PREFIX, and PREFIX in the namespace default.
func compileNames(texts []string, of func(*flow.Flow) (namespace, name string)) (match, error) {
	type wanted struct{ namespace, prefix string }
	var list []wanted
	for _, t := range texts {
		if t == "" {
			return nil, errors.New("a name must not be empty")
		}
		namespace, prefix, both := strings.Cut(t, "/")
		if !both {
			namespace, prefix = "default", t
		}
		prefix, _, _ = strings.Cut(prefix, "/")
		list = append(list, wanted{namespace, prefix})
	}
	return func(f *flow.Flow) bool {
		namespace, name := of(f)
		return (namespace != "" || name != "") && slices.ContainsFunc(list, func(w wanted) bool {
			return (w.namespace == "" || w.namespace == namespace) && strings.HasPrefix(name, w.prefix)
		})
	}, nil
}

// noPort is the port of flows without ports.
const noPort = 1 << 16

func portsOf(f *flow.Flow) (from, to uint32) {
	l4 := f.GetL4()
	switch {
	case l4.GetTCP() != nil:
		return l4.GetTCP().GetSourcePort(), l4.GetTCP().GetDestinationPort()
	case l4.GetUDP() != nil:
		return l4.GetUDP().GetSourcePort(), l4.GetUDP().GetDestinationPort()
	case l4.GetSCTP() != nil:
		return l4.GetSCTP().GetSourcePort(), l4.GetSCTP().GetDestinationPort()
	}
	return noPort, noPort
}

func compilePorts(texts []string, of func(*flow.Flow) uint32) (match, error) {
	var list []uint32
	for _, t := range texts {
		n, err := strconv.ParseUint(t, 10, 16)
		if err != nil {
			return nil, fmt.Errorf("port %q: must be a number up to 65535", t)
		}
		list = append(list, uint32(n))
	}
	return oneOf(list, of), nil
}

func compileWorkloads(wanted []*flow.Workload, of func(*flow.Flow) *flow.Endpoint) (match, error) {
	for _, w := range wanted {
		if w.GetKind() != "" {
			return nil, fmt.Errorf("kind %q: this agent knows workloads by their names alone", w.GetKind())
		}
	}
	return func(f *flow.Flow) bool {
		return slices.ContainsFunc(of(f).GetWorkloads(), func(is *flow.Workload) bool {
			return slices.ContainsFunc(wanted, func(w *flow.Workload) bool { return w.GetName() == "" || w.GetName() == is.GetName() })
		})
	}, nil
}
