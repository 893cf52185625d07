package acl

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"go.fd.io/govpp/binapi/acl_types"
	"go.fd.io/govpp/binapi/ip_types"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/proto/contiv/vpp/nat"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

// Source ranges limit the clients of addresses that NAT44 translates. NAT44 itself has one mapping for every client, and its
// nodes run behind those of the ACL plugin. So an ACL of rules that only deny is the first in the input list of every NAT44
// interface.
//
//	SourceRanges …  ─ parts ─▶ enforcement ─ parts ─▶ the ACL of all, and the first place in InterfaceACLs
//	Nat44Interface … ─┘             ▲
//	                                └─ needed by ─ DNat44 restricted/…
//
// A restricted mapping is made last, after VPP acknowledged that ACL and all those lists, and is removed first. An interface gets
// NAT44 only when its list has the ACL.
const (
	sourceRangesPrefix = "config/contiv/vpp/v1/source-ranges/"
	// rangesKey is the ACL that denies all clients outside the ranges; permitKey is the ACL behind it if the list has no other.
	rangesKey = "vpp/acl/source-ranges"
	permitKey = "vpp/acl/permit-all"
	// RestrictedClaim is the claim of every restricted mapping, natClaim that of NAT44 on an interface. The ACL loses no rule
	// before all restricted mappings that lose it are removed, and a list does not lose the ACL before NAT44 leaves its interface.
	RestrictedClaim = "source ranges"
	// natInterfaceValues is the prefix of the keys of NAT44 on interfaces.
	natInterfaceValues = "config/vpp/nat/v2/nat44-interface/"
)

// NATClaim is the claim of NAT44 on an interface.
func NATClaim(iface string) string { return "nat44 on " + iface }

// Frontend is an address, port and protocol that clients dial.
type Frontend struct {
	Addr  netip.Addr
	Port  uint16
	Proto uint8
}

// String is "tcp 10.96.0.10:80".
func (f Frontend) String() string {
	return descriptor.ProtoName(f.Proto) + " " + netip.AddrPortFrom(f.Addr, f.Port).String()
}

// sourceRanges is a compiled SourceRanges. VPP has no such object: see enforcement.
type sourceRanges struct {
	label     string
	frontends []Frontend
	ranges    []netip.Prefix
	rules     []acl_types.ACLRule
}

// SourceRanges describes which clients may dial the addresses of one label.
func SourceRanges() *descriptor.Descriptor {
	return descriptor.Spec[*nat.SourceRanges, *sourceRanges]{
		Name: "source-ranges", Prefix: sourceRangesPrefix, Tagged: true,
		Compile: compileSourceRanges, Message: (*sourceRanges).message,
		Equal: func(have, want *sourceRanges) bool {
			return slices.Equal(have.frontends, want.frontends) && slices.Equal(have.ranges, want.ranges)
		},
		Dependencies: func(*sourceRanges) []descriptor.Dependency {
			return []descriptor.Dependency{{Key: kv.SourceRangesEnforcedKey}}
		},
		Derived: func(s *sourceRanges) []descriptor.Derived {
			return []descriptor.Derived{{Key: kv.SourceRangesEnforcedKey, State: s}}
		},
		Create: func(*descriptor.World, *sourceRanges) ([]descriptor.Op, error) { return nil, nil },
		Update: func(*descriptor.World, *sourceRanges, *sourceRanges) ([]descriptor.Op, error) { return nil, nil },
		Delete: func(*descriptor.World, *sourceRanges) ([]descriptor.Op, error) { return nil, nil },
		Dumps:  func(*descriptor.World, descriptor.Candidates) []descriptor.Request { return nil },
		Retrieve: func(w *descriptor.World, _ *descriptor.Dump, c descriptor.Candidates) (out []descriptor.Found, _ error) {
			c.Each(func(key string, state any, wanted bool) {
				if wanted && factsOf(w).enforced {
					out = append(out, descriptor.Found{Key: key, State: state, Ours: true})
				}
			})
			return out, nil
		},
	}.Descriptor()
}

