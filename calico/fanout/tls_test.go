package fanout

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/calico/wire"
)

// issuer makes certificates for a test.
type issuer struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	n    int64
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	i := &issuer{t: t, dir: t.TempDir()}
	i.cert, i.key = i.sign("ca", &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return i
}

func (i *issuer) path(name string) string { return filepath.Join(i.dir, name) }

// sign writes a certificate and its key to files of that name.
func (i *issuer) sign(name string, c *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	i.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		i.t.Fatal(err)
	}
	i.n++
	c.SerialNumber, c.NotBefore = big.NewInt(i.n), time.Now().Add(-time.Hour)
	if c.NotAfter.IsZero() {
		c.NotAfter = time.Now().Add(time.Hour)
	}
	parent, signer := i.cert, i.key
	if parent == nil {
		parent, signer = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	if err != nil {
		i.t.Fatal(err)
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		i.t.Fatal(err)
	}
	i.write(name+".pem", "CERTIFICATE", der)
	i.write(name+".key", "EC PRIVATE KEY", secret)
	made, err := x509.ParseCertificate(der)
	if err != nil {
		i.t.Fatal(err)
	}
	return made, key
}

func (i *issuer) write(name, kind string, der []byte) {
	i.t.Helper()
	if err := os.WriteFile(i.path(name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		i.t.Fatal(err)
	}
}

func (i *issuer) files(name string, client wire.Peer) TLSFiles {
	return TLSFiles{Cert: i.path(name + ".pem"), Key: i.path(name + ".key"), CA: i.path("ca.pem"), Client: client}
}

// attempt connects with that certificate ("": none) and returns an error, or the server's certificate.
func (i *issuer) attempt(addr, name string, version uint16) (*x509.Certificate, error) {
	i.t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	cfg := &tls.Config{InsecureSkipVerify: true, MaxVersion: version, MinVersion: tls.VersionTLS10}
	if name != "" {
		pair, err := tls.LoadX509KeyPair(i.path(name+".pem"), i.path(name+".key"))
		if err != nil {
			i.t.Fatal(err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	secured := tls.Client(conn, cfg)
	c := newClient(secured)
	if err := c.shake(hello("n")); err != nil {
		return nil, err
	}
	if err := c.until(func() bool { return c.status == wire.InSync }); err != nil {
		return nil, err
	}
	return secured.ConnectionState().PeerCertificates[0], nil
}

func TestTLS(t *testing.T) {
	i, stranger := newIssuer(t), newIssuer(t)
	uri, _ := url.Parse("spiffe://cluster/felix")
	i.sign("server", &x509.Certificate{})
	i.sign("felix", &x509.Certificate{Subject: pkix.Name{CommonName: "felix"}})
	i.sign("other", &x509.Certificate{Subject: pkix.Name{CommonName: "other"}, URIs: []*url.URL{uri}})
	i.sign("old", &x509.Certificate{Subject: pkix.Name{CommonName: "felix"}, NotAfter: time.Now().Add(-time.Minute)})
	stranger.sign("felix", &x509.Certificate{Subject: pkix.Name{CommonName: "felix"}})
	i.copyFrom(stranger, "felix", "stranger")
	for _, c := range []struct {
		name    string
		want    wire.Peer
		version uint16
		ok      bool
	}{
		{"felix", wire.Peer{CN: "felix"}, 0, true},
		{"felix", wire.Peer{CN: "felix"}, tls.VersionTLS12, true},
		{"felix", wire.Peer{CN: "felix"}, tls.VersionTLS11, false},
		{"felix", wire.Peer{CN: "felix", URI: uri.String()}, 0, true},
		{"felix", wire.Peer{}, 0, true},
		{"felix", wire.Peer{CN: "felix2"}, 0, false},
		{"felix", wire.Peer{URI: uri.String()}, 0, false},
		{"other", wire.Peer{URI: uri.String()}, 0, true},
		{"other", wire.Peer{CN: "felix"}, 0, false},
		{"other", wire.Peer{CN: "felix", URI: uri.String()}, 0, true},
		{"old", wire.Peer{CN: "felix"}, 0, false},
		{"stranger", wire.Peer{CN: "felix"}, 0, false},
		{"", wire.Peer{}, 0, false},
	} {
		secured, err := i.files("server", c.want).Config()
		if err != nil {
			t.Fatal(err)
		}
		s, addr := servingTCP(t, Config{TLS: secured})
		s.Publish(batchOf(wire.InSync))
		if _, err := i.attempt(addr, c.name, c.version); (err == nil) != c.ok {
			t.Errorf("%q for %+v with at most %x: error %v, want ok %v", c.name, c.want, c.version, err, c.ok)
		}
	}
}

func (i *issuer) copyFrom(from *issuer, name, as string) {
	i.t.Helper()
	for _, ext := range []string{".pem", ".key"} {
		text, err := os.ReadFile(from.path(name + ext))
		if err == nil {
			err = os.WriteFile(i.path(as+ext), text, 0o600)
		}
		if err != nil {
			i.t.Fatal(err)
		}
	}
}

// TestTLSFilesChange: the server uses renewed certificates without a restart, and keeps the old ones while the files do not
// match.
func TestTLSFilesChange(t *testing.T) {
	i := newIssuer(t)
	first, _ := i.sign("server", &x509.Certificate{})
	i.sign("felix", &x509.Certificate{Subject: pkix.Name{CommonName: "felix"}})
	secured, err := i.files("server", wire.Peer{CN: "felix"}).Config()
	if err != nil {
		t.Fatal(err)
	}
	s, addr := servingTCP(t, Config{TLS: secured})
	s.Publish(batchOf(wire.InSync))
	shows := func(what string, want *x509.Certificate) {
		t.Helper()
		if got, err := i.attempt(addr, "felix", 0); err != nil || !got.Equal(want) {
			t.Errorf("%s: %v, or another certificate", what, err)
		}
	}
	touch := func(ago time.Duration) {
		for _, name := range []string{"server.pem", "server.key"} {
			if err := os.Chtimes(i.path(name), time.Time{}, time.Now().Add(ago)); err != nil {
				t.Fatal(err)
			}
		}
	}
	shows("at first", first)
	second, _ := i.sign("server", &x509.Certificate{})
	touch(time.Minute)
	shows("renewed", second)
	if err := os.WriteFile(i.path("server.pem"), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	touch(2 * time.Minute)
	shows("broken", second)
	third, _ := i.sign("server", &x509.Certificate{})
	touch(3 * time.Minute)
	shows("whole again", third)
}

func TestTLSFilesThatCannotBeUsed(t *testing.T) {
	i := newIssuer(t)
	i.sign("server", &x509.Certificate{})
	good := i.files("server", wire.Peer{})
	for name, spoil := range map[string]func(*TLSFiles){
		"no certificate":     func(f *TLSFiles) { f.Cert = "" },
		"no key":             func(f *TLSFiles) { f.Key = i.path("none") },
		"another's key":      func(f *TLSFiles) { f.Key = i.path("ca.key") },
		"no authority":       func(f *TLSFiles) { f.CA = "" },
		"a key as authority": func(f *TLSFiles) { f.CA = i.path("server.key") },
		"nothing but a peer": func(f *TLSFiles) { *f = TLSFiles{Client: wire.Peer{CN: "x"}} },
	} {
		files := good
		spoil(&files)
		if _, err := files.Config(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	var none error
	if _, none = good.Config(); none != nil {
		t.Error(none)
	}
	if err := (&Config{Syncers: wire.SyncerTypes(), MaxBehind: -1, Snapshots: -1}).Validate(); err == nil {
		t.Error("negative limits are valid")
	}
	if _, err := New(Config{}); err == nil || errors.Is(err, ErrUnknownSyncer) {
		t.Errorf("nothing to serve: %v", err)
	}
}
