package linux

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	contivlinux "github.com/contiv-agent/contiv-agent/proto/contiv/linux"
)

const (
	PortTable = "contiv-ports" // the table of host ports
	// netlinkNetfilter is NETLINK_NETFILTER.
	netlinkNetfilter = 12
)

// portHook is a chain in which each host port has a rule.
type portHook struct {
	name string
	hook *nftables.ChainHook
}

// portHooks are the places where the kernel chooses the destination of a connection: of packets that arrive, and of packets that the node's processes send.
func portHooks() []portHook {
	return []portHook{{"arriving", nftables.ChainHookPrerouting}, {"own", nftables.ChainHookOutput}}
}

// changePorts removes the rules with a comment and makes those of a host port, all at once; nil: it makes none. A table without rules is removed.
func (h *handles) changePorts(comment string, o *hostPort) error {
	c, err := h.filter()
	if err != nil {
		return err
	}
	rules, err := portRules(c)
	if err != nil {
		return err
	}
	old := slices.DeleteFunc(slices.Clone(rules), func(r *nftables.Rule) bool { return commentOf(r) != comment })
	if o == nil && len(old) == 0 && len(rules) > 0 {
		return nil
	}
	t := c.AddTable(&nftables.Table{Name: PortTable, Family: nftables.TableFamilyINet})
	if o == nil && len(old) == len(rules) {
		c.DelTable(t)
		return Wrap("remove the table "+PortTable+" of the packet filter", c.Flush())
	}
	for _, r := range old {
		if err := c.DelRule(r); err != nil {
			return fmt.Errorf("remove a rule of host port %s: %w", comment, err)
		}
	}
	if o != nil {
		o.addTo(c, t, comment)
	}
	return Wrap("change the rules of host port "+comment, c.Flush())
}

// addTo adds the rules of a host port. One for a single address of the node is before those for all addresses.
func (o *hostPort) addTo(c *nftables.Conn, t *nftables.Table, comment string) {
	for _, at := range portHooks() {
		r := &nftables.Rule{
			Table: t, Exprs: o.rule(), UserData: userdata.AppendString(nil, userdata.TypeComment, comment),
			Chain: c.AddChain(&nftables.Chain{Name: at.name, Table: t, Type: nftables.ChainTypeNAT, Hooknum: at.hook, Priority: nftables.ChainPriorityNATDest}),
		}
		if o.at.Addr().IsUnspecified() {
			c.AddRule(r)
		} else {
			c.InsertRule(r)
		}
	}
}

// rule sends new connections for the node's port to the pod.
func (o *hostPort) rule() rule {
	f := fieldsOf(o.at.Addr())
	to := rule{meta(expr.MetaKeyNFPROTO), equal([]byte{f.family}), &expr.Fib{Register: 1, ResultADDRTYPE: true, FlagDADDR: true}, equal(binary.NativeEndian.AppendUint32(nil, unix.RTN_LOCAL))}
	if !o.at.Addr().IsUnspecified() {
		to = f.is(f.destination, o.at.Addr())
	}
	return join(to, portOf(protocolNumber(o.protocol), o.at.Port()), rule{
		&expr.Immediate{Register: 1, Data: o.to.Addr().AsSlice()},
		&expr.Immediate{Register: 2, Data: binary.BigEndian.AppendUint16(nil, o.to.Port())},
		&expr.NAT{Type: expr.NATTypeDestNAT, Family: uint32(f.family), RegAddrMin: 1, RegProtoMin: 2},
	})
}

func protocolNumber(p contivlinux.HostPort_Protocol) byte {
	switch p {
	case contivlinux.HostPort_UDP:
		return unix.IPPROTO_UDP
	case contivlinux.HostPort_SCTP:
		return unix.IPPROTO_SCTP
	}
	return unix.IPPROTO_TCP
}

// portRules returns the rules of all host ports.
func portRules(c *nftables.Conn) (out []*nftables.Rule, err error) {
	chains, err := c.ListChainsOfTableFamily(nftables.TableFamilyINet)
	if err != nil {
		return nil, fmt.Errorf("list the chains of the packet filter: %w", err)
	}
	for _, chain := range chains {
		if chain.Table.Name != PortTable {
			continue
		}
		rules, err := c.GetRules(chain.Table, chain)
		if err != nil {
			return nil, fmt.Errorf("list the rules of the packet filter: %w", err)
		}
		out = append(out, rules...)
	}
	return out, nil
}

func commentOf(r *nftables.Rule) string {
	text, _ := userdata.GetString(r.UserData, userdata.TypeComment)
	return text
}

// flow is a connection that the kernel remembers: client ↔ at is what the client sees, back ↔ server is what the server sees.
type flow struct{ client, at, server, back netip.AddrPort }

// forgetFlows lets the kernel decide anew about the connections to a host port's number that match.
func (h *handles) forgetFlows(o *hostPort, match func(flow) bool) error {
	own, err := h.handleOf("")
	if err != nil {
		return err
	}
	nl, err := netlink.NewHandleAt(own.ns, netlinkNetfilter)
	if err != nil {
		return fmt.Errorf("open the kernel's connections: %w", err)
	}
	defer nl.Close()
	_, err = nl.ConntrackDeleteFilters(netlink.ConntrackTable, netlink.InetFamily(fieldsOf(o.at.Addr()).family), flowFilter(func(f *netlink.ConntrackFlow) bool {
		return f.Forward.Protocol == protocolNumber(o.protocol) && f.Forward.DstPort == o.at.Port() && match(flowOf(f))
	}))
	return Wrap("forget connections of host port "+o.text().Text, err)
}

// flowFilter makes a filter of netlink's of a function.
type flowFilter func(*netlink.ConntrackFlow) bool

// MatchConntrackFlow implements netlink.CustomConntrackFilter.
func (f flowFilter) MatchConntrackFlow(flow *netlink.ConntrackFlow) bool { return f(flow) }

func flowOf(f *netlink.ConntrackFlow) flow {
	end := func(ip []byte, port uint16) netip.AddrPort {
		a, _ := netip.AddrFromSlice(ip)
		return netip.AddrPortFrom(a.Unmap(), port)
	}
	return flow{
		client: end(f.Forward.SrcIP, f.Forward.SrcPort), at: end(f.Forward.DstIP, f.Forward.DstPort),
		server: end(f.Reverse.SrcIP, f.Reverse.SrcPort), back: end(f.Reverse.DstIP, f.Reverse.DstPort),
	}
}
