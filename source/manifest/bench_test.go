package manifest

import (
	"fmt"
	"strings"
	"testing"
)

// BenchmarkParse measures reading services with ten endpoints each, as kubectl writes them: two objects per service.
func BenchmarkParse(b *testing.B) {
	var text strings.Builder
	const services = 500
	for i := range services {
		fmt.Fprintf(&text, "---\napiVersion: v1\nkind: Service\nmetadata:\n  name: s-%d\n  namespace: default\nspec:\n"+
			"  clusterIP: 10.96.%d.%d\n  clusterIPs:\n  - 10.96.%d.%d\n  selector:\n    app: s\n  ports:\n  - name: http\n    port: 80\n    targetPort: 8080\n",
			i, i/200, 1+i%200, i/200, 1+i%200)
		fmt.Fprintf(&text, "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata:\n  name: s-%d-x\n  namespace: default\n"+
			"  labels:\n    kubernetes.io/service-name: s-%d\naddressType: IPv4\nports:\n- name: http\n  port: 8080\n  protocol: TCP\nendpoints:\n", i, i)
		for e := range 10 {
			fmt.Fprintf(&text, "- addresses:\n  - 10.1.%d.%d\n  conditions:\n    ready: true\n    serving: true\n    terminating: false\n"+
				"  nodeName: node-1\n  targetRef:\n    kind: Pod\n    namespace: default\n    name: p-%d-%d\n", e, 1+i%250, i, e)
		}
	}
	data := []byte(text.String())
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if p := parse("f.yaml", data, false); len(p.entries) != 2*services {
			b.Fatalf("%d objects", len(p.entries))
		}
	}
}
