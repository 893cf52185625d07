package doctor

import (
	"fmt"
	"slices"
	"strings"

	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/nat44_ed"
	"go.fd.io/govpp/binapi/nat_types"

	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/nat"
)

// smallTable is VPP's default size of a thread's session table.
const smallTable = 63 * 1024

// nat checks NAT44-ED; none if it will not be used or its plugin is not loaded.
func (f *facts) nat() []Check {
	running, ok := f.replies[askNAT].Msg.(*nat44_ed.Nat44ShowRunningConfigReply)
	if !ok || f.cfg.CNAT {
		return nil
	}
	out := []Check{f.workers()}
	if running.Sessions == 0 { // 0 if and only if NAT44 is off
		return append(out, Check{Name: "nat44", Verdict: OK, Found: "not enabled; the agent enables it", Facts: Facts{"enabled": false}})
	}
	state := Check{Name: "nat44", Verdict: OK, Found: fmt.Sprintf(
		"enabled, room for %d sessions per thread; timeouts UDP %d s, TCP %d s (opening and closing %d s), ICMP %d s", running.Sessions,
		running.Timeouts.UDP, running.Timeouts.TCPEstablished, running.Timeouts.TCPTransitory, running.Timeouts.ICMP), Facts: Facts{
		"enabled": true, "forwarding": running.ForwardingEnabled, "sessionsPerThread": running.Sessions, "udpSeconds": running.Timeouts.UDP,
		"tcpSeconds": running.Timeouts.TCPEstablished, "tcpTransitorySeconds": running.Timeouts.TCPTransitory, "icmpSeconds": running.Timeouts.ICMP,
	}}
	switch {
	case !running.ForwardingEnabled:
		state.Verdict = Dangerous
		state.Found += ", forwarding off"
		state.Consequence = "packets that no Service translates are dropped; a running agent turns forwarding on"
		state.Command = "vppctl nat44 forwarding enable"
	case running.Sessions < smallTable:
		state.Verdict = Wrong
		state.Consequence = fmt.Sprintf("fewer than VPP's default of %d; only disabling NAT44 or a restart of VPP changes the size", smallTable)
		state.Command = "contiv-agent run --nat-sessions 262144"
	}
	out = append(out, state, f.natSessions(uint64(running.Sessions)), f.roles())
	return append(out, f.mappings()...)
}

func (f *facts) workers() Check {
	r := f.replies[askWorkers]
	n := len(r.Details)
	c := Check{Name: "nat workers", Verdict: OK, Found: fmt.Sprint(n), Facts: Facts{"workers": n}}
	switch {
	case r.Err != nil:
		return unknown(c.Name, r.Err.Error())
	case n > 1:
		c.Verdict = Wrong
		c.Consequence = "NAT44 gives each worker a separate part of a Service's endpoints: a client reaches only some of them, and weights have no effect"
		c.Startup = `cpu { workers 1 }, or unix { exec FILE } with a line "set nat workers 0" in FILE: then one of several workers translates`
	}
	return c
}

func (f *facts) natSessions(limit uint64) Check {
	c := Check{Name: "nat44 sessions", Verdict: OK}
	text, ok := f.cli(askNATUse)
	total, idle, parsed := parseNATSessions(text)
	if !ok || !parsed {
		return unknown(c.Name, "VPP does not report the number of sessions")
	}
	threads := uint64(max(1, len(f.replies[askWorkers].Details)))
	c.Found = fmt.Sprintf("%d of %d, %d of them timed out", total, limit*threads, idle)
	c.Facts = Facts{"sessions": total, "limit": limit * threads, "timedOut": idle}
	u := use{float64(limit * threads), float64(total)}
	switch {
	case u.share() >= full:
		c.Verdict = Dangerous
		c.Consequence = "a full table drops new connections to Services, even if all its sessions have timed out: VPP checks the " +
			"limit before it frees sessions"
		c.Command = "contiv-agent run --nat-sessions 262144 (for VPP's next start); a running agent frees expired sessions"
	case u.share() >= much:
		c.Verdict = Wrong
		c.Consequence = "VPP frees timed-out sessions only when it needs space, and a full table drops new connections to Services; from 80 % on, a " +
			"running agent frees them"
		c.Command = "contiv-agent run --nat-sessions 262144 (for VPP's next start)"
	}
	return c
}

