package sim

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.fd.io/govpp/binapi/memclnt"
	"go.fd.io/govpp/binapi/session"
	"go.fd.io/govpp/binapi/vlib"
	"go.fd.io/govpp/binapi/vpe"

	"github.com/contiv-agent/contiv-agent/sim/acl"
	"github.com/contiv-agent/contiv-agent/sim/apifiles"
	"github.com/contiv-agent/contiv-agent/sim/cnat"
)

// systemMessages: memclnt, vpe, vlib, and the session layer's switch.
func systemMessages(t *apiTable) {
	onRead(t, func(q *call, _ *memclnt.ControlPing) *memclnt.ControlPingReply {
		return &memclnt.ControlPingReply{ClientIndex: q.c.index, VpePID: q.pid()}
	})
	onRead(t, func(*call, *memclnt.APIVersions) *memclnt.APIVersionsReply {
		return apifiles.Versions()
	})
	onRead(t, func(q *call, _ *vpe.ShowVersion) *vpe.ShowVersionReply {
		return &vpe.ShowVersionReply{Program: "vpe", Version: q.cfg.Version, BuildDate: "2024-06-26T14:00:00", BuildDirectory: "/sim"}
	})
	onRead(t, func(q *call, _ *vlib.ShowThreads) *vlib.ShowThreadsReply {
		return q.threads()
	})
	onWrite(t, func(q *call, m *session.SessionEnableDisable) *session.SessionEnableDisableReply {
		q.sessionLayer = m.IsEnable
		return &session.SessionEnableDisableReply{}
	})
	onRead(t, func(q *call, m *vlib.CliInband) *vlib.CliInbandReply {
		return q.cli(strings.TrimRight(m.Cmd, "\x00"))
	})
}

// pid changes with every restart, as a process's does.
func (v *VPP) pid() uint32 { return v.cfg.PID + uint32(v.epoch) }

func (v *VPP) threads() *vlib.ShowThreadsReply {
	list := []vlib.ThreadData{{Name: "vpp_main", PID: v.pid()}}
	for i := range v.cfg.Workers {
		n := uint32(i + 1)
		list = append(list, vlib.ThreadData{ID: n, Name: fmt.Sprintf("vpp_wk_%d", i), Type: "workers", PID: v.pid() + n, CPUID: n, Core: n})
	}
	return &vlib.ShowThreadsReply{Count: uint32(len(list)), ThreadData: list}
}

// showClients lists clients in the order of their connection (vl_sock_api_dump_clients, VPP 24.06).
func (v *VPP) showClients() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Socket clients\n%20s %8s\n", "Name", "Fildesc")
	for _, c := range slices.SortedFunc(maps.Keys(v.clients), func(x, y *conn) int { return cmp.Compare(x.index, y.index) }) {
		fmt.Fprintf(&b, "%20s %8d\n", c.name, c.index)
	}
	return b.String()
}

// cli implements a few show commands. An unknown one gets retval -1 and VPP's error text.
func (q *call) cli(cmd string) *vlib.CliInbandReply {
	switch words := strings.Join(strings.Fields(cmd), " "); words {
	case "show version":
		return &vlib.CliInbandReply{Reply: "vpp v" + q.cfg.Version + " built by sim\n"}
	case "show api clients":
		return &vlib.CliInbandReply{Reply: q.showClients()}
	case "show interface", "show int":
		return &vlib.CliInbandReply{Reply: q.showInterfaces()}
	case "show ip fib":
		return &vlib.CliInbandReply{Reply: q.showFIB()}
	case "show nat44 sessions":
		return &vlib.CliInbandReply{Reply: q.showSessions()}
	case "show nat44 summary":
		return &vlib.CliInbandReply{Reply: q.showNATSummary()}
	case "show features":
		return &vlib.CliInbandReply{Reply: q.arcs.String()}
	case "show acl-plugin sessions":
		return &vlib.CliInbandReply{Reply: q.showACLSessions(acl.NoPlace)}
	case "show acl-plugin sessions verbose 1":
		return &vlib.CliInbandReply{Reply: q.showACLSessions(acl.NoPlace) + acl.ShowEntries(q.acl)}
	case "pcap trace status":
		return &vlib.CliInbandReply{Reply: q.captured.Status()}
	case "show acl-plugin acl":
		return &vlib.CliInbandReply{Reply: q.showACLs()}
	case "show cnat snat-policy":
		return &vlib.CliInbandReply{Reply: cnat.ShowSNATPolicy(q.cnat, func(i uint32) string {
			if f := q.ifs.get(i); f != nil {
				return f.name
			}
			return ""
		})}
	case "clear acl-plugin sessions":
		q.acl.ClearSessions()
		return &vlib.CliInbandReply{}
	default:
		if set, ok := strings.CutPrefix(words, "set acl-plugin "); ok && q.setACLPlugin(strings.Fields(set)) {
			return &vlib.CliInbandReply{}
		}
		var place uint64
		if n, _ := fmt.Sscanf(words, "show acl-plugin sessions thread 0 index %d", &place); n == 1 {
			return &vlib.CliInbandReply{Reply: q.showACLSessions(place)}
		}
		if text, ok := q.showInOutACL(words); ok {
			return &vlib.CliInbandReply{Reply: text}
		}
		if name, ok := strings.CutPrefix(words, "show interface features "); ok {
			if f := q.ifs.byName[name]; f != nil {
				return &vlib.CliInbandReply{Reply: q.showFeatures(f)}
			}
		}
		return &vlib.CliInbandReply{Retval: rvUnspecified, Reply: fmt.Sprintf("%s: unknown input `%s'\n", firstWord(words), words)}
	}
}

func firstWord(s string) string {
	w, _, _ := strings.Cut(s, " ")
	return w
}

func (v *VPP) showInterfaces() string {
	var b strings.Builder
	for _, f := range v.ifs.all() {
		state := "down"
		if f.up {
			state = "up"
		}
		fmt.Fprintf(&b, "%-32s %5d %6s %d/%d/%d/%d\n", f.name, f.index, state, f.mtu[0], f.mtu[1], f.mtu[2], f.mtu[3])
	}
	return b.String()
}

func (v *VPP) showSessions() string {
	var b strings.Builder
	for _, s := range v.nat.Sessions() {
		fmt.Fprintln(&b, s)
	}
	return b.String()
}

// showNATSummary returns the line of VPP's `show nat44 summary` that counts all sessions.
func (v *VPP) showNATSummary() string {
	all, idle := v.nat.Sessions(), 0
	for _, s := range all {
		if s.TimedOut {
			idle++
		}
	}
	return fmt.Sprintf("total sessions: %d (timed out: %d)\n", len(all), idle)
}
