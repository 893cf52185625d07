package httpserver

import (
	"net"
	"testing"
)

func TestLoopback(t *testing.T) {
	for ip, want := range map[string]bool{
		"127.0.0.1": true, "127.9.9.9": true, "::1": true, "::ffff:127.0.0.1": true, "0.0.0.0": false, "::": false, "10.0.0.1": false, "fe80::1": false, "": false,
	} {
		if got := Loopback(&net.TCPAddr{IP: net.ParseIP(ip)}); got != want {
			t.Errorf("listener at %q: %t", ip, got)
		}
		if got := LoopbackHost(ip); got != want {
			t.Errorf("host %q: %t", ip, got)
		}
	}
	if !LoopbackHost("localhost") || LoopbackHost("localhost.example.org") {
		t.Error("names")
	}
	if !Loopback(&net.UnixAddr{Name: "x"}) {
		t.Error("a unix socket is not local")
	}
}
