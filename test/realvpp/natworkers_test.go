package realvpp

import (
	"context"
	"net/netip"
	"strings"
	"testing"

	"go.fd.io/govpp/binapi/nat44_ed"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/sim/packet"
	"github.com/contiv-agent/contiv-agent/vpp"
)

// TestVPPNATWorkers: on a VPP with two workers of which one translates (as after "set nat workers 0" in a file that VPP executes when it starts), each
// client reaches every endpoint, and an endpoint that terminates drains.
func TestVPPNATWorkers(t *testing.T) {
	w := twoWorkers(t, realVPP(t, "forwards as without workers"))
	e := &exam{twin: w, t: t}
	podC := podAt("c", "node-1", "10.1.1.4")
	slice := endpoints(podA, podB, podC, podFar)
	e.become(web(nil), podC, slice)
	// reaches is the endpoint that a packet from a port of the client reaches; "": none.
	reaches := func(port uint16, flags uint8) string {
		p := packet.NewTCP(netip.AddrPortFrom(netip.MustParseAddr("198.51.100.7"), port), netip.MustParseAddrPort("10.96.0.10:80"))
		p.TCPFlags = flags
		for range 10 { // workers that share processors with other programs are late
			out, err := w.lab.send(cni.Uplink, p)
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range out {
				if o.Packet.SrcPort == port && !o.Packet.IsICMPError() {
					return o.Packet.Dst.String()
				}
			}
		}
		return ""
	}
	reached, open := map[string]int{}, map[uint16]string{}
	for port := uint16(40000); port < 40064; port++ {
		open[port] = reaches(port, packet.SYN)
		reached[open[port]]++
	}
	t.Logf("one client reached %v", reached)
	if len(reached) != 4 || reached[""] > 0 {
		t.Fatalf("one client reached %d of 4 endpoints: %v", len(reached), reached)
	}
	leaving := podB.IPs[0].String()
	for i := range slice.Endpoints {
		if slice.Endpoints[i].Addr.String() == leaving {
			slice.Endpoints[i].Ready, slice.Endpoints[i].Terminating = false, true
		}
	}
	e.put(slice)
	for port, at := range open {
		if have := reaches(port, packet.ACK); have != at {
			t.Errorf("the connection from port %d to %s is at %q", port, at, have)
		}
	}
	for port := uint16(41000); port < 41064; port++ {
		if at := reaches(port, packet.SYN); at == leaving || at == "" {
			t.Fatalf("a new connection reaches %q while an endpoint terminates", at)
		}
	}
}

// twoWorkers starts a node whose VPP has two workers, of which the first one translates.
func twoWorkers(t *testing.T, path string) *twin {
	t.Helper()
	l, err := openLabWith(path, 2)
	if l != nil {
		t.Cleanup(l.close)
	}
	if err != nil && strings.Contains(err.Error(), "no available cpus") {
		t.Skip("VPP needs a processor for each of two workers, and one for its main thread")
	}
	if err == nil {
		err = l.prefer()
	}
	if err == nil {
		err = l.plain.conn.Do(context.Background(), vpp.Call{Msg: &nat44_ed.NatSetWorkers{WorkerMask: 1}})[0].Err
	}
	if err != nil {
		t.Fatal(err)
	}
	w, err := openTwin(l, "node-1", agent.Config{})
	t.Cleanup(w.close)
	if err != nil {
		t.Fatal(err)
	}
	return w
}
