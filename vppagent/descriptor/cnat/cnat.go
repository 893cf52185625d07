package cnat

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	binapi "go.fd.io/govpp/binapi/cnat"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip_types"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/proto/contiv/vpp/cnat"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/l3"
)

const (
	translationPrefix = "config/contiv/vpp/v1/cnat-translation/"
	idTranslations    = "cnat_translation_dump"
)

// facts are the known state of VPP's cnat.
type facts struct {
	ids map[string]uint32 // numbers of translations, by key
	// newer: its API is 1.0.0 (VPP 26.06), not 0.3.0.
	newer bool
	inherit
}

func factsOf(w *descriptor.World) *facts {
	return descriptor.FactsOf(w, func() *facts {
		return &facts{inherit: inherit{tabled: map[uint32]string{}, missed: map[string]bool{}, lost: true}}
	})
}

// Clone implements Facts.
func (c *facts) Clone() descriptor.Facts {
	return &facts{maps.Clone(c.ids), c.newer, inherit{maps.Clone(c.tabled), c.lost, maps.Clone(c.missed)}}
}

func (c *facts) setID(key string, id uint32) {
	if c.ids == nil {
		c.ids = map[string]uint32{}
	}
	c.ids[key] = id
}

// cnatEndpoint is an address, or an interface in place of its address, with a port.
type cnatEndpoint struct {
	addr  netip.Addr // invalid: the interface's; of a path's source: none
	iface string
	v6    bool // of the interface's address
	port  uint16
}

func (e cnatEndpoint) is6() bool { return e.v6 || e.addr.Is6() }

// cnatPath is a destination of packets, with the source that they get.
type cnatPath struct {
	dst, src cnatEndpoint
	noNAT    bool
}

// translation is a compiled Translation, or one in VPP. Its slices never change.
type translation struct {
	key    string
	vip    cnatEndpoint
	proto  uint8
	paths  []cnatPath
	maglev bool
	// Fields that VPP does not show: see retrieveTranslations.
	hash     uint32 // bits of ip_flow_hash_config_v2; 0: VPP's default
	real     bool
	ports    bool
	noReturn bool
}

// fixed reports that t and o agree in the fields that cannot change. VPP takes those only from the message that makes a translation,
// and later ignores them without an error (cnat_translation_update, VPP 24.06); it takes real even only from the first translation
// of the address. Some fields VPP does take later, but does not show: after an update without an answer they would be unknown.
func (t *translation) fixed(o *translation) bool {
	return t.maglev == o.maglev && t.hash == o.hash && t.real == o.real && t.ports == o.ports && t.noReturn == o.noReturn
}

// CnatTranslation describes our Translation. VPP has no tag for it: the journal has its owner and the fields that VPP does not
// show. An update is one message, which replaces the paths; existing sessions keep their paths.
func CnatTranslation() *descriptor.Descriptor {
	d := descriptor.Spec[*cnat.Translation, *translation]{
		Name: "cnat-translation", Prefix: translationPrefix,
		Claims:  func(t *translation) []string { return []string{t.key} },
		Compile: compileTranslation, Message: (*translation).translationMessage,
		Equal: func(have, want *translation) bool {
			return have.fixed(want) && slices.Equal(have.paths, want.paths)
		},
		Dependencies: (*translation).dependencies,
		Recreate:     func(have, want *translation) bool { return !have.fixed(want) },
		Create:       updateTranslation,
		Update: func(w *descriptor.World, _, want *translation) ([]descriptor.Op, error) {
			return updateTranslation(w, want)
		},
		Delete: deleteTranslation,
		Dumps: func(*descriptor.World, descriptor.Candidates) []descriptor.Request {
			return []descriptor.Request{descriptor.DumpRequest(idTranslations, &binapi.CnatTranslationDump{})}
		},
		Retrieve: retrieveTranslations,
	}.Descriptor()
	// VPP loses the real flag of an address if its interface gets the address after the translation (CNAT_TR_FLAG_STACKED, VPP 24.06).
	d.After = []string{"address", "cnat-interface", "acl", "interface-acls"}
	d.Ready, d.Many = readyTranslation, true
	return d
}

// dependencies are the interfaces that stand for their addresses. A wanted route that rejects the address is made before:
// readyTranslation.
func (t *translation) dependencies() (deps []descriptor.Dependency) {
	add := func(e cnatEndpoint) {
		if d := (descriptor.Dependency{Key: kv.InterfaceKey(e.iface)}); e.iface != "" && !slices.Contains(deps, d) {
			deps = append(deps, d)
		}
	}
	add(t.vip)
	for _, p := range t.paths {
		add(p.dst)
		add(p.src)
	}
	if key := t.refusal(); key != "" {
		deps = append(deps, descriptor.Dependency{Key: key, Loose: true})
	}
	return deps
}

