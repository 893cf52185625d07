package realvpp

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// guestbookRole makes the test binary one of the guestbook's programs: NAME ROLE [ARGUMENTS].
const guestbookRole = "CONTIV_GUESTBOOK"

func TestMain(m *testing.M) {
	if role := strings.Fields(os.Getenv(guestbookRole)); len(role) > 1 {
		err := guestbook(role[0], role[1], role[2:])
		fmt.Fprintln(os.Stderr, role[0], err)
		os.Exit(1)
	}
	var err error
	if programs, err = os.MkdirTemp("", "realvpp"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(programs)
	os.Exit(code)
}

// guestbook is the program of a pod; it ends only by failing.
func guestbook(name, role string, args []string) error {
	switch role {
	case "frontend":
		return http.ListenAndServe(":8080", frontend{name})
	case "leader":
		return serveLines(":6379", (&book{name: name}).serve)
	case "follower":
		b := &book{name: name}
		go b.follow(context.Background())
		return serveLines(":6379", b.serve)
	case "dns":
		return zone(args).serve(":53")
	case "web": // outside: it returns their address to its callers
		return http.ListenAndServe(args[0], http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			host, _, _ := net.SplitHostPort(r.RemoteAddr)
			fmt.Fprintf(w, "%s sees %s", name, host)
		}))
	}
	return fmt.Errorf("no such role: %s", role)
}

// serveLines answers each line of each connection.
func serveLines(addr string, answer func(conn net.Conn, line string) error) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	return acceptLines(l, answer)
}

func acceptLines(l net.Listener, answer func(conn net.Conn, line string) error) error {
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer conn.Close()
			for in := bufio.NewScanner(conn); in.Scan(); {
				if answer(conn, in.Text()) != nil {
					return
				}
			}
		}()
	}
}

// book is a database of lines. A follower has what its leader has.
type book struct {
	name string

	mu    sync.Mutex
	lines []string
	moved chan struct{} // closed when there is another line
}

// serve knows PING, PUSH text, LIST (the lines and then a dot), and FOLLOW (all lines there are and come).
func (b *book) serve(conn net.Conn, line string) error {
	command, rest, _ := strings.Cut(line, " ")
	switch command {
	case "PING":
		_, err := fmt.Fprintln(conn, "PONG", b.name)
		return err
	case "PUSH":
		b.push(rest)
		_, err := fmt.Fprintln(conn, "OK", b.name)
		return err
	case "LIST":
		lines, _ := b.after(0)
		_, err := fmt.Fprintln(conn, strings.Join(append(slices.Clone(lines), "."), "\n"))
		return err
	case "FOLLOW":
		for n := 0; ; {
			lines, moved := b.after(n)
			for _, l := range lines {
				if _, err := fmt.Fprintln(conn, l); err != nil {
					return err
				}
			}
			n += len(lines)
			<-moved
		}
	}
	return fmt.Errorf("unknown command %s", command)
}

func (b *book) push(line string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines = append(b.lines, line)
	if b.moved != nil {
		close(b.moved)
		b.moved = nil
	}
}

// after are the lines from the nth on; moved is closed when there are more.
func (b *book) after(n int) (lines []string, moved chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.moved == nil {
		b.moved = make(chan struct{})
	}
	return b.lines[n:], b.moved
}

// follow copies the leader's lines, and begins again whenever that ends.
func (b *book) follow(ctx context.Context) {
	for ; ctx.Err() == nil; wait(ctx, 200*time.Millisecond) {
		conn, err := dialName(ctx, "redis-leader.guestbook.svc.cluster.local", "6379")
		if err != nil {
			continue
		}
		b.copyFrom(conn)
		conn.Close()
	}
}

func (b *book) copyFrom(conn net.Conn) {
	if _, err := fmt.Fprintln(conn, "FOLLOW"); err != nil {
		return
	}
	n := 0
	for in := bufio.NewScanner(conn); in.Scan(); n++ {
		if have, _ := b.after(0); n >= len(have) {
			b.push(in.Text())
		}
	}
}

// clusterDNS is where pods ask for names.
const clusterDNS = "10.96.0.10:53"

// dialName asks the cluster's DNS, by UDP, and dials.
func dialName(ctx context.Context, name, port string) (net.Conn, error) {
	d := net.Dialer{Timeout: 5 * time.Second}
	addr, err := lookup(ctx, func() (net.Conn, error) { return d.DialContext(ctx, "udp", clusterDNS) }, name)
	if err != nil {
		return nil, err
	}
	return d.DialContext(ctx, "tcp", net.JoinHostPort(addr, port))
}

