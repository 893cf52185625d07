package encode

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/contiv-agent/contiv-agent/calico"
	"github.com/contiv-agent/contiv-agent/calico/datastore"
	"github.com/contiv-agent/contiv-agent/model"
)

// Calico kinds that do not matter to an agent's data plane, but that other clients of a fan-out server need: address pools
// and blocks, the BGP configuration, and the nodes' BGP status. Their shapes are those of projectcalico/api v3.31.

// extraKind describes such a kind.
type extraKind struct {
	plural string
	blank  func() any // its spec, and status; nil: not sent unchanged
}

func extra(kind string) (extraKind, bool) {
	switch kind {
	case "IPPool", "IPAMBlock":
		return extraKind{}, true
	case "BGPConfiguration":
		return extraKind{datastore.ResourceBGPConfigurations, func() any { return &v3Resource[v3BGPConfiguration]{} }}, true
	case "BGPPeer":
		return extraKind{datastore.ResourceBGPPeers, func() any { return &v3Resource[v3BGPPeer]{} }}, true
	case "BGPFilter":
		return extraKind{datastore.ResourceBGPFilters, func() any { return &v3Resource[v3BGPFilter]{} }}, true
	case "CalicoNodeStatus":
		return extraKind{"caliconodestatuses", func() any { return &v3Status{} }}, true
	}
	return extraKind{}, false
}

// Extra names an object of a kind that has keys but no model; ok is false for all others. version is that of the group.
func Extra(group, version, kind, name string) (ref model.Ref, ok bool) {
	switch {
	case group == "crd.projectcalico.org" && version == "v1":
	case group == "projectcalico.org" && version == "v3" && kind != "IPAMBlock":
	default:
		return model.Ref{}, false
	}
	_, ok = extra(kind)
	return model.Ref{Kind: model.Kind(kind), Name: name}, ok
}

// encodeExtra writes an object of such a kind.
func (o *v3Object) encodeExtra() ([]calico.KV, error) {
	k, ok := extra(o.Kind)
	switch {
	case !ok:
		return nil, fmt.Errorf("%s: %w", o.Kind, ErrNotEncoded)
	case o.Kind == "IPPool":
		return one(o.encodePool())
	case o.Kind == "IPAMBlock":
		return one(o.encodeBlock())
	}
	into := k.blank()
	text, err := json.Marshal(map[string]json.RawMessage{"spec": orEmpty(o.Spec), "status": orEmpty(o.Status)})
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	var m meta
	if err == nil {
		m, err = o.v3Meta()
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", o.Kind, o.Name, err)
	}
	head := v3Head{Kind: o.Kind, APIVersion: apiVersion, Metadata: m}
	switch r := into.(type) {
	case *v3Resource[v3BGPConfiguration]:
		r.v3Head = head
	case *v3Resource[v3BGPPeer]:
		r.v3Head = head
	case *v3Resource[v3BGPFilter]:
		r.v3Head = head
	case *v3Status:
		r.v3Head = head
	}
	kv, err := datastore.NewKV(datastore.Key{Kind: datastore.KeyResource, Type: k.plural, Name: o.Name}, into)
	kv.V3ResourceVersion = o.ResourceVersion
	return one(kv, err)
}

func orEmpty(text json.RawMessage) json.RawMessage {
	if len(text) == 0 {
		return json.RawMessage("{}")
	}
	return text
}

// v3Meta returns the metadata of an object as users see it. For a custom resource Calico keeps it in an annotation, and
// derives another UID for the object.
func (o *v3Object) v3Meta() (meta, error) {
	stored := metaOf(&o.ObjectMeta)
	if o.kept == nil && !o.stored() {
		return stored, nil
	}
	var err error
	if stored.UID, err = derivedUID(o.UID); err != nil || o.kept == nil {
		return stored, err
	}
	m := *o.kept
	m.Name, m.Namespace, m.UID, m.Labels, m.Annotations = o.Name, o.Namespace, stored.UID, o.Labels, o.Annotations
	if m.CreationTimestamp.IsZero() {
		m.CreationTimestamp = o.CreationTimestamp
	}
	for i := range m.OwnerReferences {
		if r := &m.OwnerReferences[i]; r.APIVersion == "crd.projectcalico.org/v1" || r.APIVersion == apiVersion {
			r.APIVersion = apiVersion
			if r.UID, err = derivedUID(r.UID); err != nil {
				return m, err
			}
		}
	}
	return m, nil
}

