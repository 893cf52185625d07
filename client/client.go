package client

import (
	"crypto/tls"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/contiv-agent/contiv-agent/httpserver"
)

// Config names the agent to call and this client.
type Config struct {
	// Addr is host:port, or unix: and the path of a socket.
	Addr string
	// TLS is for TCP; LoadTLS makes one from PEM files. nil: plaintext, which agents accept on loopback only, unless
	// configured otherwise.
	TLS *tls.Config
	// Name distinguishes this client from others with the same certificate, or without one. Each name is a separate owner:
	// its DataResync leaves other owners' items alone. "" is a valid owner. The name must not contain a slash.
	Name string
}

// maxAnswer bounds an answer, in bytes; the largest is the whole configuration.
const maxAnswer = 256 << 20

// Client calls an agent's configuration API. It is safe for concurrent use.
type Client struct {
	conn *grpc.ClientConn
	name string
}

// New returns a client. It connects on the first call and reconnects when needed. Call Close at the end.
func New(cfg Config) (*Client, error) {
	switch {
	case cfg.Addr == "":
		return nil, errors.New("client: addr: is missing")
	case strings.Contains(cfg.Name, "/"):
		return nil, fmt.Errorf("client: name %q: must not have a slash", cfg.Name)
	case cfg.TLS != nil && strings.HasPrefix(cfg.Addr, "unix:"):
		return nil, fmt.Errorf("client: %s: TLS is for TCP addresses only", cfg.Addr)
	}
	creds := insecure.NewCredentials()
	if cfg.TLS != nil {
		creds = credentials.NewTLS(cfg.TLS.Clone())
	}
	addr := cfg.Addr
	if !strings.HasPrefix(addr, "unix:") {
		addr = "passthrough:///" + addr // as net.Dial takes it
	}
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(creds), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)))
	if err != nil {
		return nil, fmt.Errorf("client: %s: %w", cfg.Addr, err)
	}
	return &Client{conn: conn, name: cfg.Name}, nil
}

// Close ends the connection. The configuration stays.
func (c *Client) Close() error { return c.conn.Close() }

// LoadTLS returns the client's configuration for mutual TLS from PEM files: its certificate and key, and the authority of
// the agent's certificate.
func LoadTLS(cert, key, ca string) (*tls.Config, error) {
	own, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("client: certificate: %w", err)
	}
	pool, err := httpserver.Authorities(ca)
	if err != nil {
		return nil, fmt.Errorf("client: certificate authority: %w", err)
	}
	return &tls.Config{Certificates: []tls.Certificate{own}, RootCAs: pool, MinVersion: tls.VersionTLS12}, nil
}
