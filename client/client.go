package client

import (
	"crypto/tls"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/contiv-agent/contiv-agent/serve"
)

// Config says whom to call, and who calls.
type Config struct {
	// Addr is host:port, or unix: and the path of a socket.
	Addr string
	// TLS is for TCP; LoadTLS makes one of PEM files. nil: plaintext, which agents take on loopback only unless told otherwise.
	TLS *tls.Config
	// Name tells this client from others with the same certificate, or without one: what one wants is its own, and its DataResync
	// leaves the others alone. "": the client without a name. It has no slash.
	Name string
}

// maxAnswer is how long an answer may be, in bytes: everything that is configured, say.
const maxAnswer = 256 << 20

// Client calls an agent. It is safe for concurrent use.
type Client struct {
	conn *grpc.ClientConn
	name string
}

// New returns a client; it connects when it is used, and again when it has to. Close it.
func New(cfg Config) (*Client, error) {
	switch {
	case cfg.Addr == "":
		return nil, errors.New("client: no address")
	case strings.Contains(cfg.Name, "/"):
		return nil, fmt.Errorf("client: name %q: must not have a slash", cfg.Name)
	case cfg.TLS != nil && strings.HasPrefix(cfg.Addr, "unix:"):
		return nil, fmt.Errorf("client: %s: certificates are for TCP", cfg.Addr)
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

// Close ends the connection. What is wanted stays wanted.
func (c *Client) Close() error { return c.conn.Close() }

// LoadTLS is the client's side of mutual TLS from PEM files: its certificate and key, and who signs the agent's.
func LoadTLS(cert, key, ca string) (*tls.Config, error) {
	own, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("client: certificate: %w", err)
	}
	pool, err := serve.Authorities(ca)
	if err != nil {
		return nil, fmt.Errorf("client: certificates of agents: %w", err)
	}
	return &tls.Config{Certificates: []tls.Certificate{own}, RootCAs: pool, MinVersion: tls.VersionTLS12}, nil
}
