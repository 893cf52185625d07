package typha

import (
	"fmt"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/calico/wire"
)

// BenchmarkTranslate measures the translation of a first sync's pods, from keys to objects.
func BenchmarkTranslate(b *testing.B) {
	const pods = 10_000
	list := make([]wire.KV, pods)
	for i := range list {
		addr := fmt.Sprintf("10.%d.%d.%d/32", i>>16, i>>8&255, i&255)
		list[i] = wire.KV{
			Key:   fmt.Sprintf("/calico/v1/host/node-%d/workload/k8s/prod%%2fweb-%d/endpoint/eth0", i%500, i),
			Value: []byte(strings.Replace(podValue, "10.65.0.2/32", addr, 1)),
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		if n := len(newTranslator().objectChanges(list)); n != pods {
			b.Fatal(n)
		}
	}
}
