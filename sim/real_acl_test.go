package sim

import (
	"net/netip"
	"strings"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/acl_types"
	"go.fd.io/govpp/binapi/ip_types"
)

// acl returns a request to the ACL plugin, one in three of them invalid.
func (g *generator) acl() api.Message {
	switch g.r.IntN(8) {
	case 0, 1, 2:
		m := &acl.ACLAddReplace{ACLIndex: pick[uint32](g, noIndex, noIndex, 0, 1, 2), Tag: pick(g, "", "ca1:x", strings.Repeat("t", 63), strings.Repeat("t", 64))}
		for range g.r.IntN(4) {
			m.R = append(m.R, g.aclRule())
		}
		return m
	case 3:
		return &acl.ACLDel{ACLIndex: uint32(g.r.IntN(5))}
	case 4, 5:
		m := &acl.ACLInterfaceSetACLList{SwIfIndex: g.index()}
		for range g.r.IntN(5) {
			m.Acls = append(m.Acls, uint32(g.r.IntN(4)))
		}
		m.NInput = uint8(g.r.IntN(6))
		return m
	case 6:
		return &acl.ACLInterfaceAddDel{SwIfIndex: g.index(), IsAdd: g.yes(), IsInput: g.r.IntN(2) > 0, ACLIndex: uint32(g.r.IntN(4))}
	}
	switch g.r.IntN(3) {
	case 0:
		return &acl.ACLInterfaceSetEtypeWhitelist{SwIfIndex: g.index(), NInput: uint8(g.r.IntN(3)), Whitelist: []uint16{0x88cc, 0x8100}[:g.r.IntN(3)]}
	case 1:
		return &acl.ACLStatsIntfCountersEnable{Enable: g.yes()}
	}
	return &acl.ACLPluginUseHashLookupSet{Enable: g.yes()}
}

func (g *generator) aclRule() acl_types.ACLRule {
	prefix := func() ip_types.Prefix {
		if g.r.IntN(4) == 0 {
			return ip_types.Prefix{Address: toAddress(netip.MustParseAddr("2001:db8::")), Len: pick[uint8](g, 32, 128, 129, 31, 0)}
		}
		return ip_types.Prefix{Address: toAddress(netip.MustParseAddr("10.1.2.0")), Len: pick[uint8](g, 24, 24, 24, 31, 32, 33, 16)}
	}
	r := acl_types.ACLRule{
		IsPermit: acl_types.ACLAction(g.r.IntN(4)), SrcPrefix: prefix(), DstPrefix: prefix(), Proto: pick[ip_types.IPProto](g, 0, 1, 6, 17, 58),
		SrcportOrIcmptypeFirst: pick[uint16](g, 0, 0, 0, 8), SrcportOrIcmptypeLast: pick[uint16](g, 65535, 65535, 8, 7),
		DstportOrIcmpcodeLast: pick[uint16](g, 65535, 9, 0), TCPFlagsMask: uint8(g.r.IntN(3)), TCPFlagsValue: uint8(g.r.IntN(3)),
	}
	if g.yes() {
		r.DstPrefix = r.SrcPrefix
	}
	return r
}

func (g *generator) macip() api.Message {
	var rules []acl_types.MacipACLRule
	for range g.r.IntN(3) {
		rules = append(rules, acl_types.MacipACLRule{
			IsPermit: acl_types.ACLAction(g.r.IntN(2)), SrcMac: [6]byte{2, 3}, SrcMacMask: [6]byte{255, 255},
			SrcPrefix: ip_types.Prefix{Address: toAddress(netip.MustParseAddr("10.1.2.3")), Len: pick[uint8](g, 32, 24, 0)},
		})
	}
	switch tag := pick(g, "", "m", strings.Repeat("m", 64)); g.r.IntN(6) {
	case 0:
		return &acl.MacipACLAdd{Tag: tag, R: rules}
	case 1:
		return &acl.MacipACLAddReplace{ACLIndex: pick[uint32](g, noIndex, 0, 1, 2), Tag: tag, R: rules}
	case 2:
		return &acl.MacipACLDel{ACLIndex: uint32(g.r.IntN(3))}
	}
	return &acl.MacipACLInterfaceAddDel{SwIfIndex: g.index(), IsAdd: g.yes(), ACLIndex: uint32(g.r.IntN(3))}
}
