package nat

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"go.fd.io/govpp/binapi/nat_types"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/nat"
	"github.com/contiv-agent/contiv-agent/vpp/draw"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/acl"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/nat/drain"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/nat/pool"
)

const (
	dnat44Prefix = "config/vpp/nat/v2/dnat44/"
	// VPP counts locals and sums their weights in bytes: 256 of either crash it (nat44_add_del_lb_static_mapping, VPP 24.06).
	maxLocals  = draw.Most
	maxWeights = 255
)

// Pads give mappings with any number of backends, even none, the same kind of object in VPP: an LB mapping, which needs two
// locals. Pads have weight 0, so that VPP sends them no packet; 192.0.2.0/24 is for documentation (RFC 5737). The drop pad is the
// backend of a mapping without backends. Mappings that can drain backends have the pads of package drain.
var (
	pads    = [2]local{{addr: [4]byte{192, 0, 2, 1}, port: 1}, {addr: [4]byte{192, 0, 2, 2}, port: 1}}
	dropPad = fromDrain(drain.Discard)
)

// natID is VPP's key of a mapping: protocol, external address and port (always in VRF 0), in one comparable word.
type natID uint64

func newNATID(addr [4]byte, port uint16, proto uint8) natID {
	return natID(proto)<<48 | natID(binary.BigEndian.Uint32(addr[:]))<<16 | natID(port)
}

func (id natID) addr() (a [4]byte) {
	binary.BigEndian.PutUint32(a[:], uint32(id>>16))
	return a
}
func (id natID) externalPort() uint16 { return uint16(id) }
func (id natID) proto() uint8         { return uint8(id >> 48) }

// String is "tcp 10.96.0.10:80", or "10.96.0.10" for a mapping of the whole address.
func (id natID) String() string {
	addr := netip.AddrFrom4(id.addr())
	if id.externalPort() == 0 {
		return addr.String()
	}
	return descriptor.ProtoName(id.proto()) + " " + netip.AddrPortFrom(addr, id.externalPort()).String()
}

func (id natID) claim() string { return "nat44 " + id.String() }

// dnat is a compiled DNat44. Its slices are never changed after Compile or Retrieve.
type dnat struct {
	key, label string
	mappings   []mapping  // sorted by ID; IDs are unique
	identities []identity // sorted
}

// mapping is one external address and port, with its backends.
type mapping struct {
	id       natID
	flags    nat_types.NatConfigFlags
	affinity uint32 // seconds
	tag      string
	// locals are sorted. In a desired state they are the backends. In a found state the pads are left out too, and raw has VPP's
	// locals in its order (nil: equal to the locals that the agent would send).
	locals []local
	raw    []local
	// drained are backends that keep their flows and get no new ones, sorted. VPP may lack some of those of a desired state. Their weights are VPP's in a
	// found state, and 1 in a desired one.
	drained []local
	// single is a mapping of the whole address (ports 0) to locals[0]; every other mapping is an LB mapping.
	single bool
	pool   [4]byte // address of the twice-nat pool to use; zero: any
}

type local struct {
	addr   [4]byte
	port   uint16
	weight uint8
	vrf    uint32
}

// sameLocal reports that VPP considers the two the same local: it refuses the second.
func (l local) sameLocal(o local) bool { return l.addr == o.addr && l.port == o.port && l.vrf == o.vrf }

func compareLocals(a, b local) int {
	return cmp.Or(slices.Compare(a.addr[:], b.addr[:]), cmp.Compare(a.port, b.port), cmp.Compare(a.vrf, b.vrf), cmp.Compare(a.weight, b.weight))
}

func (l local) String() string {
	return netip.AddrPortFrom(netip.AddrFrom4(l.addr), l.port).String() + " weight " + strconv.Itoa(int(l.weight))
}

// identity is an address and port that NAT does not translate.
type identity struct {
	addr  [4]byte // zero: the address of iface
	iface string
	port  uint16 // 0: the whole address
	proto uint8
	vrf   uint32
	tag   string
}

