package realvpp

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/cnat"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip_types"
	"go.fd.io/govpp/binapi/nat44_ed"

	"github.com/contiv-agent/contiv-agent/sim"
	simcnat "github.com/contiv-agent/contiv-agent/sim/cnat"
	"github.com/contiv-agent/contiv-agent/vpp"
)

// concealed reports that what left VPP does not show which backend was chosen.
func concealed(real []sim.Output) bool {
	return len(real) == 0 || real[0].Packet.IsICMPError()
}

// sessionsDiffer is a difference if the two VPPs do not have the same sessions of NAT44.
func (w *twin) sessionsDiffer(s scene) (*difference, error) {
	diff, err := w.compareNAT()
	if err != nil || diff == "" {
		return nil, err
	}
	return &difference{in: s.in, sent: s.sent, real: s.real, why: "no choice of the load balancer makes the same sessions (-sim +vpp):\n" + diff}, nil
}

// compareNAT holds the sessions of NAT44 against each other, but for those that one side has and that nobody heard of for agedAfter: the
// clocks are not the same to the last, and either VPP may find such a session expired before the other one does.
func (w *twin) compareNAT() (diff string, err error) {
	var ages [2]map[string][]uint64
	for i := range ages {
		if ages[i], err = w.sessions(i); err != nil {
			return "", err
		}
	}
	for i, mark := range []string{"- ", "+ "} {
		for _, line := range slices.Sorted(maps.Keys(ages[i])) {
			mine := slices.Sorted(slices.Values(ages[i][line]))
			for _, age := range mine[:max(0, len(mine)-len(ages[1-i][line]))] {
				if age < agedAfter {
					diff += fmt.Sprintf("%s%s, heard of %d s ago\n", mark, line, age)
				}
			}
		}
	}
	return diff, nil
}

// agedAfter is less than any session lives, in seconds, and longer than a cluster is played for without time that passes.
const agedAfter = 20

// sessions are those of NAT44 on one side, without ports that NAT made up: when they were heard of, in seconds before now.
func (w *twin) sessions(side int) (map[string][]uint64, error) {
	users, err := w.dumpSide(side, &nat44_ed.Nat44UserDump{})
	if err != nil {
		return nil, err
	}
	var asked []api.Message
	for _, d := range users {
		u := d.(*nat44_ed.Nat44UserDetails)
		asked = append(asked, &nat44_ed.Nat44UserSessionV3Dump{IPAddress: u.IPAddress, VrfID: u.VrfID})
	}
	details, err := w.dumpSide(side, asked...)
	if err != nil {
		return nil, err
	}
	out := map[string][]uint64{}
	for _, d := range details {
		s := d.(*nat44_ed.Nat44UserSessionV3Details)
		line := natLine(s)
		out[line] = append(out[line], s.TimeSinceLastHeard)
	}
	return out, nil
}

// natPool and natLoopback are the addresses of the node that NAT44 gives away, with ports that it makes up.
var natPool, natLoopback = netip.MustParseAddr("192.168.16.1"), netip.MustParseAddr("10.1.1.254")

func natLine(s *nat44_ed.Nat44UserSessionV3Details) string {
	at := func(a [4]byte, port uint16) string {
		if addr := netip.AddrFrom4(a); addr == natLoopback || addr == natPool {
			return addr.String()
		}
		return netip.AddrPortFrom(netip.AddrFrom4(a), port).String()
	}
	return fmt.Sprintf("proto %d in %s out %s ext %s nat %s flags %s packets %d", s.Protocol, at(s.InsideIPAddress, s.InsidePort),
		netip.AddrFrom4(s.OutsideIPAddress), at(s.ExtHostAddress, s.ExtHostPort), netip.AddrFrom4(s.ExtHostNatAddress), s.Flags, s.TotalPkts)
}

// cnatSessions are those of cnat, sorted.
func (w *twin) cnatSessions() (lines [2][]string, err error) {
	details, err := w.dumpBoth(&cnat.CnatSessionDump{})
	if err != nil {
		return lines, err
	}
	for i, list := range details {
		for _, d := range list {
			lines[i] = append(lines[i], cnatText(d.(*cnat.CnatSessionDetails).Session))
		}
		slices.Sort(lines[i])
	}
	return lines, nil
}

func cnatText(s cnat.CnatSession) string {
	return sessionText(s.IPProto, s.Location, endText(s.Src.Addr, s.Src.Port), endText(s.Dst.Addr, s.Dst.Port), endText(s.New.Addr, s.New.Port))
}

// simText is cnatText of a session of the simulated VPP.
func simText(s simcnat.Session) string {
	return sessionText(ip_types.IPProto(s.Proto), uint8(s.Location), endText(s.Match.Src, s.Match.SrcPort), endText(s.Match.Dst, s.Match.DstPort), endText(s.New.Dst, s.New.DstPort))
}

func sessionText(proto ip_types.IPProto, location uint8, src, dst, to string) string {
	return fmt.Sprintf("proto %d at %d %s -> %s new %s", proto, location, src, dst, to)
}

func endText(addr fmt.Stringer, port uint16) string { return fmt.Sprintf("%s:%d", addr, port) }

