package httpserver

import (
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAuthorities(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	cert := server.Certificate()
	dir := t.TempDir()
	write := func(name string, text []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	pool, err := Authorities(write("ca", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cert.Verify(x509.VerifyOptions{Roots: pool}); err != nil {
		t.Errorf("signed by itself: %v", err)
	}
	if _, err := Authorities(write("empty", []byte("nothing\n"))); err == nil || !strings.Contains(err.Error(), "empty: it contains no certificate") {
		t.Errorf("a file without certificates: %v", err)
	}
	if _, err := Authorities(filepath.Join(dir, "none")); !os.IsNotExist(err) {
		t.Errorf("no file: %v", err)
	}
}

// FuzzAuthorities: a file of certificates is taken, or refused with its name.
func FuzzAuthorities(f *testing.F) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	for _, text := range [][]byte{nil, block, append([]byte("text\n"), block...), block[:len(block)/2], []byte("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n")} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		path := filepath.Join(t.TempDir(), "ca")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		pool, err := Authorities(path)
		if err == nil && pool.Equal(x509.NewCertPool()) || err != nil && !strings.Contains(err.Error(), path) {
			t.Errorf("%q: %v", text, err)
		}
	})
}
