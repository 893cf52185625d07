package l2

import (
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/l2"

	"github.com/contiv-agent/contiv-agent/kv"
	ligato "github.com/contiv-agent/contiv-agent/proto/ligato/vpp/l2"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

// bridgeMember is an interface in a bridge domain of ours: derived, with the bridge domain as its base. It is comparable.
type bridgeMember struct {
	domain, iface string
	bvi           bool
	group         uint8 // split horizon; 0: none
}

// BridgeMember describes the value that a BridgeDomain derives for each of its interfaces. The agent removes unwanted members
// from a bridge domain of ours, as it does with addresses of an interface of ours.
func BridgeMember() *descriptor.Descriptor {
	return descriptor.Spec[*ligato.BridgeDomain, *bridgeMember]{
		Name: "bridge-member", Prefix: "vpp/bd/*/interface/", Tagged: true,
		Compile: descriptor.NoMessage[*ligato.BridgeDomain, *bridgeMember], Message: func(*bridgeMember) *ligato.BridgeDomain { return nil },
		Equal: func(have, want *bridgeMember) bool { return *have == *want },
		Dependencies: func(m *bridgeMember) []descriptor.Dependency {
			return []descriptor.Dependency{{Key: kv.InterfaceKey(m.iface)}}
		},
		Claims: func(m *bridgeMember) []string {
			if m.bvi {
				return []string{l2Claim(m.iface), "bvi of " + m.domain}
			}
			return []string{l2Claim(m.iface)}
		},
		Create:   func(w *descriptor.World, m *bridgeMember) ([]descriptor.Op, error) { return m.sendMember(w, true) },
		Delete:   func(w *descriptor.World, m *bridgeMember) ([]descriptor.Op, error) { return m.sendMember(w, false) },
		Dumps:    func(*descriptor.World, descriptor.Candidates) []descriptor.Request { return bridgeRequests() },
		Retrieve: retrieveMembers,
	}.Descriptor()
}

// l2Claim is the claim of an interface's place at layer 2: a member of one bridge domain, or one end of a cross-connect.
func l2Claim(iface string) string { return "layer 2 of " + iface }

func (m *bridgeMember) sendMember(w *descriptor.World, add bool) ([]descriptor.Op, error) {
	id, err := bridgeID(w, m.domain)
	if err != nil {
		return nil, err
	}
	idx, err := w.Index(m.iface)
	if err != nil {
		return nil, err
	}
	msg := &l2.SwInterfaceSetL2Bridge{RxSwIfIndex: idx, BdID: id, Shg: m.group, Enable: add}
	if m.bvi {
		msg.PortType = l2.L2_API_PORT_TYPE_BVI
	}
	op := descriptor.Op{Call: descriptor.Write(msg), Gone: !add}
	if add {
		op.Takes.Name = l2Claim(m.iface)
	} else {
		op.Frees.Name = l2Claim(m.iface)
	}
	return []descriptor.Op{op}, nil
}

func retrieveMembers(w *descriptor.World, d *descriptor.Dump, c descriptor.Candidates) ([]descriptor.Found, error) {
	all, err := descriptor.Details[*l2.BridgeDomainDetails](d, idBridges)
	if err != nil {
		return nil, err
	}
	type place struct {
		domain string
		index  interface_types.InterfaceIndex
	}
	called := map[place]string{} // names in values: an interface may have several
	c.Each(func(_ string, state any, wanted bool) {
		m := state.(*bridgeMember)
		if idx, err := w.Index(m.iface); err == nil && (wanted || called[place{m.domain, idx}] == "") {
			called[place{m.domain, idx}] = m.iface
		}
	})
	var out []descriptor.Found
	for _, b := range all {
		_, domain, ours := descriptor.ParseTag(descriptor.FixedText(b.BdTag), "b", false)
		if !ours {
			continue
		}
		for _, i := range b.SwIfDetails {
			m := &bridgeMember{domain: domain, iface: called[place{domain, i.SwIfIndex}], bvi: i.SwIfIndex == b.BviSwIfIndex, group: i.Shg}
			if m.iface == "" {
				m.iface = w.Name(uint32(i.SwIfIndex))
			}
			out = append(out, descriptor.Found{
				Key: kv.BridgeDomainInterfaceKey(domain, m.iface), Base: kv.BridgeDomainKey(domain), State: m, Ours: true,
			})
		}
	}
	return out, nil
}
