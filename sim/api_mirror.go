package sim

import (
	"maps"
	"slices"
	"strings"

	"go.fd.io/govpp/binapi/arp"
	"go.fd.io/govpp/binapi/flowprobe"
	interfaces_ "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ipfix_export"
	"go.fd.io/govpp/binapi/span"

	"github.com/contiv-agent/contiv-agent/sim/mirror"
)

// mirrorMessages: SPAN, proxy ARP, and the capture of packets.
func mirrorMessages(t *apiTable) {
	onRead(t, func(q *call, m *interfaces_.PcapTraceOn) *interfaces_.PcapTraceOnReply {
		return &interfaces_.PcapTraceOnReply{Retval: q.captured.Start(m)}
	})
	onRead(t, func(q *call, _ *interfaces_.PcapTraceOff) *interfaces_.PcapTraceOffReply {
		return &interfaces_.PcapTraceOffReply{Retval: q.captured.Stop()}
	})
	onWrite(t, func(q *call, m *span.SwInterfaceSpanEnableDisable) *span.SwInterfaceSpanEnableDisableReply {
		return &span.SwInterfaceSpanEnableDisableReply{Retval: q.mirrors.Set(m)}
	})
	onDump(t, func(q *call, m *span.SwInterfaceSpanDump, send func(*span.SwInterfaceSpanDetails)) {
		for k, state := range q.mirrors {
			if k.L2 == m.IsL2 {
				send(&span.SwInterfaceSpanDetails{
					SwIfIndexFrom: interface_types.InterfaceIndex(k.From), SwIfIndexTo: interface_types.InterfaceIndex(k.To), State: state, IsL2: k.L2,
				})
			}
		}
	})
	onWrite(t, func(q *call, m *arp.ProxyArpAddDel) *arp.ProxyArpAddDelReply {
		return &arp.ProxyArpAddDelReply{Retval: q.proxy.Set(m, q.fib[ip4].findTable(m.Proxy.TableID) != nil)}
	})
	onDump(t, func(q *call, _ *arp.ProxyArpDump, send func(*arp.ProxyArpDetails)) {
		for _, p := range q.proxy.Ranges {
			if t := q.fib[ip4].findTable(p.TableID); t != nil && q.cfg.older(25, 10) {
				p.TableID = uint32(t.place) // fib_index for table_id
			}
			send(&arp.ProxyArpDetails{Proxy: p})
		}
	})
	onWrite(t, func(q *call, m *arp.ProxyArpIntfcEnableDisable) *arp.ProxyArpIntfcEnableDisableReply {
		rv := q.onInterface(m.SwIfIndex, func(f *iface) int32 {
			q.proxy.Enable(f.index, m.Enable)
			return 0
		})
		return &arp.ProxyArpIntfcEnableDisableReply{Retval: rv}
	})
	onDump(t, func(q *call, _ *arp.ProxyArpIntfcDump, send func(*arp.ProxyArpIntfcDetails)) {
		for _, i := range slices.Sorted(maps.Keys(q.proxy.On)) {
			send(&arp.ProxyArpIntfcDetails{SwIfIndex: i})
		}
	})
}

// probeMessages: the plugin flowprobe, and its exporter.
func probeMessages(t *apiTable) {
	onRead(t, func(q *call, _ *flowprobe.FlowprobeGetParams) *flowprobe.FlowprobeGetParamsReply {
		return q.probe.Params()
	})
	onWrite(t, func(q *call, m *flowprobe.FlowprobeSetParams) *flowprobe.FlowprobeSetParamsReply {
		return &flowprobe.FlowprobeSetParamsReply{Retval: q.probe.SetParams(m)}
	})
	onWrite(t, func(q *call, m *flowprobe.FlowprobeInterfaceAddDel) *flowprobe.FlowprobeInterfaceAddDelReply {
		return &flowprobe.FlowprobeInterfaceAddDelReply{Retval: q.onInterface(m.SwIfIndex, func(*iface) int32 { return q.probe.Set(m) })}
	})
	onDump(t, func(q *call, m *flowprobe.FlowprobeInterfaceDump, send func(*flowprobe.FlowprobeInterfaceDetails)) {
		q.probe.Interfaces(m.SwIfIndex, send)
	})
	onWrite(t, func(q *call, m *ipfix_export.SetIpfixExporter) *ipfix_export.SetIpfixExporterReply {
		return &ipfix_export.SetIpfixExporterReply{Retval: q.probe.SetExporter(m, q.fib[ip4].findTable(m.VrfID) != nil)}
	})
	onDump(t, func(q *call, _ *ipfix_export.IpfixExporterDump, send func(*ipfix_export.IpfixExporterDetails)) {
		send(q.probe.Exporter())
	})
}

func (v *VPP) dumpMirrors(b *strings.Builder) {
	b.WriteString(strings.Join(mirror.Lines(v.mirrors, &v.proxy, v.ifs.name), "") + v.probe.Text(v.ifs.name))
}
