package typha

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/contiv-agent/contiv-agent/fanout/wire"
	"github.com/contiv-agent/contiv-agent/serve"
)

// Config says which servers to follow, and as whom.
type Config struct {
	// Addrs are servers as host:port (the port may be left out: wire.Port), tried in random order.
	Addrs []string
	// Service is "namespace/name" of a Kubernetes Service in front of the servers, or a DNS name. Its addresses are looked up
	// before each round of attempts: as <name>.<namespace>.svc, or else from the environment the kubelet gives to pods.
	Service string
	// Discover finds servers (host:port), the best first, before each round of attempts; nil: Addrs and Service are used.
	Discover func(context.Context) ([]string, error)
	TLS      TLS
	// Insecure follows servers that are not on loopback without TLS: whoever is between can then write policies and Services.
	Insecure bool
	Hostname string // what we call ourselves; servers log it
	Version  string // ours; servers log it
	Logger   *slog.Logger
	// Dial makes a connection; nil: TCP.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	// Plain does without compression.
	Plain bool
	// Times; zero is what Felix v3.31 takes: 10 s to connect and for each step of the hello, 10 s to write, 30 s for which the
	// server may be silent (it pings every 10 s), and 250 ms to 30 s between rounds of attempts.
	DialWithin, HelloWithin, WriteWithin, SilentFor, PauseFrom, PauseTo time.Duration

	lookupHost func(context.Context, string) ([]string, error) // nil: the system's resolver
}

// TLS is what connections are secured with; the zero value is not at all. Files are read for each connection.
type TLS struct {
	Cert, Key string // ours, in PEM
	CA        string // who vouches for servers
	Server    wire.Peer
}

func (t TLS) off() bool { return t == TLS{} }

// config reads the files. The server's name plays no part: its certificate has to be of our authority and of the right peer.
func (t TLS) config() (*tls.Config, error) {
	cert, err := tls.LoadX509KeyPair(t.Cert, t.Key)
	if err != nil {
		return nil, fmt.Errorf("certificate and key: %w", err)
	}
	pool, err := serve.Authorities(t.CA)
	if err != nil {
		return nil, fmt.Errorf("certificate authority: %w", err)
	}
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		Certificates:       []tls.Certificate{cert},
		InsecureSkipVerify: true, // of the name: VerifyConnection verifies the chain
		VerifyConnection:   t.Server.Verify(pool),
	}, nil
}

// Validate reports everything wrong with the configuration.
func (c *Config) Validate() error {
	var errs []error
	if c.Insecure && !c.TLS.off() {
		errs = append(errs, errors.New("typha: Insecure contradicts TLS"))
	}
	if len(c.Addrs) == 0 && c.Service == "" && c.Discover == nil {
		errs = append(errs, errors.New("typha: no address and no service given"))
	}
	for _, a := range c.Addrs {
		if _, port, err := net.SplitHostPort(withPort(a)); err != nil || a == "" {
			errs = append(errs, fmt.Errorf("typha: address %q: must be host:port", a))
		} else if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			errs = append(errs, fmt.Errorf("typha: address %q: the port must be 1 to 65535", a))
		}
	}
	errs = append(errs, c.checkPlaintext())
	if t := c.TLS; !t.off() && (t.Cert == "" || t.Key == "" || t.CA == "") {
		errs = append(errs, errors.New("typha: TLS needs a certificate, its key and a certificate authority"))
	} else if !t.off() && t.Server == (wire.Peer{}) {
		// Clients have certificates of the same authority, and any of them could pass for a server.
		errs = append(errs, errors.New("typha: TLS needs the common name or the URI of servers"))
	} else if !t.off() {
		if _, err := t.config(); err != nil {
			errs = append(errs, fmt.Errorf("typha: TLS: %w", err))
		}
	}
	for _, d := range []time.Duration{c.DialWithin, c.HelloWithin, c.WriteWithin, c.SilentFor, c.PauseFrom, c.PauseTo} {
		if d < 0 {
			errs = append(errs, errors.New("typha: times must not be negative"))
			break
		}
	}
	return errors.Join(errs...)
}

// ErrPlaintext says that a server beyond this machine would be followed without TLS.
var ErrPlaintext = errors.New("the server is not on loopback and the connection is not encrypted")

// checkPlaintext names the first server that would be followed without TLS, though it is not on this machine. A Dial in place of TCP is the
// caller's.
func (c *Config) checkPlaintext() error {
	if !c.TLS.off() || c.Insecure || c.Dial != nil {
		return nil
	}
	for _, a := range c.Addrs {
		if host, _, err := net.SplitHostPort(withPort(a)); err == nil && a != "" && !serve.LoopbackHost(host) {
			return fmt.Errorf("typha: address %q: %w", a, ErrPlaintext)
		}
	}
	if c.Service != "" || c.Discover != nil {
		return fmt.Errorf("typha: servers behind Service %q: %w", c.Service, ErrPlaintext)
	}
	return nil
}

func (c *Config) defaults() {
	for _, d := range []struct {
		to  *time.Duration
		def time.Duration
	}{
		{&c.DialWithin, 10 * time.Second},
		{&c.HelloWithin, 10 * time.Second},
		{&c.WriteWithin, 10 * time.Second},
		{&c.SilentFor, 30 * time.Second},
		{&c.PauseFrom, 250 * time.Millisecond},
		{&c.PauseTo, 30 * time.Second},
	} {
		if *d.to == 0 {
			*d.to = d.def
		}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Dial == nil {
		within := c.DialWithin
		c.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
			return (&net.Dialer{Timeout: within}).DialContext(ctx, "tcp", addr)
		}
	}
	if c.lookupHost == nil {
		c.lookupHost = net.DefaultResolver.LookupHost
	}
	if c.Hostname == "" {
		c.Hostname, _ = os.Hostname()
	}
}

// withPort adds the usual port to an address that has none.
func withPort(addr string) string {
	if _, _, err := net.SplitHostPort(addr); err == nil {
		return addr
	}
	return net.JoinHostPort(strings.Trim(addr, "[]"), strconv.Itoa(wire.Port))
}
