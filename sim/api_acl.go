package sim

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strings"

	"go.fd.io/govpp/api"
	aclapi "go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/acl_types"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip_types"

	"github.com/contiv-agent/contiv-agent/sim/acl"
)

// The plugin's version (acl.h), which differs from that of its API.
const (
	aclMajor = 1
	aclMinor = 4
)

// aclHeader is what precedes the rules of acl_add_replace.
const aclHeader = 4 + 64 + 4

// aclMessages: acl.api 2.0.1.
func aclMessages(t *apiTable) {
	onRead(t, func(*call, *aclapi.ACLPluginGetVersion) *aclapi.ACLPluginGetVersionReply {
		return &aclapi.ACLPluginGetVersionReply{Major: aclMajor, Minor: aclMinor}
	})
	onRead(t, func(q *call, _ *aclapi.ACLPluginControlPing) *aclapi.ACLPluginControlPingReply {
		return &aclapi.ACLPluginControlPingReply{VpePID: q.pid()}
	})
	onRead(t, func(q *call, _ *aclapi.ACLPluginGetConnTableMaxEntries) *aclapi.ACLPluginGetConnTableMaxEntriesReply {
		return &aclapi.ACLPluginGetConnTableMaxEntriesReply{ConnTableMaxEntries: uint64(q.acl.MaxSessions())}
	})
	onRead(t, func(q *call, _ *aclapi.ACLPluginUseHashLookupGet) *aclapi.ACLPluginUseHashLookupGetReply {
		return &aclapi.ACLPluginUseHashLookupGetReply{Enable: q.acl.HashLookup()}
	})
	onWrite(t, func(q *call, m *aclapi.ACLPluginUseHashLookupSet) *aclapi.ACLPluginUseHashLookupSetReply {
		q.acl.SetHashLookup(m.Enable)
		return &aclapi.ACLPluginUseHashLookupSetReply{}
	})
	// VPP answers this one with the message id of another's reply (acl.c).
	onWrite(t, func(q *call, m *aclapi.ACLStatsIntfCountersEnable) *aclapi.ACLDelReply {
		q.acl.EnableCounters(m.Enable)
		return &aclapi.ACLDelReply{}
	})
	t.know(&aclapi.ACLStatsIntfCountersEnableReply{})
	aclRuleMessages(t)
	aclInterfaceMessages(t)
	macipMessages(t)
}

func aclRuleMessages(t *apiTable) {
	onWrite(t, func(q *call, m *aclapi.ACLAddReplace) *aclapi.ACLAddReplaceReply {
		i, rv := q.acl.AddReplace(m.ACLIndex, m.Tag, fromACLRules(m.R))
		return &aclapi.ACLAddReplaceReply{ACLIndex: i, Retval: rv}
	})
	t.handlers[nameCRC(&aclapi.ACLAddReplace{})].fits = arrayFits(aclHeader-4, 48)
	onWrite(t, func(q *call, m *aclapi.ACLDel) *aclapi.ACLDelReply {
		if q.abf.usesACL(m.ACLIndex) {
			return &aclapi.ACLDelReply{Retval: rvACLInLookup}
		}
		return &aclapi.ACLDelReply{Retval: q.acl.Del(m.ACLIndex)}
	})
	onDump(t, func(q *call, m *aclapi.ACLDump, _ func(*aclapi.ACLDetails)) {
		for _, a := range q.acl.ACLs(m.ACLIndex) {
			q.details(encodedACL{&aclapi.ACLDetails{}, encodeACL(a)})
		}
	})
}

// encodedACL are the details of an ACL, which its first dump encodes. Its methods are the generated ones, with these bytes.
type encodedACL struct {
	*aclapi.ACLDetails
	wire []byte
}

func (m encodedACL) Size() int                        { return len(m.wire) }
func (m encodedACL) Marshal(b []byte) ([]byte, error) { return b[:copy(b, m.wire)], nil }

func encodeACL(a acl.ACL) (wire []byte) {
	if wire, _ = (*a.Form).([]byte); wire == nil {
		m := &aclapi.ACLDetails{ACLIndex: a.Index, Tag: a.Tag, Count: uint32(len(a.Rules))}
		for _, r := range a.Rules {
			m.R = append(m.R, toACLRule(r))
		}
		wire, _ = m.Marshal(nil) // generated: it has no error
		*a.Form = wire
	}
	return wire
}

// arrayFits compares a u32 count, at some offset of the message, with the bytes that the message has for the elements.
func arrayFits(at, size int) func([]byte) bool {
	at += requestHeader
	return func(body []byte) bool {
		return len(body) >= at+4 && uint64(len(body)-at-4) >= uint64(size)*uint64(binary.BigEndian.Uint32(body[at:]))
	}
}

func fromACLRules(list []acl_types.ACLRule) []acl.Rule {
	out := make([]acl.Rule, len(list))
	for i, r := range list {
		out[i] = acl.Rule{
			Action: acl.Action(r.IsPermit), Src: fromPrefix(r.SrcPrefix), Dst: fromPrefix(r.DstPrefix), Proto: uint8(r.Proto),
			SrcPorts: acl.Range{First: r.SrcportOrIcmptypeFirst, Last: r.SrcportOrIcmptypeLast},
			DstPorts: acl.Range{First: r.DstportOrIcmpcodeFirst, Last: r.DstportOrIcmpcodeLast},
			TCPMask:  r.TCPFlagsMask, TCPValue: r.TCPFlagsValue,
		}
	}
	return out
}

