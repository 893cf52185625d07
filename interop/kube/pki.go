package kube

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"time"
)

// authority signs the certificates by which kubelets and the API server know each other: <name>.crt and <name>.key in the cluster's folder.
type authority struct {
	c    *cluster
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// newAuthority makes one, and kubelet-ca.crt.
func newAuthority(c *cluster) *authority {
	c.t.Helper()
	a := &authority{c: c}
	template := a.template("contiv-kube")
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	a.cert = template
	a.sign("kubelet-ca", template)
	return a
}

// server makes the certificate of a kubelet at an address.
func (a *authority) server(name, address string) {
	a.c.t.Helper()
	template := a.template(name)
	template.IPAddresses, template.ExtKeyUsage = []net.IP{net.ParseIP(address)}, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	a.sign(name, template)
}

// client makes the certificate of the kubelets' client.
func (a *authority) client(name string) {
	a.c.t.Helper()
	template := a.template(name)
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	a.sign(name, template)
}

func (a *authority) template(name string) *x509.Certificate {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		a.c.t.Fatal(err)
	}
	const life = 30 * 24 * time.Hour
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name}, KeyUsage: x509.KeyUsageDigitalSignature,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(life),
	}
}

func (a *authority) sign(name string, template *x509.Certificate) {
	a.c.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.c.t.Fatal(err)
	}
	if a.key == nil {
		a.key = key // its own
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		a.c.t.Fatal(err)
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		a.c.t.Fatal(err)
	}
	a.c.write(name+".crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	a.c.write(name+".key", string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret})))
}
