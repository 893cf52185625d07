package nic

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

const sysctl = "/proc/sys/net/"

// readSettings returns a link's settings; "" for one that the kernel does not have.
func readSettings(link string) (s settings, err error) {
	for name, value := range s.files(link) {
		b, failed := os.ReadFile(sysctl + name)
		if failed != nil && !errors.Is(failed, fs.ErrNotExist) {
			err = errors.Join(err, failed)
		}
		*value = strings.TrimSpace(string(b))
	}
	return s, err
}

func (s settings) write(link string) (err error) {
	for name, value := range s.files(link) {
		if *value == "" {
			continue
		}
		if failed := os.WriteFile(sysctl+name, []byte(*value), 0); failed != nil && !errors.Is(failed, fs.ErrNotExist) {
			err = errors.Join(err, failed)
		}
	}
	return err
}

// ethtool executes a command with one value (struct ethtool_value of linux/ethtool.h).
func ethtool(link string, command, data uint32) (uint32, error) {
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
