package realvpp

import (
	"context"
	"syscall"
	"testing"
	"time"

	"go.fd.io/govpp/binapi/vpe"

	"github.com/contiv-agent/contiv-agent/vpp"
)

// TestVPPReadableInterfaces makes so many af_packet interfaces readable at once and asks VPP for its version. VPP 25.06 and later read their files 16 at
// a time, and return to the main loop only when fewer were readable (vlib_file_poll in src/vlib/file.c). The file of an af_packet interface stays
// readable until an input node has run, which is in the main loop. So VPP never answers again, and forwards nothing. A VPP that is mended
// (deploy/vpp/epoll.patch) fails here: then the pages that name this fault have to change.
func TestVPPReadableInterfaces(t *testing.T) {
	path := theVPP(t)
	for _, tc := range []struct {
		interfaces int
		hangs      bool
	}{{15, false}, {16, true}, {40, true}} {
		l, err := openLab(path)
		if err != nil {
			l.close()
			t.Fatal(err)
		}
		version := l.version()
		hangs := tc.hangs && !isSimulated(path) && version >= "25.06"
		answers := l.answersAfterFrames(t, tc.interfaces, hangs)
		l.close()
		if answers == hangs {
			t.Errorf("VPP %s, %d interfaces with a frame: it answers: %t, want %t", version, tc.interfaces, answers, !hangs)
		}
	}
}

// answersAfterFrames stops VPP's process while each of its interfaces gets a frame, and reports whether VPP answers afterwards.
func (l *lab) answersAfterFrames(t *testing.T, n int, hangs bool) bool {
	t.Helper()
	pairs := []int{probePair}
	for i := probePair + 1; len(pairs) < n; i++ {
		if _, err := l.attach(i); err != nil {
			t.Fatal(err)
		}
		pairs = append(pairs, i)
	}
	if err := l.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for _, i := range pairs {
		if err := l.frames.knock(i); err != nil {
			t.Fatal(err)
		}
	}
	wait(t.Context(), 200*time.Millisecond) // the kernel passes frames of a veth on in the background
	if err := l.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	limit := patience
	if hangs {
		limit = 3 * time.Second
	}
	ctx, stop := context.WithTimeout(t.Context(), limit)
	defer stop()
	return l.plain.conn.Do(ctx, vpp.Call{Msg: &vpe.ShowVersion{}})[0].Err == nil
}
