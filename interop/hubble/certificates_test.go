package hubble

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// certificates makes a folder with an authority (ca.crt), and the certificates of agents and of their clients with the names that Cilium's tools
// give them.
func certificates(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	ca := &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	caKey := sign(t, dir, "ca", ca, ca, nil)
	sign(t, dir, "agent", &x509.Certificate{DNSNames: []string{"*.default.hubble-grpc.cilium.io"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}, ca, caKey)
	sign(t, dir, "client", &x509.Certificate{DNSNames: []string{"*.hubble-relay.cilium.io"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, ca, caKey)
	return dir
}

// sign writes NAME.crt and NAME.key. Without a key of the authority the certificate signs itself.
func sign(t *testing.T, dir, name string, of, ca *x509.Certificate, caKey *ecdsa.PrivateKey) *ecdsa.PrivateKey {
	t.Helper()
	key, errKey := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	serial, errSerial := rand.Int(rand.Reader, big.NewInt(1<<62))
	of.SerialNumber, of.Subject, of.NotBefore, of.NotAfter = serial, pkix.Name{CommonName: name}, time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	if caKey == nil {
		caKey = key
	}
	der, errSign := x509.CreateCertificate(rand.Reader, of, ca, &key.PublicKey, caKey)
	private, errPrivate := x509.MarshalPKCS8PrivateKey(key)
	write := func(file, kind string, b []byte) error {
		return os.WriteFile(filepath.Join(dir, file), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}), 0o600)
	}
	if err := errors.Join(errKey, errSerial, errSign, errPrivate, write(name+".crt", "CERTIFICATE", der), write(name+".key", "PRIVATE KEY", private)); err != nil {
		t.Fatal(err)
	}
	return key
}