func compareIdentities(a, b identity) int {
	return cmp.Or(slices.Compare(a.addr[:], b.addr[:]), strings.Compare(a.iface, b.iface), cmp.Compare(a.port, b.port),
		cmp.Compare(a.proto, b.proto), cmp.Compare(a.vrf, b.vrf), strings.Compare(a.tag, b.tag))
}

// DNat44 describes ligato's DNat44: destination NAT of any number of addresses and ports. A DNat44 restricted by its label is
// made only after VPP checks source ranges on every interface: see SourceRanges.
//
// Every mapping with ports is an LB mapping with OUT2IN_ONLY, regardless of the number of backends: VPP cannot turn a single
// mapping into an LB one without a gap, and without the flag it requires the address in a pool.
func DNat44() *descriptor.Descriptor {
	d := descriptor.Spec[*nat.DNat44, *dnat]{
		Name: "dnat44", Prefix: dnat44Prefix, Tagged: true,
		Compile: compileDNat, Message: (*dnat).dnatMessage, Equal: equalDNat,
		Dependencies: (*dnat).dependencies, Claims: (*dnat).claims,
		Create:   func(w *descriptor.World, d *dnat) ([]descriptor.Op, error) { return updateDNat(w, &dnat{}, d) },
		Update:   updateDNat,
		Delete:   func(w *descriptor.World, d *dnat) ([]descriptor.Op, error) { return updateDNat(w, d, &dnat{}) },
		Dumps:    dnatDumps,
		Retrieve: retrieveDNat,
	}.Descriptor()
	d.Many = true
	// A mapping made before an interface is outside gets a receive route that outlives it (VPP 24.06); a mapping made after gets none.
	// Access lists: a mapping may hide clients that the lists of its backends permitted before.
	d.After = []string{"nat44-interface", "acl", "interface-acls"}
	d.Ready = func(w *descriptor.World, have, want any, sure func(key string) any) error {
		if _, restricted := kv.Restricts(want.(*dnat).label); restricted && have == nil {
			return acl.ReadyMapping(w, sure)
		}
		return nil
	}
	return d
}

func compileDNat(key string, m *nat.DNat44) (*dnat, error) {
	if m.GetLabel() == "" {
		return nil, errors.New("label: empty")
	}
	d := &dnat{key: key, label: m.GetLabel(), mappings: make([]mapping, 0, len(m.GetStMappings()))}
	// Mappings of one Service mostly have the same fingerprint, hence the same tag.
	tags := tagCache{label: d.label}
	for i, sm := range m.GetStMappings() {
		one, err := compileMapping(sm, &tags)
		if err != nil {
			return nil, fmt.Errorf("st_mappings[%d].%w", i, err)
		}
		d.mappings = append(d.mappings, one)
	}
	if err := d.sortMappings(); err != nil {
		return nil, err
	}
	for i, im := range m.GetIdMappings() {
		one, err := compileIdentity(im)
		if err != nil {
			return nil, fmt.Errorf("id_mappings[%d].%w", i, err)
		}
		one.tag = tags.tagFor("")
		d.identities = append(d.identities, one)
	}
	slices.SortFunc(d.identities, compareIdentities)
	for i := 1; i < len(d.identities); i++ {
		if d.identities[i] == d.identities[i-1] {
			return nil, fmt.Errorf("id_mappings: %s twice", netip.AddrFrom4(d.identities[i].addr))
		}
	}
	return d, nil
}

func (d *dnat) sortMappings() error {
	byID := func(a, b mapping) int { return cmp.Compare(a.id, b.id) }
	if !slices.IsSortedFunc(d.mappings, byID) {
		slices.SortFunc(d.mappings, byID)
	}
	for i := 1; i < len(d.mappings); i++ {
		if d.mappings[i].id == d.mappings[i-1].id {
			return fmt.Errorf("st_mappings: %s twice", d.mappings[i].id)
		}
	}
	return nil
}

// tagCache makes the tags of one DNat44.
type tagCache struct {
	label, print, tag string
}

func (c *tagCache) tagFor(print string) string {
	if c.tag == "" || c.print != print {
		c.print, c.tag = print, descriptor.NewTag("n", descriptor.Fingerprint(print), c.label)
	}
	return c.tag
}

