package driver

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// The ends of Felix's pipes (Felix v3.31, felix/dataplane/external).
const (
	FromFelix = 3
	ToFelix   = 4
)

// Pipe opens a file descriptor that Felix passed.
func Pipe(fd int, what string) (*os.File, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFIFO && st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return nil, fmt.Errorf("file descriptor %d (%s) is not a pipe: Felix must start felix-driver", fd, what)
	}
	unix.CloseOnExec(fd)
	if err := syscall.SetNonblock(fd, true); err != nil { // so that a wait for Felix can be interrupted
		return nil, fmt.Errorf("file descriptor %d (%s): %w", fd, what, err)
	}
	return os.NewFile(uintptr(fd), what), nil
}