// lookup asks the server at the other end of dial's connections.
func lookup(ctx context.Context, dial func() (net.Conn, error), name string) (string, error) {
	r := net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) { return dial() }}
	addrs, err := r.LookupNetIP(ctx, "ip4", name+".")
	if err != nil {
		return "", err
	}
	return addrs[0].Unmap().String(), nil
}

// command asks one line of a database and returns the answer, to the dot if there is one.
func command(conn net.Conn, line string) ([]string, error) {
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second)) // a connection has deadlines
	if _, err := fmt.Fprintln(conn, line); err != nil {
		return nil, err
	}
	var out []string
	in := bufio.NewScanner(conn)
	for in.Scan() {
		if in.Text() == "." {
			return out, nil
		}
		if out = append(out, in.Text()); line != "LIST" {
			return out, nil
		}
	}
	return nil, errors.Join(io.ErrUnexpectedEOF, in.Err())
}

// frontend is the web server: / returns its name and its client's address, POST /sign writes, /book reads.
type frontend struct{ name string }

func (f frontend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ask := func(service, line string) {
		conn, err := dialName(r.Context(), service+".guestbook.svc.cluster.local", "6379")
		if err == nil {
			var lines []string
			if lines, err = command(conn, line); err == nil {
				fmt.Fprintln(w, strings.Join(lines, "\n"))
			}
			conn.Close()
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
		}
	}
	switch r.URL.Path {
	case "/":
		host, _, _ := net.SplitHostPort(r.RemoteAddr)
		fmt.Fprintf(w, "%s sees %s", f.name, host)
	case "/sign":
		ask("redis-leader", "PUSH "+r.FormValue("entry"))
	case "/book":
		ask("redis-follower", "LIST")
	default:
		http.NotFound(w, r)
	}
}

// zone answers questions for IPv4 addresses: NAME=ADDRESS.
type zone []string

// serve answers by UDP and TCP.
func (z zone) serve(addr string) error {
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
			go z.stream(conn)
		}
	}()
	for buf := make([]byte, 4096); ; {
		n, from, err := u.ReadFrom(buf)
		if err != nil {
			return err
		}
		if reply := z.reply(buf[:n]); reply != nil {
			_, _ = u.WriteTo(reply, from) // who gets no answer asks again
		}
	}
}

func (z zone) stream(conn net.Conn) {
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
		reply := z.reply(q)
		if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(reply))), reply...)); err != nil {
			return
		}
	}
}

// reply is that to one question (RFC 1035); nil: it is none.
func (z zone) reply(q []byte) []byte {
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
	const a = 1
	for _, entry := range z {
		have, text, _ := strings.Cut(entry, "=")
		if !strings.EqualFold(have+".", name) {
			continue
		}
		if addr, err := netip.ParseAddr(text); err == nil && kind == a {
			out[7] = 1
			out = append(append(out, 0xc0, header, 0, a, 0, 1, 0, 0, 0, 5, 0, 4), addr.AsSlice()...)
		}
		return out
	}
	out[3] |= 3 // no such name
	return out
}

// TestGuestbookPrograms: they do without VPP what the demonstration asks of them.
func TestGuestbookPrograms(t *testing.T) {
	z := zone{"redis-leader.guestbook.svc.cluster.local=10.96.0.20"}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
			go z.stream(conn)
		}
	}()
	ask := func() (net.Conn, error) { return net.Dial("tcp", l.Addr().String()) }
	if addr, err := lookup(t.Context(), ask, "redis-leader.guestbook.svc.cluster.local"); err != nil || addr != "10.96.0.20" {
		t.Errorf("the name is %s, %v", addr, err)
	}
	if addr, err := lookup(t.Context(), ask, "nobody.guestbook.svc.cluster.local"); err == nil {
		t.Errorf("a name that nobody has is %s", addr)
	}
	leader, follower := &book{name: "leader"}, &book{name: "follower"}
	books, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer books.Close()
	go func() { _ = acceptLines(books, leader.serve) }() // until it is closed
	dial := func() net.Conn {
		conn, err := net.Dial("tcp", books.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	source := dial()
	go follower.copyFrom(source)
	conn := dial()
	for _, k := range [][2]string{{"PING", "PONG leader"}, {"PUSH one two", "OK leader"}, {"PUSH three", "OK leader"}, {"LIST", "one two|three"}} {
		if got, err := command(conn, k[0]); err != nil || strings.Join(got, "|") != k[1] {
			t.Errorf("%s: %q, %v", k[0], got, err)
		}
	}
	for {
		lines, moved := follower.after(0)
		if len(lines) == 2 {
			break
		}
		<-moved
	}
	if lines, _ := follower.after(0); strings.Join(lines, "|") != "one two|three" {
		t.Errorf("the follower has %q", lines)
	}
}
