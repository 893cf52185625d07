package sim

import (
	"net/netip"
	"slices"
	"strings"

	cnatapi "go.fd.io/govpp/binapi/cnat"
	featureapi "go.fd.io/govpp/binapi/feature"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip_types"

	"github.com/contiv-agent/contiv-agent/sim/cnat"
)

// cnatMessages: cnat 0.3.0, and feature_enable_disable, which puts the plugin's nodes on interfaces.
func cnatMessages(t *apiTable) {
	onWrite(t, func(q *call, m *cnatapi.CnatTranslationUpdate) *cnatapi.CnatTranslationUpdateReply {
		id, rv := q.translationUpdate(&m.Translation)
		return &cnatapi.CnatTranslationUpdateReply{Retval: rv, ID: id}
	})
	t.handlers[nameCRC(&cnatapi.CnatTranslationUpdate{})].fits = arrayFits(24+8, 24+24+1)
	onWrite(t, func(q *call, m *cnatapi.CnatTranslationDel) *cnatapi.CnatTranslationDelReply {
		return &cnatapi.CnatTranslationDelReply{Retval: q.cnat.TranslationDel(m.ID)}
	})
	onDump(t, func(q *call, _ *cnatapi.CnatTranslationDump, send func(*cnatapi.CnatTranslationDetails)) {
		for _, tr := range q.cnat.Translations() {
			send(&cnatapi.CnatTranslationDetails{Translation: encodeTranslation(&tr)})
		}
	})
	onWrite(t, func(q *call, _ *cnatapi.CnatSessionPurge) *cnatapi.CnatSessionPurgeReply {
		return &cnatapi.CnatSessionPurgeReply{Retval: q.cnat.Purge()}
	})
	onDump(t, func(q *call, _ *cnatapi.CnatSessionDump, send func(*cnatapi.CnatSessionDetails)) {
		for _, s := range q.cnat.Sessions() {
			send(&cnatapi.CnatSessionDetails{Session: cnatapi.CnatSession{
				Src: tupleEnd(s.Match.Src, s.Match.SrcPort), Dst: tupleEnd(s.Match.Dst, s.Match.DstPort), New: tupleEnd(s.New.Dst, s.New.DstPort),
				IPProto: ip_types.IPProto(s.Proto), Location: uint8(s.Location),
			}})
		}
	})
	snatMessages(t)
	onWrite(t, func(q *call, m *featureapi.FeatureEnableDisable) *featureapi.FeatureEnableDisableReply {
		rv := q.onInterface(m.SwIfIndex, func(f *iface) int32 { return q.featureEnable(f, m) })
		return &featureapi.FeatureEnableDisableReply{Retval: rv}
	})
}

func snatMessages(t *apiTable) {
	onWrite(t, func(q *call, m *cnatapi.CnatSetSnatAddresses) *cnatapi.CnatSetSnatAddressesReply {
		rv := q.cnat.SetSNATAddresses(netip.AddrFrom4(m.SnatIP4), netip.AddrFrom16(m.SnatIP6), uint32(m.SwIfIndex))
		return &cnatapi.CnatSetSnatAddressesReply{Retval: rv}
	})
	onRead(t, func(q *call, _ *cnatapi.CnatGetSnatAddresses) *cnatapi.CnatGetSnatAddressesReply {
		v4, v6, swIf := q.cnat.SNATAddresses()
		return &cnatapi.CnatGetSnatAddressesReply{SnatIP4: v4.As4(), SnatIP6: v6.As16(), SwIfIndex: interface_types.InterfaceIndex(swIf)}
	})
	onWrite(t, func(q *call, m *cnatapi.CnatSetSnatPolicy) *cnatapi.CnatSetSnatPolicyReply {
		return &cnatapi.CnatSetSnatPolicyReply{Retval: q.cnat.SetSNATPolicy(cnat.Policy(m.Policy))}
	})
	onWrite(t, func(q *call, m *cnatapi.CnatSnatPolicyAddDelIf) *cnatapi.CnatSnatPolicyAddDelIfReply {
		rv := q.onInterface(m.SwIfIndex, func(f *iface) int32 {
			return q.cnat.SNATPolicyInterface(f.index, m.IsAdd != 0, cnat.Table(m.Table))
		})
		return &cnatapi.CnatSnatPolicyAddDelIfReply{Retval: rv}
	})
	onWrite(t, func(q *call, m *cnatapi.CnatSnatPolicyAddDelExcludePfx) *cnatapi.CnatSnatPolicyAddDelExcludePfxReply {
		return &cnatapi.CnatSnatPolicyAddDelExcludePfxReply{Retval: q.cnat.SNATExcludePrefix(fromPrefix(m.Prefix), m.IsAdd != 0)}
	})
}

