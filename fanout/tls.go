package fanout

import (
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/contiv-agent/contiv-agent/fanout/wire"
	"github.com/contiv-agent/contiv-agent/serve"
)

// TLSFiles are what connections are secured with. Files are read again when they change.
type TLSFiles struct {
	// Cert and Key are the server's, in PEM; CA is who vouches for clients.
	Cert, Key, CA string
	// Client is who clients must be.
	Client wire.Peer
}

// Config makes a TLS configuration: at least version 1.2, and clients must show a certificate. Errors say which file
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

// tlsLoader keeps the configuration made of the files as they are.
type tlsLoader struct {
	files TLSFiles

	mu    sync.Mutex
	seen  [3]time.Time
	ready *tls.Config
}

// load returns the configuration, made anew if a file has changed. While they do not fit together the last one holds.
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
	made, err := l.files.read()
	if err != nil && l.ready == nil {
		return nil, err
	}
	if err == nil {
		l.ready, l.seen = made, now
	}
	return l.ready, nil
}

func (f TLSFiles) read() (*tls.Config, error) {
	cert, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		return nil, fmt.Errorf("certificate and key: %w", err)
	}
	pool, err := serve.Authorities(f.CA)
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

// secure puts TLS on a connection, if there is any.
func secure(nc net.Conn, cfg *tls.Config) net.Conn {
	if cfg == nil {
		return nc
	}
	return tls.Server(nc, cfg)
}

// handshakeTLS brings the two sides of TLS together; the connection's deadline holds.
func handshakeTLS(nc net.Conn) error { return nc.(*tls.Conn).Handshake() }
