package rpc

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What Contiv's clients send: number, name and message of each field; "1" marks those that are not lists.
var fields = []string{
	"10 AccessLists ligato.vpp.acl.ACL", "15 Forwardings ligato.vpp.abf.ABF",
	"20 Interfaces ligato.vpp.interfaces.Interface", "21 Spans ligato.vpp.interfaces.Span",
	"22 RuleChains ligato.linux.iptables.RuleChain", "23 VrfTables ligato.vpp.l3.VrfTable",
	"24 Nat44Interfaces ligato.vpp.nat.Nat44Interface", "25 Nat44AddressPools ligato.vpp.nat.Nat44AddressPool",
	"40 BridgeDomains ligato.vpp.l2.BridgeDomain", "41 FIBs ligato.vpp.l2.FIBEntry", "42 XCons ligato.vpp.l2.XConnectPair",
	"50 StaticRoutes ligato.vpp.l3.Route", "51 ArpEntries ligato.vpp.l3.ARPEntry",
	"52 ProxyArp ligato.vpp.l3.ProxyARP 1", "53 IPScanNeighbor ligato.vpp.l3.IPScanNeighbor 1",
	"60 SPDs ligato.vpp.ipsec.SecurityPolicyDatabase", "61 SAs ligato.vpp.ipsec.SecurityAssociation",
	"65 IPRedirectPunts ligato.vpp.punt.IPRedirect", "66 ToHostPunts ligato.vpp.punt.ToHost", "67 Exceptions ligato.vpp.punt.Exception",
	"71 NatGlobal ligato.vpp.nat.Nat44Global 1", "72 DNATs ligato.vpp.nat.DNat44",
	"80 LinuxInterfaces ligato.linux.interfaces.Interface",
	"90 LinuxArpEntries ligato.linux.l3.ARPEntry", "91 LinuxRoutes ligato.linux.l3.Route",
}

func TestFieldsAreContivs(t *testing.T) {
	var got []string
	all := (&DataRequest{}).ProtoReflect().Descriptor().Fields()
	for i := range all.Len() {
		f := all.Get(i)
		line := fmt.Sprintf("%d %s %s", f.Number(), f.Name(), f.Message().FullName())
		if !f.IsList() {
			line += " 1"
		}
		got = append(got, line)
	}
	slices.Sort(got)
	if diff := cmp.Diff(fields, got); diff != "" {
		t.Errorf("DataRequest (-want +got):\n%s", diff)
	}
}

func TestMethodsAreContivs(t *testing.T) {
	var got []string
	for i := range File_contiv_rpc_rpc_proto.Services().Len() {
		s := File_contiv_rpc_rpc_proto.Services().Get(i)
		for j := range s.Methods().Len() {
			m := s.Methods().Get(j)
			got = append(got, fmt.Sprintf("/%s/%s %s %s", s.FullName(), m.Name(), m.Input().FullName(), m.Output().FullName()))
		}
	}
	want := []string{
		"/rpc.DataChangeService/Put rpc.DataRequest rpc.PutResponse", "/rpc.DataChangeService/Del rpc.DataRequest rpc.DelResponse",
		"/rpc.DataResyncService/Resync rpc.DataRequest rpc.ResyncResponse",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("methods (-want +got):\n%s", diff)
	}
}