// translationUpdate: is_real_ip is a flag of the plugin, inverted.
func (v *VPP) translationUpdate(m *cnatapi.CnatTranslation) (id uint32, retval int32) {
	t := cnat.Translation{Proto: uint8(m.IPProto), Flags: uint8(m.Flags), LB: cnat.LBType(m.LbType), Hash: uint32(m.FlowHashConfig)}
	if m.IsRealIP == 0 {
		t.Flags |= cnat.Exclusive
	}
	for i := range m.Paths {
		src, ok1 := decodeEndpoint(&m.Paths[i].SrcEp)
		dst, ok2 := decodeEndpoint(&m.Paths[i].DstEp)
		if !ok1 || !ok2 {
			return noIndex, rvInvalidAddressFam
		}
		t.Paths = append(t.Paths, cnat.Path{Src: src, Dst: dst, Flags: uint8(m.Paths[i].Flags)})
	}
	var ok bool
	if t.VIP, ok = decodeEndpoint(&m.Vip); !ok {
		return noIndex, rvInvalidAddressFam
	}
	return v.cnat.TranslationUpdate(t)
}

// decodeEndpoint: with an interface the address is ignored, and if_af is the family.
func decodeEndpoint(e *cnatapi.CnatEndpoint) (cnat.Endpoint, bool) {
	d := cnat.Endpoint{SwIf: uint32(e.SwIfIndex), Port: e.Port}
	if d.SwIf == noIndex {
		d.Addr = fromAddress(e.Addr)
		return d, true
	}
	d.Addr = netip.IPv4Unspecified()
	if e.IfAf == ip_types.ADDRESS_IP6 {
		d.Addr = netip.IPv6Unspecified()
	}
	return d, e.IfAf <= ip_types.ADDRESS_IP6
}

func encodeEndpoint(e cnat.Endpoint) cnatapi.CnatEndpoint {
	d := cnatapi.CnatEndpoint{SwIfIndex: interface_types.InterfaceIndex(e.SwIf), Port: e.Port, IfAf: toAddress(e.Addr).Af}
	if e.Resolved() {
		d.Addr = toAddress(e.Addr)
	}
	return d
}

// encodeTranslation returns the content of a dump: without flags and hash, and with the plugin's internal flags of a path.
func encodeTranslation(t *cnat.Translation) cnatapi.CnatTranslation {
	m := cnatapi.CnatTranslation{
		Vip: encodeEndpoint(t.VIP), ID: t.ID, IPProto: ip_types.IPProto(t.Proto), LbType: cnatapi.CnatLbType(t.LB), NPaths: uint32(len(t.Paths)),
	}
	for _, p := range t.Paths {
		m.Paths = append(m.Paths, cnatapi.CnatEndpointTuple{
			DstEp: encodeEndpoint(p.Dst), SrcEp: encodeEndpoint(p.Src), Flags: p.Flags,
		})
	}
	return m
}

func tupleEnd(a netip.Addr, port uint16) cnatapi.CnatEndpoint {
	return cnatapi.CnatEndpoint{Addr: toAddress(a), SwIfIndex: interface_types.InterfaceIndex(noIndex), IfAf: toAddress(a).Af, Port: port}
}

// switchOff removes a node from an arc on which a plug-in had put it, or restores it; false: no such node. The plug-in does not
// notice.
func (v *VPP) switchOff(arc arcID, node string, f *iface, off bool) bool {
	if !strings.HasPrefix(node, "acl-plugin-") {
		return strings.HasPrefix(node, "nat") && v.nat.SwitchNode(f.index, node, !off)
	}
	k := featureKey{arc, node, f.index}
	delete(v.features.off, k)
	for _, n := range v.arcs[arc] {
		if n.name == node && n.on(f.index) && off {
			v.features.off[k] = true
		}
	}
	return true
}

// featureEnable is feature_enable_disable: a node that is enabled twice is on the arc twice, and disabling a missing node succeeds.
func (v *VPP) featureEnable(f *iface, m *featureapi.FeatureEnableDisable) int32 {
	text := func(s string) string { s, _, _ = strings.Cut(s, "\x00"); return s }
	for id, name := range arcNames() {
		if name == text(m.ArcName) && v.switchOff(arcID(id), text(m.FeatureName), f, !m.Enable) {
			return 0
		}
		if name != text(m.ArcName) || !slices.Contains(optional(arcID(id)), text(m.FeatureName)) {
			continue
		}
		k := featureKey{arcID(id), text(m.FeatureName), f.index}
		switch {
		case m.Enable:
			v.features.times[k]++
		case v.features.times[k] > 0:
			v.features.times[k]--
		}
		return 0
	}
	return rvInvalidValue
}
