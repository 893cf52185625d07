package hostif

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

const (
	nlHeader  = unix.SizeofNlMsghdr
	linkInfo  = unix.SizeofIfInfomsg
	attribute = unix.SizeofRtAttr
)

// setLink changes a Linux interface by netlink: up or down and, if mac is not nil, its address.
func setLink(index int, up bool, mac []byte) error {
	info := make([]byte, linkInfo)
	binary.NativeEndian.PutUint32(info[4:], uint32(index)) // kernel's index: positive
	if mac != nil {
		return request(unix.RTM_NEWLINK, 0, append(info, attr(unix.IFLA_ADDRESS, mac)...))
	}
	if up {
		binary.NativeEndian.PutUint32(info[8:], unix.IFF_UP)
	}
	binary.NativeEndian.PutUint32(info[12:], unix.IFF_UP)
	return request(unix.RTM_NEWLINK, 0, info)
}

// setMTU changes the MTU of a Linux interface.
func setMTU(index int, mtu uint32) error {
	info := make([]byte, linkInfo)
	binary.NativeEndian.PutUint32(info[4:], uint32(index)) // kernel's index: positive
	return request(unix.RTM_NEWLINK, 0, append(info, attr(unix.IFLA_MTU, binary.NativeEndian.AppendUint32(nil, mtu))...))
}

// addAddress gives a Linux interface an address.
func addAddress(index int, p netip.Prefix) error {
	info := make([]byte, unix.SizeofIfAddrmsg)
	info[0], info[1] = unix.AF_INET, byte(p.Bits())
	if p.Addr().Is6() {
		info[0] = unix.AF_INET6
	}
	binary.NativeEndian.PutUint32(info[4:], uint32(index)) // kernel's index: positive
	info = append(info, attr(unix.IFA_LOCAL, p.Addr().AsSlice())...)
	return request(unix.RTM_NEWADDR, unix.NLM_F_CREATE, append(info, attr(unix.IFA_ADDRESS, p.Addr().AsSlice())...))
}

// attr is an attribute of a request, aligned.
func attr(kind uint16, value []byte) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(attribute+len(value)))
	b = append(binary.NativeEndian.AppendUint16(b, kind), value...)
	return append(b, make([]byte, -len(b)&3)...)
}

// request sends a request to the kernel and reads the answer.
func request(kind, flags uint16, body []byte) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("netlink: %w", err)
	}
	defer unix.Close(fd)
	b := append(make([]byte, nlHeader), body...)
	binary.NativeEndian.PutUint32(b, uint32(len(b)))
	binary.NativeEndian.PutUint16(b[4:], kind)
	binary.NativeEndian.PutUint16(b[6:], unix.NLM_F_REQUEST|unix.NLM_F_ACK|flags)
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
