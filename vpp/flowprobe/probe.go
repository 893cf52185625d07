// Package flowprobe makes VPP's plugin flowprobe count the packets that leave by each interface, and turns its messages of IPFIX into records.
//
//	VPP: flowprobe ── IPFIX over UDP ──▶ Collector.Run ──▶ Collector.Take
//
// Invariant: a flowprobe that another program configured is not changed.
package flowprobe

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"go.fd.io/govpp/binapi/ethernet_types"
	probe "go.fd.io/govpp/binapi/flowprobe"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip_types"
	"go.fd.io/govpp/binapi/ipfix_export"
	"go.fd.io/govpp/binapi/l2"

	"github.com/contiv-agent/contiv-agent/vpp"
)

// Do sends requests to VPP; vpp.Conn.Do is one.
type Do func(context.Context, ...vpp.Call) []vpp.Reply

var (
	// ErrForeign means that another program uses flowprobe or the exporter: VPP has one of each for it.
	ErrForeign = errors.New("another program has configured VPP's flowprobe or its IPFIX exporter, which VPP has once")
	// ErrAbsent means that VPP does not have the plugin.
	ErrAbsent = errors.New("VPP has no flowprobe: enable flowprobe_plugin.so in startup.conf")
)

// Settings of flowprobe (VPP 24.06 to 26.06). VPP drops the last record of a connection if the passive time is not longer than the active one
// (flowprobe/node.c, flowprobe_walker_process).
const (
	active, passive  = 5, 6 // seconds between two records of a connection, and without packets until its last record
	mtu              = 1400
	templateInterval = 2 // seconds
	anyInterface     = ^interface_types.InterfaceIndex(0)
	recorded         = probe.FLOWPROBE_RECORD_FLAG_L3 | probe.FLOWPROBE_RECORD_FLAG_L4
	// bothFamilies makes flowprobe read the Ethernet header of each packet, and count IPv4 and IPv6 by separate templates. An interface has one such
	// setting, so with that of a family the other one is not counted. A packet in a bridge leaves by the bridge's interface, and then by a port: ports
	// do not count it again.
	bothFamilies = probe.FLOWPROBE_WHICH_L2
)

// Target is where VPP sends its messages.
type Target struct {
	Collector netip.AddrPort // an IPv4 address of this host that VPP reaches
	Exporter  netip.Addr     // the source of the messages: an address that VPP has at the link to the collector

	counted map[interface_types.InterfaceIndex]string // names of the interfaces of the latest Ensure
}

