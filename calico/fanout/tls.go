package fanout

import (
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/contiv-agent/contiv-agent/calico/wire"
	"github.com/contiv-agent/contiv-agent/httpserver"
)

// TLSFiles names the files and the peer of TLS connections. The files are read again when they change.
type TLSFiles struct {
	// Cert and Key are the server's, in PEM; CA is the authority of clients' certificates.
	Cert, Key, CA string
	// Client restricts the clients.
	Client wire.Peer
}

// Config returns a TLS configuration: version 1.2 or later, with client certificates required. Errors name the file that
// cannot be used.
func (f TLSFiles) Config() (*tls.Config, error) {
	l := &tlsLoader{files: f}
	if _, err := l.load(); err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return l.load() },
	}, nil
}

// tlsLoader caches the configuration made from the files.
type tlsLoader struct {
	files TLSFiles

	mu    sync.Mutex
	seen  [3]time.Time
	ready *tls.Config
}

// load returns the configuration, and reads files that have changed. While the files do not match each other it returns the
// previous one.
func (l *tlsLoader) load() (*tls.Config, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var now [3]time.Time
	for i, path := range []string{l.files.Cert, l.files.Key, l.files.CA} {
		if info, err := os.Stat(path); err == nil {
			now[i] = info.ModTime()
		}
	}
	if l.ready != nil && now == l.seen {
		return l.ready, nil
	}
	made, err := l.files.readConfig()
	if err != nil && l.ready == nil {
		return nil, err
	}
	if err == nil {
		l.ready, l.seen = made, now
	}
	return l.ready, nil
}

func (f TLSFiles) readConfig() (*tls.Config, error) {
	cert, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		return nil, fmt.Errorf("certificate and key: %w", err)
	}
	pool, err := httpserver.Authorities(f.CA)
	if err != nil {
		return nil, fmt.Errorf("certificate authority: %w", err)
	}
	return &tls.Config{
		MinVersion:       tls.VersionTLS12,
		Certificates:     []tls.Certificate{cert},
		ClientAuth:       tls.RequireAndVerifyClientCert,
		ClientCAs:        pool,
		VerifyConnection: f.Client.Verify(nil),
	}, nil
}

// secure wraps a connection in TLS, if configured.
func secure(nc net.Conn, cfg *tls.Config) net.Conn {
	if cfg == nil {
		return nc
	}
	return tls.Server(nc, cfg)
}

// handshakeTLS runs the TLS handshake; the connection's deadline applies.
func handshakeTLS(nc net.Conn) error { return nc.(*tls.Conn).Handshake() }
