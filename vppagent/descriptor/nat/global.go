package nat

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.fd.io/govpp/binapi/nat44_ed"
	"go.fd.io/govpp/binapi/vlib"

	"github.com/contiv-agent/contiv-agent/kv"
	contivnat "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/nat"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/nat"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

const idRunningConfig = "nat44_show_running_config"

func runningConfigRequests(*descriptor.World, descriptor.Candidates) []descriptor.Request {
	return []descriptor.Request{descriptor.AskRequest(idRunningConfig, &nat44_ed.Nat44ShowRunningConfig{})}
}

// runningConfig returns nil while NAT44-ED is disabled: its table then has 0 sessions, enabled it has 64512 by default
// (nat44_show_running_config, VPP 24.06).
func runningConfig(d *descriptor.Dump) (*nat44_ed.Nat44ShowRunningConfigReply, error) {
	r, err := d.Reply(idRunningConfig)
	if err != nil {
		return nil, err
	}
	m, ok := r.Msg.(*nat44_ed.Nat44ShowRunningConfigReply)
	if !ok || m.Sessions == 0 {
		return nil, nil
	}
	return m, nil
}

// nat44Global is the enabled plugin NAT44-ED.
type nat44Global struct{ forwarding bool }

// Nat44Global describes ligato's Nat44Global without its deprecated parts. The session table gets its size from the
// Nat44Settings, if they are wanted when NAT44 is enabled.
//
// Delete keeps the plugin enabled, without forwarding and as empty as when it was enabled: disabling it deletes the configuration
// of other clients, and leaks FIB locks (VPP 24.06).
func Nat44Global() *descriptor.Descriptor {
	d := descriptor.Spec[*nat.Nat44Global, *nat44Global]{
		Name: "nat44-global", Prefix: kv.Nat44GlobalKey,
		Compile: func(_ string, m *nat.Nat44Global) (*nat44Global, error) {
			switch {
			case m.GetEndpointIndependent():
				return nil, errors.New("endpoint_independent: not supported")
			case len(m.GetNatInterfaces()) > 0: //lint:ignore SA1019 refused, so it must be looked at
				return nil, errors.New("nat_interfaces: deprecated, use Nat44Interface")
			case len(m.GetAddressPool()) > 0: //lint:ignore SA1019 refused, so it must be looked at
				return nil, errors.New("address_pool: deprecated, use Nat44AddressPool")
			case m.GetVirtualReassembly() != nil:
				return nil, errors.New("virtual_reassembly: VPP has no such setting any more")
			}
			return &nat44Global{forwarding: m.GetForwarding()}, nil
		},
		Message: func(g *nat44Global) *nat.Nat44Global { return &nat.Nat44Global{Forwarding: g.forwarding} },
		Equal:   func(have, want *nat44Global) bool { return *have == *want },
		Create: func(w *descriptor.World, g *nat44Global) ([]descriptor.Op, error) {
			enable := &nat44_ed.Nat44EdPluginEnableDisable{Enable: true}
			if s, ok := w.Wanted(kv.Nat44SettingsKey).(*nat44Settings); ok {
				enable.Sessions = s.sessions
			}
			on := descriptor.Write(enable)
			on.Joined = true // without forwarding, an interface with a role translates all packets
			return []descriptor.Op{{Call: on, Then: func(vpp.Reply) []descriptor.Op {
				if began := w.Options.NATBegan; began != nil && descriptor.FactsOf(w, newLoss).all {
					began()
				}
				return nil
			}}, g.forward()}, nil
		},
		Update: func(_ *descriptor.World, _, want *nat44Global) ([]descriptor.Op, error) {
			return []descriptor.Op{want.forward()}, nil
		},
		Delete: func(*descriptor.World, *nat44Global) ([]descriptor.Op, error) {
			return []descriptor.Op{(&nat44Global{}).forward()}, nil
		},
		Dumps:    runningConfigRequests,
		Retrieve: retrieveNat44Global,
	}.Descriptor()
	d.Ready = readyForwarding
	return d
}

// readyForwarding: pods' interfaces lose both roles before VPP forwards (see PodPart).
func readyForwarding(w *descriptor.World, have, want any, _ func(key string) any) error {
	if have == nil || have.(*nat44Global).forwarding || !want.(*nat44Global).forwarding {
		return nil
	}
	for _, state := range w.Having(natInterfacePrefix) {
		i := state.(*natInterface)
		if w.OfPod(i.name) && i.Inside && i.Outside {
			return fmt.Errorf("forwarding: NAT44 on %s is still arranged for a VPP that does not forward", i.name)
		}
	}
	return nil
}

// forward is also sent after every enabling, which resets it.
func (g *nat44Global) forward() descriptor.Op {
	return descriptor.Op{Call: descriptor.Write(&nat44_ed.Nat44ForwardingEnableDisable{Enable: g.forwarding})}
}

// loss is whether VPP had neither NAT44 nor an interface of a pod at the last dump, so that it is another process than pods' connections knew.
type loss struct{ all bool }

func newLoss() *loss { return &loss{} }

// Clone implements descriptor.Facts.
func (l *loss) Clone() descriptor.Facts { return &loss{l.all} }

func retrieveNat44Global(w *descriptor.World, d *descriptor.Dump, _ descriptor.Candidates) ([]descriptor.Found, error) {
	m, err := runningConfig(d)
	descriptor.FactsOf(w, newLoss).all = err == nil && m == nil && !slices.ContainsFunc(w.Interfaces(), (*descriptor.Iface).OfPod)
	if m == nil || err != nil {
		return nil, err
	}
	return []descriptor.Found{{Key: kv.Nat44GlobalKey, State: &nat44Global{forwarding: m.ForwardingEnabled}}}, nil
}