func compileSourceRanges(_ string, m *nat.SourceRanges) (*sourceRanges, error) {
	s := &sourceRanges{label: m.GetLabel()}
	switch {
	case s.label == "":
		return nil, errors.New("label: empty")
	case len(m.GetFrontends()) == 0:
		return nil, errors.New("frontends: empty")
	}
	for i, f := range m.GetFrontends() {
		addr, err := descriptor.Parse4("address", f.GetAddress())
		if err != nil {
			return nil, fmt.Errorf("frontends[%d].%w", i, err)
		}
		one := Frontend{Addr: addr, Port: uint16(f.GetPort()), Proto: uint8(f.GetProtocol())}
		switch {
		case f.GetPort() == 0 || f.GetPort() > maxPort:
			return nil, fmt.Errorf("frontends[%d].port: %d is not 1 to %d", i, f.GetPort(), maxPort)
		case f.GetProtocol() != descriptor.ProtoTCP && f.GetProtocol() != descriptor.ProtoUDP:
			return nil, fmt.Errorf("frontends[%d].protocol: %d is neither TCP nor UDP", i, f.GetProtocol())
		case slices.Contains(s.frontends, one):
			return nil, fmt.Errorf("frontends[%d]: %s twice", i, one)
		}
		s.frontends = append(s.frontends, one)
	}
	for i, r := range m.GetRanges() {
		p, err := parseNetwork(fmt.Sprintf("ranges[%d]", i), r)
		switch {
		case err != nil:
			return nil, err
		case !p.Addr().Is4():
			return nil, fmt.Errorf("ranges[%d]: %q is not IPv4", i, r)
		}
		s.ranges = append(s.ranges, p)
	}
	// A list of an interface ends with the first rule that matches. A rule that permits clients would let them pass all later lists, so the
	// rules deny all other clients.
	others := slices.Collect(model.OutsideIPv4(s.ranges))
	for _, f := range s.frontends {
		to := descriptor.ToPrefix(netip.PrefixFrom(f.Addr, 32))
		for _, from := range others {
			s.rules = append(s.rules, acl_types.ACLRule{
				SrcPrefix: descriptor.ToPrefix(from), DstPrefix: to, Proto: ip_types.IPProto(f.Proto), SrcportOrIcmptypeLast: maxPort,
				DstportOrIcmpcodeFirst: f.Port, DstportOrIcmpcodeLast: f.Port,
			})
		}
	}
	return s, nil
}

func (s *sourceRanges) message() *nat.SourceRanges {
	m := &nat.SourceRanges{Label: s.label}
	for _, f := range s.frontends {
		m.Frontends = append(m.Frontends, &nat.SourceRanges_Frontend{Address: f.Addr.String(), Port: uint32(f.Port), Protocol: uint32(f.Proto)})
	}
	for _, r := range s.ranges {
		m.Ranges = append(m.Ranges, r.String())
	}
	return m
}

// enforcement is the common state of all source ranges and all NAT44 interfaces.
type enforcement struct {
	rules      []acl_types.ACLRule // rules of the ACL; each denies
	interfaces []string            // whose input lists begin with it, sorted
}

// withFront returns an input list with the ACL of source ranges in front; in an otherwise empty list, a second ACL permits all other
// packets.
func withFront(in []string) []string {
	if len(in) == 0 {
		in = []string{permitKey}
	}
	return append([]string{rangesKey}, in...)
}

// fronted reports that the input list begins with the ACL of source ranges; opened reports that the list would be empty without it.
func (l *accessLists) fronted() bool { return len(l.in) > 0 && l.in[0] == rangesKey }
func (l *accessLists) opened() bool  { return l.fronted() && l.in[1] == permitKey }

// reachFront omits the front while VPP lacks its ACLs, and returns what is missing: policies and pods must not suffer from it,
// and no restricted mapping is made before every list has the front. If VPP has such a mapping and the lists, held reports that
// they stay unchanged.
func reachFront(w *descriptor.World, have, want *accessLists, in func(key string) any) (_ *accessLists, missing []string, held bool) {
	if !want.fronted() {
		return want, nil, false
	}
	there := true
	for _, k := range want.in[:2] {
		if !fixed(k) {
			continue
		}
		if in(k) == nil {
			missing = append(missing, k)
		}
		_, has := factsOf(w).acls.index[k]
		there = there && has
	}
	l := *want
	if there {
		l.keepFront = in(rangesKey) == nil // an attached older ACL protects the present mappings
		return &l, missing, false
	}
	if l.in = l.in[1:]; want.opened() {
		l.in = nil
	}
	return &l, missing, len(have.in) > 0 && len(restrictedMappings(w)) > 0
}

// NATPart is an interface that has NAT44, as a part of enforcement.
type NATPart string

// frontPart puts the ACL of source ranges in front of the input list of an interface.
type frontPart string

