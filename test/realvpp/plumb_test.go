package realvpp

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/af_packet"
	"go.fd.io/govpp/binapi/fib_types"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip_neighbor"
	"go.fd.io/govpp/binapi/ip_types"
	"go.fd.io/govpp/binapi/l2"
	"go.fd.io/govpp/binapi/vlib"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/sim/packet"
	"github.com/contiv-agent/contiv-agent/vpp"
)

// probePair carries the probes, in a separate table.
const (
	probePair  = 0
	probeTable = 4000
)

var probeAddr = netip.MustParseAddr("198.18.0.2")

func probePacket(n uint16) packet.Packet {
	return packet.Packet{Src: probeAddr, Dst: probeAddr, Proto: model.UDP, SrcPort: 9, DstPort: n}
}

// lab is a real VPP in a namespace, plumbed as sim/cni plumbs the simulated one. It remembers what it plumbed, to do it
// again after a restart. Not safe for concurrent use.
type lab struct {
	process
	frames *frames
	plain  *plainConn

	made    []sim.Interface
	routes  []sim.Route
	pairs   map[string]int                            // by interface; loopbacks have none
	index   map[string]interface_types.InterfaceIndex // of the interfaces made
	met     map[string][]netip.Addr                   // neighbours by interface
	laid    map[prefixOf][]fib_types.FibPath          // the paths of routes as they were made
	err     error                                     // the first thing that went wrong in a method that cannot say so
	hollows map[string]bool                           // the interfaces made so
	hollow  bool                                      // interfaces are loopbacks, of which there can be many: no packet is sent
	echoed  int                                       // ICMP errors about ICMP errors
	hosts   []*netns                                  // of those who sit behind interfaces
	moved   map[string]*moved                         // by interface: whose peer is in another namespace; they keep their pairs
}

// moved is where the peer of a pair is.
type moved struct {
	pair int
	ns   *netns
	link string
}

// openLab starts a VPP with nothing but the probe's interface. Close it, also after an error.
func openLab(path string, plugins ...string) (*lab, error) { return openLabWith(path, 0, plugins...) }

// openLabWith is openLab with so many workers.
func openLabWith(path string, workers int, plugins ...string) (*lab, error) {
	dir, err := os.MkdirTemp("", "vpp")
	if err != nil {
		return nil, err
	}
	l := &lab{hollows: map[string]bool{}, process: process{path: path, dir: dir, plugins: plugins, workers: workers}, moved: map[string]*moved{}}
	if l.ns, err = newNetns(); err != nil {
		l.ns = nil
		return l, err
	}
	if err = l.ns.wire(); err != nil {
		return l, err
	}
	if l.frames, err = openFrames(l.ns); err != nil {
		return l, err
	}
	return l, l.boot()
}

func (l *lab) close() {
	if l.plain != nil {
		l.plain.close()
	}
	l.kill()
	if l.frames != nil {
		l.frames.close()
	}
	for _, n := range l.hosts {
		n.close()
	}
	if l.ns != nil {
		l.ns.close()
	}
	_ = os.RemoveAll(l.dir) // a few bytes in the temporary folder, if that fails
}

// boot starts VPP and plumbs what had been plumbed.
func (l *lab) boot() error {
	if err := l.startOnTime(); err != nil {
		return err
	}
	l.pairs, l.index, l.met = map[string]int{}, map[string]interface_types.InterfaceIndex{}, map[string][]netip.Addr{}
	l.laid = map[prefixOf][]fib_types.FibPath{}
	if err := l.plumbProbe(); err != nil {
		return fmt.Errorf("plumb the probe: %w", err)
	}
	for _, i := range l.made {
		if err := l.plumb(i); err != nil {
			return err
		}
	}
	for _, r := range l.routes {
		if err := l.install(r); err != nil {
			return err
		}
	}
	return nil
}

