package datastore

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/contiv-agent/contiv-agent/calico"
	v3 "github.com/contiv-agent/contiv-agent/calico/v3"
)

// The values of the datastore, with the names and order of fields that Calico v3.31 writes
// (libcalico-go/lib/backend/model). Addresses and networks are text here, so that the reader can report which field does
// not parse.

// WorkloadEndpoint is /calico/v1/host/<node>/workload/<orchestrator>/<workload>/endpoint/<endpoint>.
type WorkloadEndpoint struct {
	State               string            `json:"state"`
	Name                string            `json:"name"`
	ActiveInstanceID    string            `json:"active_instance_id"`
	MAC                 *string           `json:"mac"`
	ProfileIDs          []string          `json:"profile_ids"`
	IPv4Nets            []string          `json:"ipv4_nets"`
	IPv6Nets            []string          `json:"ipv6_nets"`
	IPv4NAT             []IPNAT           `json:"ipv4_nat,omitempty"`
	IPv6NAT             []IPNAT           `json:"ipv6_nat,omitempty"`
	Labels              map[string]string `json:"labels"`
	IPv4Gateway         string            `json:"ipv4_gateway,omitempty"`
	IPv6Gateway         string            `json:"ipv6_gateway,omitempty"`
	Ports               []EndpointPort    `json:"ports,omitempty"`
	GenerateName        string            `json:"generate_name,omitempty"`
	AllowSpoofedSources []string          `json:"allow_spoofed_source_ips,omitempty"`
	Annotations         map[string]string `json:"annotations,omitempty"`
	QoS                 *QoSControls      `json:"qosControls,omitempty"`
}

// IPNAT maps a floating address to an address of the endpoint.
type IPNAT struct {
	Internal string `json:"int_ip"`
	External string `json:"ext_ip"`
}

// EndpointPort is a named port.
type EndpointPort struct {
	Name     string   `json:"name"`
	Protocol Protocol `json:"protocol"`
	Port     uint16   `json:"port"`
}

// QoSControls limits and marks an endpoint's traffic: 0 means no limit.
type QoSControls struct {
	IngressBandwidth      int64 `json:"ingressBandwidth,omitempty"`
	IngressBurst          int64 `json:"ingressBurst,omitempty"`
	IngressPeakrate       int64 `json:"ingressPeakrate,omitempty"`
	IngressMinburst       int64 `json:"ingressMinburst,omitempty"`
	EgressBandwidth       int64 `json:"egressBandwidth,omitempty"`
	EgressBurst           int64 `json:"egressBurst,omitempty"`
	EgressPeakrate        int64 `json:"egressPeakrate,omitempty"`
	EgressMinburst        int64 `json:"egressMinburst,omitempty"`
	IngressPacketRate     int64 `json:"ingressPacketRate,omitempty"`
	IngressPacketBurst    int64 `json:"ingressPacketBurst,omitempty"`
	EgressPacketRate      int64 `json:"egressPacketRate,omitempty"`
	EgressPacketBurst     int64 `json:"egressPacketBurst,omitempty"`
	IngressMaxConnections int64 `json:"ingressMaxConnections,omitempty"`
	EgressMaxConnections  int64 `json:"egressMaxConnections,omitempty"`
	DSCP                  *Word `json:"dscp,omitempty"`
}

// HostEndpoint is /calico/v1/host/<node>/endpoint/<name>.
type HostEndpoint struct {
	Name              string            `json:"name,omitempty"`
	ExpectedIPv4Addrs []string          `json:"expected_ipv4_addrs,omitempty"`
	ExpectedIPv6Addrs []string          `json:"expected_ipv6_addrs,omitempty"`
	Labels            map[string]string `json:"labels"`
	ProfileIDs        []string          `json:"profile_ids,omitempty"`
	Ports             []EndpointPort    `json:"ports,omitempty"`
	QoS               *QoSControls      `json:"qosControls,omitempty"`
}

// NetworkSet is /calico/v1/netset/<name>, the name of a namespaced one being <namespace>%2f<name>.
type NetworkSet struct {
	Nets       []string          `json:"nets,omitempty"`
	Labels     map[string]string `json:"labels"`
	ProfileIDs []string          `json:"profile_ids,omitempty"`
}

// Tier is /calico/v1/policy/tier/<name>/metadata.
type Tier struct {
	Order         *float64 `json:"order,omitempty"`
	DefaultAction string   `json:"defaultAction,omitempty"` // Deny or Pass
}

// ProfileRules is /calico/v1/policy/profile/<name>/rules.
type ProfileRules struct {
	InboundRules  []Rule `json:"inbound_rules,omitempty"`
	OutboundRules []Rule `json:"outbound_rules,omitempty"`
}

