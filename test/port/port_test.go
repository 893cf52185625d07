package port

import (
	"fmt"
	"net"
	"testing"
)

// Each is another one, outside what connections get, and can be listened on; one that somebody has is left out.
func TestFree(t *testing.T) {
	seen := map[int]bool{}
	for range 200 {
		p, err := Free()
		if err != nil || seen[p] || p < lowest || p > highest {
			t.Fatalf("port %d, seen before: %v, %v", p, seen[p], err)
		}
		seen[p] = true
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", p))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
	}
	taken, err := Free()
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", taken))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	next.port = taken
	if p, err := Free(); err != nil || p == taken {
		t.Errorf("%d, which is taken, %v", p, err)
	}
}
