package reach

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const clusterIP = "10.96.0.1:443"

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func (a *authority) sign(t *testing.T, of *x509.Certificate) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	of.SerialNumber, of.NotBefore, of.NotAfter = big.NewInt(1), time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, by := a.cert, a.key
	if parent == nil {
		parent, by = of, key
	}
	der, err := x509.CreateCertificate(rand.Reader, of, parent, &key.PublicKey, by)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	c := (&authority{}).sign(t, &x509.Certificate{Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	cert, err := x509.ParseCertificate(c.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	return &authority{cert: cert, key: c.PrivateKey.(*ecdsa.PrivateKey)}
}

func (a *authority) pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

// server answers with its name. Its certificate is for an address.
func (a *authority) server(t *testing.T, name, address string) netip.AddrPort {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret" {
			t.Errorf("%s: request without a token", name)
		}
		_, _ = io.WriteString(w, name)
	}))
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{a.sign(t, &x509.Certificate{IPAddresses: []net.IP{net.ParseIP(address)}})}}
	s.StartTLS()
	t.Cleanup(s.Close)
	return netip.MustParseAddrPort(s.Listener.Addr().String())
}

// listener answers nothing of TLS, and counts its connections.
func listener(t *testing.T, answer string) (netip.AddrPort, func() int) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := make(chan int, 1)
	n <- 0
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			n <- <-n + 1
			_, _ = io.WriteString(c, answer)
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close() })
	return netip.MustParseAddrPort(l.Addr().String()), func() int { i := <-n; n <- i; return i }
}

func closedPort(t *testing.T) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return netip.MustParseAddrPort(l.Addr().String())
}

// get asks the API server, as a client of a pod does, and returns which one answered.
func get(t *testing.T, f *Finder) (string, error) {
	t.Helper()
	tr := &http.Transport{DialContext: f.DialContext, TLSClientConfig: &tls.Config{RootCAs: f.trust}}
	defer tr.CloseIdleConnections()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+f.server, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer secret")
	answer, err := (&http.Client{Transport: tr, Timeout: 10 * time.Second}).Do(r)
	if err != nil {
		return "", err
	}
	defer func() { _ = answer.Body.Close() }()
	b, err := io.ReadAll(answer.Body)
	return string(b), err
}

// TestFind: of the servers that the node has connections to, the finder takes the one that proves to be the API server, and asks no other for anything.
func TestFind(t *testing.T) {
	ours, others := newAuthority(t, "ours"), newAuthority(t, "others")
	api := ours.server(t, "api", "10.96.0.1")
	foreign := others.server(t, "another cluster", "10.96.0.1")
	kubelet := ours.server(t, "of the same authority, for another host", "10.96.0.2")
	plain, asked := listener(t, "220 mail.example.org ESMTP\r\n")
	var log bytes.Buffer
	leads := []netip.AddrPort{closedPort(t), foreign, plain, kubelet, api, api, netip.MustParseAddrPort(clusterIP)}
	f := New(clusterIP, ours.pool(), func() ([]netip.AddrPort, error) { return leads, nil }, slog.New(slog.NewTextHandler(&log, nil)))
	for range 2 {
		if got, err := get(t, f); got != "api" {
			t.Errorf("%q answered: %v", got, err)
		}
	}
	if got := f.Find(t.Context()); got != api {
		t.Errorf("found %s, want %s", got, api)
	}
	if n := strings.Count(log.String(), "API server: found"); n != 1 {
		t.Errorf("%d lines:\n%s", n, &log)
	}
	leads = slices.DeleteFunc(slices.Clone(leads), func(a netip.AddrPort) bool { return a == api })
	if got := f.Find(t.Context()); got != api {
		t.Errorf("found %s once its connection ended: it still answers", got)
	}
	if n := asked(); n > 1 {
		t.Errorf("a server that speaks no TLS was asked %d times", n)
	}
}

// TestFindAnother: when the API server that was found is gone, the finder takes another one; without any it dials the cluster IP.
func TestFindAnother(t *testing.T) {
	ours := newAuthority(t, "ours")
	cluster, second := ours.server(t, "cluster IP", "127.0.0.1"), ours.server(t, "second", "127.0.0.1")
	first := closedPort(t)
	leads := []netip.AddrPort{first, second}
	f := New(cluster.String(), ours.pool(), func() ([]netip.AddrPort, error) { return leads, nil }, slog.New(slog.DiscardHandler))
	f.last = first
	if got, err := get(t, f); got != "second" {
		t.Errorf("%q answered: %v", got, err)
	}
	leads = nil
	f.last = first
	if got, err := get(t, f); got != "cluster IP" {
		t.Errorf("%q answered: %v", got, err)
	}
	f.connections = func() ([]netip.AddrPort, error) { return nil, errors.New("no right") }
	if got, err := get(t, f); got != "cluster IP" {
		t.Errorf("%q answered: %v", got, err)
	}
	f.connections = func() ([]netip.AddrPort, error) { return []netip.AddrPort{second}, nil }
	other := ours.server(t, "proxy", "127.0.0.1")
	c, err := f.DialContext(t.Context(), "tcp", other.String())
	if err != nil || c.RemoteAddr().String() != other.String() {
		t.Errorf("dialed %v instead of a proxy: %v", c, err)
	}
}

