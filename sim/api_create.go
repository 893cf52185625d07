package sim

import (
	"cmp"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strings"

	"go.fd.io/govpp/binapi/af_packet"
	"go.fd.io/govpp/binapi/ethernet_types"
	interfaces_ "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/memif"

	"github.com/contiv-agent/contiv-agent/sim/frame"
)

const maxLoopback = 16 << 10

// createMessages: making and deleting loopbacks, taps, af_packet interfaces and memifs.
func createMessages(t *apiTable) {
	onWrite(t, func(q *call, m *interfaces_.CreateLoopback) *interfaces_.CreateLoopbackReply {
		i, rv := q.createLoopback(m.MacAddress, false, 0)
		return &interfaces_.CreateLoopbackReply{Retval: rv, SwIfIndex: i}
	})
	onWrite(t, func(q *call, m *interfaces_.CreateLoopbackInstance) *interfaces_.CreateLoopbackInstanceReply {
		i, rv := q.createLoopback(m.MacAddress, m.IsSpecified, m.UserInstance)
		return &interfaces_.CreateLoopbackInstanceReply{Retval: rv, SwIfIndex: i}
	})
	onWrite(t, func(q *call, m *interfaces_.DeleteLoopback) *interfaces_.DeleteLoopbackReply {
		return &interfaces_.DeleteLoopbackReply{Retval: q.deleteKind(m.SwIfIndex, kindLoop)}
	})
	tapMessages(t)
	afPacketMessages(t)
	memifMessages(t)
	pipeMessages(t)
	vxlanMessages(t)
	subMessages(t)
}

// deleteKind deletes an interface if it is of that kind.
func (v *VPP) deleteKind(i interface_types.InterfaceIndex, k kind) int32 {
	f := v.ifs.get(uint32(i))
	if f == nil || f.kind != k {
		return rvInvalidSwIfIndex
	}
	if k == kindMemif {
		v.memif.sockets[f.memif.socket].users--
	}
	v.destroy(f)
	return 0
}

// freeID returns the lowest instance that no interface of the kind has.
func (v *VPP) freeID(k kind) uint32 {
	used := map[uint32]bool{}
	for _, f := range v.ifs.all() {
		if f.kind == k {
			used[f.id] = true
		}
	}
	for id := uint32(0); ; id++ {
		if !used[id] {
			return id
		}
	}
}

func (v *VPP) createLoopback(mac ethernet_types.MacAddress, given bool, id uint32) (interface_types.InterfaceIndex, int32) {
	if !given {
		id = v.freeID(kindLoop)
	}
	name := fmt.Sprintf("loop%d", id)
	if id >= maxLoopback || v.ifs.byName[name] != nil {
		return interface_types.InterfaceIndex(noIndex), rvInvalidRegistration
	}
	f := &iface{name: name, kind: kindLoop, devType: "Loopback", id: id, mac: mac, macGiven: true}
	if f.mac == [6]byte{} {
		f.mac, f.macGiven = [6]byte{0xde, 0xad, 0, 0, 0, byte(id)}, false
	}
	return ifIndex(v.create(f)), 0
}

func afPacketMessages(t *apiTable) {
	onWrite(t, func(q *call, m *af_packet.AfPacketCreateV3) *af_packet.AfPacketCreateV3Reply {
		offload := m.Flags&af_packet.AF_PACKET_API_FLAG_CKSUM_GSO != 0
		i, rv := q.createAfPacket(cString(m.HostIfName), m.HwAddr, m.UseRandomHwAddr, offload)
		return &af_packet.AfPacketCreateV3Reply{Retval: rv, SwIfIndex: i}
	})
	onWrite(t, func(q *call, m *af_packet.AfPacketCreateV2) *af_packet.AfPacketCreateV2Reply {
		i, rv := q.createAfPacket(cString(m.HostIfName), m.HwAddr, m.UseRandomHwAddr, false)
		return &af_packet.AfPacketCreateV2Reply{Retval: rv, SwIfIndex: i}
	})
	onWrite(t, func(q *call, m *af_packet.AfPacketDelete) *af_packet.AfPacketDeleteReply {
		f := q.ifs.afPacket(cString(m.HostIfName))
		if f == nil {
			return &af_packet.AfPacketDeleteReply{Retval: rvSyscallError1}
		}
		q.destroy(f)
		return &af_packet.AfPacketDeleteReply{}
	})
	onDump(t, func(q *call, _ *af_packet.AfPacketDump, send func(*af_packet.AfPacketDetails)) {
		for _, f := range q.ifs.all() {
			if f.kind == kindAfPacket {
				send(&af_packet.AfPacketDetails{SwIfIndex: ifIndex(f), HostIfName: f.host})
			}
		}
	})
}

