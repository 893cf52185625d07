package probe

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Server is the other end of probes: it answers on TCP and UDP ports of all addresses, with its name and the client's address.
//
// A TCP client sends lines, each a number and then so many bytes; the answer to each is a line with name, client's address and number, and then the
// same bytes. A UDP client sends any datagram; the answer has the same length and begins with such a line.
type Server struct {
	Name  string
	Ports []int
}

// idle is how long a server keeps a TCP connection without a request.
const idle = time.Minute

// maxEcho bounds the bytes that a client may ask for in one line.
const maxEcho = 16 << 20

// Serve answers until the context ends. It returns an error if a port cannot be opened.
func (s *Server) Serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var serving sync.WaitGroup
	defer serving.Wait()
	defer cancel()
	for _, port := range s.Ports {
		var open net.ListenConfig
		l, err := open.Listen(ctx, "tcp", net.JoinHostPort("", strconv.Itoa(port)))
		if err != nil {
			return err
		}
		context.AfterFunc(ctx, func() { _ = l.Close() })
		serving.Go(func() { s.accept(ctx, l, &serving) })
		if err := s.openUDP(ctx, port, &serving); err != nil {
			return err
		}
	}
	<-ctx.Done()
	return nil
}

func (s *Server) accept(ctx context.Context, l net.Listener, serving *sync.WaitGroup) {
	for {
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			sleep(ctx, 10*time.Millisecond) // too many open files
			continue
		}
		stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
		serving.Go(func() {
			defer stop()
			defer conn.Close()
			_ = s.answerLines(conn) // the client sees the end
		})
	}
}

// answerLines answers the lines of one connection.
func (s *Server) answerLines(conn net.Conn) error {
	in := bufio.NewReader(conn)
	for {
		if err := conn.SetDeadline(time.Now().Add(idle)); err != nil {
			return err
		}
		line, err := in.ReadString('\n')
		if err != nil {
			return err
		}
		n, err := strconv.Atoi(strings.TrimSpace(line))
		if err != nil || n < 0 || n > maxEcho {
			return fmt.Errorf("%q: want a number up to %d", line, maxEcho)
		}
		if _, err := fmt.Fprintf(conn, "%s %s %d\n", s.Name, addressOf(conn.RemoteAddr()), n); err != nil {
			return err
		}
		if _, err := io.CopyN(conn, in, int64(n)); err != nil {
			return err
		}
	}
}

// addressOf returns the IP address of a socket's address.
func addressOf(a net.Addr) string {
	at, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return a.String()
	}
	return at.Addr().Unmap().WithZone("").String()
}

// openUDP opens a port of both families; a node may have one only. Each family has a separate socket: an answer must leave from the address that was
// asked, which each packet names on a node with several addresses.
func (s *Server) openUDP(ctx context.Context, port int, serving *sync.WaitGroup) error {
	opened := 0
	var failed error
	for _, network := range []string{"udp4", "udp6"} {
		open := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error { return setOptions(c, datagramOptions(network, true)) }}
		pc, err := open.ListenPacket(ctx, network, net.JoinHostPort("", strconv.Itoa(port)))
		if errors.Is(err, syscall.EADDRINUSE) {
			return err
		}
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		opened++
		conn := pc.(*net.UDPConn)
		context.AfterFunc(ctx, func() { _ = conn.Close() })
		serving.Go(func() { s.answerDatagrams(ctx, conn) })
	}
	if opened == 0 {
		return failed
	}
	return nil
}

func (s *Server) answerDatagrams(ctx context.Context, conn *net.UDPConn) {
	buf, oob := make([]byte, 1<<16), make([]byte, 256)
	for ctx.Err() == nil {
		n, m, _, from, err := conn.ReadMsgUDPAddrPort(buf, oob)
		if err != nil {
			sleep(ctx, time.Millisecond) // an ICMP error of an earlier answer, or the end
			continue
		}
		text := fmt.Appendf(nil, "%s %s %d\n", s.Name, from.Addr().Unmap().WithZone(""), n)
		answer := buf[:max(n, len(text))]
		copy(answer, text)
		_, _, _ = conn.WriteMsgUDPAddrPort(answer, answerFrom(oob[:m]), from) // a client without an answer asks again
	}
}