// TestForeignServersAreAskedAgain: what a server was says nothing about the next one at its address.
func TestForeignServersAreAskedAgain(t *testing.T) {
	ours := newAuthority(t, "ours")
	plain, asked := listener(t, "hello")
	leads := []netip.AddrPort{plain}
	f := New(clusterIP, ours.pool(), func() ([]netip.AddrPort, error) { return leads, nil }, slog.New(slog.DiscardHandler))
	for range 3 {
		f.Find(t.Context())
	}
	if n := asked(); n != 1 {
		t.Errorf("asked %d times, want once", n)
	}
	leads = nil
	f.Find(t.Context())
	leads = []netip.AddrPort{plain}
	f.Find(t.Context())
	if n := asked(); n != 2 {
		t.Errorf("asked %d times after another connection, want twice", n)
	}
}

// TestCandidates: ports of API servers come first, and the number is bounded.
func TestCandidates(t *testing.T) {
	var leads []netip.AddrPort
	for i := range 200 {
		leads = append(leads, netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}), 5432))
	}
	for _, s := range []string{"192.0.2.7:443", "[2001:db8::7]:6443", "[::ffff:192.0.2.9]:6443", clusterIP} {
		leads = append(leads, netip.MustParseAddrPort(s))
	}
	f := New(clusterIP, nil, func() ([]netip.AddrPort, error) { return leads, nil }, slog.New(slog.DiscardHandler))
	f.last = netip.MustParseAddrPort("192.0.2.3:5432")
	got := f.candidates()
	want := []string{"192.0.2.3:5432", "192.0.2.9:6443", "[2001:db8::7]:6443", "192.0.2.7:443", "192.0.2.0:5432"}
	for i, w := range want {
		if got[i].String() != w {
			t.Errorf("%d: %s, want %s", i, got[i], w)
		}
	}
	if len(got) != mostServers {
		t.Errorf("%d candidates, want %d", len(got), mostServers)
	}
}

// TestSilentServersComeLast: a server that does not finish a handshake is asked after all others from then on.
func TestSilentServersComeLast(t *testing.T) {
	ours := newAuthority(t, "ours")
	closed, api := closedPort(t), ours.server(t, "api", "10.96.0.1")
	silent := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), 6443) // a first choice by its port, and nothing listens
	leads := []netip.AddrPort{silent, closed}
	f := New(clusterIP, ours.pool(), func() ([]netip.AddrPort, error) { return leads, nil }, slog.New(slog.DiscardHandler))
	if f.candidates()[0] != silent {
		t.Errorf("%v: want %s first", f.candidates(), silent)
	}
	f.Find(t.Context())
	leads = append(leads, api)
	if got := f.candidates(); got[0] != api {
		t.Errorf("%v: want %s first", got, api)
	}
	leads = []netip.AddrPort{api}
	f.candidates()
	if leads = append(leads, silent); f.candidates()[0] != silent {
		t.Errorf("%v: a new connection leads to %s", f.candidates(), silent)
	}
}

// TestFindEndsWithItsContext: a server that answers nothing holds nobody longer than the caller wants.
func TestFindEndsWithItsContext(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // accepts, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	at := netip.MustParseAddrPort(l.Addr().String())
	f := New(clusterIP, x509.NewCertPool(), func() ([]netip.AddrPort, error) { return []netip.AddrPort{at}, nil }, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got := f.Find(ctx); got.IsValid() || len(f.foreign) != 0 {
		t.Errorf("found %s; not asked again: %v", got, f.foreign)
	}
}

// TestConnections: the kernel names connections that this process opened, and leaves out those that it accepted.
func TestConnections(t *testing.T) {
	for _, addr := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Log(err) // no IPv6 here
			continue
		}
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		accepted, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		got, err := Connections()
		if err != nil {
			t.Fatal(err)
		}
		to, from := netip.MustParseAddrPort(l.Addr().String()), netip.MustParseAddrPort(c.LocalAddr().String())
		if !slices.Contains(got, to) || slices.Contains(got, from) {
			t.Errorf("%v: want %s, and not %s", got, to, from)
		}
		for _, c := range []io.Closer{c, accepted, l} {
			_ = c.Close()
		}
	}
}

// TestInCluster: outside of a pod there is no service account to find an API server for.
func TestInCluster(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	if _, err := InCluster(slog.New(slog.DiscardHandler)); err == nil {
		t.Error("no error outside of a pod")
	}
	if _, err := os.Stat(filepath.Join("/var/run/secrets/kubernetes.io", "serviceaccount")); err == nil {
		t.Skip("this is a pod")
	}
}