func toACLRule(r acl.Rule) acl_types.ACLRule {
	return acl_types.ACLRule{
		IsPermit: acl_types.ACLAction(r.Action), SrcPrefix: toPrefix(r.Src), DstPrefix: toPrefix(r.Dst), Proto: ip_types.IPProto(r.Proto),
		SrcportOrIcmptypeFirst: r.SrcPorts.First, SrcportOrIcmptypeLast: r.SrcPorts.Last,
		DstportOrIcmpcodeFirst: r.DstPorts.First, DstportOrIcmpcodeLast: r.DstPorts.Last,
		TCPFlagsMask: r.TCPMask, TCPFlagsValue: r.TCPValue,
	}
}

func aclInterfaceMessages(t *apiTable) {
	onWrite(t, func(q *call, m *aclapi.ACLInterfaceSetACLList) *aclapi.ACLInterfaceSetACLListReply {
		rv := rvInvalidSwIfIndex
		if q.ifs.get(uint32(m.SwIfIndex)) != nil {
			rv = q.acl.SetList(uint32(m.SwIfIndex), int(m.NInput), m.Acls)
		}
		return &aclapi.ACLInterfaceSetACLListReply{Retval: rv}
	})
	onWrite(t, func(q *call, m *aclapi.ACLInterfaceAddDel) *aclapi.ACLInterfaceAddDelReply {
		rv := rvInvalidSwIfIndex
		if q.ifs.get(uint32(m.SwIfIndex)) != nil {
			rv = q.acl.AddDel(uint32(m.SwIfIndex), m.IsAdd, m.IsInput, m.ACLIndex)
		}
		return &aclapi.ACLInterfaceAddDelReply{Retval: rv}
	})
	onDump(t, func(q *call, m *aclapi.ACLInterfaceListDump, send func(*aclapi.ACLInterfaceListDetails)) {
		q.eachInterface(m.SwIfIndex, func(f *iface) {
			list, n := q.acl.List(f.index)
			send(&aclapi.ACLInterfaceListDetails{SwIfIndex: ifIndex(f), Count: uint8(len(list)), NInput: uint8(n), Acls: list})
		})
	})
	onWrite(t, func(q *call, m *aclapi.ACLInterfaceSetEtypeWhitelist) *aclapi.ACLInterfaceSetEtypeWhitelistReply {
		if q.ifs.get(uint32(m.SwIfIndex)) == nil {
			return &aclapi.ACLInterfaceSetEtypeWhitelistReply{Retval: rvInvalidSwIfIndex}
		}
		q.acl.SetEtypes(uint32(m.SwIfIndex), int(m.NInput), m.Whitelist)
		return &aclapi.ACLInterfaceSetEtypeWhitelistReply{}
	})
	onDump(t, func(q *call, m *aclapi.ACLInterfaceEtypeWhitelistDump, send func(*aclapi.ACLInterfaceEtypeWhitelistDetails)) {
		q.eachInterface(m.SwIfIndex, func(f *iface) {
			if list, n := q.acl.Etypes(f.index); len(list) > 0 {
				send(&aclapi.ACLInterfaceEtypeWhitelistDetails{SwIfIndex: ifIndex(f), Count: uint8(len(list)), NInput: uint8(n), Whitelist: list})
			}
		})
	})
}

// eachInterface visits all interfaces by index, or one that exists.
func (v *VPP) eachInterface(which interface_types.InterfaceIndex, visit func(*iface)) {
	for _, f := range v.ifs.all() {
		if uint32(which) == noIndex || uint32(which) == f.index {
			visit(f)
		}
	}
}

