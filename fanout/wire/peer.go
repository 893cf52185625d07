package wire

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
)

// ErrPeer is what Peer.Verify wraps for a certificate that is valid but not the right one.
var ErrPeer = errors.New("certificate of somebody else")

// Peer says who may be on the other side of a connection, beside what the certificate authority says. The zero value
// accepts whoever it vouches for.
type Peer struct {
	// CN is the common name wanted; URI one of the URIs among the subject's alternative names. Where both are set, either
	// is enough, as Typha has it.
	CN, URI string
}

// Verify is for tls.Config.VerifyConnection on a server that asks for certificates and verifies them. Roots are nil there:
// a client that does not go by host names (tls.Config.InsecureSkipVerify) gives them, and the chain is verified here.
func (p Peer) Verify(roots *x509.CertPool) func(tls.ConnectionState) error {
	return func(state tls.ConnectionState) error {
		if len(state.PeerCertificates) == 0 {
			return fmt.Errorf("%w: there is none", ErrPeer)
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
		return p.check(leaf)
	}
}

func (p Peer) check(leaf *x509.Certificate) error {
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
