package ifaces

import (
	"errors"
	"fmt"
	"maps"
	"strconv"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/af_packet"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/memif"
	"go.fd.io/govpp/binapi/tapv2"

	"github.com/contiv-agent/contiv-agent/kv"
	ligato "github.com/contiv-agent/contiv-agent/proto/ligato/vpp/interfaces"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

const (
	idTaps         = "sw_interface_tap_v2_dump"
	idMemifs       = "memif_dump"
	idMemifSockets = "memif_socket_filename_dump"
	idAFPackets    = "af_packet_dump"
)

func tapRequests() []descriptor.Request {
	return []descriptor.Request{descriptor.DumpRequest(idTaps, &tapv2.SwInterfaceTapV2Dump{SwIfIndex: interface_types.InterfaceIndex(descriptor.None)})}
}

func memifRequests() []descriptor.Request {
	return []descriptor.Request{descriptor.DumpRequest(idMemifSockets, &memif.MemifSocketFilenameDump{}), descriptor.DumpRequest(idMemifs, &memif.MemifDump{})}
}

func afPacketRequests() []descriptor.Request {
	return []descriptor.Request{descriptor.DumpRequest(idAFPackets, &af_packet.AfPacketDump{})}
}

func compileLink(m *ligato.Interface) (link, error) {
	switch t := m.GetType(); t {
	case ligato.Interface_SOFTWARE_LOOPBACK:
		if m.GetLink() != nil {
			return nil, errors.New("type: SOFTWARE_LOOPBACK has no link")
		}
		return loopbackLink{}, nil
	case ligato.Interface_TAP:
		return compileTap(m.GetTap())
	case ligato.Interface_AF_PACKET:
		a := m.GetAfpacket()
		if a.GetLinuxInterface() != "" {
			return nil, errors.New("afpacket.linux_interface: not supported, give host_if_name")
		}
		if a.GetHostIfName() == "" || len(a.GetHostIfName()) > 15 {
			return nil, fmt.Errorf("afpacket.host_if_name: %q is not the name of a Linux interface", a.GetHostIfName())
		}
		return afPacketLink{host: a.GetHostIfName()}, nil
	case ligato.Interface_MEMIF:
		return compileMemif(m.GetMemif())
	case ligato.Interface_VXLAN_TUNNEL:
		return compileVxlan(m)
	case ligato.Interface_SUB_INTERFACE:
		return compileSub(m)
	default:
		return nil, fmt.Errorf("type: %s: not supported (interfaces that exist need no value)", t)
	}
}

// loopbackLink is a loopback; VPP chooses its instance.
type loopbackLink struct{}

func (loopbackLink) claim() string            { return "" }
func (loopbackLink) fill(m *ligato.Interface) { m.Type = ligato.Interface_SOFTWARE_LOOPBACK }
func (loopbackLink) delete(idx interface_types.InterfaceIndex) api.Message {
	return &interfaces.DeleteLoopback{SwIfIndex: idx}
}

func (loopbackLink) create(w *descriptor.World, i *iface) (descriptor.Op, error) {
	return descriptor.Op{Call: descriptor.Write(&interfaces.CreateLoopbackInstance{MacAddress: i.mac}), Then: func(r vpp.Reply) []descriptor.Op {
		return i.created(w, r.Msg.(*interfaces.CreateLoopbackInstanceReply).SwIfIndex, false)
	}}, nil
}

// tapLink is a tap. A ring size of 0 is VPP's default.
type tapLink struct {
	host, namespace string
	rx, tx          uint32
	gso, tunnel     bool
}

func compileTap(t *ligato.TapLink) (link, error) {
	switch {
	case t.GetVersion() == 1:
		return nil, errors.New("tap.version: 1 is gone from VPP, use 2")
	case t.GetVersion() > 2:
		return nil, fmt.Errorf("tap.version: unknown %d", t.GetVersion())
	case t.GetToMicroservice() != "":
		return nil, errors.New("tap.to_microservice: not supported")
	case len(t.GetHostIfName()) > 15:
		return nil, fmt.Errorf("tap.host_if_name: %q is longer than 15 bytes", t.GetHostIfName())
	case t.GetRxRingSize() > 32768 || t.GetTxRingSize() > 32768:
		return nil, errors.New("tap.rx_ring_size: above 32768")
	}
	return tapLink{host: t.GetHostIfName(), rx: t.GetRxRingSize(), tx: t.GetTxRingSize(), gso: t.GetEnableGso(), tunnel: t.GetEnableTunnel()}, nil
}

func (t tapLink) claim() string {
	if t.host == "" {
		return ""
	}
	return "tap " + t.host
}

func (t tapLink) fill(m *ligato.Interface) {
	m.Type = ligato.Interface_TAP
	m.Link = &ligato.Interface_Tap{Tap: &ligato.TapLink{
		Version: 2, HostIfName: t.host, RxRingSize: t.rx, TxRingSize: t.tx, EnableGso: t.gso, EnableTunnel: t.tunnel,
	}}
}

func (tapLink) delete(idx interface_types.InterfaceIndex) api.Message {
	return &tapv2.TapDeleteV2{SwIfIndex: idx}
}

func (t tapLink) create(w *descriptor.World, i *iface) (descriptor.Op, error) {
	m := &tapv2.TapCreateV3{
		ID: descriptor.None, NumRxQueues: 1, NumTxQueues: 1, RxRingSz: uint16(t.rx), TxRingSz: uint16(t.tx),
		UseRandomMac: i.mac == [6]byte{}, MacAddress: i.mac, HostIfNameSet: t.host != "", HostIfName: t.host, Tag: i.tag(),
	}
	if t.gso {
		m.TapFlags |= tapv2.TAP_API_FLAG_GSO
	}
	if t.tunnel {
		m.TapFlags |= tapv2.TAP_API_FLAG_TUN
	}
	return descriptor.Op{Call: descriptor.Write(m), Then: func(r vpp.Reply) []descriptor.Op {
		return i.created(w, r.Msg.(*tapv2.TapCreateV3Reply).SwIfIndex, true)
	}}, nil
}

// afPacketLink is a Linux interface that VPP sends and receives through.
type afPacketLink struct{ host string }

// needs: a link that another value makes is made before; a link of any other maker satisfies the need as well.
func (a afPacketLink) needs() []descriptor.Dependency {
	return []descriptor.Dependency{{Key: kv.LinuxInterfaceKey(a.host), Loose: true}}
}

// vppName is the name that VPP gives the interface (af_packet_create_if, VPP 24.06 to 26.06).
func (a afPacketLink) vppName() string { return "host-" + a.host }

func (a afPacketLink) claim() string { return "af_packet " + a.host }

func (a afPacketLink) fill(m *ligato.Interface) {
	m.Type = ligato.Interface_AF_PACKET
	m.Link = &ligato.Interface_Afpacket{Afpacket: &ligato.AfpacketLink{HostIfName: a.host}}
}

func (a afPacketLink) delete(interface_types.InterfaceIndex) api.Message {
	return &af_packet.AfPacketDelete{HostIfName: a.host}
}

func (a afPacketLink) create(w *descriptor.World, i *iface) (descriptor.Op, error) {
	m := &af_packet.AfPacketCreateV3{
		Mode: af_packet.AF_PACKET_API_MODE_ETHERNET, HostIfName: a.host, NumRxQueues: 1, NumTxQueues: 1,
		UseRandomHwAddr: i.mac == [6]byte{}, HwAddr: i.mac,
	}
	if size := packetFrames(i); size != defaultFrames {
		m.RxFrameSize, m.TxFrameSize, m.RxFramesPerBlock, m.TxFramesPerBlock = size, size, ringFrames, ringFrames
		m.Flags = af_packet.AF_PACKET_API_FLAG_VERSION_2
	}
	return descriptor.Op{Call: descriptor.Write(m), Apart: apartHostLinks, Then: func(r vpp.Reply) []descriptor.Op {
		return i.created(w, r.Msg.(*af_packet.AfPacketCreateV3Reply).SwIfIndex, false)
	}}, nil
}

// apartHostLinks is Op.Apart of the requests that make af_packet interfaces. VPP's main thread waits for the kernel in each, 5 to 40 ms, while frames
// arrive at the interfaces that exist. VPP 25.06 and later never return to their main loop when 16 sockets have frames at once (ADR 24). So VPP serves
// its interfaces after each such request.
const apartHostLinks = 1<<63 | 1

// Frames of an af_packet interface whose MTU is known. VPP's default reserves tens of MB for each interface and passes packets on in blocks, as
// TPACKET_V3 does. TPACKET_V2 passes each packet on at once, and 256 frames of 2,048 bytes in each direction take 1 MB.
const (
	ringFrames    = 256
	frameHeader   = 112 // of TPACKET_V2 (66), of Ethernet with a tag (18), rounded up
	smallFrames   = 2048
	largeFrames   = 16384
	defaultFrames = 1 << 20 // VPP's own, for packets of any size
)

// packetFrames is the size of the frames of an af_packet interface: those that packets of its MTU fit in.
func packetFrames(i *iface) uint32 {
	if _, ok := i.link.(afPacketLink); !ok {
		return 0
	}
	switch {
	case i.mtu == 0:
		return defaultFrames
	case i.mtu+frameHeader <= smallFrames:
		return smallFrames
	case i.mtu+frameHeader <= largeFrames:
		return largeFrames
	}
	return defaultFrames
}

// memifLink is one side of a memif. VPP numbers its sockets; 0 is its default socket.
type memifLink struct {
	socket             string
	id                 uint32
	master             bool
	mode               memif.MemifMode
	secret             string
	ring, buffer       uint32
	rxQueues, txQueues uint32
}

func compileMemif(m *ligato.MemifLink) (link, error) {
	switch {
	case m == nil:
		return nil, errors.New("memif: missing")
	case len(m.GetSocketFilename()) > 107:
		return nil, errors.New("memif.socket_filename: longer than 107 bytes")
	case len(m.GetSecret()) > 23:
		return nil, errors.New("memif.secret: longer than 23 bytes")
	case m.GetRxQueues() > 255 || m.GetTxQueues() > 255:
		return nil, errors.New("memif.rx_queues: above 255")
	case m.GetBufferSize() > 65535:
		return nil, errors.New("memif.buffer_size: above 65535")
	}
	mode, ok := map[ligato.MemifLink_MemifMode]memif.MemifMode{
		ligato.MemifLink_ETHERNET: memif.MEMIF_MODE_API_ETHERNET, ligato.MemifLink_IP: memif.MEMIF_MODE_API_IP,
		ligato.MemifLink_PUNT_INJECT: memif.MEMIF_MODE_API_PUNT_INJECT,
	}[m.GetMode()]
	if !ok {
		return nil, fmt.Errorf("memif.mode: unknown %d", m.GetMode())
	}
	return memifLink{
		socket: m.GetSocketFilename(), id: m.GetId(), master: m.GetMaster(), mode: mode, secret: m.GetSecret(),
		ring: m.GetRingSize(), buffer: m.GetBufferSize(), rxQueues: m.GetRxQueues(), txQueues: m.GetTxQueues(),
	}, nil
}

func (l memifLink) claim() string { return fmt.Sprintf("memif %s %d", l.socket, l.id) }

func (l memifLink) fill(m *ligato.Interface) {
	m.Type = ligato.Interface_MEMIF
	m.Link = &ligato.Interface_Memif{Memif: &ligato.MemifLink{
		Mode: ligato.MemifLink_MemifMode(l.mode), Master: l.master, Id: l.id, SocketFilename: l.socket, Secret: l.secret,
		RingSize: l.ring, BufferSize: l.buffer, RxQueues: l.rxQueues, TxQueues: l.txQueues,
	}}
}

func (memifLink) delete(idx interface_types.InterfaceIndex) api.Message {
	return &memif.MemifDelete{SwIfIndex: idx}
}

// vppName is the name that VPP gives the interface (format_memif_device_name, VPP 24.06 to 26.06).
func (l memifLink) vppName(w *descriptor.World) string {
	return memifsOn(linksOf(w).socketID(l.socket)) + strconv.FormatUint(uint64(l.id), 10)
}

// memifsOn begins the names of VPP's interfaces on a socket.
func memifsOn(socket uint32) string { return fmt.Sprintf("memif%d/", socket) }

// create first makes the socket if VPP does not have it. The agent chooses its ID, so that a second interface on it, whose request follows at once,
// uses the same one.
func (l memifLink) create(w *descriptor.World, i *iface) (descriptor.Op, error) {
	f := linksOf(w)
	id := f.socketID(l.socket)
	if l.socket == "" || id != 0 {
		return l.createOn(w, i, id), nil
	}
	for id = 1; f.sockets[id] != ""; id++ {
	}
	f.sockets[id] = l.socket
	socket := &memif.MemifSocketFilenameAddDelV2{IsAdd: true, SocketID: id, SocketFilename: l.socket}
	return descriptor.Op{
		Call: descriptor.Write(socket),
		Then: func(vpp.Reply) []descriptor.Op { return []descriptor.Op{l.createOn(w, i, id)} },
		Else: func() []descriptor.Op { delete(f.sockets, id); return nil },
	}, nil
}

func (l memifLink) createOn(w *descriptor.World, i *iface, socket uint32) descriptor.Op {
	m := &memif.MemifCreateV2{
		Role: memif.MEMIF_ROLE_API_SLAVE, Mode: l.mode, RxQueues: uint8(l.rxQueues), TxQueues: uint8(l.txQueues), ID: l.id,
		SocketID: socket, RingSize: l.ring, BufferSize: uint16(l.buffer), HwAddr: i.mac, Secret: l.secret,
	}
	if l.master {
		m.Role = memif.MEMIF_ROLE_API_MASTER
	}
	return descriptor.Op{Call: descriptor.Write(m), Then: func(r vpp.Reply) []descriptor.Op {
		return i.created(w, r.Msg.(*memif.MemifCreateV2Reply).SwIfIndex, false)
	}}
}

// dumpedLinks returns the links of VPP's interfaces, by index. A dump of a plugin that VPP lacks is empty.
func dumpedLinks(w *descriptor.World, d *descriptor.Dump) (map[uint32]link, error) {
	out := map[uint32]link{}
	for _, i := range w.Interfaces() {
		if i.DevType == "Loopback" && i.Index != 0 {
			out[i.Index] = loopbackLink{}
		}
	}
	taps, err := descriptor.Details[*tapv2.SwInterfaceTapV2Details](d, idTaps)
	if descriptor.Optional(err) != nil {
		return nil, err
	}
	for _, m := range taps {
		out[m.SwIfIndex] = tapLink{
			host: descriptor.FixedText(m.HostIfName), namespace: descriptor.FixedText(m.HostNamespace), rx: uint32(m.RxRingSz), tx: uint32(m.TxRingSz),
			gso: m.TapFlags&tapv2.TAP_API_FLAG_GSO != 0, tunnel: m.TapFlags&tapv2.TAP_API_FLAG_TUN != 0,
		}
	}
	packets, err := descriptor.Details[*af_packet.AfPacketDetails](d, idAFPackets)
	if descriptor.Optional(err) != nil {
		return nil, err
	}
	for _, m := range packets {
		out[uint32(m.SwIfIndex)] = afPacketLink{host: descriptor.FixedText(m.HostIfName)}
	}
	if err := dumpedVxlans(w, d, out); err != nil {
		return nil, err
	}
	defer dumpedSubs(w, out)
	return out, dumpedMemifs(w, d, out)
}

func dumpedMemifs(w *descriptor.World, d *descriptor.Dump, out map[uint32]link) error {
	sockets, err := descriptor.Details[*memif.MemifSocketFilenameDetails](d, idMemifSockets)
	if descriptor.Optional(err) != nil {
		return err
	}
	linksOf(w).sockets = map[uint32]string{}
	for _, m := range sockets {
		if m.SocketID != 0 {
			linksOf(w).sockets[m.SocketID] = descriptor.FixedText(m.SocketFilename)
		}
	}
	memifs, err := descriptor.Details[*memif.MemifDetails](d, idMemifs)
	if descriptor.Optional(err) != nil {
		return err
	}
	for _, m := range memifs {
		out[uint32(m.SwIfIndex)] = memifLink{
			socket: linksOf(w).sockets[m.SocketID], id: m.ID, master: m.Role == memif.MEMIF_ROLE_API_MASTER, mode: m.Mode,
			ring: m.RingSize, buffer: uint32(m.BufferSize),
		}
	}
	return nil
}

// correlate copies from the desired state the fields that a dump does not show, or shows although they were not set.
func correlate(got, wanted link) link {
	switch want := wanted.(type) {
	case tapLink:
		if t, ok := got.(tapLink); ok {
			t.rx, t.tx = keepUnset(want.rx, t.rx), keepUnset(want.tx, t.tx)
			if want.host == "" {
				t.host = ""
			}
			t.namespace = want.namespace
			return t
		}
	case memifLink:
		if m, ok := got.(memifLink); ok {
			// A dump shows the ring and buffer sizes agreed with the other side, and neither queues nor secret.
			m.ring, m.buffer, m.rxQueues, m.txQueues, m.secret = want.ring, want.buffer, want.rxQueues, want.txQueues, want.secret
			return m
		}
	}
	return got
}

// keepUnset returns got, or the wanted zero value if the field was not set.
func keepUnset(wanted, got uint32) uint32 {
	if wanted == 0 {
		return 0
	}
	return got
}

// linkFacts are the known state of links beside the interfaces.
type linkFacts struct {
	sockets map[uint32]string // sockets of memif, name by ID
	tried   map[string]bool   // claims of interfaces that the agent asked VPP to make, successfully or not
	looked  bool              // the agent has looked up VPP's interfaces
}

func linksOf(w *descriptor.World) *linkFacts {
	return descriptor.FactsOf(w, func() *linkFacts { return &linkFacts{sockets: map[uint32]string{}, tried: map[string]bool{}} })
}

// socketID returns the ID of a socket; 0: VPP does not have it, or it is the default one.
func (f *linkFacts) socketID(name string) uint32 {
	for id, has := range f.sockets {
		if has == name {
			return id
		}
	}
	return 0
}

// Clone implements Facts.
func (f *linkFacts) Clone() descriptor.Facts {
	return &linkFacts{maps.Clone(f.sockets), maps.Clone(f.tried), f.looked}
}

// TapHost returns the host's name for its side of a wanted tap of VPP's; false: no such tap exists, or VPP chooses the name.
func TapHost(w *descriptor.World, name string) (string, bool) {
	i, ok := w.Wanted(kv.InterfaceKey(name)).(*iface)
	if !ok {
		return "", false
	}
	t, ok := i.link.(tapLink)
	return t.host, ok && t.host != ""
}