// Policy is /calico/v1/policy/tier/<tier>/policy/<name>. Later servers (v3.32 and up) name it by kind, namespace and name,
// and put the tier into the value.
type Policy struct {
	Namespace        string            `json:"namespace,omitempty"`
	Tier             string            `json:"tier,omitempty"` // from v3.32 on
	Order            *float64          `json:"order,omitempty"`
	InboundRules     []Rule            `json:"inbound_rules,omitempty"`
	OutboundRules    []Rule            `json:"outbound_rules,omitempty"`
	Selector         string            `json:"selector"`
	DoNotTrack       bool              `json:"untracked,omitempty"`
	Annotations      map[string]string `json:"annotations,omitempty"`
	PreDNAT          bool              `json:"pre_dnat,omitempty"`
	ApplyOnForward   bool              `json:"apply_on_forward,omitempty"`
	Types            []string          `json:"types,omitempty"` // ingress, egress
	PerformanceHints []string          `json:"performance_hints,omitempty"`
	StagedAction     string            `json:"staged_action,omitempty"`
}

// Rule is a rule of a policy or a profile.
type Rule struct {
	Action      string    `json:"action,omitempty"` // allow, deny, log, next-tier
	IPVersion   *int32    `json:"ip_version,omitempty"`
	Protocol    *Protocol `json:"protocol,omitempty"`
	NotProtocol *Protocol `json:"!protocol,omitempty"`
	ICMPType    *int32    `json:"icmp_type,omitempty"`
	ICMPCode    *int32    `json:"icmp_code,omitempty"`
	NotICMPType *int32    `json:"!icmp_type,omitempty"`
	NotICMPCode *int32    `json:"!icmp_code,omitempty"`

	SrcTag              string   `json:"src_tag,omitempty"`
	SrcNet              string   `json:"src_net,omitempty"`
	SrcNets             []string `json:"src_nets,omitempty"`
	SrcSelector         string   `json:"src_selector,omitempty"`
	SrcPorts            []Port   `json:"src_ports,omitempty"`
	SrcService          string   `json:"src_service,omitempty"`
	SrcServiceNamespace string   `json:"src_service_ns,omitempty"`
	DstTag              string   `json:"dst_tag,omitempty"`
	DstSelector         string   `json:"dst_selector,omitempty"`
	DstNet              string   `json:"dst_net,omitempty"`
	DstNets             []string `json:"dst_nets,omitempty"`
	DstPorts            []Port   `json:"dst_ports,omitempty"`
	DstService          string   `json:"dst_service,omitempty"`
	DstServiceNamespace string   `json:"dst_service_ns,omitempty"`

	NotSrcTag      string   `json:"!src_tag,omitempty"`
	NotSrcNet      string   `json:"!src_net,omitempty"`
	NotSrcNets     []string `json:"!src_nets,omitempty"`
	NotSrcSelector string   `json:"!src_selector,omitempty"`
	NotSrcPorts    []Port   `json:"!src_ports,omitempty"`
	NotDstTag      string   `json:"!dst_tag,omitempty"`
	NotDstSelector string   `json:"!dst_selector,omitempty"`
	NotDstNet      string   `json:"!dst_net,omitempty"`
	NotDstNets     []string `json:"!dst_nets,omitempty"`
	NotDstPorts    []Port   `json:"!dst_ports,omitempty"`

	// Selectors as the user wrote them, before they were combined into the selectors above.
	OriginalSrcSelector               string   `json:"orig_src_selector,omitempty"`
	OriginalSrcNamespaceSelector      string   `json:"orig_src_namespace_selector,omitempty"`
	OriginalDstSelector               string   `json:"orig_dst_selector,omitempty"`
	OriginalDstNamespaceSelector      string   `json:"orig_dst_namespace_selector,omitempty"`
	OriginalNotSrcSelector            string   `json:"!orig_src_selector,omitempty"`
	OriginalNotDstSelector            string   `json:"!orig_dst_selector,omitempty"`
	OriginalSrcServiceAccountNames    []string `json:"orig_src_service_acct_names,omitempty"`
	OriginalSrcServiceAccountSelector string   `json:"orig_src_service_acct_selector,omitempty"`
	OriginalDstServiceAccountNames    []string `json:"orig_dst_service_acct_names,omitempty"`
	OriginalDstServiceAccountSelector string   `json:"orig_dst_service_acct_selector,omitempty"`

	HTTPMatch *v3.HTTP     `json:"http,omitempty"`
	LogPrefix string       `json:"log_prefix,omitempty"`
	Metadata  *v3.Metadata `json:"metadata,omitempty"`
}