// startOnTime starts VPP until its clock keeps time: on a busy machine it may measure the processor's speed wrong by a factor, and
// then whatever it does not do too often, it does hardly ever.
func (l *lab) startOnTime() error {
	const starts = 8
	for n := 1; ; n++ {
		if err := l.start(); err != nil {
			return err
		}
		l.plain = plain(vpp.Config{Socket: l.socket(), Guard: &vpp.Guard{AllowDisable: true}})
		if err := l.plain.wait(); err != nil {
			return err
		}
		if isSimulated(l.path) {
			return nil // its clock is ours
		}
		rate, err := l.plain.clockRate()
		if err != nil || inTime(rate) {
			return err
		}
		if n == starts {
			return fmt.Errorf("vpp's clock ran at %.2f of the right speed, after %d starts", rate, n)
		}
		l.plain.close()
		l.kill()
	}
}

// inTime reports that a VPP's clock keeps time.
func inTime(rate float64) bool { return rate > 0.8 && rate < 1.25 }

// clockRate is how many seconds go by for VPP in one.
func (c *plainConn) clockRate() (float64, error) {
	var vpps [2]float64
	var ours [2]time.Time
	for i := range vpps {
		asked := time.Now()
		r := c.conn.Do(context.Background(), vpp.Call{Msg: &vlib.CliInband{Cmd: "show clock"}})[0]
		if r.Err != nil {
			return 0, r.Err
		}
		text := r.Msg.(*vlib.CliInbandReply).Reply
		ours[i] = asked.Add(time.Since(asked) / 2)
		if _, err := fmt.Sscanf(text, "Time now %f", &vpps[i]); err != nil {
			return 0, fmt.Errorf("show clock: %q: %w", text, err)
		}
		if i == 0 {
			time.Sleep(50 * time.Millisecond)
		}
	}
	return (vpps[1] - vpps[0]) / ours[1].Sub(ours[0]).Seconds(), nil
}

// restart kills VPP and starts it again.
func (l *lab) restart() error {
	l.plain.close()
	l.kill()
	return l.boot()
}

// do makes calls in order and returns their replies; the error is that of the first that failed.
func (l *lab) do(msgs ...api.Message) ([]vpp.Reply, error) {
	calls := make([]vpp.Call, len(msgs))
	for i, m := range msgs {
		calls[i] = vpp.Call{Msg: m}
	}
	replies := l.plain.conn.Do(context.Background(), calls...)
	for i, r := range replies {
		if r.Err != nil {
			return replies, fmt.Errorf("%s %+v: %w", msgs[i].GetMessageName(), msgs[i], r.Err)
		}
	}
	return replies, nil
}

// dump returns the details of a dump.
func (l *lab) dump(msg api.Message) ([]api.Message, error) {
	r := l.plain.conn.Do(context.Background(), vpp.Call{Msg: msg, Dump: true})[0]
	return r.Details, r.Err
}

// ringFrames are few and small: there are many interfaces and packets without payload.
const (
	ringFrames = 256
	frameSize  = 2048
)

// attach makes the af_packet interface of a pair. Rings of TPACKET_V2 hand over each packet at once, those of V3 by blocks.
func (l *lab) attach(pair int) (interface_types.InterfaceIndex, error) {
	replies, err := l.do(&af_packet.AfPacketCreateV3{
		Mode: af_packet.AF_PACKET_API_MODE_ETHERNET, HwAddr: vppMAC(pair), HostIfName: vethName(pair),
		RxFrameSize: frameSize, TxFrameSize: frameSize, RxFramesPerBlock: ringFrames, TxFramesPerBlock: ringFrames,
		Flags: af_packet.AF_PACKET_API_FLAG_VERSION_2, NumRxQueues: 1, NumTxQueues: 1,
	})
	if err != nil {
		return 0, err
	}
	return replies[0].Msg.(*af_packet.AfPacketCreateV3Reply).SwIfIndex, nil
}

func (l *lab) plumbProbe() error {
	index, err := l.attach(probePair)
	if err != nil {
		return err
	}
	host := netip.PrefixFrom(probeAddr.Prev(), 30)
	_, err = l.do(
		&ip.IPTableAddDel{IsAdd: true, Table: ip.IPTable{TableID: probeTable}},
		&interfaces.SwInterfaceSetTable{SwIfIndex: index, VrfID: probeTable},
		up(index),
		&interfaces.SwInterfaceAddDelAddress{SwIfIndex: index, IsAdd: true, Prefix: ip_types.AddressWithPrefix(prefix(host))},
		neighbor(true, index, probePair, probeAddr),
	)
	return err
}

