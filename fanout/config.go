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

	"github.com/contiv-agent/contiv-agent/fanout/wire"
)

// Config is how a Server serves. The zero value of every field is useful, but Syncers must name something.
type Config struct {
	// Syncers are the sets of keys that are served; clients that want another are refused.
	Syncers []wire.SyncerType
	// Modern are those of them that have a second form, with the keys of policies as 3.32 writes them, for clients that say
	// they understand it. Sources tell it as batches of their own.
	Modern []wire.SyncerType
	// Version is what the server says it is; "" is "contiv-agent".
	Version string

	// BatchEvery is the least time between two publications of changes; 0: 1 ms, and 25 µs for each client. The first change
	// after a silence goes out at once.
	BatchEvery time.Duration
	// PingEvery is the time between pings to a client; 0: 10 s. Felix leaves after 30 s of silence.
	PingEvery time.Duration
	// PongWithin is how long a client may owe the answer to a ping, or an ACK; 0: 60 s.
	PongWithin time.Duration
	// HelloWithin is how long a client may take for TLS and its hello; 0: 10 s.
	HelloWithin time.Duration
	// WriteWithin is how long the client may take to read what is written in one piece; 0: 120 s.
	WriteWithin time.Duration

	// MaxBehind is how old a change may be that a client has not taken yet; 0: 300 s.
	MaxBehind time.Duration
	// Grace is how long after its snapshot a client may exceed MaxBehind; 0: 300 s.
	Grace time.Duration
	// MaxBehindBytes is how many bytes of changes a client may be behind, with or without grace; 0: 256 MiB. They are kept
	// for the slowest client and shared by all who are behind.
	MaxBehindBytes int64
	// MaxConnections is how many connections there may be, those of nobody yet included; 0: 10,000. More are closed at
	// once.
	MaxConnections int
	// Snapshots is how many clients are sent their snapshots at the same time, as long as these are quick; 0: eight for each
	// processor, 64 at least. In a crowd the first are then done early, rather than all late.
	Snapshots int

	// Balance sheds clients that other servers should have; its zero value sheds none.
	Balance Balance
	// Drain is how long Serve takes to let its clients go, one after the other, when it is told to end; 0: at once.
	Drain time.Duration

	// TLS is what connections are secured with (TLSFiles makes one); nil: they are not, and Serve refuses a listener that is not on
	// loopback unless Insecure is true.
	TLS *tls.Config
	// Insecure lets everybody who reaches the listener read all keys, unencrypted.
	Insecure bool

	// Logger gets a line for every client that connects or leaves, at level debug; nil: nothing is logged.
	Logger *slog.Logger
	// Registerer gets the metrics; nil: nobody does.
	Registerer prometheus.Registerer
}

// Validate joins everything that is wrong with the configuration.
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
		errs = append(errs, errors.New("a limit is negative"))
	}
	return errors.Join(append(errs, c.Balance.validate())...)
}

// defaults fills in what is zero.
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
