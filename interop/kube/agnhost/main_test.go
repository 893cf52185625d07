package main

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// nc writes its input and prints the answer; it fails if nobody listens.
func TestNetcat(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		buf := make([]byte, 100)
		n, _ := conn.Read(buf)
		_, _ = conn.Write([]byte("you say " + string(buf[:n])))
		_ = conn.Close()
	}()
	host, port, _ := net.SplitHostPort(l.Addr().String())
	args := []string{"-v", "-t", "-w", "2", host, port}
	var out strings.Builder
	if err := netcat(args, strings.NewReader("hostName\n"), &out); err != nil || out.String() != "you say hostName\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
	_ = l.Close()
	if err := netcat(args, strings.NewReader(""), &out); err == nil {
		t.Error("nobody listens, and nc says nothing")
	}
}

func TestAsksSCTP(t *testing.T) {
	to, timeout, ok := asksSCTP([]string{"10.1.2.3:80", "--timeout=3s", "--protocol=sctp"})
	if want := netip.MustParseAddrPort("10.1.2.3:80"); to != want || timeout != 3*time.Second || !ok {
		t.Error(to, timeout, ok)
	}
	for _, args := range []string{"10.1.2.3:80 --protocol=tcp", "10.1.2.3:80", "[fd00::1]:80 --protocol=sctp", "--protocol=sctp", "name:80 --protocol=sctp"} {
		if _, _, ok := asksSCTP(strings.Fields(args)); ok {
			t.Errorf("%s asks for SCTP", args)
		}
	}
}

// A client gets data from a port that is served, also beside another server of the same host, and none from another port.
func TestSCTP(t *testing.T) {
	for _, ports := range []map[uint16]string{{9003: "foo"}, {9005: "bar"}} {
		conn, err := net.ListenIP(ipSCTP, &net.IPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Skipf("sockets of IP need a right: %v", err)
		}
		defer conn.Close()
		go func() { _ = serve(conn, ports) }() // it ends with the socket
	}
	for address, want := range map[string]string{"127.0.0.1:9003": "", "127.0.0.1:9005": "", "127.0.0.1:9004": "TIMEOUT"} {
		timeout := 20 * time.Second
		if want != "" {
			timeout = time.Second
		}
		got := ""
		if err := connect(netip.MustParseAddrPort(address), timeout); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", address, got, want)
		}
	}
}

// A packet is what its bytes are, and bytes with another checksum are none.
func TestPacket(t *testing.T) {
	p := packet{from: 1, to: 2, tag: 3, chunks: []chunk{{kind: chunkCookieAck}, {chunkData, whole, data(7, "hello")}}}
	b := p.marshal()
	got, ok := parse(b)
	if value, found := got.find(chunkData); !ok || !found || string(value[12:]) != "hello" || got.from != 1 || got.to != 2 || got.tag != 3 || len(b)%4 != 0 {
		t.Errorf("%+v %v", got, ok)
	}
	b[len(b)-1]++
	if _, ok := parse(b); ok {
		t.Error("a packet with a wrong checksum is one")
	}
	for n := range b { // whatever is cut off
		parse(b[:n])
	}
}

// An association that the other side aborts is refused.
func TestRefused(t *testing.T) {
	conn, err := net.ListenIP(ipSCTP, &net.IPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Skipf("sockets of IP need a right: %v", err)
	}
	defer conn.Close()
	go func() {
		for buf := make([]byte, 4096); ; {
			n, from, err := conn.ReadFromIP(buf)
			if err != nil {
				return
			}
			p, ok := parse(buf[:n])
			if out, asks := reply(p, ""); ok && asks && p.to == 9006 {
				out.chunks = []chunk{{kind: chunkAbort}}
				_, _ = conn.WriteToIP(out.marshal(), from) // the client repeats its packet
			}
		}
	}()
	if err := dial(netip.MustParseAddrPort("127.0.0.1:9006"), 20*time.Second); !errors.Is(err, errAborted) {
		t.Error(err)
	}
}
