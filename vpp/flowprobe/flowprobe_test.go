package flowprobe

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/ethernet_types"
	probe "go.fd.io/govpp/binapi/flowprobe"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ipfix_export"
	"go.fd.io/govpp/binapi/l2"

	"github.com/contiv-agent/contiv-agent/vpp"
)

// message makes a message of sets.
func message(number uint32, sets ...[]byte) []byte {
	b := make([]byte, messageHeader)
	binary.BigEndian.PutUint16(b, version)
	binary.BigEndian.PutUint32(b[8:], number)
	for _, s := range sets {
		b = append(b, s...)
	}
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)))
	return b
}

func set(id uint16, body ...byte) []byte {
	b := binary.BigEndian.AppendUint16(nil, id)
	return append(binary.BigEndian.AppendUint16(b, uint16(setHeader+len(body))), body...)
}

// template is as flowprobe sends it for IPv4 with ports (VPP 25.10): interfaces, direction, packets, times, addresses, protocol, bytes, ports, flags.
func template(id uint16) []byte {
	fields := []field{{10, 4}, {14, 4}, {61, 1}, {2, 8}, {156, 8}, {157, 8}, {8, 4}, {12, 4}, {4, 1}, {1, 8}, {7, 2}, {11, 2}, {6, 2}}
	b := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, id), uint16(len(fields)))
	for _, f := range fields {
		b = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(b, f.kind), f.length)
	}
	return set(templates, b...)
}

func record(src, dst string, n uint64) []byte {
	s, d := netip.MustParseAddrPort(src), netip.MustParseAddrPort(dst)
	b := append(make([]byte, 8), 1)
	for _, v := range []uint64{n, 100 + n, 200} {
		b = binary.BigEndian.AppendUint64(b, v)
	}
	b = append(append(append(b, s.Addr().AsSlice()...), d.Addr().AsSlice()...), 6)
	b = binary.BigEndian.AppendUint64(b, 40*n)
	return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(b, s.Port()), d.Port()), 2)
}

func wanted(src, dst string, n uint64) Record {
	s, d := netip.MustParseAddrPort(src), netip.MustParseAddrPort(dst)
	return Record{Src: s.Addr(), Dst: d.Addr(), Protocol: 6, SrcPort: s.Port(), DstPort: d.Port(), Flags: 2, Packets: n, Bytes: 40 * n, Start: 100 + n}
}

var compareAddrs = cmp.Comparer(func(a, b netip.Addr) bool { return a == b })

const one, two = "10.1.1.2:1000", "10.2.0.7:80"

// A reader reads records by the template that came before them, and counts what it misses.
func TestReader(t *testing.T) {
	var r Reader
	data := set(256, append(record(one, two, 3), record(two, one, 4)...)...)
	for i, step := range []struct {
		message       []byte
		want          []Record
		lost, unknown uint64
	}{
		{message(7, data), nil, 0, 1},          // no template yet
		{message(8, template(256)), nil, 0, 1}, // has no number of a message with data
		{message(8, data), []Record{wanted(one, two, 3), wanted(two, one, 4)}, 0, 1},
		{message(11, data), []Record{wanted(one, two, 3), wanted(two, one, 4)}, 2, 1},
		{message(12, template(257), data), []Record{wanted(one, two, 3), wanted(two, one, 4)}, 2, 1},
		{message(13, set(300, 1, 2)), nil, 2, 2},
		{message(14, set(0, 1, 2)), nil, 2, 2},                                       // of packets that are not of IP
		{message(3, data), []Record{wanted(one, two, 3), wanted(two, one, 4)}, 2, 2}, // VPP began again
		{message(4, set(256, append(record(one, two, 3), 0, 0, 0)...)), []Record{wanted(one, two, 3)}, 2, 2},
	} {
		got, err := r.Read(step.message)
		if diff := cmp.Diff(step.want, got, compareAddrs); diff != "" || err != nil || r.Lost != step.lost || r.Unknown != step.unknown {
			t.Errorf("message %d: %v, lost %d, unknown %d (-want +got):\n%s", i, err, r.Lost, r.Unknown, diff)
		}
	}
	for _, bad := range [][]byte{nil, message(1)[:15], append(message(1), 0), message(1, []byte{0, 2, 0, 3}), message(1, []byte{0, 2, 0, 9}), message(1, set(templates, 1, 0, 0, 9))} {
		if _, err := r.Read(bad); err == nil {
			t.Errorf("%x is a message", bad)
		}
	}
}

