package bench

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/acl_types"
	"go.fd.io/govpp/binapi/ip_types"
)

// lawMembers is how many addresses a policy lets in, to any port.
const lawMembers = 5000

// BenchmarkACLSessions measures the cost of rules whose answers make no sessions (ADR 12): a set of 5,000 members in 32 access lists, of one
// rule or of four each, at the output of 1 pod or of 10. It reports VPP's time for the whole set, and for one member more.
func BenchmarkACLSessions(b *testing.B) {
	for _, vpp := range []string{"sim", "vpp"} {
		for _, pods := range []uint32{1, 10} {
			for _, rules := range [][]acl_types.ACLRule{reflecting(), lawful()} {
				b.Run(fmt.Sprintf("on=%s/pods=%d/rules=%d", vpp, pods, len(rules)), func(b *testing.B) {
					if vpp == "vpp" && realVPP() == "" {
						b.Skip("CONTIV_VPP is not set")
					}
					s := &aclSet{conn: dialBare(b, aclVPP(b, vpp)), size: lawMembers/32 + 1, total: lawMembers, rules: rules}
					s.make(b, pods)
					var members []time.Duration
					whole, bytes := median(b, func() (d time.Duration, bytes int) {
						for i := range s.index {
							took, n := s.change(b, i)
							d, bytes = d+took, bytes+n
							members = append(members, took)
						}
						return d, bytes
					})
					b.ReportMetric(percentile(members, 50).Seconds()*1e3, "ms/member")
					b.ReportMetric(whole, "ms/set")
					b.ReportMetric(float64(bytes), "bytes")
					b.ReportMetric(0, "ns/op")
				})
			}
		}
	}
}

func aclVPP(b *testing.B, which string) dialer {
	if which == "vpp" {
		dial, stop := startVPP(b)
		b.Cleanup(stop)
		return dial
	}
	v := startSim(b, newCluster(1, 1, nil))
	b.Cleanup(v.stop)
	return v.dial
}

// reflecting is the rule of a member as it was, lawful those it is now, at the output of a pod.
func reflecting() []acl_types.ACLRule {
	return []acl_types.ACLRule{{IsPermit: acl_types.ACL_ACTION_API_PERMIT_REFLECT, SrcportOrIcmptypeLast: 65535, DstportOrIcmpcodeLast: 65535}}
}

func lawful() []acl_types.ACLRule {
	all := reflecting()[0]
	answers := all
	answers.IsPermit, answers.Proto, answers.DstportOrIcmpcodeFirst = acl_types.ACL_ACTION_API_PERMIT, ip_types.IP_API_PROTO_TCP, 32768
	syn, udp := answers, answers
	syn.IsPermit, syn.TCPFlagsMask, syn.TCPFlagsValue = acl_types.ACL_ACTION_API_PERMIT_REFLECT, 0x12, 0x02
	udp.Proto = ip_types.IP_API_PROTO_UDP
	return []acl_types.ACLRule{syn, answers, udp, all}
}

// chunkOf is chunk for members of several rules.
func (s *aclSet) chunkOf(first int, turn uint32) *acl.ACLAddReplace {
	n := min(s.size, s.total-first)
	m := &acl.ACLAddReplace{Tag: fmt.Sprintf("set %d", first)}
	for i := range n {
		addr := uint32(10<<24 + first + i)
		if i == n-1 {
			addr += turn << 16
		}
		for _, r := range s.rules {
			r.SrcPrefix = ip_types.Prefix{Address: ip_types.NewAddress(binary.BigEndian.AppendUint32(nil, addr)), Len: 32}
			m.R = append(m.R, r)
		}
	}
	m.Count = uint32(len(m.R))
	return m
}
