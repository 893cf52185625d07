// Package flowprobe models VPP's plugin flowprobe and its exporter of IPFIX (flowprobe/node.c, vnet/ipfix-export; VPP 25.10): it counts packets that leave by interfaces, and
// makes messages of the counts. Not modelled: packets that come in (the direction RX), addresses of Ethernet (the flag L2), a passive time of 0, workers, packets that are not of IP, and two connections with one hash.
//
// Invariant: each counted packet is in one record at most. It is not safe for concurrent use.
package flowprobe

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"go.fd.io/govpp/api"
	probe "go.fd.io/govpp/binapi/flowprobe"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip_types"
	"go.fd.io/govpp/binapi/ipfix_export"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim/packet"
)

// What VPP takes for ~0, and what it has at first.
const (
	anyTable                         = ^uint32(0)
	anyTime, activeTime, passiveTime = ^uint32(0), 15, 120 // seconds
	anyPort, ipfixPort               = ^uint16(0), 4739
	anyMTU                           = ^uint32(0)
	pathMTU, leastMTU, mostMTU       = 512, 68, 1450
	templateTime                     = 20 // seconds
)

// setting is what an interface counts.
type setting struct {
	which     probe.FlowprobeWhich
	direction probe.FlowprobeDirection
	dead      bool // the interface was deleted
}

// Probe is the flowprobe of a VPP, with the exporter.
type Probe struct {
	flags           probe.FlowprobeRecordFlags
	active, passive uint32 // seconds
	on              map[uint32]setting
	exporter        ipfix_export.SetIpfixExporter
	entries         map[key]*entry
	streams         map[variant]*stream
	templates       uint16 // how many there have been
	number          uint32 // of the next message with records
	wake            time.Time
	ready           [][]byte // messages
}

// key is a direction of a connection at an interface, with all by which VPP distinguishes connections.
type key struct {
	in, out          uint32
	which            probe.FlowprobeWhich
	src, dst         netip.Addr
	protocol         uint8
	srcPort, dstPort uint16
}

// entry is what is known of a key.
type entry struct {
	packets, octets            uint64 // since the last record
	flags                      uint16
	begin, end, exported, next time.Time // next: when the timer for silence ends
}

// New returns the flowprobe of a VPP that has started.
func New() *Probe {
	p := &Probe{active: activeTime, passive: passiveTime, on: map[uint32]setting{}, entries: map[key]*entry{}, streams: map[variant]*stream{}}
	p.exporter.VrfID = anyTable
	return p
}

// SetParams is flowprobe_set_params.
func (p *Probe) SetParams(m *probe.FlowprobeSetParams) (retval int32) {
	switch {
	case m.PassiveTimer > 0 && m.ActiveTimer > m.PassiveTimer:
		return int32(api.INVALID_VALUE)
	case len(p.on) > 0:
		return int32(api.UNSUPPORTED)
	}
	p.flags, p.active, p.passive = m.RecordFlags, m.ActiveTimer, m.PassiveTimer
	if p.active == anyTime {
		p.active = activeTime
	}
	if p.passive == anyTime {
		p.passive = passiveTime
	}
	return 0
}

// Params is flowprobe_get_params.
func (p *Probe) Params() *probe.FlowprobeGetParamsReply {
	return &probe.FlowprobeGetParamsReply{RecordFlags: p.flags, ActiveTimer: p.active, PassiveTimer: p.passive}
}

// Set is flowprobe_interface_add_del, for an interface that exists.
func (p *Probe) Set(m *probe.FlowprobeInterfaceAddDel) (retval int32) {
	index := uint32(m.SwIfIndex)
	was, on := p.on[index]
	switch {
	case m.Which > probe.FLOWPROBE_WHICH_L2, m.Direction > probe.FLOWPROBE_DIRECTION_BOTH:
		return int32(api.INVALID_VALUE)
	case p.flags == 0:
		return int32(api.CANNOT_ENABLE_DISABLE_FEATURE)
	case on && (m.IsAdd || was.which != m.Which):
		return int32(api.ENTRY_ALREADY_EXISTS)
	case !on && !m.IsAdd:
		return int32(api.NO_SUCH_ENTRY)
	}
	if !m.IsAdd {
		delete(p.on, index)
		p.endStreams(was.which)
		return 0
	}
	p.on[index] = setting{which: m.Which, direction: m.Direction}
	p.beginStreams(m.Which)
	return 0
}

// Interfaces is flowprobe_interface_dump, of one interface, or of all by index ~0.
func (p *Probe) Interfaces(index interface_types.InterfaceIndex, send func(*probe.FlowprobeInterfaceDetails)) {
	for _, at := range slices.Sorted(maps.Keys(p.on)) {
		s := p.on[at]
		if i := interface_types.InterfaceIndex(at); index == i || index == ^interface_types.InterfaceIndex(0) {
			send(&probe.FlowprobeInterfaceDetails{SwIfIndex: i, Which: s.which, Direction: s.direction})
		}
	}
}

