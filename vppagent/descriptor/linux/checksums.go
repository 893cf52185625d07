package linux

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/contiv-agent/contiv-agent/netns"
)

// A veth passes packets on without checksums, which the receiving stack of the same kernel does not check. VPP's af_packet takes frames as they
// are, so a packet for another machine would have none. The kernel also stops to build segments larger than the MTU then.

// wholeChecksums reports whether the kernel computes the checksums of packets that it sends by a link.
func (h *handle) wholeChecksums(link string) (bool, error) {
	offloaded, err := h.ethtool(link, unix.ETHTOOL_GTXCSUM, 0)
	return offloaded == 0, Wrap("read the checksum offload of "+link, err)
}

func (h *handle) setWholeChecksums(link string, on bool) error {
	offloaded := uint32(1)
	if on {
		offloaded = 0
	}
	_, err := h.ethtool(link, unix.ETHTOOL_STXCSUM, offloaded)
	return Wrap("set the checksum offload of "+link, err)
}

// ethtool is Ethtool in the namespace of the handle.
func (h *handle) ethtool(link string, command, data uint32) (uint32, error) {
	fd, err := h.socket()
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	return Ethtool(fd, link, command, data)
}

// Ethtool executes a command with one value (struct ethtool_value of linux/ethtool.h) in the namespace of a socket.
func Ethtool(fd int, link string, command, data uint32) (uint32, error) {
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

// socket opens a socket in the namespace of the handle.
func (h *handle) socket() (fd int, err error) {
	err = netns.Do(int(h.ns), func() (err error) {
		fd, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		return err
	})
	return fd, err
}