// nat44Settings are the sizes and times of the session table; no field is 0.
type nat44Settings struct {
	sessions                 uint32
	udp, tcp, tcpTrans, icmp uint32
	keep                     bool // the size that VPP has satisfies sessions
}

// Defaults of VPP 24.06 (nat44_ed.c, nat/lib/lib.h).
var defaultSettings = nat44Settings{sessions: 63 * 1024, udp: 300, tcp: 7440, tcpTrans: 240, icmp: 60}

// equal compares timeouts, and the size unless want keeps VPP's.
func (s *nat44Settings) equal(want *nat44Settings) bool {
	return s.sameTimes(want) && (want.keep || s.sessions == want.sessions)
}

func (s *nat44Settings) sameTimes(o *nat44Settings) bool {
	return s.udp == o.udp && s.tcp == o.tcp && s.tcpTrans == o.tcpTrans && s.icmp == o.icmp
}

// Nat44Settings describes our Nat44Settings. The number of sessions applies when NAT44 is enabled, and a later change would cut all
// sessions. So the value then fails with that reason, after it has set the timeouts, unless it keeps VPP's size.
func Nat44Settings() *descriptor.Descriptor {
	return descriptor.Spec[*contivnat.Nat44Settings, *nat44Settings]{
		Name: "nat44-settings", Prefix: kv.Nat44SettingsKey,
		Compile: func(_ string, m *contivnat.Nat44Settings) (*nat44Settings, error) {
			or := func(v, zero uint32) uint32 {
				if v == 0 {
					return zero
				}
				return v
			}
			d := defaultSettings
			return &nat44Settings{
				sessions: or(m.GetSessions(), d.sessions), udp: or(m.GetUdp(), d.udp), tcp: or(m.GetTcpEstablished(), d.tcp),
				tcpTrans: or(m.GetTcpTransitory(), d.tcpTrans), icmp: or(m.GetIcmp(), d.icmp), keep: m.GetKeepSize(),
			}, nil
		},
		Message: func(s *nat44Settings) *contivnat.Nat44Settings {
			return &contivnat.Nat44Settings{Sessions: s.sessions, Udp: s.udp, TcpEstablished: s.tcp, TcpTransitory: s.tcpTrans, Icmp: s.icmp, KeepSize: s.keep}
		},
		Equal:        (*nat44Settings).equal,
		Dependencies: func(*nat44Settings) []descriptor.Dependency { return []descriptor.Dependency{{Key: kv.Nat44GlobalKey}} },
		Create: func(_ *descriptor.World, s *nat44Settings) ([]descriptor.Op, error) {
			return []descriptor.Op{s.setTimeouts()}, nil
		},
		Update: func(_ *descriptor.World, have, want *nat44Settings) ([]descriptor.Op, error) {
			var ops []descriptor.Op
			if !have.sameTimes(want) {
				ops = append(ops, want.setTimeouts())
			}
			if !want.keep && have.sessions != want.sessions {
				return ops, &descriptor.FixedError{Field: "sessions", Have: have.sessions, Want: want.sessions, Until: "VPP restarts"}
			}
			return ops, nil
		},
		Delete: func(*descriptor.World, *nat44Settings) ([]descriptor.Op, error) {
			return []descriptor.Op{defaultSettings.setTimeouts()}, nil
		},
		Dumps: runningConfigRequests,
		Retrieve: func(_ *descriptor.World, d *descriptor.Dump, _ descriptor.Candidates) ([]descriptor.Found, error) {
			m, err := runningConfig(d)
			if m == nil || err != nil {
				return nil, err
			}
			t := m.Timeouts
			return []descriptor.Found{{Key: kv.Nat44SettingsKey, State: &nat44Settings{sessions: m.Sessions, udp: t.UDP, tcp: t.TCPEstablished, tcpTrans: t.TCPTransitory, icmp: t.ICMP}}}, nil
		},
	}.Descriptor()
}

func (s *nat44Settings) setTimeouts() descriptor.Op {
	return descriptor.Op{Call: descriptor.Write(&nat44_ed.NatSetTimeouts{UDP: s.udp, TCPEstablished: s.tcp, TCPTransitory: s.tcpTrans, ICMP: s.icmp})}
}

// MappingCount returns the number of mappings that VPP has of a DNat44; 0 for other states.
func MappingCount(have any) int {
	if d, ok := have.(*dnat); ok {
		return len(d.mappings)
	}
	return 0
}

// AskLookups asks for the number of entries in the table in which VPP looks up NAT44 mappings and sessions, and for the number of sessions.
func AskLookups() []vpp.Call {
	return []vpp.Call{{Msg: &vlib.CliInband{Cmd: "show nat44 hash tables"}}, {Msg: &vlib.CliInband{Cmd: "show nat44 summary"}}}
}

// LookupsLack reports, from the answers to AskLookups, that the table lacks lookups of the mappings: each mapping and each session has
// an entry, and the table has fewer entries (VPP 25.10). False: the table may be complete, or VPP does not report it.
func LookupsLack(mappings int, replies []vpp.Reply) bool {
	number := func(r vpp.Reply, before, after string) (n int, ok bool) {
		text, err := descriptor.CLIText(r)
		_, rest, there := strings.Cut(text, before)
		if err != nil || !there {
			return 0, false
		}
		_, err = fmt.Sscanf(strings.TrimSpace(rest), after, &n)
		return n, err == nil
	}
	entries, known := number(replies[0], "'ed-flow-hash'", "%d active elements")
	sessions, counted := number(replies[1], "total sessions:", "%d")
	return known && counted && entries < mappings+sessions
}