func up(i interface_types.InterfaceIndex) api.Message {
	return &interfaces.SwInterfaceSetFlags{SwIfIndex: i, Flags: interface_types.IF_STATUS_API_FLAG_ADMIN_UP}
}

// neighbor is a static one, so that VPP never has to ask by ARP.
func neighbor(add bool, i interface_types.InterfaceIndex, pair int, a netip.Addr) api.Message {
	return &ip_neighbor.IPNeighborAddDel{IsAdd: add, Neighbor: ip_neighbor.IPNeighbor{
		SwIfIndex: i, Flags: ip_neighbor.IP_API_NEIGHBOR_FLAG_STATIC, MacAddress: hostMAC(pair), IPAddress: ip_types.NewAddress(a.AsSlice()),
	}}
}

func prefix(p netip.Prefix) ip_types.Prefix {
	return ip_types.Prefix{Address: ip_types.NewAddress(p.Addr().AsSlice()), Len: uint8(p.Bits())}
}

// version is VPP's, like 24.06-release; "" if it has not started.
func (l *lab) version() string {
	if l.plain == nil {
		return ""
	}
	return strings.TrimPrefix(l.plain.conn.State().Version, "v")
}

// note keeps the first error.
func (l *lab) note(err error) {
	if l.err == nil {
		l.err = err
	}
}

// AddInterface is sim.VPP's.
func (l *lab) AddInterface(i sim.Interface) uint32 {
	if have, ok := l.index[i.Name]; ok {
		return uint32(have)
	}
	l.made = append(l.made, i)
	l.note(l.plumb(i))
	return uint32(l.index[i.Name])
}

func (l *lab) plumb(i sim.Interface) error {
	index, err := l.create(i)
	if err != nil {
		return fmt.Errorf("interface %s: %w", i.Name, err)
	}
	l.index[i.Name] = index
	msgs := []api.Message{up(index)}
	if i.Tag != "" {
		msgs = append(msgs, &interfaces.SwInterfaceTagAddDel{IsAdd: true, SwIfIndex: index, Tag: i.Tag})
	}
	msgs = append(msgs, &ip.SwInterfaceIP6EnableDisable{SwIfIndex: index, Enable: true})
	for _, p := range i.Addresses {
		msgs = append(msgs, &interfaces.SwInterfaceAddDelAddress{SwIfIndex: index, IsAdd: true, Prefix: ip_types.AddressWithPrefix(prefix(p))})
	}
	if i.Unnumbered != "" {
		msgs = append(msgs, &interfaces.SwInterfaceSetUnnumbered{SwIfIndex: l.index[i.Unnumbered], UnnumberedSwIfIndex: index, IsAdd: true})
	}
	_, err = l.do(msgs...)
	return err
}

// create makes a loopback, or an af_packet interface with the name the simulated one has.
func (l *lab) create(i sim.Interface) (interface_types.InterfaceIndex, error) {
	var loop uint32
	if n, _ := fmt.Sscanf(i.Name, "loop%d", &loop); n == 1 {
		replies, err := l.do(&interfaces.CreateLoopbackInstance{IsSpecified: true, UserInstance: loop})
		if err != nil {
			return 0, err
		}
		return replies[0].Msg.(*interfaces.CreateLoopbackInstanceReply).SwIfIndex, nil
	}
	if l.hollow || l.hollows[i.Name] { // the latter when VPP restarts
		l.hollows[i.Name] = true
		return l.loopback(i.Name)
	}
	pair := l.freePair()
	knock := func() error { return l.frames.knock(pair) }
	if m := l.moved[i.Name]; m != nil {
		pair = m.pair
		knock = func() error { return m.ns.knock(m.link, pair) }
	}
	index, err := l.attachHearing(pair, knock)
	if err != nil {
		return 0, err
	}
	l.pairs[i.Name] = pair
	if i.Bridges {
		return l.bridge(i.Name, index, pair)
	}
	_, err = l.do(&interfaces.SwInterfaceSetInterfaceName{SwIfIndex: index, Name: i.Name})
	return index, err
}