// SourceRangesEnforced describes the enforcement of source ranges. It writes nothing itself: its parts are written, and then it
// checks that every interface has them.
func SourceRangesEnforced() *descriptor.Descriptor {
	d := descriptor.Spec[*nat.SourceRanges, *enforcement]{
		Name: "source-ranges-enforced", Prefix: kv.SourceRangesEnforcedKey, Tagged: true,
		Compile: descriptor.NoMessage[*nat.SourceRanges, *enforcement], Message: func(*enforcement) *nat.SourceRanges { return nil },
		Equal: func(have, want *enforcement) bool {
			return slices.Equal(have.rules, want.rules) && slices.Equal(have.interfaces, want.interfaces)
		},
		Dependencies: (*enforcement).dependencies,
		Create:       func(*descriptor.World, *enforcement) ([]descriptor.Op, error) { return nil, nil },
		Update:       func(*descriptor.World, *enforcement, *enforcement) ([]descriptor.Op, error) { return nil, nil },
		Delete:       func(*descriptor.World, *enforcement) ([]descriptor.Op, error) { return nil, nil },
		Dumps:        func(*descriptor.World, descriptor.Candidates) []descriptor.Request { return nil },
		Retrieve:     retrieveEnforcement,
	}.Descriptor()
	d.Merge = mergeEnforcement
	d.Ready = readyEnforcement
	d.Derived = func(state any) []descriptor.Derived {
		e := state.(*enforcement)
		parts := []descriptor.Derived{{Key: rangesKey, State: newRangesACL(e.rules)}}
		for _, name := range e.interfaces {
			parts = append(parts, descriptor.Derived{Key: kv.InterfaceACLsKey(name), State: frontPart(name)})
		}
		return parts
	}
	return d
}

// mergeEnforcement returns no value if only interfaces give parts.
func mergeEnforcement(_ any, parts []any) any {
	e, restricted := &enforcement{}, false
	for _, p := range parts {
		switch p := p.(type) {
		case NATPart:
			e.interfaces = append(e.interfaces, string(p))
		case *sourceRanges:
			e.rules, restricted = append(e.rules, p.rules...), true
		}
	}
	if !restricted {
		return nil
	}
	slices.Sort(e.interfaces)
	return e
}

func (e *enforcement) dependencies() []descriptor.Dependency {
	deps := []descriptor.Dependency{{Key: rangesKey, Loose: true}}
	for _, name := range e.interfaces {
		deps = append(deps, descriptor.Dependency{Key: kv.InterfaceACLsKey(name), Loose: true})
	}
	return deps
}

// readyEnforcement refuses with the name of an interface whose packets would be translated without a check of ranges.
func readyEnforcement(w *descriptor.World, _, want any, sure func(key string) any) error {
	if sure(rangesKey) == nil {
		return errors.New("VPP does not have the access list of source ranges")
	}
	for _, name := range want.(*enforcement).interfaces {
		if err := checkAsksFirst(w, name); err != nil {
			return err
		}
	}
	return nil
}

// ReadyMapping returns why a restricted mapping must not be made now. An interface that is to lose NAT44 counts until it has lost it.
func ReadyMapping(w *descriptor.World, sure func(key string) any) error {
	e, ok := w.Wanted(kv.SourceRangesEnforcedKey).(*enforcement)
	if !ok {
		return errors.New("there are no source ranges")
	}
	for _, state := range w.Having(natInterfaceValues) {
		if err := checkAsksFirst(w, state.(Translated).NATInterface()); err != nil {
			return err
		}
	}
	return readyEnforcement(w, nil, e, sure)
}

// Restricted is a state that VPP translates for some clients only, and that depends on the enforcement of source ranges.
type Restricted interface {
	// Restriction is the label of the source ranges.
	Restriction() string
	// Frontends are the addresses that clients dial.
	Frontends() []Frontend
}

// Translated is NAT44 on an interface.
type Translated interface {
	// NATInterface is the name of the interface.
	NATInterface() string
}

// restrictedMappings returns the restricted mappings in VPP.
func restrictedMappings(w *descriptor.World) (out []Restricted) {
	for _, state := range w.Needing(kv.SourceRangesEnforcedKey) {
		if r, ok := state.(Restricted); ok {
			out = append(out, r)
		}
	}
	return out
}

// readyRanges keeps the rules while VPP has a mapping that would lose its rules.
func readyRanges(w *descriptor.World, have, _ any, _ func(key string) any) error {
	if have == nil {
		return nil
	}
	for _, d := range restrictedMappings(w) {
		s, ok := w.Wanted(kv.SourceRangesKey(d.Restriction())).(*sourceRanges)
		for _, f := range d.Frontends() {
			if !ok || !slices.Contains(s.frontends, f) {
				return fmt.Errorf("%s is still translated", f)
			}
		}
	}
	return nil
}

