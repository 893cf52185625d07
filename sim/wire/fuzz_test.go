package wire_test

import (
	"testing"

	"github.com/contiv-agent/contiv-agent/sim/frame"
	"github.com/contiv-agent/contiv-agent/sim/wire/cases"
)

// FuzzFramesIn lets any bytes arrive on any interface. Nothing may panic, and what leaves is a frame with the address of VPP or of a
// bridged host, with a right IPv4 header checksum.
func FuzzFramesIn(f *testing.F) {
	for _, c := range append(cases.List(), cases.NATList()...) {
		for _, in := range c.In {
			f.Add(byte(in.On), in.Bytes)
		}
	}
	m, c, at := configured(f)
	c.do(cases.NAT(at)...)
	f.Fuzz(func(t *testing.T, on byte, b []byte) {
		n := int(on)%cases.Last + 1
		if len(b) > 1600 {
			return
		}
		for _, out := range m.exchange(cases.Frame{On: n, Bytes: b}) {
			e, ok := frame.ParseEthernet(out.Bytes)
			if !ok {
				t.Fatalf("%x: %x is no frame", b, out.Bytes)
			}
			if out.On == cases.Bridged || out.On == cases.Underlay || e.Type != frame.TypeIPv4 && e.Type != frame.TypeIPv6 {
				continue // frames pass the bridge whatever they hold
			}
			if e.Src != cases.VPPMAC(out.On) {
				t.Errorf("%x: it leaves from %x", b, e.Src)
			}
			if _, err := frame.Read(e.Payload); err == frame.ErrHeader {
				t.Errorf("%x: %x is no packet", b, e.Payload)
			}
		}
		if err := m.v.Crashed(); err != nil {
			t.Fatal(err)
		}
	})
}
