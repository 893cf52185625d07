// Package ethtool turns a command with one value (ETHTOOL_GTXCSUM and the like) into the kernel's answer.
//
// Invariant: a command concerns the network namespace that it names, or that of the thread, and no other.
package ethtool

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/contiv-agent/contiv-agent/netns"
)

// In executes a command in the network namespace of an open file.
func In(namespace int, link string, command, data uint32) (value uint32, err error) {
	err = netns.Do(namespace, func() (err error) {
		value, err = Here(link, command, data)
		return err
	})
	return value, err
}

// Here executes a command with one value (struct ethtool_value of linux/ethtool.h) in the network namespace of the thread.
func Here(link string, command, data uint32) (uint32, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	value := &struct{ command, data uint32 }{command, data}
	request := struct { // struct ifreq of linux/if.h
		name  [unix.IFNAMSIZ]byte
		value unsafe.Pointer
		_     [16]byte
	}{value: unsafe.Pointer(value)}
	copy(request.name[:unix.IFNAMSIZ-1], link)
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request))); e != 0 {
		return 0, e
	}
	return value.data, nil
}