// Ensure makes VPP count and send, as far as it does not yet, also for interfaces that are new. VPP keeps the setting of a deleted interface for the next one with its index,
// and does not count that one (vnet_feature_add_del_sw_interface). So the setting of an interface that the Target sees first is made anew. It does not see a new interface with
// the name, tag and index of one that was deleted since the latest call.
func (to *Target) Ensure(ctx context.Context, do Do) error {
	r := do(ctx, vpp.Call{Msg: &probe.FlowprobeGetParams{}})[0]
	params, ok := r.Msg.(*probe.FlowprobeGetParamsReply)
	if !ok || r.Err != nil {
		return fmt.Errorf("%w (%w)", ErrAbsent, r.Err)
	}
	var exporter ipfix_export.IpfixExporterDetails
	probed, ports, all := map[interface_types.InterfaceIndex]*probe.FlowprobeInterfaceDetails{}, map[interface_types.InterfaceIndex]bool{}, map[interface_types.InterfaceIndex]string{}
	for i, r := range do(ctx,
		vpp.Call{Msg: &ipfix_export.IpfixExporterDump{}, Dump: true},
		vpp.Call{Msg: &probe.FlowprobeInterfaceDump{SwIfIndex: anyInterface}, Dump: true},
		vpp.Call{Msg: &interfaces.SwInterfaceDump{SwIfIndex: anyInterface}, Dump: true},
		vpp.Call{Msg: &l2.BridgeDomainDump{BdID: ^uint32(0), SwIfIndex: anyInterface}, Dump: true},
	) {
		if r.Err != nil {
			return fmt.Errorf("flowprobe: %w", r.Err)
		}
		for n, m := range r.Details {
			switch m := m.(type) {
			case *ipfix_export.IpfixExporterDetails:
				if i == 0 && n == 0 { // flowprobe sends by the first one
					exporter = *m
				}
			case *probe.FlowprobeInterfaceDetails:
				probed[m.SwIfIndex] = m
			case *interfaces.SwInterfaceDetails:
				if m.L2Address != (ethernet_types.MacAddress{}) { // flowprobe reads Ethernet headers; local0 has none, either
					all[m.SwIfIndex] = m.InterfaceName + " " + m.Tag
				}
			case *l2.BridgeDomainDetails:
				for _, port := range m.SwIfDetails {
					ports[port.SwIfIndex] = port.SwIfIndex != m.BviSwIfIndex
				}
			}
		}
	}
	calls, err := to.configure(params, &exporter, len(probed) > 0)
	if err != nil {
		return err
	}
	for _, index := range slices.Sorted(maps.Keys(all)) {
		if !ports[index] {
			calls = append(calls, probeInterface(index, probed[index], to.counted[index] == all[index])...)
		}
	}
	to.counted = all
	for _, r := range do(ctx, calls...) {
		if r.Err != nil {
			err, to.counted = errors.Join(err, fmt.Errorf("flowprobe: %w", r.Err)), nil
		}
	}
	return err
}

// probeInterface returns the requests that make VPP count all IP packets that leave by an interface. Counting of one family, as by earlier agents, is
// replaced.
func probeInterface(index interface_types.InterfaceIndex, now *probe.FlowprobeInterfaceDetails, known bool) (calls []vpp.Call) {
	if known && now != nil && now.Which == bothFamilies {
		return nil
	}
	if now != nil {
		calls = append(calls, vpp.Call{Msg: &probe.FlowprobeInterfaceAddDel{Which: now.Which, Direction: now.Direction, SwIfIndex: index}})
	}
	return append(calls, vpp.Call{Msg: &probe.FlowprobeInterfaceAddDel{
		IsAdd: true, Which: bothFamilies, Direction: probe.FLOWPROBE_DIRECTION_TX, SwIfIndex: index,
	}})
}

// configure returns the requests for the exporter and the parameters.
func (to *Target) configure(params *probe.FlowprobeGetParamsReply, exporter *ipfix_export.IpfixExporterDetails, used bool) (calls []vpp.Call, _ error) {
	at := netip.AddrPortFrom(netip.AddrFrom4(exporter.CollectorAddress.Un.GetIP4()), exporter.CollectorPort)
	if at != to.Collector {
		if !at.Addr().IsUnspecified() {
			return nil, fmt.Errorf("%w: it sends to %s", ErrForeign, at)
		}
		calls = append(calls, vpp.Call{Msg: &ipfix_export.SetIpfixExporter{
			CollectorAddress: wireAddress(to.Collector.Addr()), CollectorPort: to.Collector.Port(), SrcAddress: wireAddress(to.Exporter),
			VrfID: ^uint32(0), PathMtu: mtu, TemplateInterval: templateInterval,
		}})
	}
	if params.RecordFlags != recorded || params.ActiveTimer != active || params.PassiveTimer != passive {
		if used {
			return nil, fmt.Errorf("%w: it records %d, with the timers %d and %d s", ErrForeign, params.RecordFlags, params.ActiveTimer, params.PassiveTimer)
		}
		calls = append(calls, vpp.Call{Msg: &probe.FlowprobeSetParams{RecordFlags: recorded, ActiveTimer: active, PassiveTimer: passive}})
	}
	return calls, nil
}

func wireAddress(a netip.Addr) ip_types.Address {
	return ip_types.Address{Af: ip_types.ADDRESS_IP4, Un: ip_types.AddressUnionIP4(a.As4())}
}
