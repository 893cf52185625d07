package port

import (
	"fmt"
	"net"
	"testing"
)

// Each port differs, is outside the range of connections, and can be listened on; Free skips an occupied one.
func TestFree(t *testing.T) {
	seen := map[int]bool{}
	for range 200 {
		p := Free(t)
		if seen[p] || p < lowest || p > highest {
			t.Fatalf("port %d, seen before: %v", p, seen[p])
		}
		seen[p] = true
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", p))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
	}
	taken := Free(t)
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", taken))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	next.port = taken
	if p := Free(t); p == taken {
		t.Errorf("%d, which is taken", p)
	}
}