func macipMessages(t *apiTable) {
	onWrite(t, func(q *call, m *aclapi.MacipACLAdd) *aclapi.MacipACLAddReply {
		i, rv := q.acl.MACIPAddReplace(acl.None, m.Tag, fromMACIP(m.R))
		return &aclapi.MacipACLAddReply{ACLIndex: i, Retval: rv}
	})
	t.handlers[nameCRC(&aclapi.MacipACLAdd{})].fits = arrayFits(64, 31)
	onWrite(t, func(q *call, m *aclapi.MacipACLAddReplace) *aclapi.MacipACLAddReplaceReply {
		i, rv := q.acl.MACIPAddReplace(m.ACLIndex, m.Tag, fromMACIP(m.R))
		return &aclapi.MacipACLAddReplaceReply{ACLIndex: i, Retval: rv}
	})
	t.handlers[nameCRC(&aclapi.MacipACLAddReplace{})].fits = arrayFits(68, 31)
	onWrite(t, func(q *call, m *aclapi.MacipACLDel) *aclapi.MacipACLDelReply {
		return &aclapi.MacipACLDelReply{Retval: q.acl.MACIPDel(m.ACLIndex)}
	})
	onWrite(t, func(q *call, m *aclapi.MacipACLInterfaceAddDel) *aclapi.MacipACLInterfaceAddDelReply {
		rv := rvInvalidSwIfIndex
		if q.ifs.get(uint32(m.SwIfIndex)) != nil {
			rv = q.acl.MACIPAddDel(uint32(m.SwIfIndex), m.IsAdd, m.ACLIndex)
		}
		return &aclapi.MacipACLInterfaceAddDelReply{Retval: rv}
	})
	onDump(t, func(q *call, m *aclapi.MacipACLDump, send func(*aclapi.MacipACLDetails)) {
		for _, a := range q.acl.MACIPs(m.ACLIndex) {
			d := &aclapi.MacipACLDetails{ACLIndex: a.Index, Tag: a.Tag, Count: uint32(len(a.Rules))}
			for _, r := range a.Rules {
				d.R = append(d.R, acl_types.MacipACLRule{
					IsPermit: acl_types.ACLAction(r.Action), SrcMac: r.MAC, SrcMacMask: r.MACMask,
					SrcPrefix: ip_types.Prefix{Address: toAddress(r.Addr), Len: r.Bits},
				})
			}
			send(d)
		}
	})
	onRead(t, func(q *call, _ *aclapi.MacipACLInterfaceGet) *aclapi.MacipACLInterfaceGetReply {
		list := q.acl.MACIPInterfaces()
		return &aclapi.MacipACLInterfaceGetReply{Count: uint32(len(list)), Acls: list}
	})
	onDump(t, func(q *call, m *aclapi.MacipACLInterfaceListDump, send func(*aclapi.MacipACLInterfaceListDetails)) {
		for swIf, i := range q.acl.MACIPInterfaces() { // for a single interface, VPP also reports that it has none
			if swIf == int(m.SwIfIndex) || uint32(m.SwIfIndex) == noIndex && i != acl.None {
				send(&aclapi.MacipACLInterfaceListDetails{SwIfIndex: interface_types.InterfaceIndex(swIf), Count: 1, Acls: []uint32{i}})
			}
		}
	})
}

func fromMACIP(list []acl_types.MacipACLRule) []acl.MACIPRule {
	out := make([]acl.MACIPRule, len(list))
	for i, r := range list {
		out[i] = acl.MACIPRule{
			Action: acl.Action(r.IsPermit), MAC: r.SrcMac, MACMask: r.SrcMacMask, Addr: fromAddress(r.SrcPrefix.Address), Bits: r.SrcPrefix.Len,
		}
	}
	return out
}

// aclTags returns the tags of the ACLs that a request names, before the request; nil: it names none.
func (v *VPP) aclTags(req api.Message) map[uint32]string {
	switch m := req.(type) {
	case *aclapi.ACLAddReplace:
		if m.ACLIndex != acl.None {
			return v.tagsOf([]uint32{m.ACLIndex})
		}
	case *aclapi.ACLDel:
		return v.tagsOf([]uint32{m.ACLIndex})
	case *aclapi.ACLInterfaceSetACLList:
		return v.tagsOf(m.Acls)
	case *aclapi.ACLInterfaceAddDel:
		return v.tagsOf([]uint32{m.ACLIndex})
	}
	return nil
}

// summarize replaces rules by their number and a hash; body is the message.
func (r *record) summarize(body []byte) {
	if m, ok := r.req.(*aclapi.ACLAddReplace); ok {
		r.req = &aclapi.ACLAddReplace{ACLIndex: m.ACLIndex, Tag: m.Tag}
		r.rules, r.sum = len(m.R), crc32.ChecksumIEEE(body[requestHeader+aclHeader:])
	}
}

// aclText returns the line of an ACL request: ACLs by tag, rules by their number and a hash; "" for all other requests.
func (r *record) aclText() string {
	tag := func(i uint32) string { return fmt.Sprintf("%q", r.acls[i]) }
	switch m := r.req.(type) {
	case *aclapi.ACLAddReplace:
		s := fmt.Sprintf("%s tag=%q rules=%d content=%08x", r.h.name, m.Tag, r.rules, r.sum)
		if m.ACLIndex != acl.None {
			s += " replaces=" + tag(m.ACLIndex)
		}
		return s
	case *aclapi.ACLDel:
		return fmt.Sprintf("%s acl=%s", r.h.name, tag(m.ACLIndex))
	case *aclapi.ACLInterfaceSetACLList:
		tags := make([]string, len(m.Acls))
		for n, i := range m.Acls {
			tags[n] = tag(i)
		}
		n := min(int(m.NInput), len(tags))
		return fmt.Sprintf("%s sw_if_index=%s input=[%s] output=[%s]", r.h.name, r.ifName(uint32(m.SwIfIndex)),
			strings.Join(tags[:n], " "), strings.Join(tags[n:], " "))
	case *aclapi.ACLInterfaceAddDel:
		return fmt.Sprintf("%s sw_if_index=%s is_add=%v is_input=%v acl=%s", r.h.name, r.ifName(uint32(m.SwIfIndex)), m.IsAdd, m.IsInput, tag(m.ACLIndex))
	}
	return ""
}
