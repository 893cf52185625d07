// Package guestbook is the programs of the pods of examples/guestbook: a web server that signs and reads a book by the Services of its
// databases, the databases, and a DNS server. Tests run them in network namespaces; interop/kube runs them as Pods.
//
// Invariant: a program needs nothing but its network: no file, and no other program but those it dials.
package guestbook

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Roles are the programs' names.
var Roles = []string{"frontend", "leader", "follower", "dns", "web", "pause", "get", "ask"}

// Run is the program of a pod of that name; servers end only by failing, and pause by SIGTERM. The role dns has NAME=ADDRESS as arguments; web, which is outside
// of the cluster, the address it listens at; get the URL of a page, and ask the address of a database and what to ask: both write the answer.
func Run(name, role string, args []string) error {
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
		return ServeDNS(":53", zone(args).find)
	case "pause":
		asked := make(chan os.Signal, 1)
		signal.Notify(asked, syscall.SIGTERM, os.Interrupt)
		<-asked
		return nil
	case "get", "ask":
		if len(args) == 0 {
			return fmt.Errorf("%s: of whom?", role)
		}
		text, err := request(role, args[0], strings.Join(args[1:], " "))
		if err == nil {
			_, err = fmt.Println(strings.TrimSpace(text))
		}
		return err
	case "web":
		return http.ListenAndServe(args[0], http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			host, _, _ := net.SplitHostPort(r.RemoteAddr)
			fmt.Fprintf(w, "%s sees %s", name, host)
		}))
	}
	return fmt.Errorf("no such role: %s", role)
}

// requestLimit is how long a client waits for an answer.
const requestLimit = 3 * time.Second

// request asks a web server for a page, or a database a line.
func request(role, to, line string) (string, error) {
	if role == "ask" {
		conn, err := net.DialTimeout("tcp", to, requestLimit)
		if err != nil {
			return "", err
		}
		defer conn.Close()
		lines, err := Command(conn, line)
		return strings.Join(lines, "\n"), err
	}
	client := http.Client{Timeout: requestLimit}
	resp, err := client.Get(to)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, text)
	}
	return string(text), err
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
	for ; ctx.Err() == nil; sleep(ctx, 200*time.Millisecond) {
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

// ClusterDNS is where pods ask for names.
const ClusterDNS = "10.96.0.10:53"

// dialName asks the cluster's DNS, by UDP, and dials.
func dialName(ctx context.Context, name, port string) (net.Conn, error) {
	d := net.Dialer{Timeout: 5 * time.Second}
	addr, err := Lookup(ctx, func() (net.Conn, error) { return d.DialContext(ctx, "udp", ClusterDNS) }, name)
	if err != nil {
		return nil, err
	}
	return d.DialContext(ctx, "tcp", net.JoinHostPort(addr, port))
}

// Lookup asks the server at the other end of dial's connections for a name's IPv4 address.
func Lookup(ctx context.Context, dial func() (net.Conn, error), name string) (string, error) {
	r := net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) { return dial() }}
	addrs, err := r.LookupNetIP(ctx, "ip4", name+".")
	if err != nil {
		return "", err
	}
	return addrs[0].Unmap().String(), nil
}

// Command asks one line of a database and returns the answer, to the dot if there is one.
func Command(conn net.Conn, line string) ([]string, error) {
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
			if lines, err = Command(conn, line); err == nil {
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

// sleep waits, or until the context ends.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
