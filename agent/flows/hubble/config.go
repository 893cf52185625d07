package hubble

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/contiv-agent/contiv-agent/httpserver"
)

// Config configures a Server.
type Config struct {
	// Listen is HOST:PORT, or unix:PATH for programs of the agent's user.
	Listen string
	// TLS is for HOST:PORT; it should ask for certificates. nil: plaintext, only on loopback.
	TLS     *tls.Config
	Node    string
	Version string       // of the agent
	Logger  *slog.Logger // nil: silent
	Now     func() time.Time
}

// socket returns the path of a unix socket; false: Listen is an address.
func (c *Config) socket() (path string, ok bool) { return strings.CutPrefix(c.Listen, "unix:") }

// Validate returns an error for an address at which a server must not listen.
func (c *Config) Validate() error {
	if path, ok := c.socket(); ok {
		switch {
		case strings.Trim(path, "/") == "":
			return errors.New("hubble: unix: needs the path of a socket behind it")
		case c.TLS != nil:
			return errors.New("hubble: TLS: a unix socket has none")
		}
		return nil
	}
	host, _, err := net.SplitHostPort(c.Listen)
	switch {
	case err != nil:
		return fmt.Errorf("hubble: %s: must be HOST:PORT or unix:PATH: %w", c.Listen, err)
	case c.TLS == nil && !httpserver.LoopbackHost(host):
		return fmt.Errorf("hubble: %s: without certificates it must be a loopback address: flows have addresses and labels of all pods", c.Listen)
	}
	return nil
}