// refusal returns the key of the route that rejects the address.
func (t *translation) refusal() string {
	if !t.vip.addr.IsValid() {
		return ""
	}
	return kv.RejectRouteKey(0, netip.PrefixFrom(t.vip.addr, t.vip.addr.BitLen()).String())
}

// readyTranslation waits for the route that rejects the address, if one is wanted. A flow that begins before that route would follow a
// shorter prefix. After the translation VPP shows that prefix's path as the address's own (ip_route_lookup, VPP 24.06), as if a foreign
// route to the address existed, which a reject route would not replace. If a foreign route does exist, it serves the other packets to the
// address.
func readyTranslation(w *descriptor.World, have, want any, sure func(key string) any) error {
	key := want.(*translation).refusal()
	if have != nil || key == "" || sure(key) != nil {
		return nil
	}
	if !l3.Refuses(w.Wanted(key)) {
		return nil
	}
	return fmt.Errorf("waits for %s", key)
}

func compileTranslation(key string, m *cnat.Translation) (*translation, error) {
	vip, err := compileCnatEndpoint("vip", m.GetVip())
	if err != nil {
		return nil, err
	}
	t := &translation{key: key, vip: vip, real: m.GetRealAddress(), ports: m.GetAllocatePort(), noReturn: m.GetNoReturnSession()}
	if t.proto, err = cnatProtocol(m.GetProtocol()); err != nil {
		return nil, err
	}
	switch {
	case vip.port == 0:
		return nil, errors.New("vip.port: 0")
	case t.proto == protoSCTP && vip.is6():
		return nil, errors.New("protocol: VPP translates SCTP in IPv4 only")
	case len(m.GetPaths()) == 0:
		return nil, errors.New("paths: none: VPP aborts")
	case len(m.GetPaths()) > maxCnatPaths:
		return nil, fmt.Errorf("paths: %d, and VPP balances over %d", len(m.GetPaths()), maxCnatPaths)
	case m.GetLoadBalancing() < 0 || m.GetLoadBalancing() > cnat.LoadBalancing_MAGLEV:
		return nil, fmt.Errorf("load_balancing: unknown %d", m.GetLoadBalancing())
	}
	t.maglev = m.GetLoadBalancing() == cnat.LoadBalancing_MAGLEV
	for n, f := range m.GetFlowHash() {
		if f < 0 || f > cnat.FlowHashField_FLOW_LABEL {
			return nil, fmt.Errorf("flow_hash[%d]: unknown %d", n, f)
		}
		t.hash |= 1 << f
	}
	t.paths = make([]cnatPath, len(m.GetPaths()))
	for n, p := range m.GetPaths() {
		if t.paths[n], err = compileCnatPath(fmt.Sprintf("paths[%d]", n), p, vip.is6()); err != nil {
			return nil, err
		}
		if t.proto == protoSCTP && t.paths[n].src != (cnatEndpoint{}) {
			return nil, fmt.Errorf("paths[%d].source: not with SCTP: anybody's ICMP error about it makes VPP loop for ever", n)
		}
	}
	return t, nil
}

// maxCnatPaths is the most buckets of a load balance (LB_MAX_BUCKETS of load_balance.h, VPP 24.06); VPP cuts off more.
const maxCnatPaths = 8192

const protoSCTP = 132

func cnatProtocol(p cnat.Protocol) (uint8, error) {
	switch p {
	case cnat.Protocol_TCP:
		return 6, nil
	case cnat.Protocol_UDP:
		return 17, nil
	case cnat.Protocol_SCTP:
		return protoSCTP, nil
	}
	return 0, fmt.Errorf("protocol: unknown %d", p)
}

func compileCnatPath(field string, m *cnat.Path, v6 bool) (p cnatPath, err error) {
	if p.dst, err = compileCnatEndpoint(field+".destination", m.GetDestination()); err != nil {
		return p, err
	}
	p.noNAT = m.GetNoNat()
	switch {
	case p.dst.is6() != v6:
		return p, fmt.Errorf("%s.destination: of another family than vip", field)
	case p.dst.port == 0:
		return p, fmt.Errorf("%s.destination.port: 0", field)
	case m.GetSource() == nil:
		return p, nil
	}
	if p.src, err = compileCnatEndpoint(field+".source", m.GetSource()); err == nil && p.src.is6() != v6 {
		err = fmt.Errorf("%s.source: of another family than vip", field)
	}
	return p, err
}