// encodePool writes an address pool. Objects of Calico's first version express two settings differently.
func (o *v3Object) encodePool() (calico.KV, error) {
	var spec struct {
		CIDR             string `json:"cidr"`
		VXLANMode        string `json:"vxlanMode"`
		IPIPMode         string `json:"ipipMode"`
		NATOutgoing      bool   `json:"natOutgoing"`
		Disabled         bool   `json:"disabled"`
		DisableBGPExport bool   `json:"disableBGPExport"`
		AssignmentMode   string `json:"assignmentMode"`
		IPIP             *struct {
			Enabled bool   `json:"enabled"`
			Mode    string `json:"mode"`
		} `json:"ipip"`
		NATOutgoingV1 bool `json:"nat-outgoing"`
	}
	if err := o.spec(&spec); err != nil {
		return calico.KV{}, err
	}
	cidr, err := encodeRange(spec.CIDR)
	if err != nil {
		return calico.KV{}, fmt.Errorf("%s %s: spec.cidr: %w", o.Kind, o.Name, err)
	}
	if v1 := spec.IPIP; v1 != nil {
		spec.IPIPMode = "Never"
		if v1.Enabled {
			spec.IPIPMode = "Always"
		}
		if v1.Enabled && v1.Mode == "cross-subnet" {
			spec.IPIPMode = "CrossSubnet"
		}
	}
	mode := map[string]string{"Always": "always", "CrossSubnet": "cross-subnet"}
	out := datastore.IPPool{
		CIDR: cidr.String(), IPIPMode: mode[spec.IPIPMode], VXLANMode: mode[spec.VXLANMode],
		Masquerade: spec.NATOutgoing || spec.NATOutgoingV1, IPAM: !spec.Disabled, Disabled: spec.Disabled,
		DisableBGPExport: spec.DisableBGPExport, AssignmentMode: spec.AssignmentMode,
	}
	if out.IPIPMode != "" {
		out.IPIPInterface = "tunl0"
	}
	if out.AssignmentMode == "" {
		out.AssignmentMode = "Automatic"
	}
	return datastore.NewKV(datastore.Key{Kind: datastore.KeyPool, CIDR: cidr}, out)
}

// encodeBlock writes an address block, which Calico's IPAM stores as a custom resource.
func (o *v3Object) encodeBlock() (calico.KV, error) {
	var out datastore.AllocationBlock
	if err := o.spec(&out); err != nil {
		return calico.KV{}, err
	}
	cidr, err := encodeRange(out.CIDR)
	if err != nil {
		return calico.KV{}, fmt.Errorf("%s %s: spec.cidr: %w", o.Kind, o.Name, err)
	}
	out.CIDR, out.HostAffinity = cidr.String(), nil
	if out.Attributes == nil {
		out.Attributes = []datastore.AllocationAttribute{}
	}
	return datastore.NewKV(datastore.Key{Kind: datastore.KeyBlock, CIDR: cidr}, out)
}

func encodeRange(s string) (netip.Prefix, error) {
	if _, _, err := net.ParseCIDR(s); err != nil {
		return netip.Prefix{}, fmt.Errorf("must be a range (%q)", s)
	}
	return encodeNet(s)
}

type v3Head struct {
	Kind       string `json:"kind,omitempty"`
	APIVersion string `json:"apiVersion,omitempty"`
	Metadata   meta   `json:"metadata"`
}

type v3Resource[S any] struct {
	v3Head
	Spec S `json:"spec"`
}

type v3BGPConfiguration struct {
	LogSeverityScreen        string              `json:"logSeverityScreen,omitempty"`
	NodeToNodeMesh           *bool               `json:"nodeToNodeMeshEnabled,omitempty"`
	ASNumber                 *datastore.ASNumber `json:"asNumber,omitempty"`
	ServiceLoadBalancerIPs   []v3CIDR            `json:"serviceLoadBalancerIPs,omitempty"`
	ServiceExternalIPs       []v3CIDR            `json:"serviceExternalIPs,omitempty"`
	ServiceClusterIPs        []v3CIDR            `json:"serviceClusterIPs,omitempty"`
	ServiceLBAggregation     *string             `json:"serviceLoadBalancerAggregation,omitempty"`
	Communities              []v3Community       `json:"communities,omitempty"`
	PrefixAdvertisements     []v3Prefix          `json:"prefixAdvertisements,omitempty"`
	ListenPort               uint16              `json:"listenPort,omitempty"`
	NodeMeshPassword         *v3Password         `json:"nodeMeshPassword,omitempty"`
	NodeMeshMaxRestartTime   *metav1.Duration    `json:"nodeMeshMaxRestartTime,omitempty"`
	BindMode                 *string             `json:"bindMode,omitempty"`
	IgnoredInterfaces        []string            `json:"ignoredInterfaces,omitempty"`
	LocalWorkloadPeeringIPV4 string              `json:"localWorkloadPeeringIPV4,omitempty"`
	LocalWorkloadPeeringIPV6 string              `json:"localWorkloadPeeringIPV6,omitempty"`
}

type v3CIDR struct {
	CIDR string `json:"cidr,omitempty"`
}

