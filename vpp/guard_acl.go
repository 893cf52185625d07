package vpp

import (
	"fmt"
	"net/netip"
	"strings"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/acl_types"
	"go.fd.io/govpp/binapi/ip_types"
)

const maxACLs = 255 // acl_interface_set_acl_list.count is a u8

func aclRules() []Rule {
	return []Rule{
		{
			Name:     "acl-list-length",
			Messages: []string{"acl_interface_set_acl_list"},
			Source:   "acl.api acl_interface_set_acl_list (u8 count, n_input), VPP 24.06",
			Harm:     "the count wraps: another, shorter list is applied",
			judge: func(_ *Guard, msg api.Message) string {
				m := msg.(*acl.ACLInterfaceSetACLList)
				switch n := len(m.Acls); {
				case n > maxACLs:
					return fmt.Sprintf("%d ACLs, at most %d", n, maxACLs)
				case int(m.NInput) > n:
					return fmt.Sprintf("%d input ACLs of %d", m.NInput, n)
				case m.Count != 0 && int(m.Count) != n:
					return fmt.Sprintf("count %d beside %d ACLs", m.Count, n)
				}
				return ""
			},
		}, {
			Name:     "acl-list-duplicate",
			Messages: []string{"acl_interface_set_acl_list"},
			Source:   "acl.c vl_api_acl_interface_set_acl_list_t_handler, VPP 24.06",
			Harm:     "retval 1 or -116 after the output direction has been applied already",
			judge:    func(_ *Guard, msg api.Message) string { return duplicateACL(msg.(*acl.ACLInterfaceSetACLList)) },
		}, {
			Name:     "acl-count",
			Messages: []string{"acl_add_replace", "macip_acl_add", "macip_acl_add_replace"},
			Source:   "acl.c verify_message_len, VPP 24.06",
			Harm:     "VPP refuses the message or applies other rules than meant",
			judge: func(_ *Guard, msg api.Message) string {
				count, n := aclCount(msg)
				return when(count != 0 && int(count) != n, "count %d beside %d rules", count, n)
			},
		}, {
			Name:     "acl-tag",
			Messages: []string{"acl_add_replace", "macip_acl_add", "macip_acl_add_replace"},
			Source:   "acl.c acl_add_list (clib_strnlen of tag), VPP 24.06",
			Harm:     "a tag of 64 bytes is refused, and a longer one is cut to that",
			judge:    func(_ *Guard, msg api.Message) string { return longTag(aclTag(msg)) },
		}, {
			Name:     "acl-prefix",
			Messages: []string{"acl_add_replace"},
			Source:   "acl.c acl_api_invalid_prefix, ip_types_api.c ip_prefix_decode2, VPP 24.06",
			Harm:     "one bad rule makes VPP refuse the whole table (-57): the old policy stays in force",
			judge:    eachRule(func(r acl_types.ACLRule) string { return badPrefixes(r.SrcPrefix, r.DstPrefix) }),
		}, {
			Name:     "acl-ip6-bits",
			Messages: []string{"acl_add_replace"},
			Source:   "public_inlines.h fa_acl_match_ip6_addr, VPP 24.06 (right from 25.06 on)",
			Stateful: true, // the same rule is harmless to another VPP
			Harm:     "it compares the wrong byte: what is in the prefix does not match, and without the hash lookup what is not in it may",
			judge: func(g *Guard, msg api.Message) string {
				if !g.byteIPv6 {
					return ""
				}
				return eachRule(splitByte)(g, msg)
			},
		}, {
			Name:     "acl-range",
			Messages: []string{"acl_add_replace"},
			Source:   "acl.c acl_add_list, public_inlines.h single_acl_match_5tuple, VPP 24.06",
			Harm:     "first > last makes VPP refuse the whole table (-8); an ICMP range beyond 255 never matches",
			judge:    eachRule(badRanges),
		}, {
			Name:     "acl-action",
			Messages: []string{"acl_add_replace"},
			Source:   "acl.c acl_add_list takes any is_permit; dataplane_node.c acl_fa_inner_node_fn, VPP 24.06",
			Harm:     "what is not 0 passes, without a session if it is not 2, and the error counters are read beyond their end",
			judge: eachRule(func(r acl_types.ACLRule) string {
				return when(r.IsPermit > acl_types.ACL_ACTION_API_PERMIT_REFLECT, "action %d", r.IsPermit)
			}),
		},
	}
}