// roles checks for interfaces that are inside, and neither are outside nor have the node of both roles, as the agent gives it to pods' interfaces.
func (f *facts) roles() Check {
	r := f.replies[askRoles]
	if r.Err != nil {
		return unknown("nat44 interfaces", r.Err.Error())
	}
	half := slices.DeleteFunc(insideAlone(f), func(name string) bool { return nat.MeetsBoth(f.replies[descriptor.ShowFeatures(name).Cmd]) })
	c := Check{Name: "nat44 interfaces", Verdict: OK, Found: fmt.Sprintf("%d with roles", len(r.Details)), Facts: Facts{"withRoles": len(r.Details)}}
	if len(half) > 0 {
		c.Verdict, c.Found = Dangerous, "inside and not outside: "+strings.Join(half, ", ")
		c.Facts["insideAlone"] = half
		c.Consequence = "VPP translates packets from these interfaces to a Service to 0.0.0.0, and loses them"
		c.Command = "vppctl set interface nat44 out " + half[0]
	}
	return c
}

// insideAlone are the names of the interfaces that are inside and not outside, sorted.
func insideAlone(f *facts) (names []string) {
	for _, d := range f.replies[askRoles].Details {
		i, ok := d.(*nat44_ed.Nat44InterfaceDetails)
		if ok && i.Flags&nat_types.NAT_IS_INSIDE != 0 && i.Flags&nat_types.NAT_IS_OUTSIDE == 0 {
			names = append(names, f.interfaceName(uint32(i.SwIfIndex)))
		}
	}
	slices.Sort(names)
	return names
}

func (f *facts) interfaceName(index uint32) string {
	for _, d := range f.replies[askInterfaces].Details {
		if i, ok := d.(*interfaces.SwInterfaceDetails); ok && uint32(i.SwIfIndex) == index {
			return i.InterfaceName
		}
	}
	return fmt.Sprintf("interface %d", index)
}

// mappings counts the agent's and foreign mappings, and checks for weights that can end VPP.
func (f *facts) mappings() []Check {
	ours, foreign, deadly, sums := 0, 0, []string(nil), []Facts(nil)
	count := func(tag string) {
		if descriptor.Owned(tag) {
			ours++
		} else {
			foreign++
		}
	}
	for _, name := range []string{askBalanced, askStatic, askIdentity} {
		if err := f.replies[name].Err; err != nil {
			return []Check{unknown("nat44 mappings", err.Error())}
		}
		for _, d := range f.replies[name].Details {
			switch m := d.(type) {
			case *nat44_ed.Nat44LbStaticMappingDetails:
				count(m.Tag)
				if weight := weights(m); weight%256 == 0 || weight > 255 {
					deadly = append(deadly, fmt.Sprintf("%s port %d (%d)", m.ExternalAddr, m.ExternalPort, weight))
					sums = append(sums, Facts{"address": m.ExternalAddr.String(), "port": m.ExternalPort, "sum": weight})
				}
			case *nat44_ed.Nat44StaticMappingDetails:
				count(m.Tag)
			case *nat44_ed.Nat44IdentityMappingDetails:
				count(m.Tag)
			}
		}
	}
	out := []Check{{Name: "nat44 mappings", Verdict: OK, Found: fmt.Sprintf("%d of an agent's", ours), Facts: Facts{"own": ours, "foreign": foreign}}}
	if foreign > 0 {
		out[0].Verdict, out[0].Found = Note, fmt.Sprintf("%d of an agent's, %d foreign", ours, foreign)
		out[0].Consequence = "the agent does not change foreign mappings; it cannot serve a Service with the address, port and protocol of one of them"
	}
	if len(deadly) > 0 {
		out = append(out, Check{
			Name: "nat44 weights", Verdict: Dangerous, Found: strings.Join(deadly, ", "), Facts: Facts{"mappings": sums},
			Consequence: "the weights of a mapping must add up to 1 to 255: a multiple of 256 ends VPP at the first packet, and with a higher sum some " +
				"endpoints get no packets",
		})
	}
	return out
}

func weights(m *nat44_ed.Nat44LbStaticMappingDetails) (sum int) {
	for _, l := range m.Locals {
		sum += int(l.Probability)
	}
	return sum
}