func compileMapping(sm *nat.DNat44_StaticMapping, tags *tagCache) (m mapping, err error) {
	if sm.GetExternalInterface() != "" {
		return m, fmt.Errorf("external_interface: %q: not supported, give external_ip", sm.GetExternalInterface())
	}
	addr, err := descriptor.Parse4("external_ip", sm.GetExternalIp())
	if err != nil {
		return m, err
	}
	port, err := parsePort("external_port", sm.GetExternalPort())
	if err != nil {
		return m, err
	}
	proto, err := parseProto(sm.GetProtocol())
	if err != nil {
		return m, err
	}
	if m.flags, err = mappingFlags(sm); err != nil {
		return m, err
	}
	if pool := sm.GetTwiceNatPoolIp(); pool != "" {
		a, err := descriptor.Parse4("twice_nat_pool_ip", pool)
		if err != nil {
			return m, err
		}
		m.pool = a.As4()
	}
	m.affinity = sm.GetSessionAffinity()
	if m.locals, m.drained, err = compileLocals(sm.GetLocalIps()); err != nil {
		return m, err
	}
	if addressOnly(sm) {
		return compileSingle(m, addr, tags)
	}
	if m.pool != [4]byte{} {
		return m, errors.New("twice_nat_pool_ip: VPP cannot choose the pool address of a load-balanced mapping")
	}
	m.id = newNATID(addr.As4(), port, proto)
	m.tag = tags.tagFor(m.print())
	return m, nil
}

// print has the fields of a mapping that a dump does not show: VPP 24.06 never fills nat44_lb_static_mapping_details.affinity.
func (m mapping) print() string {
	if m.affinity == 0 {
		return ""
	}
	return "affinity " + strconv.FormatUint(uint64(m.affinity), 10)
}

// addressOnly is ligato's rule: any port 0 makes the mapping one of whole addresses.
func addressOnly(sm *nat.DNat44_StaticMapping) bool {
	return sm.GetExternalPort() == 0 ||
		slices.ContainsFunc(sm.GetLocalIps(), func(l *nat.DNat44_StaticMapping_LocalIP) bool { return l.GetLocalPort() == 0 })
}

func compileSingle(m mapping, addr netip.Addr, tags *tagCache) (mapping, error) {
	switch {
	case len(m.locals)+len(m.drained) != 1:
		return m, fmt.Errorf("local_ips: a mapping without ports needs exactly 1, not %d", len(m.locals)+len(m.drained))
	case m.affinity != 0:
		return m, errors.New("session_affinity: a mapping without ports has one backend only")
	case m.flags&(nat_types.NAT_IS_TWICE_NAT|nat_types.NAT_IS_SELF_TWICE_NAT) != 0:
		return m, errors.New("twice_nat: VPP refuses it for a mapping without ports")
	}
	m.single = true
	m.flags |= nat_types.NAT_IS_ADDR_ONLY
	m.locals[0].port, m.locals[0].weight = 0, 0
	m.id = newNATID(addr.As4(), 0, 0)
	m.tag = tags.tagFor("")
	return m, nil
}

func mappingFlags(sm *nat.DNat44_StaticMapping) (nat_types.NatConfigFlags, error) {
	switch mode := sm.GetTwiceNat(); mode {
	case nat.DNat44_StaticMapping_DISABLED:
		return nat_types.NAT_IS_OUT2IN_ONLY, nil
	case nat.DNat44_StaticMapping_ENABLED:
		return nat_types.NAT_IS_OUT2IN_ONLY | nat_types.NAT_IS_TWICE_NAT, nil
	case nat.DNat44_StaticMapping_SELF:
		return nat_types.NAT_IS_OUT2IN_ONLY | nat_types.NAT_IS_SELF_TWICE_NAT, nil
	default:
		return 0, fmt.Errorf("twice_nat: unknown mode %d", mode)
	}
}

