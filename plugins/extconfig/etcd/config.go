package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/contiv-agent/contiv-agent/httpserver"
)

// Name is the source's name.
const Name = "etcd"

// DefaultPrefix is the prefix of ligato's and Contiv's keys.
const DefaultPrefix = "/vnf-agent/"

// MaxValue is the largest length of a value, in bytes of JSON. An etcd with its default configuration takes requests of 1.5 MiB.
const MaxValue = 2 << 20

// Config locates the etcd and this node's keys in it.
type Config struct {
	// Endpoints are the members of one cluster: host:port, or URLs with http or https. At least one.
	Endpoints []string
	Prefix    string // prefix of all agents' keys; "": DefaultPrefix
	Label     string // this node's part of the key after the prefix; must not be empty, and has no slash
	// TLS is for all endpoints except http ones; nil: https endpoints are verified with the system's certificates.
	TLS *tls.Config
	// Dial connects to a member, given as host:port; nil: TCP. TLS is above it.
	Dial     func(ctx context.Context, address string) (net.Conn, error)
	Username string // "": no authentication except by certificate
	Password string
	// StartWait is how long the agent's first sync waits for etcd. After that the agent starts without etcd's values, and they
	// follow when etcd answers. 0: no limit.
	StartWait time.Duration
	NoStatus  bool          // write no statuses into etcd
	StatusTTL time.Duration // how long statuses remain after the agent has ended, at least 5 s; 0: 30 s
	Logger    *slog.Logger  // nil: silent
}

// minTTL is the shortest lease that survives a busy moment: the client renews it after a third of its time.
const minTTL = 5 * time.Second

// Validate returns every problem.
func (c *Config) Validate() error {
	var errs []error
	if len(c.Endpoints) == 0 {
		errs = append(errs, errors.New("endpoints: at least one is required"))
	}
	for _, e := range c.Endpoints {
		if err := c.checkEndpoint(e); err != nil {
			errs = append(errs, fmt.Errorf("endpoint %s: %w", e, err))
		}
	}
	if c.Label == "" || strings.Contains(c.Label, "/") {
		errs = append(errs, fmt.Errorf("label %q: must be one part of a path", c.Label))
	}
	if (c.Username == "") != (c.Password == "") {
		errs = append(errs, errors.New("user and password need each other"))
	}
	if c.StartWait < 0 {
		errs = append(errs, fmt.Errorf("wait %s for etcd: must not be negative", c.StartWait))
	}
	if c.StatusTTL != 0 && c.StatusTTL < minTTL {
		errs = append(errs, fmt.Errorf("status TTL %s: must be %s at least", c.StatusTTL, minTTL))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("etcd: %w", err)
	}
	return nil
}

func (c *Config) checkEndpoint(e string) error {
	host := e
	if strings.Contains(e, "://") {
		u, err := url.Parse(e)
		switch {
		case err != nil:
			return err
		case u.Scheme != "http" && u.Scheme != "https" || strings.Trim(u.Path, "/") != "":
			return errors.New("must be host:port, http://host:port or https://host:port")
		case u.Scheme == "http" && c.TLS != nil:
			return errors.New("http is plaintext, but TLS is configured")
		}
		host = u.Host
	}
	_, _, err := net.SplitHostPort(host)
	return err
}

// secure reports whether one of the endpoints is https.
func (c *Config) secure() bool {
	for _, e := range c.Endpoints {
		if strings.HasPrefix(e, "https://") {
			return true
		}
	}
	return false
}

// root returns the prefix of all keys of this node: it ends with a slash.
func (c *Config) root() string {
	prefix := c.Prefix
	if prefix == "" {
		prefix = DefaultPrefix
	}
	return strings.TrimRight(prefix, "/") + "/" + c.Label + "/"
}

// LoadTLS loads the client's side of TLS from PEM files: the CA of the servers ("": the system's), the client's certificate and key
// (both "": none), and the required server name ("": that of the endpoint). Certificate and key are read again for each connection,
// so they may be renewed.
func LoadTLS(ca, cert, key, serverName string) (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: serverName}
	if ca != "" {
		pool, err := httpserver.Authorities(ca)
		if err != nil {
			return nil, fmt.Errorf("certificates of servers: %w", err)
		}
		cfg.RootCAs = pool
	}
	if cert == "" && key == "" {
		return cfg, nil
	}
	load := func() (*tls.Certificate, error) {
		own, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("certificate: %w", err)
		}
		return &own, nil
	}
	if _, err := load(); err != nil {
		return nil, err
	}
	cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() }
	return cfg, nil
}