func eachRule(judge func(acl_types.ACLRule) string) func(*Guard, api.Message) string {
	return func(_ *Guard, msg api.Message) string {
		for i, r := range msg.(*acl.ACLAddReplace).R {
			if why := judge(r); why != "" {
				return fmt.Sprintf("rule %d: %s", i, why)
			}
		}
		return ""
	}
}

func duplicateACL(m *acl.ACLInterfaceSetACLList) string {
	in := min(int(m.NInput), len(m.Acls))
	for _, direction := range [][]uint32{m.Acls[:in], m.Acls[in:]} {
		seen := make(map[uint32]bool, len(direction))
		for _, index := range direction {
			if seen[index] {
				return fmt.Sprintf("ACL %d twice in one direction", index)
			}
			seen[index] = true
		}
	}
	return ""
}

func aclCount(msg api.Message) (uint32, int) {
	switch m := msg.(type) {
	case *acl.ACLAddReplace:
		return m.Count, len(m.R)
	case *acl.MacipACLAdd:
		return m.Count, len(m.R)
	case *acl.MacipACLAddReplace:
		return m.Count, len(m.R)
	}
	return 0, 0
}

func aclTag(msg api.Message) string {
	switch m := msg.(type) {
	case *acl.ACLAddReplace:
		return m.Tag
	case *acl.MacipACLAdd:
		return m.Tag
	case *acl.MacipACLAddReplace:
		return m.Tag
	}
	return ""
}

func badPrefixes(src, dst ip_types.Prefix) string {
	if src.Address.Af != dst.Address.Af {
		return "source and destination of different families"
	}
	for _, p := range []ip_types.Prefix{src, dst} {
		if why := badPrefix(p); why != "" {
			return why
		}
	}
	return ""
}

func badPrefix(p ip_types.Prefix) string {
	var addr netip.Addr
	switch p.Address.Af {
	case ip_types.ADDRESS_IP4:
		addr = netip.AddrFrom4(p.Address.Un.GetIP4())
	case ip_types.ADDRESS_IP6:
		addr = netip.AddrFrom16(p.Address.Un.GetIP6())
	default:
		return fmt.Sprintf("address family %d", p.Address.Af)
	}
	prefix := netip.PrefixFrom(addr, int(p.Len))
	switch {
	case !prefix.IsValid():
		return fmt.Sprintf("%s/%d is too long", addr, p.Len)
	case prefix.Masked() != prefix:
		return fmt.Sprintf("%s has host bits set", prefix)
	}
	return ""
}

// splitByte returns the problem of IPv6 prefixes for a VPP that compares whole bytes.
func splitByte(r acl_types.ACLRule) string {
	for _, p := range []ip_types.Prefix{r.SrcPrefix, r.DstPrefix} {
		if p.Address.Af == ip_types.ADDRESS_IP6 && p.Len%8 != 0 {
			return fmt.Sprintf("%s ends within a byte, which this VPP matches wrongly: write it out as prefixes of a multiple of 8", p)
		}
	}
	return ""
}

// releasedBefore compares a VPP version such as v24.06-release with a release; false if it has another form.
func releasedBefore(version string, year, month int) bool {
	var y, m int
	if _, err := fmt.Sscanf(strings.TrimPrefix(version, "v"), "%d.%d", &y, &m); err != nil {
		return false
	}
	return y < year || y == year && m < month
}

// badRanges returns the problem of ports, or of ICMP types (in place of source ports) and codes (of destination ports).
func badRanges(r acl_types.ACLRule) string {
	sf, sl, df, dl := r.SrcportOrIcmptypeFirst, r.SrcportOrIcmptypeLast, r.DstportOrIcmpcodeFirst, r.DstportOrIcmpcodeLast
	switch {
	case sf > sl:
		return fmt.Sprintf("source range %d-%d", sf, sl)
	case df > dl:
		return fmt.Sprintf("destination range %d-%d", df, dl)
	}
	switch r.Proto {
	case ip_types.IP_API_PROTO_ICMP, ip_types.IP_API_PROTO_ICMP6:
		if sf > 255 || df > 255 { // an upper end of 65535 usually means "any"
			return fmt.Sprintf("ICMP type %d, code %d", sf, df)
		}
	case 0:
		if sf != 0 || df != 0 || sl != 65535 || dl != 65535 {
			return fmt.Sprintf("any protocol with ports %d-%d, %d-%d: VPP ignores them", sf, sl, df, dl)
		}
	}
	return ""
}