// No message makes the reader fail, and no record has more bytes than the message.
func FuzzReader(f *testing.F) {
	f.Add(template(256), record(one, two, 1))
	f.Add(set(256, 1), []byte{0})
	f.Fuzz(func(t *testing.T, first, second []byte) {
		if len(first)+len(second) > 60000 {
			return
		}
		var r Reader
		_, _ = r.Read(message(1, first))
		got, _ := r.Read(message(2, set(256, second...)))
		if len(got) > len(second) {
			t.Errorf("%d records of %d bytes", len(got), len(second))
		}
	})
}

// A collector returns each record once, and takes none from another sender.
func TestCollector(t *testing.T) {
	listen := func(at string) net.PacketConn {
		conn, err := net.ListenPacket("udp4", at)
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	conn := listen("127.0.0.1:0")
	busy := errors.New("no link")
	tries := 0
	c := NewCollector(func() (net.PacketConn, error) {
		if tries++; tries == 1 {
			return nil, busy
		}
		return conn, nil
	}, netip.MustParseAddr("127.0.0.1"))
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	if got := c.Take(t.Context()); !errors.Is(got.Err, busy) {
		t.Errorf("without a socket %+v", got)
	}
	to, other := listen("127.0.0.1:0"), listen("127.0.0.2:0")
	defer to.Close()
	defer other.Close()
	send := func(from net.PacketConn, b []byte) {
		if _, err := from.WriteTo(b, conn.LocalAddr()); err != nil {
			t.Fatal(err)
		}
	}
	send(other, message(0, template(256), set(256, record(two, one, 9)...)))
	send(to, message(1, template(256), set(256, record(one, two, 3)...)))
	send(to, message(3, set(256, record(one, two, 4)...)))
	send(to, []byte("no IPFIX"))
	var all Received
	for len(all.Records) < 2 || all.Lost < 2 {
		got := c.Take(t.Context())
		all.Records, all.Lost = append(all.Records, got.Records...), all.Lost+got.Lost
	}
	if diff := cmp.Diff(Received{Records: []Record{wanted(one, two, 3), wanted(one, two, 4)}, Lost: 2}, all, compareAddrs); diff != "" {
		t.Error(diff)
	}
	stop()
	if err := <-done; err == nil {
		t.Error("no error at the end")
	}
	if got := c.Take(t.Context()); len(got.Records) > 0 {
		t.Errorf("after the end %+v", got)
	}
}

// Records that nobody takes have no room in the end.
func TestCollectorIsBounded(t *testing.T) {
	var now Received
	var r Reader
	var many []byte
	for range 1000 {
		many = append(many, record(one, two, 1)...)
	}
	now.receive(&r, message(0, template(256)))
	for i := range uint32(mostWaiting/1000 + 2) {
		now.receive(&r, message(i, set(256, many...)))
	}
	if len(now.Records) != mostWaiting || now.Dropped != 2000 || now.Lost != 0 {
		t.Errorf("%d records, %d dropped, %d lost", len(now.Records), now.Dropped, now.Lost)
	}
}

// A VPP without the plugin, and one whose flowprobe or exporter another program uses, are errors; a configured one gets nothing again.
func TestConfigure(t *testing.T) {
	to := Target{Collector: netip.MustParseAddrPort("192.0.2.1:4739"), Exporter: netip.MustParseAddr("192.0.2.2")}
	exporter := func(at string) *ipfix_export.IpfixExporterDetails {
		a := netip.MustParseAddrPort(at)
		return &ipfix_export.IpfixExporterDetails{CollectorAddress: wireAddress(a.Addr()), CollectorPort: a.Port()}
	}
	ours := &probe.FlowprobeGetParamsReply{RecordFlags: recorded, ActiveTimer: active, PassiveTimer: passive}
	fresh := &probe.FlowprobeGetParamsReply{ActiveTimer: 15, PassiveTimer: 120}
	for name, c := range map[string]struct {
		params   *probe.FlowprobeGetParamsReply
		exporter string
		used     bool
		calls    int
		foreign  bool
	}{
		"new":              {fresh, "0.0.0.0:4739", false, 2, false},
		"ours":             {ours, "192.0.2.1:4739", true, 0, false},
		"half":             {ours, "0.0.0.0:4739", false, 1, false},
		"other exporter":   {ours, "192.0.2.9:4739", true, 0, true},
		"other port":       {ours, "192.0.2.1:9", true, 0, true},
		"other parameters": {fresh, "192.0.2.1:4739", true, 0, true},
	} {
		calls, err := to.configure(c.params, exporter(c.exporter), c.used)
		if len(calls) != c.calls || (err != nil) != c.foreign {
			t.Errorf("%s: %d requests, %v", name, len(calls), err)
		}
	}
	lacks := func(context.Context, ...vpp.Call) []vpp.Reply {
		return []vpp.Reply{{Err: &vpp.MissingError{Message: "flowprobe_get_params"}}}
	}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	if err := to.Ensure(ctx, lacks); err == nil {
		t.Error("no error without the plugin")
	}
}

// Both families are counted where packets leave an Ethernet interface, once in a bridge, also after an agent that counted one family. The setting of an interface that was not
// there at the latest call is made anew: it may be that of a deleted one.
func TestEnsureCountsBothFamilies(t *testing.T) {
	to := Target{Collector: netip.MustParseAddrPort("192.0.2.1:4739"), Exporter: netip.MustParseAddr("192.0.2.2")}
	counts := func(index int, which probe.FlowprobeWhich) *probe.FlowprobeInterfaceDetails {
		return &probe.FlowprobeInterfaceDetails{SwIfIndex: interface_types.InterfaceIndex(index), Which: which, Direction: probe.FLOWPROBE_DIRECTION_TX}
	}
	iface := func(index int, last byte) *interfaces.SwInterfaceDetails {
		return &interfaces.SwInterfaceDetails{SwIfIndex: interface_types.InterfaceIndex(index), L2Address: ethernet_types.MacAddress{5: last}}
	}
	const tunnel, fresh, older, current, bridge, port = 1, 2, 3, 4, 5, 6
	var got []probe.FlowprobeInterfaceAddDel
	counted := []api.Message{counts(older, probe.FLOWPROBE_WHICH_IP4), counts(current, bothFamilies)}
	name := "pod"
	do := func(_ context.Context, calls ...vpp.Call) (replies []vpp.Reply) {
		for _, c := range calls {
			var r vpp.Reply
			switch m := c.Msg.(type) {
			case *probe.FlowprobeGetParams:
				r.Msg = &probe.FlowprobeGetParamsReply{RecordFlags: recorded, ActiveTimer: active, PassiveTimer: passive}
			case *ipfix_export.IpfixExporterDump:
				r.Details = []api.Message{&ipfix_export.IpfixExporterDetails{CollectorAddress: wireAddress(to.Collector.Addr()), CollectorPort: to.Collector.Port()}}
			case *probe.FlowprobeInterfaceDump:
				r.Details = counted
			case *interfaces.SwInterfaceDump:
				r.Details = []api.Message{iface(0, 0), iface(tunnel, 0), iface(fresh, 1), iface(older, 2), iface(current, 3), iface(bridge, 4), iface(port, 5)}
				r.Details[4].(*interfaces.SwInterfaceDetails).InterfaceName = name
			case *l2.BridgeDomainDump:
				r.Details = []api.Message{&l2.BridgeDomainDetails{BviSwIfIndex: bridge, SwIfDetails: []l2.BridgeDomainSwIf{{SwIfIndex: bridge}, {SwIfIndex: port}}}}
			case *probe.FlowprobeInterfaceAddDel:
				got = append(got, *m)
			}
			replies = append(replies, r)
		}
		return replies
	}
	set := func(add bool, index int, which probe.FlowprobeWhich) probe.FlowprobeInterfaceAddDel {
		return probe.FlowprobeInterfaceAddDel{IsAdd: add, Which: which, Direction: probe.FLOWPROBE_DIRECTION_TX, SwIfIndex: interface_types.InterfaceIndex(index)}
	}
	again := []probe.FlowprobeInterfaceAddDel{set(false, current, bothFamilies), set(true, current, bothFamilies)}
	ensure := func(when string, want []probe.FlowprobeInterfaceAddDel) {
		t.Helper()
		if err := to.Ensure(t.Context(), do); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
		got = nil
	}
	ensure("at first", slices.Concat(
		[]probe.FlowprobeInterfaceAddDel{set(true, fresh, bothFamilies), set(false, older, probe.FLOWPROBE_WHICH_IP4), set(true, older, bothFamilies)}, again,
		[]probe.FlowprobeInterfaceAddDel{set(true, bridge, bothFamilies)},
	))
	counted = []api.Message{counts(fresh, bothFamilies), counts(older, bothFamilies), counts(current, bothFamilies), counts(bridge, bothFamilies)}
	ensure("nothing is new", nil)
	name = "another pod"
	ensure("a new interface has the index of another one", again)
	counted = counted[:3]
	ensure("VPP has lost a setting", []probe.FlowprobeInterfaceAddDel{set(true, bridge, bothFamilies)})
}
