// Package reach finds an address at which a node reaches its API server without Services. A node that the agent gives its network has nobody
// else who serves the API server's cluster IP.
//
//	where this node's TCP connections lead (the kubelet has one) ─▶ handshake ─▶ the first API server
//	nothing found ─▶ the cluster IP
//
// Invariant: an address is used only if its server has proved, by a certificate of the cluster's authority, to be the API server. A request and its
// token are sent to no other.
//
// BUGS. In a separate network namespace the program sees its own connections alone, and takes the cluster IP. An API server that the kubelet reaches
// only through a proxy is not found.
package reach

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// Bounds of one search.
const (
	handshakeTakes = 2 * time.Second // at most, with one server
	searchTakes    = 6 * time.Second // at most
	mostServers    = 32              // that one search asks
)

// Finder finds the API server and dials it. Create with New or InCluster; it is safe for concurrent use.
type Finder struct {
	server      string // host:port of the cluster IP, as pods have it
	trust       *x509.CertPool
	connections func() ([]netip.AddrPort, error)
	log         *slog.Logger

	mu      sync.Mutex
	last    netip.AddrPort              // found last; zero: none
	foreign map[netip.AddrPort]struct{} // answered, and are no API server of this cluster
	silent  map[netip.AddrPort]struct{} // did not finish a handshake, and are asked last
	missed  bool                        // a search has found nothing, and the log says so
}

// New returns a finder of the API server that pods reach at server (host:port), with a certificate that an authority in trust has signed for that host.
// connections returns where the node's TCP connections lead.
func New(server string, trust *x509.CertPool, connections func() ([]netip.AddrPort, error), log *slog.Logger) *Finder {
	return &Finder{server: server, trust: trust, connections: connections, log: log, foreign: map[netip.AddrPort]struct{}{}, silent: map[netip.AddrPort]struct{}{}}
}

// InCluster returns a finder for the cluster of this pod, by its service account. Its error says that this is no pod, or that its service account
// cannot be read.
func InCluster(log *slog.Logger) (*Finder, error) {
	cfg, err := rest.InClusterConfig()
	if err != nil {
		return nil, fmt.Errorf("service account: %w", err)
	}
	u, err := url.Parse(cfg.Host)
	if err != nil {
		return nil, fmt.Errorf("service account: %w", err)
	}
	tlsConfig, err := rest.TLSConfigFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("service account: %w", err)
	}
	if tlsConfig.RootCAs == nil { // client-go only logs an authority that it cannot read
		return nil, errors.New("service account: no certificate authority")
	}
	return New(u.Host, tlsConfig.RootCAs, Connections, log), nil
}

// DialContext dials the API server where the finder has found it. Other addresses than the cluster IP, as of a proxy, it dials as they are.
func (f *Finder) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	var d net.Dialer
	if addr == f.server {
		if at := f.Find(ctx); at.IsValid() {
			if c, err := d.DialContext(ctx, network, at.String()); err == nil {
				return c, nil
			}
		}
	}
	return d.DialContext(ctx, network, addr)
}

// Find returns the address of an API server; zero: the cluster IP alone is known. It asks the server found last first, and ends after 6 s.
func (f *Finder) Find(ctx context.Context) netip.AddrPort {
	f.mu.Lock()
	defer f.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, searchTakes)
	defer cancel()
	for _, at := range f.candidates() {
		switch err := f.handshake(ctx, at); {
		case err == nil:
			if at != f.last {
				f.log.Info("API server: found where a connection of this node leads", "address", at)
			}
			f.last = at
			return at
		case isForeign(err):
			f.foreign[at] = struct{}{}
		case ctx.Err() != nil:
			return netip.AddrPort{}
		default:
			f.silent[at] = struct{}{}
		}
	}
	if f.last.IsValid() || !f.missed {
		f.log.Warn("API server: no connection of this node leads to it", "next", f.server, "otherwise", "set --api-server")
	}
	f.last, f.missed = netip.AddrPort{}, true
	return netip.AddrPort{}
}

// candidates are the servers to ask: the last one, then the others by port, as API servers use them.
func (f *Finder) candidates() (out []netip.AddrPort) {
	all, err := f.connections()
	if err != nil {
		f.log.Debug("API server: the node's connections", "err", err)
	}
	seen := map[netip.AddrPort]struct{}{}
	for _, at := range append(all, f.last) {
		at = netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
		_, known := seen[at]
		_, foreign := f.foreign[at]
		if seen[at] = struct{}{}; !known && !foreign && at.IsValid() && at.Port() != 0 && at.String() != f.server {
			out = append(out, at)
		}
	}
	gone := func(at netip.AddrPort, _ struct{}) bool { _, still := seen[at]; return !still }
	maps.DeleteFunc(f.foreign, gone) // a connection that has ended says nothing about the next server there
	maps.DeleteFunc(f.silent, gone)
	rank := func(at netip.AddrPort) int {
		if at == f.last {
			return -1
		}
		ports := []uint16{6443, 443, 8443, 16443}
		if _, silent := f.silent[at]; silent {
			return len(ports) + 1
		}
		if i := slices.Index(ports, at.Port()); i >= 0 {
			return i
		}
		return len(ports)
	}
	slices.SortFunc(out, func(a, b netip.AddrPort) int { return cmp.Or(cmp.Compare(rank(a), rank(b)), a.Compare(b)) })
	return out[:min(len(out), mostServers)]
}

// handshake connects to a server and verifies its certificate for the host by which pods know the API server.
func (f *Finder) handshake(ctx context.Context, at netip.AddrPort) error {
	host, _, err := net.SplitHostPort(f.server)
	if err != nil {
		return fmt.Errorf("API server %q: %w", f.server, err)
	}
	ctx, cancel := context.WithTimeout(ctx, handshakeTakes)
	defer cancel()
	d := tls.Dialer{Config: &tls.Config{ServerName: host, RootCAs: f.trust, MinVersion: tls.VersionTLS12}}
	c, err := d.DialContext(ctx, "tcp", at.String())
	if err != nil {
		return fmt.Errorf("API server %s: %w", at, err)
	}
	return c.Close()
}

// isForeign reports that a server answered, and is not the API server: its certificate is another's, or it speaks no TLS.
func isForeign(err error) bool {
	if _, wrong := errors.AsType[*tls.CertificateVerificationError](err); wrong {
		return true
	}
	_, plain := errors.AsType[tls.RecordHeaderError](err)
	return plain
}