// compileLocals returns the backends that get new flows, and the drained ones: those of probability 0 beside others.
func compileLocals(ips []*nat.DNat44_StaticMapping_LocalIP) (taking, drained []local, err error) {
	all := make([]local, len(ips))
	sum := 0
	for i, ip := range ips {
		if all[i], err = compileLocal(ip); err != nil {
			return nil, nil, fmt.Errorf("local_ips[%d].%w", i, err)
		}
		sum += int(all[i].weight)
	}
	if limit := maxLocals - len(pads); len(all) > limit {
		return nil, nil, fmt.Errorf("local_ips: %d backends, VPP takes at most %d", len(all), limit)
	}
	if sum > maxWeights {
		return nil, nil, fmt.Errorf("local_ips: the probabilities add up to %d, VPP takes at most %d", sum, maxWeights)
	}
	taking = make([]local, 0, len(all))
	weighted := slices.ContainsFunc(ips, func(ip *nat.DNat44_StaticMapping_LocalIP) bool { return ip.GetProbability() > 0 })
	for i, l := range all {
		if weighted && ips[i].GetProbability() == 0 {
			drained = append(drained, l)
		} else {
			taking = append(taking, l)
		}
	}
	for _, list := range [][]local{all, taking, drained} {
		if !slices.IsSortedFunc(list, compareLocals) {
			slices.SortFunc(list, compareLocals)
		}
	}
	for i := 1; i < len(all); i++ {
		if all[i].sameLocal(all[i-1]) {
			return nil, nil, fmt.Errorf("local_ips: %s twice", netip.AddrPortFrom(netip.AddrFrom4(all[i].addr), all[i].port))
		}
	}
	return taking, drained, nil
}

func compileLocal(ip *nat.DNat44_StaticMapping_LocalIP) (l local, err error) {
	addr, err := descriptor.Parse4("local_ip", ip.GetLocalIp())
	if err != nil {
		return l, err
	}
	port, err := parsePort("local_port", ip.GetLocalPort())
	if err != nil {
		return l, err
	}
	weight := max(ip.GetProbability(), 1) // 0 means 1
	if weight > maxWeights {
		return l, fmt.Errorf("probability: %d is above %d", weight, maxWeights)
	}
	return local{addr: addr.As4(), port: port, weight: uint8(weight), vrf: ip.GetVrfId()}, nil
}

func compileIdentity(im *nat.DNat44_IdentityMapping) (id identity, err error) {
	if (im.GetIpAddress() == "") == (im.GetInterface() == "") {
		return id, errors.New("ip_address: give either this or interface")
	}
	if im.GetIpAddress() != "" {
		addr, err := descriptor.Parse4("ip_address", im.GetIpAddress())
		if err != nil {
			return id, err
		}
		id.addr = addr.As4()
	}
	if id.port, err = parsePort("port", im.GetPort()); err != nil {
		return id, err
	}
	id.iface, id.vrf = im.GetInterface(), im.GetVrfId()
	if id.port != 0 { // VPP drops the protocol of a whole address
		if id.proto, err = parseProto(im.GetProtocol()); err != nil {
			return id, err
		}
	}
	return id, nil
}

func parsePort(field string, p uint32) (uint16, error) {
	if p > 65535 {
		return 0, fmt.Errorf("%s: %d is above 65535", field, p)
	}
	return uint16(p), nil
}

func parseProto(p nat.DNat44_Protocol) (uint8, error) {
	switch p {
	case nat.DNat44_TCP:
		return descriptor.ProtoTCP, nil
	case nat.DNat44_UDP:
		return descriptor.ProtoUDP, nil
	case nat.DNat44_ICMP:
		return 0, errors.New("protocol: ICMP has no ports to map; give ports 0 to map the whole address")
	}
	return 0, fmt.Errorf("protocol: unknown %d", p)
}