type v3Community struct {
	Name  string `json:"name,omitempty"`
	Value string `json:"value,omitempty"`
}

type v3Prefix struct {
	CIDR        string   `json:"cidr,omitempty"`
	Communities []string `json:"communities,omitempty"`
}

type v3Password struct {
	SecretKeyRef *corev1.SecretKeySelector `json:"secretKeyRef,omitempty"`
}

type v3BGPPeer struct {
	Node                     string              `json:"node,omitempty"`
	NodeSelector             string              `json:"nodeSelector,omitempty"`
	PeerIP                   string              `json:"peerIP,omitempty"`
	ASNumber                 datastore.ASNumber  `json:"asNumber,omitempty"`
	LocalASNumber            *datastore.ASNumber `json:"localASNumber,omitempty"`
	PeerSelector             string              `json:"peerSelector,omitempty"`
	KeepOriginalNextHop      bool                `json:"keepOriginalNextHop,omitempty"`
	NextHopMode              *string             `json:"nextHopMode,omitempty"`
	Password                 *v3Password         `json:"password,omitempty"`
	SourceAddress            string              `json:"sourceAddress,omitempty"`
	MaxRestartTime           *metav1.Duration    `json:"maxRestartTime,omitempty"`
	NumAllowedLocalASNumbers *int32              `json:"numAllowedLocalASNumbers,omitempty"`
	TTLSecurity              *uint8              `json:"ttlSecurity,omitempty"`
	ReachableBy              string              `json:"reachableBy,omitempty"`
	Filters                  []string            `json:"filters,omitempty"`
	LocalWorkloadSelector    string              `json:"localWorkloadSelector,omitempty"`
	ReversePeering           *string             `json:"reversePeering,omitempty"`
}

type v3BGPFilter struct {
	ExportV4 []v3FilterRule `json:"exportV4,omitempty"`
	ImportV4 []v3FilterRule `json:"importV4,omitempty"`
	ExportV6 []v3FilterRule `json:"exportV6,omitempty"`
	ImportV6 []v3FilterRule `json:"importV6,omitempty"`
}

type v3FilterRule struct {
	CIDR         string `json:"cidr,omitempty"`
	PrefixLength *struct {
		Min *int32 `json:"min,omitempty"`
		Max *int32 `json:"max,omitempty"`
	} `json:"prefixLength,omitempty"`
	Source        string `json:"source,omitempty"`
	Interface     string `json:"interface,omitempty"`
	MatchOperator string `json:"matchOperator,omitempty"`
	Action        string `json:"action"`
}

// v3Status is CalicoNodeStatus.
type v3Status struct {
	v3Head
	Spec struct {
		Node                string   `json:"node,omitempty"`
		Classes             []string `json:"classes,omitempty"`
		UpdatePeriodSeconds *uint32  `json:"updatePeriodSeconds,omitempty"`
	} `json:"spec"`
	Status struct {
		LastUpdated metav1.Time `json:"lastUpdated"`
		Agent       struct {
			BIRDV4 v3Daemon `json:"birdV4"`
			BIRDV6 v3Daemon `json:"birdV6"`
		} `json:"agent"`
		BGP struct {
			NumberEstablishedV4    int          `json:"numberEstablishedV4"`
			NumberNotEstablishedV4 int          `json:"numberNotEstablishedV4"`
			NumberEstablishedV6    int          `json:"numberEstablishedV6"`
			NumberNotEstablishedV6 int          `json:"numberNotEstablishedV6"`
			PeersV4                []v3PeerLine `json:"peersV4,omitempty"`
			PeersV6                []v3PeerLine `json:"peersV6,omitempty"`
		} `json:"bgp"`
		Routes struct {
			RoutesV4 []v3Route `json:"routesV4,omitempty"`
			RoutesV6 []v3Route `json:"routesV6,omitempty"`
		} `json:"routes"`
	} `json:"status"`
}

type v3Daemon struct {
	State                   string `json:"state,omitempty"`
	Version                 string `json:"version,omitempty"`
	RouterID                string `json:"routerID,omitempty"`
	LastBootTime            string `json:"lastBootTime,omitempty"`
	LastReconfigurationTime string `json:"lastReconfigurationTime,omitempty"`
}

type v3PeerLine struct {
	PeerIP string `json:"peerIP,omitempty"`
	Type   string `json:"type,omitempty"`
	State  string `json:"state,omitempty"`
	Since  string `json:"since,omitempty"`
}

type v3Route struct {
	Type        string `json:"type,omitempty"`
	Destination string `json:"destination,omitempty"`
	Gateway     string `json:"gateway,omitempty"`
	Interface   string `json:"interface,omitempty"`
	LearnedFrom struct {
		SourceType string `json:"sourceType,omitempty"`
		PeerIP     string `json:"peerIP,omitempty"`
	} `json:"learnedFrom"`
}
