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

	"github.com/contiv-agent/contiv-agent/calico/wire"
	"github.com/contiv-agent/contiv-agent/httpserver"
)

// Config names the servers to follow and this client.
type Config struct {
	// Addrs are servers as host:port, tried in random order. Without a port it is wire.Port.
	Addrs []string
	// Service is "namespace/name" of the servers' Kubernetes Service, or a DNS name. Its addresses are looked up before
	// each round of attempts: as <name>.<namespace>.svc, or else from the environment that the kubelet gives to pods.
	Service string
	// Discover returns servers as host:port, the preferred one first, before each round of attempts. nil: Addrs and Service
	// are used.
	Discover func(context.Context) ([]string, error)
	TLS      TLS
	// Insecure permits servers beyond loopback without TLS. Anyone on the path can then forge policies and Services.
	Insecure bool
	Hostname string // this client's name, for the server's log
	Version  string // this client's version, for the server's log
	Logger   *slog.Logger
	// Dial connects to a server; nil: TCP.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	// Plain disables compression.
	Plain bool
	// Time limits. Zero means the values of Felix v3.31: 10 s to connect and for each step of the hello, 10 s to write, 30
	// s of silence (servers ping every 10 s), and 250 ms to 30 s between rounds of attempts.
	DialWithin, HelloWithin, WriteWithin, SilentFor, PauseFrom, PauseTo time.Duration

	lookupHost func(context.Context, string) ([]string, error) // nil: the system's resolver
}

// TLS names certificates and the expected peer; the zero value means no TLS. Files are read anew for each connection.
type TLS struct {
	Cert, Key string // this client's, in PEM
	CA        string // authority of the servers' certificates
	Server    wire.Peer
}

func (t TLS) off() bool { return t == TLS{} }

// config reads the files. It does not check the server's host name: the certificate must have the right authority and the
// configured common name or URI.
func (t TLS) config() (*tls.Config, error) {
	cert, err := tls.LoadX509KeyPair(t.Cert, t.Key)
	if err != nil {
		return nil, fmt.Errorf("certificate and key: %w", err)
	}
	pool, err := httpserver.Authorities(t.CA)
	if err != nil {
		return nil, fmt.Errorf("certificate authority: %w", err)
	}
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		Certificates:       []tls.Certificate{cert},
		InsecureSkipVerify: true, // skips the host name only: VerifyConnection verifies the chain
		VerifyConnection:   t.Server.Verify(pool),
	}, nil
}

// Validate returns all problems of the configuration.
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
		// Clients have certificates of the same authority, and any of them could pose as a server.
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

// ErrPlaintext means that the configuration would follow a server on another machine without TLS.
var ErrPlaintext = errors.New("the server is not on loopback and the connection is not encrypted")

// checkPlaintext returns ErrPlaintext for the first server that would be followed without TLS though it is on another
// machine. If Dial is set, its security is up to the caller.
func (c *Config) checkPlaintext() error {
	if !c.TLS.off() || c.Insecure || c.Dial != nil {
		return nil
	}
	for _, a := range c.Addrs {
		if host, _, err := net.SplitHostPort(withPort(a)); err == nil && a != "" && !httpserver.LoopbackHost(host) {
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

// withPort adds the default port to an address that has none.
func withPort(addr string) string {
	if _, _, err := net.SplitHostPort(addr); err == nil {
		return addr
	}
	return net.JoinHostPort(strings.Trim(addr, "[]"), strconv.Itoa(wire.Port))
}
