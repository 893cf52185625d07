package nat44ed

import (
	"net/netip"
	"time"
)

// Return values of VPP's binary API (src/vnet/error.h, 24.06) that NAT44-ED uses.
const (
	OK                     int32 = 0
	Unspecified            int32 = -1
	InvalidSwIfIndex       int32 = -2
	NoSuchEntry            int32 = -6
	InvalidValue           int32 = -7
	FeatureDisabled        int32 = -30
	ValueExist             int32 = -81
	Unsupported            int32 = -126
	Bug                    int32 = -168
	FeatureAlreadyDisabled int32 = -169
	FeatureAlreadyEnabled  int32 = -170
)

// None is VPP's ~0: no interface, or the default VRF.
const None = ^uint32(0)

// Flags are nat_types' nat_config_flags, same numbers.
type Flags uint8

// The flags of nat_types.api.
const (
	TwiceNAT     Flags = 0x01
	SelfTwiceNAT Flags = 0x02
	Out2InOnly   Flags = 0x04
	AddrOnly     Flags = 0x08
	Outside      Flags = 0x10
	Inside       Flags = 0x20
	Static       Flags = 0x40
	ExtHostValid Flags = 0x80
)

// PluginConfig is the content of nat44_ed_plugin_enable_disable for enable; Sessions 0 means 63·1024.
type PluginConfig struct {
	InsideVRF, OutsideVRF uint32
	Sessions              uint32
	StaticMappingOnly     bool // refused by nat44-ed
	ConnectionTracking    bool // refused by nat44-ed
}

// Timeouts in seconds, as in nat_set_timeouts.
type Timeouts struct{ UDP, TCPEstablished, TCPTransitory, ICMP uint32 }

// RunningConfig is nat44_show_running_config_reply without the fields that are zero in VPP.
type RunningConfig struct {
	InsideVRF, OutsideVRF uint32
	Sessions              uint32
	TranslationBuckets    uint32
	Forwarding            bool
	Timeouts              Timeouts
}

// AddressRange is nat44_add_del_address_range: First to Last; VRF None: usable in every VRF. Flags: TwiceNAT or none.
type AddressRange struct {
	First, Last netip.Addr
	VRF         uint32
	Flags       Flags
}

// Address is nat44_address_details.
type Address struct {
	Addr  netip.Addr
	VRF   uint32
	Flags Flags
}

// Interface is nat44_interface_details: Flags Inside, Outside or both.
type Interface struct {
	SwIf  uint32
	Flags Flags
}

// InterfaceAddr is nat44_interface_addr_details: the pool follows this interface's first address.
type InterfaceAddr struct {
	SwIf  uint32
	Flags Flags
}

// StaticMapping is nat44_add_del_static_mapping_v2 and nat44_static_mapping_details. ExternalIf None: External counts.
// Pool is the twice-nat address to use; the zero Addr or 0.0.0.0: any.
type StaticMapping struct {
	Local, External         netip.Addr
	LocalPort, ExternalPort uint16
	Proto                   uint8
	ExternalIf              uint32
	VRF                     uint32
	Flags                   Flags
	Pool                    netip.Addr
	Tag                     string
}

// IdentityMapping is nat44_add_del_identity_mapping and its details.
type IdentityMapping struct {
	Addr  netip.Addr
	Port  uint16
	Proto uint8
	SwIf  uint32
	VRF   uint32
	Flags Flags
	Tag   string
}

// Local is one backend of a load-balancing mapping.
type Local struct {
	Addr        netip.Addr
	Port        uint16
	Probability uint8
	VRF         uint32
}

// LBMapping is nat44_add_del_lb_static_mapping and nat44_lb_static_mapping_details. In a dump Affinity is 0 always.
type LBMapping struct {
	External netip.Addr
	Port     uint16
	Proto    uint8
	Flags    Flags
	Affinity uint32 // seconds
	Tag      string
	Locals   []Local
}

// SessionKey identifies a session for nat44_del_session by either of its flows: (Addr:Port, Ext:ExtPort).
type SessionKey struct {
	Addr    netip.Addr
	Port    uint16
	Ext     netip.Addr
	ExtPort uint16
	Proto   uint8
	VRF     uint32
}

// UserSession is nat44_user_session_v3_details.
type UserSession struct {
	Outside, Inside netip.AddrPort
	ExtHost         netip.AddrPort
	ExtHostNAT      netip.AddrPort // the zero value unless Flags has TwiceNAT
	Proto           uint8
	Flags           Flags
	LastHeard       time.Duration // since boot, whole seconds
	SinceLastHeard  time.Duration // whole seconds
	TotalBytes      uint64
	TotalPkts       uint32
	TimedOut        bool
	InsideTable     uint32
}

// User is nat44_user_details: an inside address and its numbers of dynamic and static sessions.
type User struct {
	Addr           netip.Addr
	VRF            uint32
	Sessions       uint32
	StaticSessions uint32
}

// VRFTable is nat44_ed_vrf_tables_v2_details.
type VRFTable struct {
	Table  uint32
	Routes []uint32
}