// Wireguard is /calico/v1/host/<node>/wireguard.
type Wireguard struct {
	InterfaceIPv4Addr string `json:"interfaceIPv4Addr,omitempty"`
	PublicKey         string `json:"publicKey,omitempty"`
	InterfaceIPv6Addr string `json:"interfaceIPv6Addr,omitempty"`
	PublicKeyV6       string `json:"publicKeyV6,omitempty"`
}

// IPPool is /calico/v1/ipam/v4/pool/<range, with "-" for "/">.
type IPPool struct {
	CIDR             string `json:"cidr"`
	IPIPInterface    string `json:"ipip"`
	IPIPMode         string `json:"ipip_mode"`
	VXLANMode        string `json:"vxlan_mode"`
	Masquerade       bool   `json:"masquerade"`
	IPAM             bool   `json:"ipam"`
	Disabled         bool   `json:"disabled"`
	DisableBGPExport bool   `json:"disableBGPExport"`
	AssignmentMode   string `json:"assignment_mode"`
}

// AllocationBlock is /calico/ipam/v2/assignment/ipv4/block/<range, with "-" for "/">.
type AllocationBlock struct {
	CIDR                        string                `json:"cidr"`
	Affinity                    *string               `json:"affinity"` // "host:<node>"
	Allocations                 []*int                `json:"allocations"`
	Unallocated                 []int                 `json:"unallocated"`
	Attributes                  []AllocationAttribute `json:"attributes"`
	SequenceNumber              uint64                `json:"sequenceNumber"`
	SequenceNumberForAllocation map[string]uint64     `json:"sequenceNumberForAllocation"`
	Deleted                     bool                  `json:"deleted"`
	HostAffinity                *string               `json:"hostAffinity,omitempty"`
}

// AllocationAttribute records the owner of an address in a block.
type AllocationAttribute struct {
	Primary   *string           `json:"handle_id"`
	Secondary map[string]string `json:"secondary"`
}

// Word is a number up to 255 or a name. In JSON it is a number if possible.
type Word string

// Protocol is a protocol: a number, or a name (in lower case in values, capitals in v3 resources).
type Protocol = Word

// MarshalJSON writes a number where possible.
func (w Word) MarshalJSON() ([]byte, error) {
	if n, err := strconv.ParseUint(string(w), 10, 8); err == nil {
		return strconv.AppendUint(nil, n, 10), nil
	}
	return json.Marshal(string(w))
}

// UnmarshalJSON reads a number or a string.
func (w *Word) UnmarshalJSON(text []byte) error {
	if strings.HasPrefix(string(text), `"`) {
		return json.Unmarshal(text, (*string)(w))
	}
	if _, err := strconv.ParseUint(string(text), 10, 8); err != nil {
		return fmt.Errorf("must be a string or 0 to 255, not %.40s", text)
	}
	*w = Word(text)
	return nil
}

// Port is a port, an inclusive range "80:90", or the name of a port.
type Port string

// MarshalJSON writes a single port as a number.
func (p Port) MarshalJSON() ([]byte, error) {
	if n, err := strconv.ParseUint(string(p), 10, 16); err == nil {
		return strconv.AppendUint(nil, n, 10), nil
	}
	return json.Marshal(string(p))
}

// UnmarshalJSON reads a number or a string.
func (p *Port) UnmarshalJSON(text []byte) error {
	if strings.HasPrefix(string(text), `"`) {
		return json.Unmarshal(text, (*string)(p))
	}
	if _, err := strconv.ParseUint(string(text), 10, 16); err != nil {
		return fmt.Errorf("must be a string or 0 to 65535, not %.40s", text)
	}
	*p = Port(text)
	return nil
}

// NewKV returns the KV of a value written as JSON.
func NewKV(k Key, v any) (calico.KV, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return calico.KV{}, fmt.Errorf("%s: %w", k, err)
	}
	return calico.KV{Key: k.String(), Value: text}, nil
}

// ASNumber is an AS number: a number, or a string with a number or with its two halves ("1.2").
type ASNumber uint32

// UnmarshalJSON reads a number or a string.
func (n *ASNumber) UnmarshalJSON(data []byte) error {
	text := strings.Trim(string(data), `"`)
	high, low, dotted := strings.Cut(text, ".")
	if !dotted {
		v, err := strconv.ParseUint(text, 10, 32)
		*n = ASNumber(v)
		return err
	}
	a, err := strconv.ParseUint(high, 10, 16)
	if err != nil {
		return err
	}
	b, err := strconv.ParseUint(low, 10, 16)
	*n = ASNumber(a<<16 | b)
	return err
}

// ServiceCIDRPrefix begins the keys of ServiceCIDRs, by name. They are this program's: Calico's datastore has none, and its
// clients ignore them.
const ServiceCIDRPrefix = "/contiv/v1/servicecidrs/"

// ServiceCIDR is the value of such a key.
type ServiceCIDR struct {
	CIDRs []string `json:"cidrs"`
}
