package hostif

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/contiv-agent/contiv-agent/sim"
)

// TestMemifSockets: a memif is refused, or it has a socket until it is deleted. The socket of a VPP that ended stays, and the next VPP takes its place.
func TestMemifSockets(t *testing.T) {
	h, err := New()
	if err != nil {
		t.Fatal(err)
	}
	defer h.end()
	at := filepath.Join(t.TempDir(), "eth0.sock")
	if err := h.Open(1, &sim.HostLink{Memif: at}); err == nil {
		t.Error("a memif at whose socket nobody answers is not refused")
	}
	h.mute = true
	for range 2 {
		if err := h.Open(1, &sim.HostLink{Memif: at}); err != nil {
			t.Fatal(err)
		}
		h.SetUp(1, true)
		if h.Send(1, []byte{0}) {
			t.Error("a frame leaves")
		}
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.Connect(fd, &unix.SockaddrUnix{Name: at}); err != nil {
			t.Error(err)
		}
		_ = unix.Close(fd) // nothing was sent
		h.Reset()
		if _, err := os.Stat(at); err != nil {
			t.Error(err)
		}
	}
	if err := h.Open(1, &sim.HostLink{Memif: at}); err != nil {
		t.Fatal(err)
	}
	if h.Close(1); !isGone(at) {
		t.Error("the socket outlives the memif")
	}
	if err := h.Open(2, &sim.HostLink{}); err == nil { // of a slave
		t.Error("VPP joins the socket of another program")
	}
}

func isGone(path string) bool {
	_, err := os.Stat(path)
	return os.IsNotExist(err)
}
