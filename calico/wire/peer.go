package wire

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
)

// ErrPeer is wrapped by the errors of Peer.Verify for a certificate that is valid but not the expected peer's.
var ErrPeer = errors.New("certificate of an unexpected peer")

// Peer restricts the other side of a connection, beyond the certificate authority's check. The zero value accepts every
// certificate of that authority.
type Peer struct {
	// CN is the expected common name; URI must be one of the URIs among the subject's alternative names. If both are set,
	// either is enough, as in Typha.
	CN, URI string
}

// Verify returns a function for tls.Config.VerifyConnection. On a server, which verifies certificates itself, roots is nil.
// A client that does not check host names (tls.Config.InsecureSkipVerify) passes roots, and the function verifies the
// chain.
func (p Peer) Verify(roots *x509.CertPool) func(tls.ConnectionState) error {
	return func(state tls.ConnectionState) error {
		if len(state.PeerCertificates) == 0 {
			return fmt.Errorf("%w: no certificate", ErrPeer)
		}
		leaf := state.PeerCertificates[0]
		if roots != nil {
			opts := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool()}
			for _, c := range state.PeerCertificates[1:] {
				opts.Intermediates.AddCert(c)
			}
			if _, err := leaf.Verify(opts); err != nil {
				return err
			}
		}
		return p.checkCertificate(leaf)
	}
}

func (p Peer) checkCertificate(leaf *x509.Certificate) error {
	if p == (Peer{}) || p.CN != "" && leaf.Subject.CommonName == p.CN {
		return nil
	}
	for _, uri := range leaf.URIs {
		if p.URI != "" && uri.String() == p.URI {
			return nil
		}
	}
	return fmt.Errorf("%w: common name %q, URIs %v; want %q or %q", ErrPeer, leaf.Subject.CommonName, leaf.URIs, p.CN, p.URI)
}
