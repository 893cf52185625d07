package nat44

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/renderer"
)

// A namespace and a name may have 63 and 253 characters: labels contain them completely, although VPP's tags are shorter.
func TestLongNames(t *testing.T) {
	svc := web(endpoints("10.1.1.2"))
	svc.ID.Namespace, svc.ID.Name = strings.Repeat("n", 63), strings.Repeat("s", 253)
	values, notes := Service(svc, node(), nodeIPs, Config{})
	if values[kv.DNat44Key(svc.ID.String())] == nil || len(notes) != 0 {
		t.Errorf("values %v notes %v", values.Keys(), notes)
	}
}

func BenchmarkService(b *testing.B) {
	for _, bc := range []struct{ backends, nodes int }{{10, 1}, {253, 1}, {10, 1000}} {
		b.Run(fmt.Sprintf("backends=%d/nodes=%d", bc.backends, bc.nodes), func(b *testing.B) {
			svc := many(bc.backends/2, bc.backends-bc.backends/2)
			nodePort(svc)
			ips := renderer.NewIPAddresses()
			for i := range bc.nodes {
				ips.Add(net.IPv4(172, 16, byte(i/256), byte(i%256)))
			}
			b.ReportAllocs()
			for b.Loop() {
				Service(svc, node(), ips, Config{})
			}
		})
	}
}
