package linux

import (
	"net/netip"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// refuseFrom refuses all packets from a link but neighbour discovery. The kernel limits its ICMP errors, not its resets.
func refuseFrom(link string) []rule {
	f, from := fieldsOf(netip.IPv6Unspecified()), rule{meta(expr.MetaKeyIIFNAME), equal(append([]byte(link), 0))}
	return []rule{
		join(from, f.in(f.destination, netip.MustParsePrefix("fe80::/10")), rule{verdict(expr.VerdictAccept)}),
		join(from, f.in(f.destination, netip.MustParsePrefix("ff00::/8")), rule{verdict(expr.VerdictAccept)}),
		join(from, rule{meta(expr.MetaKeyL4PROTO), equal([]byte{unix.IPPROTO_TCP}), &expr.Reject{Type: unix.NFT_REJECT_TCP_RST}}),
		join(from, rule{&expr.Reject{Type: unix.NFT_REJECT_ICMPX_UNREACH, Code: unix.NFT_REJECT_ICMPX_PORT_UNREACH}}),
	}
}