// SetExporter is set_ipfix_exporter; table reports that the table of its VrfID exists.
func (p *Probe) SetExporter(m *ipfix_export.SetIpfixExporter, table bool) (retval int32) {
	now := *m
	now.CollectorAddress.Af = ip_types.ADDRESS_IP4
	if now.CollectorPort == anyPort {
		now.CollectorPort = ipfixPort
	}
	if now.PathMtu == anyMTU {
		now.PathMtu = pathMTU
	}
	if now.TemplateInterval == anyTime {
		now.TemplateInterval = templateTime
	}
	collector, source := now.CollectorAddress.Un.GetIP4(), now.SrcAddress.Un.GetIP4()
	switch {
	case now.VrfID != anyTable && !table:
		return int32(api.NO_SUCH_FIB)
	case collector != ip_types.IP4Address{} && source == ip_types.IP4Address{}, now.SrcAddress.Af != ip_types.ADDRESS_IP4, now.PathMtu > mostMTU, now.PathMtu < leastMTU:
		return int32(api.INVALID_VALUE)
	}
	if was := p.exporter; was.CollectorAddress != now.CollectorAddress || was.SrcAddress != now.SrcAddress || was.CollectorPort != now.CollectorPort {
		p.number = 0
		for _, s := range p.streams {
			s.announced = time.Time{}
		}
	}
	p.exporter, p.wake = now, time.Time{}
	return 0
}

// Exporter is ipfix_exporter_dump.
func (p *Probe) Exporter() *ipfix_export.IpfixExporterDetails {
	e := &p.exporter
	return &ipfix_export.IpfixExporterDetails{
		CollectorAddress: e.CollectorAddress, CollectorPort: e.CollectorPort, SrcAddress: e.SrcAddress, VrfID: e.VrfID, PathMtu: e.PathMtu,
		TemplateInterval: e.TemplateInterval, UDPChecksum: e.UDPChecksum,
	}
}

// Text has the configuration, a line for each interface and one for the exporter; name is that of an interface. It is empty for a VPP that has just started.
func (p *Probe) Text(name func(uint32) string) string {
	var b strings.Builder
	if collector, source := p.ends(); !collector.IsUnspecified() {
		fmt.Fprintf(&b, "ipfix %s -> %s port %d mtu %d templates %ds\n", source, collector, p.exporter.CollectorPort, p.exporter.PathMtu, p.exporter.TemplateInterval)
	}
	for _, at := range slices.Sorted(maps.Keys(p.on)) {
		s := p.on[at]
		fmt.Fprintf(&b, "flowprobe %s %s %s records %d timers %ds %ds", name(at), s.which, s.direction, p.flags, p.active, p.passive)
		if s.dead {
			b.WriteString(" of a former interface")
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// InterfaceDeleted is the end of an interface: VPP takes the feature from it, and keeps the setting. A new interface with its index has the setting, and is not counted until
// the setting is removed and made again.
func (p *Probe) InterfaceDeleted(index uint32) {
	if s, on := p.on[index]; on {
		s.dead = true
		p.on[index] = s
	}
}

// Passage is a packet that leaves by an interface.
type Passage struct {
	In, Out uint32        // the interfaces where it came in, and where it goes out
	Octets  func() uint64 // of its IP packet; it is called if the packet is counted
	At      time.Time
}

// Count counts a packet, if the interface where it goes out does. Messages of the exporter are not counted.
func (p *Probe) Count(h *packet.Packet, at Passage) {
	s, on := p.on[at.Out]
	v := variant{s.which, h.Dst.Is6()}
	if !on || s.dead || s.direction == probe.FLOWPROBE_DIRECTION_RX || p.streams[v] == nil || p.isMessage(h) {
		return
	}
	k := key{in: at.In, out: at.Out, which: s.which, protocol: uint8(h.Proto)}
	if p.flags&probe.FLOWPROBE_RECORD_FLAG_L3 != 0 {
		k.src, k.dst = h.Src, h.Dst
	}
	flags := uint16(0)
	if ported := h.Proto == model.TCP || h.Proto == model.UDP; ported && (v.six || p.flags&probe.FLOWPROBE_RECORD_FLAG_L4 != 0) {
		k.srcPort, k.dstPort = h.SrcPort, h.DstPort
		if h.Proto == model.TCP {
			flags = uint16(h.TCPFlags)
		}
	}
	e := p.entries[k]
	if e == nil {
		e = &entry{begin: at.At, exported: at.At, next: at.At.Add(seconds(p.passive))}
		p.entries[k] = e
	}
	e.packets, e.octets, e.end = e.packets+1, e.octets+at.Octets(), at.At
	e.flags |= flags
	if p.active == 0 || at.At.After(e.exported.Add(seconds(p.active))) {
		p.export(k, v, e, at.At)
	}
	if p.active == 0 {
		delete(p.entries, k)
	}
}

func seconds(n uint32) time.Duration { return time.Duration(n) * time.Second }

// isMessage reports whether a packet is one of the exporter's: VPP marks its buffers.
func (p *Probe) isMessage(h *packet.Packet) bool {
	collector, source := p.ends()
	return h.Proto == model.UDP && h.Src == source && h.Dst == collector && h.DstPort == p.exporter.CollectorPort
}

func (p *Probe) ends() (collector, source netip.Addr) {
	return netip.AddrFrom4(p.exporter.CollectorAddress.Un.GetIP4()), netip.AddrFrom4(p.exporter.SrcAddress.Un.GetIP4())
}
