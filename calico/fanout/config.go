package fanout

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/contiv-agent/contiv-agent/calico/wire"
)

// Config configures a Server. The zero value of every field is useful, except Syncers, which must not be empty.
type Config struct {
	// Syncers are the sets of keys to serve; the server refuses clients that request another one.
	Syncers []wire.SyncerType
	// Modern are the sets that also have a second form, with policy keys as 3.32 writes them, for clients whose hello
	// supports it. Sources send that form in separate batches.
	Modern []wire.SyncerType
	// Version is the server's version in its hello; "": "contiv-agent".
	Version string

	// BatchEvery is the shortest time between two publications of changes; 0: 1 ms plus 25 µs per client. The first change
	// after a quiet time is published at once.
	BatchEvery time.Duration
	// PingEvery is the time between pings to a client; 0: 10 s. Felix disconnects after 30 s of silence.
	PingEvery time.Duration
	// PongWithin is the time in which a client must answer a ping or a DecoderRestart; 0: 60 s.
	PongWithin time.Duration
	// HelloWithin is the time for a client's TLS handshake and hello; 0: 10 s.
	HelloWithin time.Duration
	// WriteWithin is the time in which a client must read one write; 0: 120 s.
	WriteWithin time.Duration

	// MaxBehind is the greatest age of a change that a client has not received; 0: 300 s.
	MaxBehind time.Duration
	// Grace is how long after its snapshot a client may exceed MaxBehind; 0: 300 s.
	Grace time.Duration
	// MaxBehindBytes is how many bytes of changes a client may be behind, during Grace as well; 0: 256 MiB. All clients
	// share these bytes; the slowest one determines how many are kept.
	MaxBehindBytes int64
	// MaxConnections bounds the connections, including those before the handshake; 0: 10,000. The server closes further
	// ones at once.
	MaxConnections int
	// Snapshots is how many clients receive snapshots at the same time, as long as these are quick; 0: eight per processor,
	// at least 64. When many clients connect, the first then finish early instead of all late.
	Snapshots int

	// Balance sheds clients that other servers should have; its zero value sheds none.
	Balance Balance
	// Drain is the time over which Serve closes its connections, one after the other, when it ends; 0: at once.
	Drain time.Duration

	// TLS secures the connections (see TLSFiles); nil: plaintext, and Serve refuses a listener beyond loopback unless
	// Insecure is true.
	TLS *tls.Config
	// Insecure permits anyone who reaches the listener to read all keys, unencrypted.
	Insecure bool

	// Logger logs each client that connects or leaves, at level debug; nil: silent.
	Logger *slog.Logger
	// Registerer registers the metrics; nil: no metrics.
	Registerer prometheus.Registerer
}

// Validate returns all problems of the configuration.
func (c *Config) Validate() error {
	var errs []error
	if c.Insecure && c.TLS != nil {
		errs = append(errs, errors.New("both TLS and Insecure are set: want one of them"))
	}
	if len(c.Syncers) == 0 {
		errs = append(errs, errors.New("no set of keys to serve"))
	}
	for _, s := range c.Syncers {
		if !slices.Contains(wire.SyncerTypes(), s) {
			errs = append(errs, fmt.Errorf("unknown set of keys %q: must be one of %v", s, wire.SyncerTypes()))
		}
	}
	for _, s := range c.Modern {
		if !slices.Contains(c.Syncers, s) {
			errs = append(errs, fmt.Errorf("set of keys %q has a second form but is not served", s))
		}
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"BatchEvery", c.BatchEvery},
		{"PingEvery", c.PingEvery},
		{"PongWithin", c.PongWithin},
		{"HelloWithin", c.HelloWithin},
		{"WriteWithin", c.WriteWithin},
		{"MaxBehind", c.MaxBehind},
		{"Grace", c.Grace},
		{"Drain", c.Drain},
	} {
		if d.value < 0 {
			errs = append(errs, fmt.Errorf("%s: %s is negative", d.name, d.value))
		}
	}
	if c.MaxConnections < 0 || c.MaxBehindBytes < 0 || c.Snapshots < 0 {
		errs = append(errs, errors.New("limits must not be negative"))
	}
	return errors.Join(append(errs, c.Balance.validate())...)
}

// defaults sets the defaults of zero fields.
func (c *Config) defaults() {
	setDefault(&c.Version, "contiv-agent")
	setDefault(&c.PingEvery, 10*time.Second)
	setDefault(&c.PongWithin, 60*time.Second)
	setDefault(&c.HelloWithin, 10*time.Second)
	setDefault(&c.WriteWithin, 120*time.Second)
	setDefault(&c.MaxBehind, 300*time.Second)
	setDefault(&c.Grace, 300*time.Second)
	setDefault(&c.MaxBehindBytes, 256<<20)
	setDefault(&c.MaxConnections, 10000)
	setDefault(&c.Snapshots, max(64, 8*runtime.GOMAXPROCS(0)))
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Registerer == nil {
		c.Registerer = prometheus.NewRegistry()
	}
	c.Balance.defaults()
}

func setDefault[T comparable](v *T, to T) {
	var zero T
	if *v == zero {
		*v = to
	}
}
