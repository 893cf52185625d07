package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/contiv-agent/contiv-agent/plugins/extconfig/etcd"
	"github.com/contiv-agent/contiv-agent/proto/ligato/kvscheduler"
)

// The agent reads the keys and values that ligato's agents store, whether VPP accepts them or not.
func TestVectors(t *testing.T) {
	servers(t, func(t *testing.T, s *server) {
		raw, err := os.ReadFile("../../plugins/extconfig/etcd/testdata/vectors.txt")
		if err != nil {
			t.Fatal(err)
		}
		w := newWorld(t, s, nil)
		w.kv = s.client(nil)
		keys := map[string]bool{}
		for line := range strings.Lines(string(raw)) {
			if key, rest, _ := strings.Cut(strings.TrimSpace(line), " "); key != "#" {
				value, _, _ := strings.Cut(rest, " => ")
				keys[key] = true
				if _, err := w.kv.Put(t.Context(), root+key, value); err != nil {
					t.Fatal(err)
				}
			}
		}
		w.run()
		eventually(t, "statuses", func() error {
			got, err := w.statuses()
			if err == nil && len(got) != len(keys) {
				err = fmt.Errorf("%d statuses for %d keys", len(got), len(keys))
			}
			return err
		})
		got, _ := w.statuses()
		for key := range keys {
			if st := got[key]; st == nil || st.LastOperation == kvscheduler.TxnOperation_VALIDATE {
				t.Errorf("%s: %v", key, st)
			}
		}
		w.note("")
	})
}

// pki is who signs certificates of a test.
type pki struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newPKI(t *testing.T, name string) *pki {
	p := &pki{t: t, dir: t.TempDir()}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	p.cert, p.key = template, nil
	p.key = p.sign("ca", template)
	raw, err := os.ReadFile(p.file("ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(raw)
	if p.cert, err = x509.ParseCertificate(block.Bytes); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *pki) file(name string) string { return filepath.Join(p.dir, name) }

// issue makes name.crt and name.key.
func (p *pki) issue(name string, usage x509.ExtKeyUsage, dns ...string) {
	p.sign(name, &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{usage}, DNSNames: dns,
	})
}

func (p *pki) sign(name string, template *x509.Certificate) *ecdsa.PrivateKey {
	p.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		p.t.Fatal(err)
	}
	signer := p.key
	if signer == nil {
		signer = key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, p.cert, &key.PublicKey, signer)
	if err != nil {
		p.t.Fatal(err)
	}
	raw, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		p.t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{".crt": {Type: "CERTIFICATE", Bytes: der}, ".key": {Type: "EC PRIVATE KEY", Bytes: raw}} {
		if err := os.WriteFile(p.file(name+file), pem.EncodeToMemory(block), 0o600); err != nil {
			p.t.Fatal(err)
		}
	}
	return key
}

// The agent talks to a server whose certificate has the right name and signer, with a certificate the server trusts, and to none else.
// Certificates are renewed while it runs.
func TestTLS(t *testing.T) {
	ours, theirs := newPKI(t, "ours"), newPKI(t, "theirs")
	ours.issue("server", x509.ExtKeyUsageServerAuth, "etcd.example")
	ours.issue("agent", x509.ExtKeyUsageClientAuth)
	theirs.issue("agent", x509.ExtKeyUsageClientAuth)
	s := startServer(t, "-cert", ours.file("server.crt"), "-key", ours.file("server.key"), "-ca", ours.file("ca.crt"))
	with := func(ca, client *pki, name string) func(*etcd.Config) {
		return func(c *etcd.Config) {
			var err error
			cert, key := client.file("agent.crt"), client.file("agent.key")
			if c.TLS, err = etcd.LoadTLS(ca.file("ca.crt"), cert, key, name); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, tc := range map[string]struct {
		change func(*etcd.Config)
		note   string
	}{
		"signed by a stranger":   {with(ours, theirs, "etcd.example"), "remote error: tls: unknown certificate authority"},
		"server's is a stranger": {with(theirs, ours, "etcd.example"), "certificate signed by unknown authority"},
		"server has other name":  {with(ours, ours, "etcd.elsewhere"), "valid for etcd.example, not etcd.elsewhere"},
		"plaintext": {func(c *etcd.Config) {
			c.Endpoints = []string{s.addr}
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, s, tc.change)
			w.run()
			if tc.note != "" {
				w.note(tc.note)
			}
			time.Sleep(time.Second)
			if st, err := w.agent.Status(t.Context()); err != nil || st.InSync || st.Sources[0].Status != "wait-for-ready" {
				t.Errorf("%+v, %v", st, err)
			}
		})
	}
	w := newWorld(t, s, with(ours, ours, "etcd.example"))
	tlsConfig, err := etcd.LoadTLS(ours.file("ca.crt"), ours.file("agent.crt"), ours.file("agent.key"), "etcd.example")
	if err != nil {
		t.Fatal(err)
	}
	w.kv = s.client(func(c *clientv3.Config) {
		c.TLS, c.DialOptions = tlsConfig, []grpc.DialOption{grpc.WithAuthority("etcd.example")}
	})
	w.put(some())
	w.run()
	w.settled()
	w.writes()
	s.kill()
	ours.issue("agent", x509.ExtKeyUsageClientAuth)
	s.start(s)
	w.settled()
	if got := w.writes(); len(got) > 0 {
		t.Errorf("with a new certificate: %q", got)
	}
}

// A server that takes connections and says nothing is no reason to wait for ever.
func TestSilentServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s := startServer(t)
	w := newWorld(t, s, func(c *etcd.Config) {
		c.Endpoints, c.StartWait = []string{l.Addr().String()}, time.Second
	})
	w.run()
	w.note("the agent continues without the values in etcd")
}
