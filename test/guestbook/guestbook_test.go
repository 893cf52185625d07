package guestbook

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
)

// TestGuestbookPrograms: they do without VPP what the demonstration asks of them.
func TestGuestbookPrograms(t *testing.T) {
	z := Names(zone{"redis-leader.guestbook.svc.cluster.local=10.96.0.20"}.find)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
			go z.stream(conn)
		}
	}()
	ask := func() (net.Conn, error) { return net.Dial("tcp", l.Addr().String()) }
	if addr, err := Lookup(t.Context(), ask, "redis-leader.guestbook.svc.cluster.local"); err != nil || addr != "10.96.0.20" {
		t.Errorf("the name is %s, %v", addr, err)
	}
	if addr, err := Lookup(t.Context(), ask, "nobody.guestbook.svc.cluster.local"); err == nil {
		t.Errorf("a name that nobody has is %s", addr)
	}
	leader, follower := &book{name: "leader"}, &book{name: "follower"}
	books, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer books.Close()
	go func() { _ = acceptLines(books, leader.serve) }() // until it is closed
	dial := func() net.Conn {
		conn, err := net.Dial("tcp", books.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	source := dial()
	go follower.copyFrom(source)
	conn := dial()
	for _, k := range [][2]string{{"PING", "PONG leader"}, {"PUSH one two", "OK leader"}, {"PUSH three", "OK leader"}, {"LIST", "one two|three"}} {
		if got, err := Command(conn, k[0]); err != nil || strings.Join(got, "|") != k[1] {
			t.Errorf("%s: %q, %v", k[0], got, err)
		}
	}
	for {
		lines, moved := follower.after(0)
		if len(lines) == 2 {
			break
		}
		<-moved
	}
	if lines, _ := follower.after(0); strings.Join(lines, "|") != "one two|three" {
		t.Errorf("the follower has %q", lines)
	}
}

// The DNS server answers with all addresses of the family that is asked for, and distinguishes a name without one from an unknown name.
func TestDNS(t *testing.T) {
	names := Names(func(name string) ([]netip.Addr, bool) {
		if name != "pods.guestbook.svc.cluster.local." {
			return nil, false
		}
		return []netip.Addr{netip.MustParseAddr("10.1.1.2"), netip.MustParseAddr("fd00::2"), netip.MustParseAddr("10.1.2.2")}, true
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
			go names.stream(conn)
		}
	}()
	r := net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) { return net.Dial("tcp", l.Addr().String()) }}
	for _, k := range [][3]string{
		{"ip4", "Pods.guestbook.svc.cluster.local.", "[10.1.1.2 10.1.2.2]"},
		{"ip6", "pods.guestbook.svc.cluster.local.", "[fd00::2]"},
		{"ip", "none.guestbook.svc.cluster.local.", "no such host"},
	} {
		addrs, err := r.LookupNetIP(t.Context(), k[0], k[1])
		for i := range addrs {
			addrs[i] = addrs[i].Unmap()
		}
		if got := fmt.Sprint(addrs, err); !strings.Contains(got, k[2]) {
			t.Errorf("%s %s: %s, want %s", k[0], k[1], got, k[2])
		}
	}
}
