package ipam

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/contiv-agent/contiv-agent/plugins/cni/protocol"
)

// cidr is a podCIDR with the address that it gave last. The next search begins behind it, so that an address rests as long as possible.
type cidr struct {
	netip.Prefix
	last netip.Addr
}

// newCIDR checks that a prefix holds an address for pods: beside the network's address, the gateway, and in IPv4 the broadcast address.
func newCIDR(p netip.Prefix) (cidr, error) {
	host := p.Addr().BitLen() - p.Bits()
	if !p.IsValid() || p.Addr().Is4In6() || host < 2 {
		return cidr{}, fmt.Errorf("podCIDR %s: holds no address for pods; at most /30 in IPv4 and /126 in IPv6", p)
	}
	p = p.Masked()
	return cidr{Prefix: p, last: p.Addr()}, nil
}

// gateway returns the first address behind that of the network.
func (c cidr) gateway() netip.Addr { return c.Addr().Next() }

// usable reports whether a pod may get an address of the CIDR.
func (c cidr) usable(addr netip.Addr) bool {
	return addr != c.Addr() && addr != c.gateway() && (addr.Is6() || c.Contains(addr.Next()))
}

// size returns the number of usable addresses; at most 1<<62.
func (c cidr) size() uint64 {
	host := c.Addr().BitLen() - c.Bits()
	switch {
	case host >= 62:
		return 1 << 62
	case c.Addr().Is4():
		return 1<<host - 3
	}
	return 1<<host - 2
}

// families returns the families of the CIDRs, in their order: true for IPv6.
func (p *Pool) families() (out []bool) {
	for _, c := range p.cidrs {
		if v6 := c.Addr().Is6(); !slices.Contains(out, v6) {
			out = append(out, v6)
		}
	}
	return out
}

// pick returns a free address of a family and moves the cursor of its CIDR.
func (p *Pool) pick(cidrs []cidr, v6 bool) (netip.Addr, error) {
	for i := range cidrs {
		if cidrs[i].Addr().Is6() != v6 {
			continue
		}
		if addr, found := p.next(cidrs[i]); found {
			cidrs[i].last = addr
			return addr, nil
		}
	}
	return netip.Addr{}, p.exhausted(v6)
}

// next returns the first free address behind the cursor. At most the recorded addresses and three others are taken, so that the search is
// short in a CIDR of any size.
func (p *Pool) next(c cidr) (netip.Addr, bool) {
	addr := c.last
	for range len(p.records) + 4 {
		if addr = addr.Next(); !c.Contains(addr) { // also at the end of all addresses, where Next returns none
			addr = c.Addr()
		}
		if c.usable(addr) && p.records[addr] == nil {
			return addr, true
		}
	}
	return netip.Addr{}, false
}

// Usage is the state of a podCIDR.
type Usage struct {
	CIDR  netip.Prefix
	Size  uint64 // addresses for pods; at most 1<<62
	Used  int    // addresses of attachments
	Quiet int    // addresses that were released and that nobody may have yet
}

// Usage returns the state of each podCIDR.
func (p *Pool) Usage(now time.Time) []Usage {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sweep(now)
	return p.usage()
}

func (p *Pool) usage() (out []Usage) {
	for _, c := range p.cidrs {
		u := Usage{CIDR: c.Prefix, Size: c.size()}
		for addr, rec := range p.records {
			switch {
			case !c.Contains(addr):
			case rec.released:
				u.Quiet++
			default:
				u.Used++
			}
		}
		out = append(out, u)
	}
	return out
}

// ExhaustedError is the error of an Allocate that found no free address.
type ExhaustedError struct {
	Usage []Usage // of the CIDRs of one family
	Quiet time.Duration
}

func (e *ExhaustedError) Error() string {
	var parts []string
	for _, u := range e.Usage {
		parts = append(parts, fmt.Sprintf("podCIDR %s: %d of %d addresses are in use, %d were released in the last %s or are still in a list of VPP", u.CIDR, u.Used, u.Size, u.Quiet, e.Quiet))
	}
	return ErrExhausted.Error() + ": " + strings.Join(parts, "; ")
}

// Unwrap returns ErrExhausted.
func (e *ExhaustedError) Unwrap() error { return ErrExhausted }

func (p *Pool) exhausted(v6 bool) error {
	e := &ExhaustedError{Quiet: p.quiet}
	for _, u := range p.usage() {
		if u.CIDR.Addr().Is6() == v6 {
			e.Usage = append(e.Usage, u)
		}
	}
	return e
}

// sortedAttachments returns the keys of a map in order.
func sortedAttachments[V any](m map[protocol.Attachment]V) []protocol.Attachment {
	return slices.SortedFunc(maps.Keys(m), func(a, b protocol.Attachment) int { return strings.Compare(a.String(), b.String()) })
}
