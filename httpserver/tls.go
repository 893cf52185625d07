package httpserver

import (
	"crypto/x509"
	"fmt"
	"os"
)

// Authorities returns the certificates in a PEM file as the authorities that the other side's certificate must be signed by.
// A file without certificates is an error.
func Authorities(file string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s: it contains no certificate", file)
	}
	return pool, nil
}
