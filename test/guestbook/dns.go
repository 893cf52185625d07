package guestbook

import (
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"strings"
)

// Names finds the addresses of a name, which ends with a dot. False: no such name.
type Names func(name string) ([]netip.Addr, bool)

// zone is NAME=ADDRESS.
type zone []string

func (z zone) find(name string) ([]netip.Addr, bool) {
	for _, entry := range z {
		have, text, _ := strings.Cut(entry, "=")
		if !strings.EqualFold(have+".", name) {
			continue
		}
		addr, err := netip.ParseAddr(text)
		if err != nil {
			return nil, true
		}
		return []netip.Addr{addr}, true
	}
	return nil, false
}

// ServeDNS answers questions for addresses, by UDP and TCP.
func ServeDNS(addr string, names Names) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	u, err := net.ListenPacket("udp", addr)
	if err != nil {
		return err
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go names.stream(conn)
		}
	}()
	for buf := make([]byte, 4096); ; {
		n, from, err := u.ReadFrom(buf)
		if err != nil {
			return err
		}
		if reply := names.reply(buf[:n]); reply != nil {
			_, _ = u.WriteTo(reply, from) // who gets no answer asks again
		}
	}
}

func (names Names) stream(conn net.Conn) {
	defer conn.Close()
	for {
		var size uint16
		if binary.Read(conn, binary.BigEndian, &size) != nil {
			return
		}
		q := make([]byte, size)
		if _, err := io.ReadFull(conn, q); err != nil {
			return
		}
		reply := names.reply(q)
		if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(reply))), reply...)); err != nil {
			return
		}
	}
}

// Types of records (RFC 1035, RFC 3596).
const (
	typeA    = 1
	typeAAAA = 28
)

// mostRecords is how many fit into a datagram without extensions (RFC 1035: 512 bytes).
const mostRecords = 8

// reply is that to one question (RFC 1035); nil: it is none.
func (names Names) reply(q []byte) []byte {
	const header = 12
	name, at := "", header
	for at < len(q) && q[at] != 0 {
		end := at + 1 + int(q[at])
		if end >= len(q) {
			return nil
		}
		name, at = name+string(q[at+1:end])+".", end
	}
	if end := at + 5; end > len(q) {
		return nil
	}
	kind := binary.BigEndian.Uint16(q[at+1:])
	out := append([]byte{q[0], q[1], 0x85, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}, q[header:at+5]...) // authoritative, recursion available
	addrs, known := names(strings.ToLower(name))
	if !known {
		out[3] |= 3 // no such name
		return out
	}
	for _, addr := range addrs {
		if addr.Is4() != (kind == typeA) || kind != typeA && kind != typeAAAA || out[7] == mostRecords {
			continue
		}
		out[7]++
		out = append(out, 0xc0, header, 0, byte(kind), 0, 1, 0, 0, 0, 5) // the name of the question, 5 s
		out = append(binary.BigEndian.AppendUint16(out, uint16(addr.BitLen()/8)), addr.AsSlice()...)
	}
	return out
}
