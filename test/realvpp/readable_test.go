package realvpp

import (
	"context"
	"slices"
	"syscall"
	"testing"
	"time"

	"go.fd.io/govpp/binapi/vpe"

	"github.com/contiv-agent/contiv-agent/doctor"
	"github.com/contiv-agent/contiv-agent/vpp"
)

// TestVPPReadableInterfaces makes so many af_packet interfaces readable at once and asks VPP for its version. VPP 25.06 and later read their files 16 at
// a time, and return to the main loop only when fewer were readable (vlib_file_poll in src/vlib/file.c). The file of an af_packet interface stays
// readable until an input node has run, which is in the main loop. So VPP never answers again, and forwards nothing, unless it has the library of
// deploy/vpp/epoll.c. A VPP that is mended fails here: then the pages that name this fault have to change.
func TestVPPReadableInterfaces(t *testing.T) {
	path := theVPP(t)
	for _, tc := range []struct {
		interfaces     int
		library, hangs bool
	}{{15, false, false}, {16, false, true}, {40, false, true}, {40, true, false}} {
		if tc.library && isSimulated(path) {
			continue
		}
		l, err := openLab(path)
		defer l.close()
		if err != nil {
			t.Fatal(err)
		}
		if tc.library {
			l.preload = epollLibrary(t)
			if err := l.restart(); err != nil {
				t.Fatal(err)
			}
		}
		pairs := l.attachMany(t, tc.interfaces)
		faulty := !isSimulated(path) && l.version() >= "25.06"
		if faulty {
			l.doctorSees(t, map[bool]doctor.Verdict{false: doctor.OK, true: doctor.Dangerous}[tc.hangs])
		}
		hangs := tc.hangs && faulty
		if answers := l.answersAfterFrames(t, pairs, hangs); answers == hangs {
			t.Errorf("VPP %s, %d interfaces with a frame, library: %t: it answers: %t, want %t", l.version(), tc.interfaces, tc.library, answers, !hangs)
		}
		l.kill()
	}
}

// attachMany makes af_packet interfaces, until there are n with the probe's, and returns the pairs.
func (l *lab) attachMany(t *testing.T, n int) []int {
	t.Helper()
	pairs := []int{probePair}
	for i := probePair + 1; len(pairs) < n; i++ {
		if _, err := l.attach(i); err != nil {
			t.Fatal(err)
		}
		pairs = append(pairs, i)
	}
	return pairs
}

func (l *lab) doctorSees(t *testing.T, want doctor.Verdict) {
	t.Helper()
	r := examine(t, l.dir)
	i := slices.IndexFunc(r.Checks, func(c doctor.Check) bool { return c.Name == "host interfaces" })
	if i < 0 || r.Checks[i].Verdict != want {
		t.Errorf("the doctor does not say %s: %+v", want, r.Checks)
	}
}

// answersAfterFrames stops VPP's process while each of its interfaces gets a frame, and reports whether VPP answers afterwards.
func (l *lab) answersAfterFrames(t *testing.T, pairs []int, hangs bool) bool {
	t.Helper()
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
