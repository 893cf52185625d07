package acl

import "testing"

// TestLaterFragments: rules match later fragments by addresses and protocol, in order; all of one protocol between two hosts share a session.
func TestLaterFragments(t *testing.T) {
	const later = " fragment 7 offset 24 length 24"
	b := newBench(t, Config{})
	port := anyRule(Deny, 17)
	port.DstPorts = Range{53, 53}
	syn := anyRule(Reflect, 6)
	syn.TCPMask, syn.TCPValue = 0x12, 0x02
	var rules []Rule
	for range few + 1 { // more than are compared one by one
		rules = append(rules, anyRule(Permit, 47))
	}
	b.list([]uint32{b.acl(append(rules, port, anyRule(Permit, 17), syn, anyRule(Reflect, 1))...)}, []uint32{b.acl()})
	b.want("a port that no rule denies", in, "udp 10.1.1.2:4000 -> 10.1.1.3:54", "acl 0 (acl-0) rule 10 permit")
	b.want("its first fragment", in, "udp 10.1.1.2:4000 -> 10.1.1.3:54 fragment 7 offset 0 length 24 more", "acl 0 (acl-0) rule 10 permit")
	b.want("later: the first rule of the protocol", in, "udp 10.1.1.2:0 -> 10.1.1.3:0"+later, "acl 0 (acl-0) rule 9 deny")
	b.want("their bytes are no ports", in, "udp 10.1.1.2:4000 -> 10.1.1.3:54"+later, "acl 0 (acl-0) rule 9 deny")
	b.want("TCP: flags do not count", in, "tcp 10.1.1.2:0 -> 10.1.1.3:0 [-]"+later, "acl 0 (acl-0) rule 11 permit+reflect, new session")
	b.want("the way back", out, "tcp 10.1.1.3:0 -> 10.1.1.2:0 [-]"+later, "session of acl 0 (acl-0) rule 11 permit+reflect")
	b.want("no way back for a whole packet", out, "tcp 10.1.1.3:80 -> 10.1.1.2:4000 [SA]", none)
	b.want("ICMP", in, "icmp 10.1.1.2 -> 10.1.1.3 echo-reply id 0"+later, "acl 0 (acl-0) rule 12 permit+reflect, new session")
	b.want("no way back for a whole ping", out, "icmp 10.1.1.3 -> 10.1.1.2 echo-reply id 0", none)
	b.want("ICMP, the way back", out, "icmp 10.1.1.3 -> 10.1.1.2 echo-request id 0"+later, "session of acl 0 (acl-0) rule 12 permit+reflect")
}