func (w *twin) dumpBoth(m api.Message) (out [2][]api.Message, err error) {
	for i := range out {
		if out[i], err = w.dumpSide(i, m); err != nil {
			return out, err
		}
	}
	return out, nil
}

// dumpSide makes dumps on one of the VPPs, the simulated one first.
func (w *twin) dumpSide(i int, msgs ...api.Message) (out []api.Message, err error) {
	if err := w.wake(); err != nil {
		return nil, err
	}
	conn := w.beside.conn
	if i == 1 {
		conn = w.lab.plain.conn
	}
	var calls []vpp.Call
	for _, m := range msgs {
		calls = append(calls, vpp.Call{Msg: m, Dump: true})
	}
	for _, r := range conn.Do(context.Background(), calls...) {
		if r.Err != nil {
			return nil, fmt.Errorf("%s: %w", w.sides[i].name, r.Err)
		}
		out = append(out, r.Details...)
	}
	return out, nil
}

// findStrays notes whether VPP 24.06 has a session as portOfAnError says, and the simulated one has not: cnat's sessions of echoes have one
// identifier, these two numbers.
func (w *twin) findStrays() error {
	if w.strayed || w.lab.version() >= "25.06" || w.lab.alive() != nil {
		return nil
	}
	details, err := w.dumpBoth(&cnat.CnatSessionDump{})
	known := map[string]bool{}
	for _, d := range details[0] {
		known[cnatText(d.(*cnat.CnatSessionDetails).Session)] = true
	}
	for _, d := range details[1] {
		s := d.(*cnat.CnatSessionDetails).Session
		w.strayed = w.strayed || (s.IPProto == 1 || s.IPProto == 58) && s.Src.Port != s.Dst.Port && !known[cnatText(s)]
	}
	return err
}

// cnat's scanner looks for idle sessions once a second, at a part of the table if it is slow; the simulated one is at once.
const (
	scans = 3
	scan  = 1100 * time.Millisecond
)

// advance is tick. If sessions of cnat end by it, it waits for VPP's scanner to end the same ones: a packet would find them there still, they keep the
// port that the simulated VPP gives to the next flow, and a route whose path went under them (fromAPI in vppagent/descriptor/l3).
func (w *twin) advance() error {
	if err := w.findStrays(); err != nil {
		return err
	}
	w.tick()
	if w.lab.newerCNAT() {
		return nil
	}
	for n := 0; n < scans; n++ {
		ended := w.ended()
		if len(ended) == 0 {
			return nil
		}
		details, err := w.dumpSide(1, &cnat.CnatSessionDump{})
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(details, func(d api.Message) bool { return ended[cnatText(d.(*cnat.CnatSessionDetails).Session)] }) {
			return nil
		}
		w.awaited++
		time.Sleep(scan)
		w.tick()
	}
	return nil
}

// ended has the sessions of cnat that the simulated VPP had after the last packet, and has no more.
func (w *twin) ended() map[string]bool {
	if len(w.translated) == 0 {
		return nil
	}
	now, out := w.simSessions(), map[string]bool{}
	for s := range w.translated {
		if !now[s] {
			out[simText(s)] = true
		}
	}
	return out
}

// simSessions are the sessions of the simulated cnat, whatever their age.
func (w *twin) simSessions() map[simcnat.Session]bool {
	out := map[simcnat.Session]bool{}
	for _, s := range w.sim.TranslationSessions() {
		s.Seen, s.Idle = 0, 0
		out[s] = true
	}
	return out
}

// compareSessions holds the sessions of both VPPs against each other.
func (c *sequenceCase) compareSessions() error {
	diff, err := c.compareNAT()
	if err != nil {
		return err
	}
	if diff != "" {
		return &difference{why: "sessions of NAT44 differ (-sim +vpp):\n" + diff}
	}
	if c.lab.newerCNAT() {
		return nil // another message
	}
	for range scans {
		lines, err := c.cnatSessions()
		if err != nil {
			return err
		}
		if diff = gocmp.Diff(lines[0], lines[1]); diff == "" {
			return nil
		}
		time.Sleep(scan)
		c.tick()
	}
	return &difference{why: "sessions of cnat differ (-sim +vpp):\n" + diff}
}

// compareRoutes holds the routes of both VPPs against each other: prefixes, and the kinds of their paths.
func (c *sequenceCase) compareRoutes() error {
	for _, six := range []bool{false, true} {
		details, err := c.dumpBoth(&ip.IPRouteDump{Table: ip.IPTable{IsIP6: six}})
		if err != nil {
			return err
		}
		var lines [2][]string
		for i, list := range details {
			for _, d := range list {
				r := d.(*ip.IPRouteDetails).Route
				var kinds []string
				for _, p := range r.Paths {
					kinds = append(kinds, fmt.Sprint(p.Type))
				}
				if p := r.Prefix.String(); p != netip.PrefixFrom(hop6, 128).String() && p != netip.PrefixFrom(hop, 32).String() { // a neighbour of this room's own
					lines[i] = append(lines[i], p+" "+fmt.Sprint(kinds))
				}
			}
			slices.Sort(lines[i])
		}
		if diff := gocmp.Diff(lines[0], lines[1]); diff != "" {
			return &difference{why: "routes differ (-sim +vpp):\n" + diff}
		}
	}
	return nil
}
