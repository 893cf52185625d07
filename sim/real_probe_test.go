package sim

import (
	"fmt"
	"net/netip"
	"testing"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/flowprobe"
	interfaces_ "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip_types"
	"go.fd.io/govpp/binapi/ipfix_export"
)

// probeStory is a sequence of requests with interfaces 1 to 3, for every branch of every handler.
func probeStory() []api.Message {
	set := func(add bool, index int, which flowprobe.FlowprobeWhich, direction flowprobe.FlowprobeDirection) api.Message {
		return &flowprobe.FlowprobeInterfaceAddDel{IsAdd: add, Which: which, Direction: direction, SwIfIndex: interface_types.InterfaceIndex(index)}
	}
	params := func(flags flowprobe.FlowprobeRecordFlags, active, passive uint32) api.Message {
		return &flowprobe.FlowprobeSetParams{RecordFlags: flags, ActiveTimer: active, PassiveTimer: passive}
	}
	exporter := func(collector, source string, change func(*ipfix_export.SetIpfixExporter)) api.Message {
		address := func(s string) ip_types.Address { return toAddress(netip.MustParseAddr(s)) }
		m := &ipfix_export.SetIpfixExporter{
			CollectorAddress: address(collector), CollectorPort: 4740, SrcAddress: address(source), VrfID: noIndex, PathMtu: 1400, TemplateInterval: 2,
		}
		change(m)
		return m
	}
	none := func(*ipfix_export.SetIpfixExporter) {}
	const ip4, ip6, both = flowprobe.FLOWPROBE_WHICH_IP4, flowprobe.FLOWPROBE_WHICH_IP6, flowprobe.FLOWPROBE_WHICH_L2
	const rx, tx, all = flowprobe.FLOWPROBE_DIRECTION_RX, flowprobe.FLOWPROBE_DIRECTION_TX, flowprobe.FLOWPROBE_DIRECTION_BOTH
	return []api.Message{
		set(true, 1, both, tx), // without parameters
		params(6, 9, 5), params(0, 0, 0), set(true, 1, both, tx),
		params(6, noIndex, noIndex), params(6, 5, 6),
		set(true, 77, both, tx), set(true, 1, 3, tx), set(true, 1, both, 3), set(false, 1, both, tx),
		set(true, 1, both, tx), set(true, 1, both, tx), set(true, 1, ip4, tx), set(false, 1, ip6, tx),
		set(true, 2, ip4, rx), set(true, 3, ip6, all),
		params(7, 5, 6), // while interfaces count
		exporter("10.9.9.9", "0.0.0.0", none), exporter("10.9.9.9", "2001:db8::1", none), exporter("10.9.9.9", "10.9.9.1", func(m *ipfix_export.SetIpfixExporter) { m.VrfID = 77 }),
		exporter("10.9.9.9", "10.9.9.1", func(m *ipfix_export.SetIpfixExporter) { m.PathMtu = 1451 }), exporter("10.9.9.9", "10.9.9.1", func(m *ipfix_export.SetIpfixExporter) { m.PathMtu = 67 }),
		exporter("10.9.9.9", "10.9.9.1", none), exporter("10.9.9.8", "10.9.9.1", func(m *ipfix_export.SetIpfixExporter) { m.VrfID, m.UDPChecksum = 0, true }),
		exporter("10.9.9.9", "10.9.9.1", func(m *ipfix_export.SetIpfixExporter) {
			m.CollectorPort, m.PathMtu, m.TemplateInterval = 65535, noIndex, noIndex
		}),
		exporter("0.0.0.0", "0.0.0.0", none),
		&interfaces_.DeleteLoopback{SwIfIndex: 1},
		&interfaces_.CreateLoopback{}, // gets the index, and the setting
		set(true, 1, both, tx), set(false, 1, both, tx), set(true, 1, ip4, tx),
		set(false, 1, ip4, tx), set(false, 2, ip4, rx), set(false, 3, ip6, all),
		params(4, 0, 0),
	}
}

// TestAgainstRealVPPFlowprobe: the sim answers as a real VPP with flowprobe does, and both show the same state after each request.
func TestAgainstRealVPPFlowprobe(t *testing.T) {
	real, fake := realVPP(t), dial(t, New(Config{}))
	if _, known := real.ids[nameCRC(&flowprobe.FlowprobeGetParams{})]; !known {
		t.Skip("this VPP is built without flowprobe")
	}
	for range 3 {
		m := &interfaces_.CreateLoopback{}
		answerText(fake, m)
		answerText(real, m)
	}
	for n, m := range probeStory() {
		if want, got := answerText(real, m), answerText(fake, m); want != got {
			t.Errorf("step %d, %s %+v:\nvpp: %s\nsim: %s", n, m.GetMessageName(), m, want, got)
		}
		if want, got := probeDumps(real), probeDumps(fake); want != got {
			t.Fatalf("after step %d, %s %+v:\nvpp: %s\nsim: %s", n, m.GetMessageName(), m, want, got)
		}
	}
}

func probeDumps(c *client) (out string) {
	for _, d := range dump[*flowprobe.FlowprobeInterfaceDetails](c, &flowprobe.FlowprobeInterfaceDump{SwIfIndex: interface_types.InterfaceIndex(noIndex)}) {
		out += fmt.Sprintf("%+v\n", d)
	}
	for _, d := range dump[*ipfix_export.IpfixExporterDetails](c, &ipfix_export.IpfixExporterDump{}) {
		out += fmt.Sprintf("%+v\n", d)
	}
	return out + answerText(c, &flowprobe.FlowprobeGetParams{})
}
