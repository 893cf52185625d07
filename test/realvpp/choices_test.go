package realvpp

import (
	"fmt"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim/packet"
)

// TestVPPChoiceWithoutSession: NAT44 chooses an endpoint for a packet without SYN, remembers it as the client's affinity, and makes no
// session. The next connection goes to the endpoint chosen then. A twin that compares sessions must find out that choice.
func TestVPPChoiceWithoutSession(t *testing.T) {
	const ports, connections = 8, 3 // each port has an affinity
	w := openSequences(t, theVPP(t), agent.RendererNAT44)
	defer w.shut()
	client := podAt("client", "node-1", "10.1.1.9")
	objects := append(base(), client)
	var pods []*model.Pod
	for i := range 4 {
		pods = append(pods, podAt(fmt.Sprintf("web-%d", i), "node-1", fmt.Sprintf("10.1.1.%d", 20+i)))
		objects = append(objects, pods[i])
	}
	slice := endpoints(pods...)
	slice.Ports = nil
	svc := web(func(s *model.Service) {
		s.SessionAffinityTimeout, s.Ports = 3*time.Hour, nil
		for i := range ports {
			name := fmt.Sprintf("p%d", i)
			s.Ports = append(s.Ports, model.ServicePort{Name: name, Protocol: model.TCP, Port: uint16(80 + i)})
			slice.Ports = append(slice.Ports, model.EndpointPort{Name: name, Protocol: model.TCP, Port: 8080})
		}
	})
	if err := w.apply(puts(append(objects, svc, slice))); err != nil {
		t.Fatal(err)
	}
	met := map[string]bool{}
	for i := range ports {
		p := packet.Packet{Src: client.IPs[0], Dst: svc.ClusterIPs[0], Proto: model.TCP, SrcPort: 40000, DstPort: svc.Ports[i].Port, TCPFlags: packet.ACK}
		if out, err := w.send(door(client), same(p)); err != nil || len(out) > 0 {
			t.Fatalf("a packet without SYN: %v, %v", out, err)
		}
		for n := range connections {
			p.SrcPort = uint16(41000 + n)
			out, err := w.send(door(client), same(p.Opening()))
			if err != nil || len(out) != 1 {
				t.Fatalf("connection %d to port %d: %v, %v", n, p.DstPort, out, err)
			}
			met[out[0].at] = true
		}
	}
	if len(met) < 2 {
		t.Errorf("all ports led to %v: nothing was chosen", met)
	}
	if w.guessed > 0 {
		t.Errorf("nothing showed %d of %d choices", w.guessed, ports)
	}
}
