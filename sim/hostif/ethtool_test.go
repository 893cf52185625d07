package hostif_test

import (
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// features switches an offload of eth0 off, in the namespace of the calling thread.
func features(t testing.TB, command uint32) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Error(err)
		return
	}
	defer unix.Close(fd)
	value := &struct{ command, data uint32 }{command, 0}
	request := struct { // struct ifreq of linux/if.h
		name  [unix.IFNAMSIZ]byte
		value unsafe.Pointer
		_     [16]byte
	}{value: unsafe.Pointer(value)}
	copy(request.name[:unix.IFNAMSIZ-1], "eth0")
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request))); e != 0 {
		t.Errorf("switch an offload of eth0 off: %v", e)
	}
}