// createAfPacket of an existing interface reports that and returns its index.
func (v *VPP) createAfPacket(host string, mac [6]byte, random, offload bool) (interface_types.InterfaceIndex, int32) {
	name := "host-" + host
	if f := v.ifs.afPacket(host); f != nil {
		return ifIndex(f), rvIfAlreadyExists
	}
	if v.cfg.HostInterfaces != nil && !slices.Contains(v.cfg.HostInterfaces, host) {
		return interface_types.InterfaceIndex(noIndex), rvInvalidInterface
	}
	f := &iface{name: name, kind: kindAfPacket, devType: "af-packet", host: host, mac: mac, macGiven: !random}
	if random {
		f.mac = frame.DerivedMAC(name)
	}
	return v.createOn(f, &HostLink{Name: host, Offload: offload}, rvInvalidInterface)
}

// createOn makes an interface with its side in Linux; refused is the return value if the wire cannot open that.
func (v *VPP) createOn(f *iface, link *HostLink, refused int32) (interface_types.InterfaceIndex, int32) {
	v.ifs.addIface(f)
	if err := v.cfg.Wire.Open(f.index, link); err != nil {
		v.ifs.removeIface(f)
		return interface_types.InterfaceIndex(noIndex), refused
	}
	v.event(f, false)
	return ifIndex(f), 0
}

type memifParams struct {
	socket, id uint32
	role       memif.MemifRole
	mode       memif.MemifMode
	ring       uint32
	buffer     uint16
	copies     bool // no zero copy
}

type memifSocket struct {
	filename string
	users    int
}

type memifs struct {
	sockets map[uint32]*memifSocket
}

func (m *memifs) init() {
	m.sockets = map[uint32]*memifSocket{0: {filename: "/run/vpp/memif.sock"}}
}

func memifMessages(t *apiTable) {
	onWrite(t, func(q *call, m *memif.MemifCreateV2) *memif.MemifCreateV2Reply {
		i, rv := q.createMemif(m)
		return &memif.MemifCreateV2Reply{Retval: rv, SwIfIndex: i}
	})
	onWrite(t, func(q *call, m *memif.MemifCreate) *memif.MemifCreateReply {
		i, rv := q.createMemif(&memif.MemifCreateV2{
			Role: m.Role, Mode: m.Mode, ID: m.ID, SocketID: m.SocketID, RingSize: m.RingSize, BufferSize: m.BufferSize,
			NoZeroCopy: m.NoZeroCopy, HwAddr: m.HwAddr,
		})
		return &memif.MemifCreateReply{Retval: rv, SwIfIndex: i}
	})
	onWrite(t, func(q *call, m *memif.MemifDelete) *memif.MemifDeleteReply {
		return &memif.MemifDeleteReply{Retval: q.deleteKind(m.SwIfIndex, kindMemif)}
	})
	onDump(t, func(q *call, _ *memif.MemifDump, send func(*memif.MemifDetails)) {
		for _, f := range q.ifs.all() {
			if f.kind == kindMemif {
				send(f.memifDetails())
			}
		}
	})
	onWrite(t, func(q *call, m *memif.MemifSocketFilenameAddDel) *memif.MemifSocketFilenameAddDelReply {
		rv := rvInvalidArgument
		if m.SocketID != 0 && m.SocketID != noIndex {
			rv = q.memif.socketAddDel(m.IsAdd, m.SocketID, m.SocketFilename)
		}
		return &memif.MemifSocketFilenameAddDelReply{Retval: rv}
	})
	onWrite(t, func(q *call, m *memif.MemifSocketFilenameAddDelV2) *memif.MemifSocketFilenameAddDelV2Reply {
		id := m.SocketID
		if m.IsAdd && id == noIndex {
			id = q.memif.freeSocket()
		}
		rv := rvInvalidArgument
		if id != 0 {
			rv = q.memif.socketAddDel(m.IsAdd, id, m.SocketFilename)
		}
		return &memif.MemifSocketFilenameAddDelV2Reply{Retval: rv, SocketID: id}
	})
	onDump(t, func(q *call, _ *memif.MemifSocketFilenameDump, send func(*memif.MemifSocketFilenameDetails)) {
		for _, id := range slices.Sorted(maps.Keys(q.memif.sockets)) {
			send(&memif.MemifSocketFilenameDetails{SocketID: id, SocketFilename: q.memif.sockets[id].filename})
		}
	})
}