func compileCnatEndpoint(field string, m *cnat.Endpoint) (e cnatEndpoint, err error) {
	switch {
	case m.GetAddress() != "" && m.GetInterface() != "":
		return e, fmt.Errorf("%s: both address and interface are set", field)
	case m.GetInterface() != "":
		e.iface, e.v6 = m.GetInterface(), m.GetFamily() == cnat.Family_IPV6
	default:
		if e.addr, err = descriptor.ParseAddr(field+".address", m.GetAddress()); err != nil {
			return e, err
		}
	}
	if m.GetPort() > 65535 {
		return e, fmt.Errorf("%s.port: %d is above 65535", field, m.GetPort())
	}
	e.port = uint16(m.GetPort())
	return e, nil
}

func (e cnatEndpoint) endpointMessage() *cnat.Endpoint {
	m := &cnat.Endpoint{Interface: e.iface, Port: uint32(e.port)}
	if e.addr.IsValid() {
		m.Address = e.addr.String()
	}
	if e.v6 {
		m.Family = cnat.Family_IPV6
	}
	return m
}

func (t *translation) translationMessage() *cnat.Translation {
	m := &cnat.Translation{Vip: t.vip.endpointMessage(), Protocol: protoOfCnat(t.proto), RealAddress: t.real, AllocatePort: t.ports, NoReturnSession: t.noReturn}
	if t.maglev {
		m.LoadBalancing = cnat.LoadBalancing_MAGLEV
	}
	for f := range cnat.FlowHashField_FLOW_LABEL + 1 {
		if t.hash&(1<<f) != 0 {
			m.FlowHash = append(m.FlowHash, f)
		}
	}
	for _, p := range t.paths {
		out := &cnat.Path{Destination: p.dst.endpointMessage(), NoNat: p.noNAT}
		if p.src != (cnatEndpoint{}) {
			out.Source = p.src.endpointMessage()
		}
		m.Paths = append(m.Paths, out)
	}
	return m
}

func protoOfCnat(proto uint8) cnat.Protocol {
	switch proto {
	case 17:
		return cnat.Protocol_UDP
	case protoSCTP:
		return cnat.Protocol_SCTP
	}
	return cnat.Protocol_TCP
}

// updateTranslation makes the translation or replaces its paths. The reply has its number.
func updateTranslation(w *descriptor.World, t *translation) ([]descriptor.Op, error) {
	m := binapi.CnatTranslation{IPProto: ip_types.IPProto(t.proto), FlowHashConfig: ip.IPFlowHashConfigV2(t.hash)}
	var err error
	if m.Vip, err = wireEndpoint(w, t.vip); err != nil {
		return nil, err
	}
	if t.real {
		m.IsRealIP = 1
	}
	if t.maglev {
		m.LbType = binapi.CNAT_LB_TYPE_MAGLEV
	}
	if t.ports {
		m.Flags |= uint8(binapi.CNAT_TRANSLATION_ALLOC_PORT)
	}
	if t.noReturn {
		m.Flags |= uint8(binapi.CNAT_TRANSLATION_NO_RETURN_SESSION)
	}
	m.Paths = make([]binapi.CnatEndpointTuple, len(t.paths))
	for i, p := range t.paths {
		if m.Paths[i].DstEp, err = wireEndpoint(w, p.dst); err != nil {
			return nil, err
		}
		if m.Paths[i].SrcEp, err = wireEndpoint(w, p.src); err != nil {
			return nil, err
		}
		if p.noNAT {
			m.Paths[i].Flags = pathNoNAT
		}
	}
	return []descriptor.Op{{Call: descriptor.Write(&binapi.CnatTranslationUpdate{Translation: m}), Then: func(r vpp.Reply) []descriptor.Op {
		if reply, ok := r.Msg.(*binapi.CnatTranslationUpdateReply); ok {
			factsOf(w).setID(t.key, reply.ID)
		}
		return nil
	}}}, nil
}

// pathNoNAT is the bit that VPP evaluates. cnat.api 0.3.0 names another (CNAT_EPT_NO_NAT = 1), which VPP takes for an internal
// flag (CNAT_TRK_FLAG_NO_NAT of cnat_types.h, VPP 24.06 to 25.10); 1.0.0 names this one.
const pathNoNAT = 2