// bridge makes the routed interface (BVI) of a bridge domain whose other member is an af_packet interface. That one has an address in another table:
// otherwise an agent takes it for a new pod's, and closes it.
func (l *lab) bridge(name string, port interface_types.InterfaceIndex, pair int) (interface_types.InterfaceIndex, error) {
	const domain, space = 1000, 4
	routed, err := l.loopback(name)
	if err != nil {
		return 0, err
	}
	id := uint32(domain + pair)
	own := netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 19, 0, byte(space*pair + 1)}), 30)
	_, err = l.do(
		&interfaces.SwInterfaceSetMacAddress{SwIfIndex: routed, MacAddress: vppMAC(pair)},
		&interfaces.SwInterfaceSetTable{SwIfIndex: port, VrfID: probeTable},
		&interfaces.SwInterfaceAddDelAddress{SwIfIndex: port, IsAdd: true, Prefix: ip_types.AddressWithPrefix(prefix(own))},
		&l2.BridgeDomainAddDelV2{BdID: id, IsAdd: true, Learn: true, Forward: true, Flood: true, UuFlood: true},
		&l2.SwInterfaceSetL2Bridge{RxSwIfIndex: port, BdID: id, Enable: true},
		&l2.SwInterfaceSetL2Bridge{RxSwIfIndex: routed, BdID: id, PortType: l2.L2_API_PORT_TYPE_BVI, Enable: true},
	)
	return routed, err
}

// attachHearing attaches until frames arrive: once in some thousand times none ever does (VPP 24.06; its socket's ring stays empty).
func (l *lab) attachHearing(pair int, knock func() error) (interface_types.InterfaceIndex, error) {
	const tries = 5
	for range tries {
		index, err := l.attach(pair)
		if err == nil {
			_, err = l.do(up(index))
		}
		if err != nil {
			return 0, err
		}
		for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
			if err := knock(); err != nil {
				return 0, err
			}
			if isSimulated(l.path) || strings.Contains(l.cli("show interface host-"+vethName(pair)), "rx packets") {
				return index, nil
			}
		}
		if _, err := l.do(&af_packet.AfPacketDelete{HostIfName: vethName(pair)}); err != nil {
			return 0, err
		}
	}
	return 0, fmt.Errorf("no frame ever arrives by %s", vethName(pair))
}

// loopback makes one with a name.
func (l *lab) loopback(name string) (interface_types.InterfaceIndex, error) {
	const first = 1000
	replies, err := l.do(&interfaces.CreateLoopbackInstance{IsSpecified: true, UserInstance: uint32(first + len(l.index))})
	if err != nil {
		return 0, err
	}
	index := replies[0].Msg.(*interfaces.CreateLoopbackInstanceReply).SwIfIndex
	_, err = l.do(&interfaces.SwInterfaceSetInterfaceName{SwIfIndex: index, Name: name})
	return index, err
}

func (l *lab) freePair() int {
	for pair := probePair + 1; ; pair++ {
		taken := false
		for _, p := range l.pairs {
			taken = taken || p == pair
		}
		for _, m := range l.moved {
			taken = taken || m.pair == pair
		}
		if !taken {
			return pair
		}
	}
}

// RemoveInterface is sim.VPP's.
func (l *lab) RemoveInterface(name string) {
	bridges := slices.ContainsFunc(l.made, func(i sim.Interface) bool { return i.Name == name && i.Bridges })
	l.made = slices.DeleteFunc(l.made, func(i sim.Interface) bool { return i.Name == name })
	index, ok := l.index[name]
	if !ok {
		return
	}
	delete(l.index, name)
	var last api.Message = &interfaces.DeleteLoopback{SwIfIndex: index}
	pair, veth := l.pairs[name]
	if veth {
		delete(l.pairs, name)
		last = &af_packet.AfPacketDelete{HostIfName: vethName(pair)}
	}
	var msgs []api.Message
	for _, a := range l.met[name] { // first: VPP 24.06 dies of a neighbour that outlives its interface when the address is met again
		msgs = append(msgs, neighbor(false, index, pair, a))
	}
	delete(l.met, name)
	if bridges {
		msgs = append(msgs, &interfaces.DeleteLoopback{SwIfIndex: index}) // its port follows
	}
	l.abandon(uint32(index))
	_, err := l.do(append(msgs, last)...)
	l.note(err)
}