func (d *dnat) dependencies() []descriptor.Dependency {
	deps := append(make([]descriptor.Dependency, 0, 2), descriptor.Dependency{Key: kv.Nat44GlobalKey}) // and mostly a pool
	twice := false
	add := func(dep descriptor.Dependency) {
		if !slices.Contains(deps, dep) {
			deps = append(deps, dep)
		}
	}
	for i := range d.mappings {
		m := &d.mappings[i]
		twice = twice || m.flags&(nat_types.NAT_IS_TWICE_NAT|nat_types.NAT_IS_SELF_TWICE_NAT) != 0
		for _, list := range [][]local{m.locals, m.drained} {
			for _, l := range list {
				if l.vrf != 0 {
					add(descriptor.Dependency{Key: descriptor.VRFKey(l.vrf, false)})
				}
			}
		}
	}
	if twice {
		add(descriptor.Dependency{AnyOf: pool.TwiceNATPrefix})
	}
	if ranges, restricted := kv.Restricts(d.label); restricted {
		add(descriptor.Dependency{Key: kv.SourceRangesKey(ranges)})
		add(descriptor.Dependency{Key: kv.SourceRangesEnforcedKey})
	}
	for _, i := range d.identities {
		if i.iface != "" {
			add(descriptor.Dependency{Key: kv.InterfaceKey(i.iface)})
		}
		if i.vrf != 0 {
			add(descriptor.Dependency{Key: descriptor.VRFKey(i.vrf, false)})
		}
	}
	return deps
}

func (d *dnat) claims() []string {
	out := make([]string, 0, len(d.mappings)+len(d.identities))
	for _, m := range d.mappings {
		out = append(out, m.id.claim())
	}
	for _, i := range d.identities {
		out = append(out, newNATID(i.addr, i.port, i.proto).claim())
	}
	if _, restricted := kv.Restricts(d.label); restricted {
		out = append(out, acl.RestrictedClaim)
	}
	return out
}

func equalDNat(have, want *dnat) bool {
	return slices.EqualFunc(have.mappings, want.mappings, equalMapping) && slices.Equal(have.identities, want.identities)
}

// equalMapping reports that VPP needs no request. A backend that is to be drained and that VPP lacks has no flows that VPP could keep.
func equalMapping(have, want mapping) bool {
	return have.id == want.id && have.flags == want.flags && have.tag == want.tag && have.single == want.single && have.raw == nil && want.raw == nil &&
		slices.Equal(have.locals, want.locals) && !slices.ContainsFunc(have.drained, func(l local) bool { return !slices.ContainsFunc(want.drained, l.sameLocal) })
}

func (d *dnat) dnatMessage() *nat.DNat44 {
	out := &nat.DNat44{Label: d.label}
	for _, m := range d.mappings {
		sm := &nat.DNat44_StaticMapping{ExternalIp: netip.AddrFrom4(m.id.addr()).String(), ExternalPort: uint32(m.id.externalPort()), SessionAffinity: m.affinity}
		if m.id.proto() == descriptor.ProtoUDP {
			sm.Protocol = nat.DNat44_UDP
		}
		switch {
		case m.flags&nat_types.NAT_IS_TWICE_NAT != 0:
			sm.TwiceNat = nat.DNat44_StaticMapping_ENABLED
		case m.flags&nat_types.NAT_IS_SELF_TWICE_NAT != 0:
			sm.TwiceNat = nat.DNat44_StaticMapping_SELF
		}
		for i, l := range slices.Concat(m.locals, m.drained) {
			ip := &nat.DNat44_StaticMapping_LocalIP{VrfId: l.vrf, LocalIp: netip.AddrFrom4(l.addr).String(), LocalPort: uint32(l.port)}
			if i < len(m.locals) {
				ip.Probability = uint32(l.weight)
			}
			sm.LocalIps = append(sm.LocalIps, ip)
		}
		out.StMappings = append(out.StMappings, sm)
	}
	for _, i := range d.identities {
		im := &nat.DNat44_IdentityMapping{VrfId: i.vrf, Interface: i.iface, Port: uint32(i.port)}
		if i.addr != [4]byte{} {
			im.IpAddress = netip.AddrFrom4(i.addr).String()
		}
		if i.proto == descriptor.ProtoUDP {
			im.Protocol = nat.DNat44_UDP
		}
		out.IdMappings = append(out.IdMappings, im)
	}
	return out
}

// Restriction implements acl.Restricted.
func (d *dnat) Restriction() string {
	label, _ := kv.Restricts(d.label)
	return label
}

// Frontends implements acl.Restricted.
func (d *dnat) Frontends() (out []acl.Frontend) {
	for _, m := range d.mappings {
		out = append(out, acl.Frontend{Addr: netip.AddrFrom4(m.id.addr()), Port: m.id.externalPort(), Proto: m.id.proto()})
	}
	return out
}
