// Package show turns the configuration of NAT44-ED into lines of text that say the same for the same configuration.
//
// Invariant: no line has an index or another handle that VPP assigns.
package show

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim/nat44ed"
	"github.com/contiv-agent/contiv-agent/vpp/draw"
)

// none is VPP's ~0: no interface, any table.
const none = ^uint32(0)

// Write writes what is configured: kinds in order, lines of a kind sorted. Interfaces have indices below
// most, and name returns their names.
func Write(b *strings.Builder, e *nat44ed.Engine, most uint32, name func(uint32) string) {
	if !e.Enabled() {
		return
	}
	c := e.RunningConfig()
	fmt.Fprintf(b, "nat44 enabled sessions %d vrf %d/%d forwarding %v timeouts %d/%d/%d/%d", c.Sessions, c.InsideVRF, c.OutsideVRF, c.Forwarding,
		c.Timeouts.UDP, c.Timeouts.TCPEstablished, c.Timeouts.TCPTransitory, c.Timeouts.ICMP)
	if mss := e.MSSClamping(); mss != 0 {
		fmt.Fprintf(b, " mss %d", mss)
	}
	b.WriteByte('\n')
	for _, list := range [][]string{interfaceLines(e, most, name), poolLines(e, name), singleLines(e, name), lbLines(e)} {
		slices.Sort(list)
		for _, l := range list {
			b.WriteString(l + "\n")
		}
	}
}

func interfaceLines(e *nat44ed.Engine, most uint32, name func(uint32) string) []string {
	var list []string
	for _, i := range e.Interfaces() {
		list = append(list, fmt.Sprintf("nat44 interface %s%s", name(i.SwIf), flagText(i.Flags)))
	}
	for _, i := range e.OutputInterfaces() {
		list = append(list, fmt.Sprintf("nat44 output-feature %s", name(i)))
	}
	for i := range most {
		if input, output := e.Arc(i).Nodes(); len(input)+len(output) > 0 {
			list = append(list, fmt.Sprintf("nat44 nodes %s %v %v", name(i), input, output))
		}
	}
	return list
}

func poolLines(e *nat44ed.Engine, name func(uint32) string) []string {
	var list []string
	for _, a := range e.Addresses() {
		list = append(list, fmt.Sprintf("nat44 pool %s%s%s", a.Addr, flagText(a.Flags), vrfText(a.VRF)))
	}
	for _, a := range e.InterfaceAddrs() {
		list = append(list, fmt.Sprintf("nat44 pool of %s%s", name(a.SwIf), flagText(a.Flags)))
	}
	for _, t := range e.VRFTables() {
		list = append(list, fmt.Sprintf("nat44 vrf-table %d routes %v", t.Table, slices.Sorted(slices.Values(t.Routes))))
	}
	return list
}

func singleLines(e *nat44ed.Engine, name func(uint32) string) []string {
	var list []string
	for _, m := range e.StaticMappings() {
		ext := m.External.String()
		if m.ExternalIf != none {
			ext = name(m.ExternalIf)
		}
		s := fmt.Sprintf("nat44 static %s %s:%d -> %s:%d%s%s", model.Protocol(m.Proto), ext, m.ExternalPort, m.Local, m.LocalPort, flagText(m.Flags), vrfText(m.VRF))
		if m.Flags&nat44ed.AddrOnly != 0 {
			s = fmt.Sprintf("nat44 static %s -> %s%s%s", ext, m.Local, flagText(m.Flags), vrfText(m.VRF))
		}
		list = append(list, s+tagText(m.Tag))
	}
	for _, m := range e.IdentityMappings() {
		at := m.Addr.String()
		if m.SwIf != none {
			at = name(m.SwIf)
		}
		list = append(list, fmt.Sprintf("nat44 identity %s %s:%d%s%s%s", model.Protocol(m.Proto), at, m.Port, flagText(m.Flags), vrfText(m.VRF), tagText(m.Tag)))
	}
	return list
}

// pads are addresses of locals that fill a mapping (RFC 5737). They are not shown if they get no flow.
var pads = netip.MustParsePrefix("192.0.2.0/24")

// WithoutDrained leaves out the drained backends of a dump: VPP has them only if it had them before they were drained, so they depend on the past.
func WithoutDrained(dump string) string {
	var b strings.Builder
	for line := range strings.Lines(dump) {
		if !strings.HasSuffix(line, drained+"\n") {
			b.WriteString(line)
		}
	}
	return b.String()
}

const drained = " drained"

// sharesOf are the numbers of VPP's random numbers that choose each local; they are in the order of slots.
func sharesOf(locals []nat44ed.Local) map[nat44ed.Local]int {
	shares, weights := map[nat44ed.Local]int{}, []uint8(nil)
	for _, l := range locals {
		weights = append(weights, l.Probability)
	}
	for i, n := range draw.Of(nil, weights).Shares {
		shares[locals[i]] += n
	}
	return shares
}

// shareText says which share of the flows a local gets, where that is not its weight.
func shareText(share int, l nat44ed.Local) string {
	switch share {
	case int(l.Probability):
		return ""
	case 0:
		return drained
	}
	return fmt.Sprintf(" share %d", share)
}

func lbLines(e *nat44ed.Engine) []string {
	var list []string
	for _, m := range e.LBStaticMappings() {
		var b strings.Builder
		fmt.Fprintf(&b, "nat44 lb %s %s:%d%s%s", model.Protocol(m.Proto), m.External, m.Port, flagText(m.Flags), tagText(m.Tag))
		shares := sharesOf(m.Locals)
		slices.SortFunc(m.Locals, func(x, y nat44ed.Local) int {
			return cmp.Or(x.Addr.Compare(y.Addr), cmp.Compare(x.Port, y.Port), cmp.Compare(x.VRF, y.VRF), cmp.Compare(x.Probability, y.Probability))
		})
		for _, l := range m.Locals {
			if shares[l] > 0 || !pads.Contains(l.Addr) {
				fmt.Fprintf(&b, "\n  local %s:%d weight %d%s%s", l.Addr, l.Port, l.Probability, shareText(shares[l], l), vrfText(l.VRF))
			}
		}
		list = append(list, b.String())
	}
	return list
}

func flagText(f nat44ed.Flags) string {
	var s string
	for i, name := range []string{"twice-nat", "self-twice-nat", "out2in-only", "addr-only", "outside", "inside"} {
		if f&(1<<i) != 0 {
			s += " " + name
		}
	}
	return s
}

func vrfText(id uint32) string {
	if id == 0 || id == none {
		return ""
	}
	return fmt.Sprintf(" vrf %d", id)
}

func tagText(tag string) string {
	if tag == "" {
		return ""
	}
	return fmt.Sprintf(" tag %q", tag)
}
