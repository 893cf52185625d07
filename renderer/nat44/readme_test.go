package nat44

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/plugins/service"
	"github.com/contiv-agent/contiv-agent/source/manifest"
	"github.com/contiv-agent/contiv-agent/test/page"
)

// The example of the page is the actual output.
func TestREADME(t *testing.T) {
	changes, err := manifest.Load(page.File(t, "yaml"))
	if err != nil {
		t.Fatal(err)
	}
	b := book{}
	p := service.New(service.Config{NodeName: "node-1", ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}}, New(Config{}, b))
	for _, ch := range changes {
		if ch.Err != nil {
			t.Fatal(ch.Err)
		}
		p.Apply(ch)
	}
	p.Located(&event.Located{Uplink: "eth0", Overlay: "vxlan0", Host: "tap0", UplinkIPs: []netip.Prefix{netip.MustParsePrefix("192.168.16.1/24")}})
	if err := p.Resync(); err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for _, owner := range slices.Sorted(maps.Keys(b)) {
		fmt.Fprintln(&got, owner)
		for _, line := range b[owner] {
			fmt.Fprintln(&got, "  "+line)
		}
	}
	if diff := cmp.Diff(page.Example(t, "text"), got.String()); diff != "" {
		t.Errorf("-page +got\n%s\n%s", diff, got.String())
	}
}
