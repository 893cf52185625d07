// Package sever ends TCP connections of a network namespace whose translations are lost: their programs get an error at once, where their packets would be
// dropped until the programs give up.
//
// Invariant: only connections to addresses that the caller names end, and none that is still being opened.
package sever

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/contiv-agent/contiv-agent/netns"
)

// states are those of connections that were open: a SYN that is sent again makes a new translation, and TIME_WAIT has no program.
const states = 1<<unix.BPF_TCP_ESTABLISHED | 1<<unix.BPF_TCP_FIN_WAIT1 | 1<<unix.BPF_TCP_FIN_WAIT2 | 1<<unix.BPF_TCP_CLOSE_WAIT | 1<<unix.BPF_TCP_LAST_ACK |
	1<<unix.BPF_TCP_CLOSING

// Connections ends the TCP connections of a network namespace to addresses that are dead, and returns how many. The namespace is the path of a file.
func Connections(namespace string, dead func(netip.AddrPort) bool) (ended int, err error) {
	file, err := os.Open(namespace)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	err = netns.Do(int(file.Fd()), func() error {
		var failed error
		for _, family := range []byte{unix.AF_INET, unix.AF_INET6} { // programs reach IPv4 addresses by sockets of IPv6, too
			n, err := connections(family, dead)
			ended, failed = ended+n, errors.Join(failed, err)
		}
		return failed
	})
	return ended, err
}

// The structs inet_diag_req_v2 and inet_diag_msg of the kernel. Both have the same identity of a socket.
const (
	requestLen, idLen, idInMessage = 56, 48, 4
	idDstPort, idDst               = 2, 20
)

// connections ends those of one family in the namespace of the thread.
func connections(family byte, dead func(netip.AddrPort) bool) (ended int, failed error) {
	all, err := diag(nl.SOCK_DIAG_BY_FAMILY, unix.NLM_F_DUMP, family, states, nil)
	if err != nil {
		return 0, fmt.Errorf("list TCP connections: %w", err)
	}
	for _, m := range all {
		if len(m) < idInMessage+idLen {
			continue
		}
		id := m[idInMessage : idInMessage+idLen]
		if !dead(remote(family, id)) {
			continue
		}
		_, err := diag(nl.SOCK_DESTROY, unix.NLM_F_ACK, family, 0, id)
		switch {
		case err == nil:
			ended++
		case !errors.Is(err, unix.ENOENT): // it ended meanwhile
			failed = fmt.Errorf("end a TCP connection: %w", err)
		}
	}
	return ended, failed
}

// diag sends a request about sockets, with the identity of one or none.
func diag(kind, flags int, family byte, of uint32, id []byte) ([][]byte, error) {
	body := make([]byte, requestLen)
	body[0], body[1] = family, unix.IPPROTO_TCP
	binary.NativeEndian.PutUint32(body[4:], of)
	copy(body[requestLen-idLen:], id)
	req := nl.NewNetlinkRequest(kind, flags)
	req.AddRawData(body)
	return req.Execute(unix.NETLINK_INET_DIAG, 0)
}

// remote is the far end of a connection.
func remote(family byte, id []byte) netip.AddrPort {
	addr := netip.AddrFrom4([4]byte(id[idDst : idDst+4]))
	if family == unix.AF_INET6 {
		addr = netip.AddrFrom16([16]byte(id[idDst : idDst+16])).Unmap()
	}
	return netip.AddrPortFrom(addr, binary.BigEndian.Uint16(id[idDstPort:]))
}