// AddRoute is sim.VPP's.
func (l *lab) AddRoute(r sim.Route) error {
	if err := l.install(r); err != nil {
		return err
	}
	l.forget(r.VRF, r.Prefix, r.Paths)
	l.routes = append(l.routes, r)
	return nil
}

// forget drops a route from what was plumbed, and the neighbour that it was made with, unless other paths to the prefix need it: VPP would
// go on having a route to a neighbour.
func (l *lab) forget(vrf uint32, p netip.Prefix, kept []sim.Path) {
	l.routes = slices.DeleteFunc(l.routes, func(r sim.Route) bool {
		if r.VRF != vrf || r.Prefix != p {
			return false
		}
		for _, path := range r.Paths {
			i := slices.Index(l.met[path.Interface], p.Addr())
			stays := slices.ContainsFunc(kept, func(k sim.Path) bool { return k.Interface == path.Interface })
			if index, is := l.index[path.Interface]; is && i >= 0 && !stays && p.IsSingleIP() {
				l.met[path.Interface] = slices.Delete(l.met[path.Interface], i, i+1)
				_, err := l.do(neighbor(false, index, l.pairs[path.Interface], p.Addr()))
				l.note(err)
			}
		}
		return true
	})
}

// hop and hop6 stand for everybody behind an interface that routes lead to without a next hop.
var hop, hop6 = netip.MustParseAddr("169.254.1.2"), netip.MustParseAddr("fd00:fe::2")

// install makes a route, or replaces its paths in one request, as CNIs do. VPP dies of deleting and adding it (TestVPPInterposedRoute). Only a
// route that an interface went away under is deleted first: VPP would find the dead path again, as paths are shared.
func (l *lab) install(r sim.Route) error {
	route := ip.IPRoute{TableID: r.VRF, Prefix: prefix(r.Prefix)}
	var msgs []api.Message
	for _, p := range r.Paths {
		index, ok := l.index[p.Interface]
		if !ok || p.Type != sim.PathNormal {
			return fmt.Errorf("route %s: only paths over interfaces that exist, not %+v", r.Prefix, p)
		}
		via := p.Via
		switch {
		case via.IsValid():
		case r.Prefix.IsSingleIP():
			via = r.Prefix.Addr()
		case r.Prefix.Addr().Is6():
			via = hop6
		default:
			via = hop
		}
		if !slices.Contains(l.met[p.Interface], via) {
			l.met[p.Interface] = append(l.met[p.Interface], via)
			msgs = append(msgs, neighbor(true, index, l.pairs[p.Interface], via))
		}
		path := fib_types.FibPath{SwIfIndex: uint32(index), Weight: max(p.Weight, 1)}
		path.Nh.Address = ip_types.NewAddress(via.AsSlice()).Un
		if via.Is6() {
			path.Proto = fib_types.FIB_API_PATH_NH_PROTO_IP6
		}
		route.Paths = append(route.Paths, path)
	}
	key := prefixOf{r.VRF, r.Prefix}
	if l.orphaned(key) {
		msgs = append(msgs, &ip.IPRouteAddDel{Route: ip.IPRoute{TableID: r.VRF, Prefix: route.Prefix}})
	}
	msgs = append(msgs, &ip.IPRouteAddDel{IsAdd: true, Route: route})
	l.laid[key] = route.Paths
	_, err := l.do(msgs...)
	return err
}

// prefixOf is a prefix of a table.
type prefixOf struct {
	vrf    uint32
	prefix netip.Prefix
}

// orphaned reports whether an interface went away under a route.
func (l *lab) orphaned(key prefixOf) bool {
	return slices.ContainsFunc(l.laid[key], func(p fib_types.FibPath) bool { return p.SwIfIndex == gone })
}

// gone is in place of the index of an interface that no longer exists.
const gone = ^uint32(0) - 1

