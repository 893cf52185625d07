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

// facts is what is known of VPP's cnat.
type facts struct {
	ids map[string]uint32 // of translations, by key
	// newer: its API is 1.0.0 (VPP 26.06), not 0.3.0.
	newer bool
}

func factsOf(w *descriptor.World) *facts {
	return descriptor.FactsOf(w, func() *facts { return &facts{} })
}

// Clone implements Facts.
func (c *facts) Clone() descriptor.Facts { return &facts{maps.Clone(c.ids), c.newer} }

func (c *facts) setID(key string, id uint32) {
	if c.ids == nil {
		c.ids = map[string]uint32{}
	}
	c.ids[key] = id
}

// cnatEndpoint is an address, or an interface whose address is meant, and a port.
type cnatEndpoint struct {
	addr  netip.Addr // invalid: the interface's; of a path's source: none
	iface string
	v6    bool // of the interface's address
	port  uint16
}

func (e cnatEndpoint) is6() bool { return e.v6 || e.addr.Is6() }

// cnatPath is where packets may go, and what they get as source.
type cnatPath struct {
	dst, src cnatEndpoint
	noNAT    bool
}

// translation is a compiled Translation, or what VPP shows of one. Its slices are never changed.
type translation struct {
	key    string
	vip    cnatEndpoint
	proto  uint8
	paths  []cnatPath
	maglev bool
	// What VPP does not show: see retrieveTranslations.
	hash     uint32 // bits of ip_flow_hash_config_v2; 0: VPP's default
	real     bool
	ports    bool
	noReturn bool
}

// fixed is what VPP takes from the message that makes a translation, and ignores later without a word
// (cnat_translation_update, VPP 24.06), real even from the first one of the address; and what it takes later, but does not show: after
// an update that got no answer nobody knew it.
func (t *translation) fixed(o *translation) bool {
	return t.maglev == o.maglev && t.hash == o.hash && t.real == o.real && t.ports == o.ports && t.noReturn == o.noReturn
}

// CnatTranslation describes our Translation. VPP has no tag for it: whose one is, and what VPP does not show of it, is in the
// journal. An update is one message, which replaces the paths; sessions go on to where they were led.
func CnatTranslation() *descriptor.Descriptor {
	d := descriptor.Spec[*cnat.Translation, *translation]{
		Name: "cnat-translation", Prefix: translationPrefix,
		Claims:  func(t *translation) []string { return []string{t.key} },
		Compile: compileTranslation, Message: (*translation).message,
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
	// VPP forgets that an address is a real one if its interface gets it after the translation (CNAT_TR_FLAG_STACKED, VPP 24.06).
	d.After = []string{"address", "cnat-interface", "acl", "interface-acls"}
	d.Ready, d.Many = readyTranslation, true
	return d
}

// dependencies are the interfaces whose addresses are meant. A route that refuses the address is made before, if one is wanted:
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

// refusal is the key of the route that would refuse the address.
func (t *translation) refusal() string {
	if !t.vip.addr.IsValid() {
		return ""
	}
	return kv.RejectRouteKey(0, netip.PrefixFrom(t.vip.addr, t.vip.addr.BitLen()).String())
}

// readyTranslation waits for the route that refuses the address, where one is wanted. A flow that came before it would go wherever a
// shorter prefix leads; and once the translation is there VPP shows that prefix's way as the address's own (ip_route_lookup, VPP
// 24.06), as if somebody had a route to it, which a refusal would not replace. Where somebody has one, that leads the rest of the address.
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

// maxCnatPaths is the most buckets a load balance has (LB_MAX_BUCKETS of load_balance.h, VPP 24.06); more are cut off.
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

func (e cnatEndpoint) message() *cnat.Endpoint {
	m := &cnat.Endpoint{Interface: e.iface, Port: uint32(e.port)}
	if e.addr.IsValid() {
		m.Address = e.addr.String()
	}
	if e.v6 {
		m.Family = cnat.Family_IPV6
	}
	return m
}

func (t *translation) message() *cnat.Translation {
	m := &cnat.Translation{Vip: t.vip.message(), Protocol: protoOfCnat(t.proto), RealAddress: t.real, AllocatePort: t.ports, NoReturnSession: t.noReturn}
	if t.maglev {
		m.LoadBalancing = cnat.LoadBalancing_MAGLEV
	}
	for f := range cnat.FlowHashField_FLOW_LABEL + 1 {
		if t.hash&(1<<f) != 0 {
			m.FlowHash = append(m.FlowHash, f)
		}
	}
	for _, p := range t.paths {
		out := &cnat.Path{Destination: p.dst.message(), NoNat: p.noNAT}
		if p.src != (cnatEndpoint{}) {
			out.Source = p.src.message()
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

// updateTranslation makes the translation or replaces its paths. VPP names it in the reply.
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

// pathNoNAT is the bit VPP looks at; cnat.api 0.3.0 gives another (CNAT_EPT_NO_NAT = 1), which VPP takes for a mark of its own
// (CNAT_TRK_FLAG_NO_NAT of cnat_types.h, VPP 24.06 to 25.10; 1.0.0 gives this one).
const pathNoNAT = 2

// wireEndpoint is an endpoint as VPP wants it: of an interface if there is one, and sw_if_index 0 is one.
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

// fromCnatEndpoint is the inverse; anyAddress reports that a zero address stands for none.
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

// retrieveTranslations names what VPP has. Of flags, is_real_ip and the flow hash a dump has nothing (cnat_translation_details,
// VPP 24.06 to 25.10): they are as they were when the translation was made, if that is known, else as they are wanted.
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

// shownTranslation is what a dump says of one.
func shownTranslation(w *descriptor.World, m *binapi.CnatTranslation) *translation {
	t := &translation{vip: fromCnatEndpoint(w, m.Vip, false), proto: uint8(m.IPProto), maglev: m.LbType == binapi.CNAT_LB_TYPE_MAGLEV}
	t.paths = make([]cnatPath, len(m.Paths))
	for i, p := range m.Paths {
		t.paths[i] = cnatPath{fromCnatEndpoint(w, p.DstEp, false), fromCnatEndpoint(w, p.SrcEp, true), p.Flags&pathNoNAT != 0}
	}
	t.key = kv.Key(&cnat.Translation{Vip: t.vip.message(), Protocol: protoOfCnat(t.proto)})
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