func (m *memifs) freeSocket() uint32 {
	for id := uint32(1); ; id++ {
		if m.sockets[id] == nil {
			return id
		}
	}
}

func (m *memifs) socketAddDel(add bool, id uint32, filename string) int32 {
	filename, _, _ = strings.Cut(filename, "\x00")
	s := m.sockets[id]
	switch {
	case id == noIndex:
		return rvInvalidArgument
	case !add && s == nil:
		return rvInvalidArgument
	case !add && s.users > 0:
		return rvUnexpectedIfState
	case !add:
		delete(m.sockets, id)
		return 0
	case filename == "":
		return rvInvalidArgument
	}
	if filename[0] != '/' && filename[0] != '@' && !strings.HasPrefix(filename, "abstract:") {
		filename = "/run/vpp/" + filename
	}
	switch {
	case s == nil:
		m.sockets[id] = &memifSocket{filename: filename}
	case s.filename != filename:
		return rvEntryAlreadyExists
	}
	return 0
}

func (v *VPP) createMemif(m *memif.MemifCreateV2) (interface_types.InterfaceIndex, int32) {
	none := interface_types.InterfaceIndex(noIndex)
	ring := cmp.Or(m.RingSize, 1024)
	s := v.memif.sockets[m.SocketID]
	if bits.OnesCount32(ring) != 1 || s == nil {
		return none, rvInvalidArgument
	}
	name := fmt.Sprintf("memif%d/%d", m.SocketID, m.ID)
	if v.ifs.byName[name] != nil {
		return none, rvSubIfAlreadyExists
	}
	f := &iface{name: name, kind: kindMemif, devType: "memif", mac: m.HwAddr, macGiven: true}
	if f.mac == [6]byte{} {
		f.mac, f.macGiven = frame.DerivedMAC(name), false
	}
	f.memif = memifParams{socket: m.SocketID, id: m.ID, role: m.Role, mode: m.Mode, ring: ring, buffer: cmp.Or(m.BufferSize, 2048), copies: m.NoZeroCopy}
	link := &HostLink{}
	if m.Role == memif.MEMIF_ROLE_API_MASTER { // no wire joins the socket of another program
		link.Memif = s.filename
	}
	i, rv := v.createOn(f, link, rvUnsupported)
	if rv == 0 {
		s.users++
	}
	return i, rv
}

func (f *iface) memifDetails() *memif.MemifDetails {
	p := &f.memif
	return &memif.MemifDetails{
		SwIfIndex: ifIndex(f), HwAddr: f.mac, ID: p.id, Role: p.role, Mode: p.mode, ZeroCopy: !p.copies, SocketID: p.socket,
		RingSize: p.ring, BufferSize: p.buffer, Flags: f.flags(), IfName: f.name,
	}
}