// abandon marks the routes that led over an interface.
func (l *lab) abandon(index uint32) {
	for _, paths := range l.laid {
		for i := range paths {
			if paths[i].SwIfIndex == index {
				paths[i].SwIfIndex = gone
			}
		}
	}
}

// RemoveRoute is sim.VPP's.
func (l *lab) RemoveRoute(vrf uint32, p netip.Prefix) {
	l.forget(vrf, p, nil)
	delete(l.laid, prefixOf{vrf, p})
	_, err := l.do(&ip.IPRouteAddDel{Route: ip.IPRoute{TableID: vrf, Prefix: prefix(p)}})
	l.note(err)
}

// names are all interfaces by index, those the agent made included.
func (l *lab) names() (map[uint32]string, error) {
	details, err := l.dump(&interfaces.SwInterfaceDump{SwIfIndex: ^interface_types.InterfaceIndex(0)})
	out := map[uint32]string{}
	for _, d := range details {
		if i, ok := d.(*interfaces.SwInterfaceDetails); ok {
			out[uint32(i.SwIfIndex)] = strings.TrimRight(i.InterfaceName, "\x00")
		}
	}
	return out, err
}

// send lets a packet arrive on an interface and returns what leaves VPP, as the simulated one says it.
func (l *lab) send(in string, p packet.Packet) ([]sim.Output, error) {
	pair, ok := l.pairs[in]
	if !ok {
		return nil, fmt.Errorf("vpp has no interface %s", in)
	}
	got, err := l.frames.exchange(pair, p)
	if err != nil {
		if death := l.alive(); death != nil {
			return nil, death
		}
		return nil, err
	}
	var out []sim.Output
	for _, c := range got {
		if errorAboutError(c.raw) {
			l.echoed++
			continue // VPP does make them (ip4-icmp-error asks no questions); hosts ignore them, and the simulated VPP makes none
		}
		if c.err != nil {
			return out, fmt.Errorf("vpp sent %x: %w", c.raw, c.err)
		}
		out = append(out, sim.Output{Interface: l.at(c.pair), Packet: c.packet, BadChecksum: c.badChecksum})
	}
	return out, nil
}

// errorAboutError reports whether a packet is an ICMP error that quotes an ICMP error.
func errorAboutError(b []byte) bool {
	quoted, isError := 28, func(b []byte) bool { // behind the headers of IP and ICMP
		return len(b) > 20 && b[9] == uint8(model.ICMP) && packet.IsICMPErrorType(b[20])
	}
	if len(b) > 0 && b[0]>>4 == 6 {
		quoted, isError = 48, func(b []byte) bool {
			return len(b) > 40 && b[6] == uint8(model.ICMPv6) && packet.Unreachable6 <= b[40] && b[40] <= packet.ParameterProblem6
		}
	}
	return isError(b) && len(b) > quoted && isError(b[quoted:])
}

// at is the interface of a pair.
func (l *lab) at(pair int) string {
	for name, p := range l.pairs {
		if p == pair {
			return name
		}
	}
	return fmt.Sprintf("pair %d", pair)
}

// cli asks VPP's command line.
func (l *lab) cli(command string) string {
	replies, err := l.do(&vlib.CliInband{Cmd: command})
	if err != nil {
		return err.Error()
	}
	return replies[0].Msg.(*vlib.CliInbandReply).Reply
}

// watch sends a packet once more and returns its path through VPP, and the errors that VPP counts meanwhile.
func (l *lab) watch(in string, p packet.Packet) string {
	for _, c := range []string{"clear errors", "clear trace", "trace add af-packet-input 10"} {
		l.cli(c)
	}
	_, err := l.send(in, p)
	text := fmt.Sprintf("sent again to %s: %v\n", in, err)
	fib := "show ip fib "
	if p.Dst.Is6() {
		fib = "show ip6 fib "
	}
	for _, c := range []string{"show trace", "show errors", fib + p.Dst.String(), fib + p.Src.String(), "show acl-plugin interface", "show interface addr", "show hardware-interfaces verbose", "show unix file"} {
		text += c + "\n" + l.cli(c) + "\n"
	}
	return text
}
