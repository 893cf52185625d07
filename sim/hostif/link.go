package hostif

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

const (
	nlHeader  = unix.SizeofNlMsghdr
	linkInfo  = unix.SizeofIfInfomsg
	attribute = unix.SizeofRtAttr
)

// setLink changes a Linux interface by netlink: up or down and, if mac is not nil, its address.
func setLink(index int, up bool, mac []byte) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("netlink: %w", err)
	}
	defer unix.Close(fd)
	b := make([]byte, nlHeader+linkInfo)
	binary.NativeEndian.PutUint16(b[4:], unix.RTM_NEWLINK)
	binary.NativeEndian.PutUint16(b[6:], unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	info := b[nlHeader:]
	binary.NativeEndian.PutUint32(info[4:], uint32(index)) // kernel's index: positive
	if mac == nil {
		if up {
			binary.NativeEndian.PutUint32(info[8:], unix.IFF_UP)
		}
		binary.NativeEndian.PutUint32(info[12:], unix.IFF_UP)
	} else {
		b = binary.NativeEndian.AppendUint16(b, uint16(attribute+len(mac)))
		b = binary.NativeEndian.AppendUint16(b, unix.IFLA_ADDRESS)
		b = append(append(b, mac...), 0, 0) // aligned
	}
	binary.NativeEndian.PutUint32(b, uint32(len(b)))
	if err := unix.Sendto(fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("netlink: %w", err)
	}
	answer := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, answer, 0)
	if err != nil || n < nlHeader+4 {
		return fmt.Errorf("netlink answer: %w", err)
	}
	if code := int32(binary.NativeEndian.Uint32(answer[nlHeader:])); code != 0 {
		return fmt.Errorf("netlink: %w", unix.Errno(-code))
	}
	return nil
}