// wireEndpoint returns an endpoint in VPP's form: an interface if it has one; sw_if_index 0 is a valid interface.
func wireEndpoint(w *descriptor.World, e cnatEndpoint) (out binapi.CnatEndpoint, err error) {
	out = binapi.CnatEndpoint{SwIfIndex: interface_types.InterfaceIndex(descriptor.None), Port: e.port}
	if e.is6() {
		out.IfAf = ip_types.ADDRESS_IP6
	}
	if e.iface != "" {
		out.SwIfIndex, err = w.Index(e.iface)
		return out, err
	}
	if e.addr.IsValid() {
		out.Addr = descriptor.ToAddress(e.addr)
	}
	return out, nil
}

// fromCnatEndpoint is the inverse; anyAddress reports that a zero address means none.
func fromCnatEndpoint(w *descriptor.World, m binapi.CnatEndpoint, anyAddress bool) cnatEndpoint {
	e := cnatEndpoint{port: m.Port}
	if uint32(m.SwIfIndex) != descriptor.None {
		e.iface, e.v6 = w.Name(uint32(m.SwIfIndex)), m.IfAf == ip_types.ADDRESS_IP6
		return e
	}
	if a := descriptor.FromAddress(m.Addr); !anyAddress || !a.IsUnspecified() {
		e.addr = a
	}
	return e
}

func deleteTranslation(w *descriptor.World, t *translation) ([]descriptor.Op, error) {
	id, known := factsOf(w).ids[t.key]
	if !known {
		return nil, fmt.Errorf("VPP's name for translation %s is not known", t)
	}
	return []descriptor.Op{{Gone: true, Call: descriptor.Write(&binapi.CnatTranslationDel{ID: id}), Then: func(vpp.Reply) []descriptor.Op {
		delete(factsOf(w).ids, t.key)
		return nil
	}}}, nil
}

// retrieveTranslations finds the translations in VPP. A dump lacks flags, is_real_ip and the flow hash (cnat_translation_details,
// VPP 24.06 to 25.10): retrieveTranslations takes them from the journal if it has them, else from the desired state.
func retrieveTranslations(w *descriptor.World, d *descriptor.Dump, c descriptor.Candidates) ([]descriptor.Found, error) {
	shown, err := descriptor.Details[*binapi.CnatTranslationDetails](d, idTranslations)
	if err != nil {
		return nil, descriptor.Optional(err)
	}
	factsOf(w).ids = make(map[string]uint32, len(shown))
	made, wanted := map[string]*translation{}, map[string]*translation{}
	c.Each(func(key string, state any, want bool) {
		if t := state.(*translation); want {
			wanted[key] = t
		} else if made[key] == nil {
			made[key] = t
		}
	})
	out := make([]descriptor.Found, 0, len(shown))
	for _, s := range shown {
		t := shownTranslation(w, &s.Translation)
		factsOf(w).ids[t.key] = s.Translation.ID
		hidden := cmp.Or(made[t.key], wanted[t.key])
		if hidden == nil {
			out = append(out, descriptor.Found{Foreign: true, Text: "cnat translation " + t.String()})
			continue
		}
		t.hash, t.real, t.ports, t.noReturn = hidden.hash, hidden.real, hidden.ports, hidden.noReturn
		out = append(out, descriptor.Found{Key: t.key, State: t})
	}
	slices.SortFunc(out, func(a, b descriptor.Found) int { return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Text, b.Text)) })
	return out, nil
}

// shownTranslation returns the translation of a dump.
func shownTranslation(w *descriptor.World, m *binapi.CnatTranslation) *translation {
	t := &translation{vip: fromCnatEndpoint(w, m.Vip, false), proto: uint8(m.IPProto), maglev: m.LbType == binapi.CNAT_LB_TYPE_MAGLEV}
	t.paths = make([]cnatPath, len(m.Paths))
	for i, p := range m.Paths {
		t.paths[i] = cnatPath{fromCnatEndpoint(w, p.DstEp, false), fromCnatEndpoint(w, p.SrcEp, true), p.Flags&pathNoNAT != 0}
	}
	t.key = kv.Key(&cnat.Translation{Vip: t.vip.endpointMessage(), Protocol: protoOfCnat(t.proto)})
	return t
}

// String is "fd00:96::1 80/TCP".
func (t *translation) String() string {
	at := t.vip.iface
	if t.vip.addr.IsValid() {
		at = t.vip.addr.String()
	}
	return fmt.Sprintf("%s %d/%s", at, t.vip.port, protoOfCnat(t.proto))
}
