package bridge

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// Text returns the role of an interface as text; name returns names of interfaces.
func (p Port) Text(name func(uint32) string) string {
	if p.Mode == CrossConnect {
		return "cross-connected to " + name(p.Peer)
	}
	return "in bridge domain " + p.Domain.label()
}

func (d *Domain) label() string {
	if d.Tag != "" {
		return fmt.Sprintf("%q", d.Tag)
	}
	return fmt.Sprint(d.ID)
}

// Dump writes the domains with what is configured in them, sorted.
func (t *Table) Dump(b *strings.Builder, name func(uint32) string) {
	domains := t.All()
	slices.SortFunc(domains, func(x, y *Domain) int { return cmp.Compare(x.label(), y.label()) })
	for _, d := range domains {
		fmt.Fprintf(b, "bridge %s %s age %d\n", d.label(), d.Flags, d.Age)
		var members []string
		for _, i := range d.Members {
			s := fmt.Sprintf("  member %s group %d", name(i), t.ports[i].Group)
			if i == d.BVI {
				s += " bvi"
			}
			members = append(members, s+"\n")
		}
		slices.Sort(members)
		b.WriteString(strings.Join(members, ""))
		for _, a := range slices.SortedFunc(maps.Keys(d.MACs), netip.Addr.Compare) {
			mac := d.MACs[a]
			fmt.Fprintf(b, "  arp %s %s\n", a, net.HardwareAddr(mac[:]))
		}
		t.dumpFIB(b, d, name)
	}
	var pairs []string
	for i, p := range t.ports {
		if p.Mode == CrossConnect {
			pairs = append(pairs, fmt.Sprintf("xconnect %s %s\n", name(i), name(p.Peer)))
		}
	}
	slices.Sort(pairs)
	b.WriteString(strings.Join(pairs, ""))
}

// dumpFIB omits the address of a BVI, which follows from its role.
func (t *Table) dumpFIB(b *strings.Builder, d *Domain, name func(uint32) string) {
	for _, k := range t.Keys() {
		e := t.FIB[k]
		if k.Bridge == d.Index && (!e.BVI || e.Interface != d.BVI) {
			fmt.Fprintf(b, "  fib %s %s static %t filter %t bvi %t\n", net.HardwareAddr(k.MAC[:]), name(e.Interface), e.Static, e.Filter, e.BVI)
		}
	}
}
