package hostif

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// openMemif makes the socket of a memif. Nobody answers there: no frame arrives or leaves. As VPP's, the socket takes the place of one that an ended VPP left.
func (h *Host) openMemif(index uint32, socket string) error {
	if !h.mute {
		return errors.New("memif: nobody would answer at its socket")
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("memif: %w", err)
	}
	_ = os.Remove(socket) // none
	if err = unix.Bind(fd, &unix.SockaddrUnix{Name: socket}); err == nil {
		err = unix.Listen(fd, 1)
	}
	if err != nil {
		return fmt.Errorf("memif %s: %w", socket, errors.Join(err, unix.Close(fd)))
	}
	h.ports[index] = &port{index: index, fd: fd, memif: socket}
	return nil
}
