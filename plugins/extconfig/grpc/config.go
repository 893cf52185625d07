package grpc

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"

	"github.com/contiv-agent/contiv-agent/httpserver"
)

// Name is the source's name; the source of a client called c is Name/c.
const Name = "grpc"

// MaxRequest is the largest size of a request, in bytes of protobuf: more than twice the size of 20,000 DNat44 with ten endpoints
// each.
const MaxRequest = 16 << 20

// Config configures the listeners and the trusted clients.
type Config struct {
	TCP  string // host:port; port 0: a free one; "": no TCP
	Unix string // path of a socket for the agent's user; "": none
	// TLS is for TCP; it should ask for certificates (LoadTLS does). nil: TCP is plaintext.
	TLS *tls.Config
	// Plaintext allows TCP without TLS beyond loopback.
	Plaintext bool
	File      string       // Bolt file with the clients' values; "": values do not survive the process
	Logger    *slog.Logger // nil: silent
}

// Validate returns every problem.
func (c *Config) Validate() error {
	var errs []error
	if c.TCP == "" && c.Unix == "" {
		errs = append(errs, errors.New("nowhere to listen: neither TCP nor a unix socket"))
	}
	if c.TCP == "" && c.TLS != nil {
		errs = append(errs, errors.New("TLS: no TCP address is configured"))
	}
	if c.TCP != "" {
		host, _, err := net.SplitHostPort(c.TCP)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("TCP %s: must be host:port: %w", c.TCP, err))
		case c.TLS == nil && !c.Plaintext && !loopback(host):
			errs = append(errs, fmt.Errorf("TCP %s: without certificates it must be a loopback address", c.TCP))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("grpc: %w", err)
	}
	return nil
}

func loopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}

// LoadTLS loads the server's side of mutual TLS from PEM files: its certificate and key, and the CA of the clients' certificates.
func LoadTLS(cert, key, ca string) (*tls.Config, error) {
	own, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	pool, err := httpserver.Authorities(ca)
	if err != nil {
		return nil, fmt.Errorf("certificates of clients: %w", err)
	}
	return &tls.Config{
		Certificates: []tls.Certificate{own}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12,
	}, nil
}
