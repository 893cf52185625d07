package nat

import (
	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/feature"
	"go.fd.io/govpp/binapi/nat44_ed"
	"go.fd.io/govpp/binapi/vlib"
)

// Differences between the releases of VPP from 24.06 to 26.06:
//
//	nothing is known that differs

// Needs are the messages of this package, for the check at connect.
func Needs() []api.Message {
	return []api.Message{
		&nat44_ed.Nat44EdPluginEnableDisable{}, &nat44_ed.Nat44ForwardingEnableDisable{}, &nat44_ed.Nat44ShowRunningConfig{},
		&nat44_ed.NatSetTimeouts{}, &nat44_ed.Nat44AddDelAddressRange{}, &nat44_ed.Nat44AddressDump{},
		&nat44_ed.Nat44InterfaceAddDelFeature{}, &nat44_ed.Nat44InterfaceDump{},
		&nat44_ed.Nat44EdAddDelOutputInterface{}, &nat44_ed.Nat44EdOutputInterfaceGet{},
		&nat44_ed.Nat44AddDelLbStaticMapping{}, &nat44_ed.Nat44LbStaticMappingAddDelLocal{}, &nat44_ed.Nat44LbStaticMappingDump{},
		&nat44_ed.Nat44AddDelStaticMappingV2{}, &nat44_ed.Nat44StaticMappingDump{},
		&nat44_ed.Nat44AddDelIdentityMapping{}, &nat44_ed.Nat44IdentityMappingDump{},
		&nat44_ed.Nat44UserDump{}, &nat44_ed.Nat44UserSessionV3Dump{}, &nat44_ed.Nat44DelSession{},
		&feature.FeatureEnableDisable{}, &vlib.CliInband{},
	}
}
