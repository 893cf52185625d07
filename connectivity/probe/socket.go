package probe

import (
	"errors"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// option is an integer option of a socket.
type option struct{ level, name, value int }

// datagramOptions are those of UDP sockets: no hop fragments, the kernel ignores what it has learned about the path, and a server learns which address
// was asked.
func datagramOptions(network string, server bool) []option {
	out := []option{{unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE}}
	if strings.HasSuffix(network, "6") {
		out = []option{{unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE}}
		if server {
			out = append(out, option{unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1})
		}
		return out
	}
	if server {
		out = append(out, option{unix.IPPROTO_IP, unix.IP_PKTINFO, 1})
	}
	return out
}

func setOptions(c syscall.RawConn, options []option) (err error) {
	failed := c.Control(func(fd uintptr) {
		for _, o := range options {
			err = errors.Join(err, unix.SetsockoptInt(int(fd), o.level, o.name, o.value)) //nolint:gosec // a file descriptor
		}
	})
	return errors.Join(failed, err)
}

// answerFrom turns the control message of a datagram into that of its answer, which leaves from the address that was asked, by any link.
func answerFrom(oob []byte) []byte {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	for _, m := range messages {
		switch {
		case m.Header.Level == unix.IPPROTO_IP && m.Header.Type == unix.IP_PKTINFO && len(m.Data) >= unix.SizeofInet4Pktinfo:
			info := &unix.Inet4Pktinfo{Spec_dst: [4]byte(m.Data[4:8])}
			return unix.PktInfo4(info)
		case m.Header.Level == unix.IPPROTO_IPV6 && m.Header.Type == unix.IPV6_PKTINFO && len(m.Data) >= unix.SizeofInet6Pktinfo:
			info := &unix.Inet6Pktinfo{Addr: [16]byte(m.Data[:16])}
			return unix.PktInfo6(info)
		}
	}
	return nil
}
