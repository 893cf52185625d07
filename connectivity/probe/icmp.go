package probe

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Types of ICMP messages: request and reply.
var echoTypes = map[bool][2]byte{false: {8, 0}, true: {128, 129}} // by: IPv6

// ping sends echo requests until one is answered.
func (p *Probe) ping(ctx context.Context) (o Outcome) {
	to, err := netip.ParseAddr(p.To)
	if err != nil {
		o.fail(err)
		return o
	}
	conn, peer, err := openICMP(to)
	if err == nil {
		defer conn.Close()
		err = pingUntil(ctx, conn, peer, to.Is6(), p.ID, time.Now().Add(p.Limit))
	}
	if err != nil {
		o.fail(err)
	}
	return o
}

// openICMP opens a ping socket, which needs no right where the node allows it (net.ipv4.ping_group_range), or a raw one, which needs NET_RAW.
func openICMP(to netip.Addr) (net.PacketConn, net.Addr, error) {
	family, proto, raw, any := unix.AF_INET, unix.IPPROTO_ICMP, "ip4:icmp", "0.0.0.0"
	if to.Is6() {
		family, proto, raw, any = unix.AF_INET6, unix.IPPROTO_ICMPV6, "ip6:ipv6-icmp", "::"
	}
	if fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, proto); err == nil {
		f := os.NewFile(uintptr(fd), "icmp") //nolint:gosec // a file descriptor
		defer f.Close()
		conn, err := net.FilePacketConn(f)
		return conn, &net.UDPAddr{IP: to.AsSlice()}, err
	}
	conn, err := net.ListenPacket(raw, any)
	return conn, &net.IPAddr{IP: to.AsSlice()}, err
}

// pingUntil sends a request each resendAfter until one is answered. The payload has the probe's number and this process's: a raw socket
// also receives the answers to other programs.
func pingUntil(ctx context.Context, conn net.PacketConn, peer net.Addr, is6 bool, id int, deadline time.Time) error {
	payload := binary.BigEndian.AppendUint64(nil, uint64(os.Getpid())<<32|uint64(uint32(id)))  //nolint:gosec // any number that is different
	m := append([]byte{echoTypes[is6][0], 0, 0, 0, byte(id >> 8), byte(id), 0, 1}, payload...) //nolint:gosec // likewise
	if !is6 {
		binary.BigEndian.PutUint16(m[2:], checksum(m)) // in IPv6 it is the kernel's
	}
	buf := make([]byte, 1500)
	last := error(context.DeadlineExceeded)
	for time.Now().Before(deadline) && ctx.Err() == nil {
		until := time.Now().Add(min(resendAfter, time.Until(deadline)))
		if _, err := conn.WriteTo(m, peer); err != nil {
			last = err
			sleep(ctx, time.Until(until))
			continue
		}
		for {
			if err := conn.SetReadDeadline(until); err != nil {
				return err
			}
			n, _, err := conn.ReadFrom(buf)
			if err != nil {
				if !errors.Is(err, os.ErrDeadlineExceeded) {
					last = err
					sleep(ctx, time.Until(until))
				}
				break
			}
			if n >= len(m) && buf[0] == echoTypes[is6][1] && bytes.Equal(buf[8:len(m)], payload) {
				return nil
			}
		}
	}
	return last
}

// checksum is the Internet checksum (RFC 1071) of an even number of bytes.
func checksum(b []byte) uint16 {
	sum := uint32(0)
	for i := 0; i < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum) //nolint:gosec // folded
}
