package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"
)

// resendAfter is when an unanswered datagram is sent again.
const resendAfter = 400 * time.Millisecond

// openDatagram opens a UDP socket to the target, whose datagrams no hop may fragment.
func (p *Probe) openDatagram(ctx context.Context) (*net.UDPConn, error) {
	d := net.Dialer{Control: func(network, _ string, c syscall.RawConn) error {
		return setOptions(c, datagramOptions(network, false))
	}}
	conn, err := d.DialContext(ctx, "udp", p.To)
	if err != nil {
		return nil, err
	}
	return conn.(*net.UDPConn), nil
}

// sendDatagram sends a datagram, and sends it again until there is an answer. A refusal (an ICMP error) is tried again: the Service may be new.
func (p *Probe) sendDatagram(ctx context.Context) (o Outcome) {
	conn, err := p.openDatagram(ctx)
	if err != nil {
		o.fail(err)
		return o
	}
	defer conn.Close()
	a, err := exchangeDatagram(ctx, conn, 64, time.Now().Add(p.Limit), resendAfter)
	if err != nil {
		o.fail(err)
		return o
	}
	o.Answers = []Answer{a}
	return o
}

// exchangeDatagram sends datagrams with so many bytes until one is answered by as many.
func exchangeDatagram(ctx context.Context, conn *net.UDPConn, size int, deadline time.Time, resend time.Duration) (Answer, error) {
	buf := make([]byte, 1<<16)
	last := error(context.DeadlineExceeded)
	for time.Now().Before(deadline) && ctx.Err() == nil {
		until := time.Now().Add(min(resend, time.Until(deadline)))
		if _, err := conn.Write(make([]byte, size)); errors.Is(err, syscall.EMSGSIZE) {
			return Answer{}, err
		} else if err != nil {
			last = err
			sleep(ctx, time.Until(until))
			continue
		}
		for {
			if err := conn.SetReadDeadline(until); err != nil {
				return Answer{}, err
			}
			n, err := conn.Read(buf)
			if err != nil {
				if symptomOf(err) != Silence {
					last = err
					sleep(ctx, time.Until(until))
				}
				break
			}
			if n >= size { // not the late answer to a smaller one
				return parseAnswer(string(buf[:n][:max(0, indexLine(buf[:n]))]))
			}
		}
	}
	return Answer{}, last
}

// indexLine returns the length of the first line; -1: there is none.
func indexLine(b []byte) int {
	for i, c := range b {
		if c == '\n' {
			return i
		}
	}
	return -1
}

// Sizes of headers, and the least packet that every link of IPv4 carries.
const (
	header4, header6, headerUDP = 20, 40, 8
	leastPacket                 = 576
	largestPacket               = 65535
)

// measureMTU sends datagrams of the link's full size. If they are lost it looks for the largest size that passes.
func (p *Probe) measureMTU(ctx context.Context) (o Outcome) {
	conn, err := p.openDatagram(ctx)
	if err == nil {
		defer conn.Close()
		o.MTU, err = linkMTU(conn.LocalAddr())
	}
	if err != nil {
		o.fail(err)
		return o
	}
	overhead := header4 + headerUDP
	if local, err := netip.ParseAddrPort(conn.LocalAddr().String()); err == nil && local.Addr().Is6() && !local.Addr().Is4In6() {
		overhead = header6 + headerUDP
	}
	passes := func(packet int, limit time.Duration) bool {
		_, err = exchangeDatagram(ctx, conn, packet-overhead, time.Now().Add(limit), limit/3)
		return err == nil
	}
	if passes(o.MTU, p.Limit) {
		o.Passes = o.MTU
		return o
	}
	full := err
	const quick = 600 * time.Millisecond
	if passes(leastPacket, p.Limit) {
		low, high := leastPacket, o.MTU // low passes, high does not
		for high-low > 1 {
			if middle := (low + high) / 2; passes(middle, quick) {
				low = middle
			} else {
				high = middle
			}
		}
		o.Passes = low
	}
	o.fail(fmt.Errorf("packets of %d bytes: %w", o.MTU, full))
	return o
}

// linkMTU returns the MTU of the link with an address.
func linkMTU(local net.Addr) (int, error) {
	at, err := netip.ParseAddrPort(local.String())
	if err != nil {
		return 0, err
	}
	links, err := net.Interfaces()
	if err != nil {
		return 0, err
	}
	for _, l := range links {
		addrs, err := l.Addrs()
		if err != nil {
			return 0, err
		}
		for _, a := range addrs {
			if prefix, err := netip.ParsePrefix(a.String()); err == nil && prefix.Addr() == at.Addr().Unmap() {
				return min(l.MTU, largestPacket), nil
			}
		}
	}
	return 0, fmt.Errorf("no link has the address %s", at.Addr())
}
