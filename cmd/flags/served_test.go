package flags

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/contiv-agent/contiv-agent/verify/serving"
)

func TestServed(t *testing.T) {
	parse := func(args ...string) (serving.Config, error) {
		var f Served
		fs := pflag.NewFlagSet("verify", pflag.ContinueOnError)
		f.AddFlags(fs)
		if err := fs.Parse(args); err != nil {
			t.Fatal(err)
		}
		return f.Config()
	}
	got, err := parse("--service-renderer=cnat", "--proxy-name=mine", "--terminating-endpoints=keep", "--local-endpoint-weight=3", "--external-ip-cidrs=198.51.100.0/24",
		"--node-port-addresses=primary", "--service-cidr=10.96.0.0/16", "--api-server-address=192.0.2.1", "--no-snat", "--vxlan-port=4790", "--nat-timeout-udp=90s")
	want := serving.Config{
		Renderer: "cnat", ProxyName: "mine", KeepTerminating: true, LocalWeight: 3, ExternalIPCIDRs: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")},
		NoSNAT: true, VXLANPort: 4790, Timeouts: serving.Timeouts{UDP: 90, TCPEstablished: 7440, TCPTransitory: 120, ICMP: 30},
		NodePortsPrimary: true, ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}, APIServers: []netip.Addr{netip.MustParseAddr("192.0.2.1")},
	}
	same := cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })
	if diff := cmp.Diff(want, got, same, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" || err != nil {
		t.Errorf("%v, (-want +got):\n%s", err, diff)
	}
	if got, err = parse(); err != nil || got.Renderer != "auto" || got.LocalWeight != 1 || got.KeepTerminating {
		t.Errorf("without flags: %+v, %v", got, err)
	}
	_, err = parse("--service-renderer=ipvs", "--terminating-endpoints=drop", "--api-server-address=kubernetes")
	for _, part := range []string{"--service-renderer ipvs", "--terminating-endpoints drop", "--api-server-address kubernetes"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%v does not name %s", err, part)
		}
	}
}
