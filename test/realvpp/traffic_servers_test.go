package realvpp

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// serveTraffic starts a server's program in its namespace: TCP and UDP at both ports, for the flows of the round that is.
func (w *traffic) serveTraffic(at *netns) (err error) {
	for _, n := range []int{servedPort, highPort} {
		var l net.Listener
		var u net.PacketConn
		at.do(func() {
			if l, err = net.Listen("tcp", fmt.Sprintf(":%d", n)); err == nil {
				u, err = net.ListenPacket("udp", fmt.Sprintf(":%d", n))
			}
		})
		if err != nil {
			return err
		}
		w.t.Cleanup(func() { l.Close(); u.Close() })
		go w.accept(l)
		go w.datagrams(u)
	}
	return nil
}

func (w *traffic) accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			var m message
			for {
				if _, err := io.ReadFull(c, m[:]); err != nil {
					return
				}
				r, f := w.flow(m)
				if f == nil {
					return
				}
				f.hear(taken, r.now(), m[:])
				var err error
				switch {
				case f.kind.server && f.kind.client:
					_, err = c.Write(m[:])
				case f.kind.server:
					context.AfterFunc(r.ctx, func() { c.Close() })
					go func() { _, _ = io.Copy(io.Discard, c) }()
					f.push(r, func(b []byte) error { _, err := c.Write(b); return err })
					return
				}
				if err != nil {
					return
				}
			}
		}()
	}
}

// push sends messages to the client until the round ends.
func (f *flow) push(r *round, write func([]byte) error) {
	for n := 0; r.ctx.Err() == nil; n++ {
		f.saw(sent, r.now())
		if err := write(newMessage(f, n)); err != nil && f.kind.protocol == unix.IPPROTO_TCP {
			if r.ctx.Err() == nil {
				f.fail(err)
			}
			return
		}
		wait(r.ctx, interval)
	}
}

func (w *traffic) datagrams(u net.PacketConn) {
	var m message
	for {
		n, from, err := u.ReadFrom(m[:])
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil || n != len(m):
			continue
		}
		r, f := w.flow(m)
		if f == nil {
			continue
		}
		f.hear(taken, r.now(), m[:])
		switch {
		case f.kind.server && f.kind.client:
			_, _ = u.WriteTo(m[:], from) // the client misses the answer
		case f.kind.server && r.startPush(f):
			go f.push(r, func(b []byte) error { _, err := u.WriteTo(b, from); return err })
		}
	}
}

// flow is the flow of the round whose message this is; nil: it is of an earlier round.
func (w *traffic) flow(m message) (*round, *flow) {
	r := w.now.Load()
	if r == nil {
		return nil, nil
	}
	id := binary.BigEndian.Uint32(m[:]) - r.first
	if int(id) >= len(r.flows) {
		return r, nil
	}
	return r, r.flows[id]
}

// arrived counts a packet at the interface of a pod.
func (w *traffic) arrived(b []byte, atServer bool) {
	r := w.now.Load()
	p, ok := parse(b)
	if r == nil || !ok {
		return
	}
	h, client := toClient, netip.AddrPortFrom(p.dst, p.dstPort)
	if atServer {
		h, client = toServer, netip.AddrPortFrom(p.src, p.srcPort)
	}
	if (p.protocol == unix.IPPROTO_ICMP || p.protocol == unix.IPPROTO_ICMPV6) && p.request != atServer {
		return
	}
	if f := r.at(client, p.protocol); f != nil {
		f.saw(h, r.now())
	}
}