// readyLists keeps the ACL of source ranges in front of the list of a NAT44 interface while VPP has restricted mappings.
func readyLists(w *descriptor.World, have, wants any, _ func(key string) any) error {
	want := wants.(*accessLists)
	i, ok := w.Interface(want.iface)
	if have == nil || want.fronted() || !ok || len(factsOf(w).lists[i.Index].in) == 0 || !Front(w, factsOf(w).lists[i.Index].in[0]) {
		return nil
	}
	for _, state := range w.Needing(want.key) {
		if _, nat := state.(Translated); nat && len(restrictedMappings(w)) > 0 {
			return errors.New("what is translated for some clients only is still there")
		}
	}
	return nil
}

// ReadyInterface returns why an interface must not get NAT44 now.
func ReadyInterface(w *descriptor.World, name string) error {
	if len(restrictedMappings(w)) == 0 {
		return nil
	}
	return checkAsksFirst(w, name)
}

// checkAsksFirst returns an error if VPP has the interface and its list does not begin with the ACL of source ranges.
func checkAsksFirst(w *descriptor.World, name string) error {
	if i, ok := w.Interface(name); ok && !asksFirst(w, i.Index) {
		return fmt.Errorf("interface %s does not ask for source ranges", name)
	}
	return nil
}

// asksFirst reports that the input list of an interface begins with the ACL of source ranges, or denies everything.
func asksFirst(w *descriptor.World, index uint32) bool {
	in := factsOf(w).lists[index].in
	if len(in) == 0 {
		return false
	}
	key, ours := factsOf(w).acls.key[in[0]]
	return ours && (key == denyKey || key == rangesKey && factsOf(w).acls.index[rangesKey] == in[0])
}

// Front reports that an ACL of VPP is the one of source ranges.
func Front(w *descriptor.World, index uint32) bool { return factsOf(w).acls.key[index] == rangesKey }

// SourceRangesRules returns the number of rules of a value in the common ACL, the same number for each of its frontends; 0 if the
// value is invalid. The rules of several values follow each other in the order of their keys.
func SourceRangesRules(m *nat.SourceRanges) int {
	s, err := compileSourceRanges("", m)
	if err != nil {
		return 0
	}
	return len(s.rules)
}

// retrieveEnforcement uses earlier findings: ACLs and lists.
func retrieveEnforcement(w *descriptor.World, _ *descriptor.Dump, c descriptor.Candidates) ([]descriptor.Found, error) {
	factsOf(w).enforced = false
	if _, there := factsOf(w).acls.index[rangesKey]; !there {
		return nil, nil
	}
	have := &enforcement{}
	want, ok := c.Wanted(kv.SourceRangesEnforcedKey).(*enforcement)
	if ok && newRangesACL(want.rules).tag == factsOf(w).acls.tag[rangesKey] {
		have.rules = want.rules
		for _, name := range want.interfaces {
			if i, known := w.Interface(name); known && asksFirst(w, i.Index) {
				have.interfaces = append(have.interfaces, name)
			}
		}
		factsOf(w).enforced = slices.Equal(have.interfaces, want.interfaces)
	}
	if !factsOf(w).enforced { // the order of removals matters nevertheless
		have.interfaces = nil
		for _, i := range w.Interfaces() {
			if asksFirst(w, i.Index) {
				have.interfaces = append(have.interfaces, i.Name)
			}
		}
	}
	return []descriptor.Found{{Key: kv.SourceRangesEnforcedKey, State: have, Ours: true}}, nil
}

// newRangesACL is the state of RangesACL.
func newRangesACL(rules []acl_types.ACLRule) *accessList {
	return &accessList{key: rangesKey, name: "source-ranges", tag: descriptor.NewTag("s", rulesPrint(rules), "all"), rules: rules}
}

// newPermitACL is the state of PermitACL. It permits without reflecting: an interface without a list has no sessions.
func newPermitACL() *accessList {
	l := &accessList{key: permitKey, name: "permit-all", tag: descriptor.NewTag("p", "", "all"), rules: newDenyACL().rules}
	for i := range l.rules {
		l.rules[i].IsPermit = acl_types.ACL_ACTION_API_PERMIT
	}
	return l
}

// RangesACL describes the ACL that denies clients outside the source ranges.
func RangesACL() *descriptor.Descriptor {
	d := fixedACL("acl-source-ranges", rangesKey, "s", true, func() *accessList { return newRangesACL(nil) })
	d.Dependencies = func(any) []descriptor.Dependency { return []descriptor.Dependency{{Without: RestrictedClaim}} }
	d.Ready = readyRanges
	return d
}

// PermitACL describes the ACL that permits everything.
func PermitACL() *descriptor.Descriptor {
	return fixedACL("acl-permit", permitKey, "p", false, newPermitACL)
}
