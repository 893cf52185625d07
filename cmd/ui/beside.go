package ui

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/contiv-agent/contiv-agent/cmd/exit"
	"github.com/contiv-agent/contiv-agent/cmd/flags"
	"github.com/contiv-agent/contiv-agent/ui"
)

// usualAddress is that of a page if no flag names another one.
const usualAddress = "127.0.0.1:8484"

// Beside is the page that an agent serves about itself, in the same process.
type Beside struct {
	page
	listener net.Listener // nil: no page
}

// AddFlags adds the flag.
func (b *Beside) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&b.listen, "ui-listen", "", "loopback address of a page for a browser (docs/ui.md), whose address and key are printed; auto: "+usualAddress+", or a free port if that is taken; empty: none")
}

// Check returns the error of the flag. An agent that ends after the first sync serves no page.
func (b *Beside) Check(once bool) error {
	b.every = time.Second
	switch {
	case b.listen == "":
		return nil
	case once:
		return exit.Usage(errors.New("--once: the agent ends before a browser can connect; --ui-listen needs an agent that keeps running"))
	case b.listen == flags.Auto:
		return nil
	}
	return b.checkListen()
}

// Open listens, so that an occupied port is an error before the agent starts.
func (b *Beside) Open(ctx context.Context) (err error) {
	switch b.listen {
	case "":
	case flags.Auto:
		at := page{listen: usualAddress, every: b.every}
		b.listener, err = at.listenOn(ctx)
		if errors.Is(err, syscall.EADDRINUSE) {
			at.listen = "127.0.0.1:0"
			b.listener, err = at.listenOn(ctx)
		}
	default:
		b.listener, err = b.listenOn(ctx)
	}
	return err
}

// Close closes the listener.
func (b *Beside) Close() {
	if b.listener != nil {
		_ = b.listener.Close() // Serve may have closed it
	}
}

// Serve serves the page of the agent at a socket until ctx ends, and prints its address. Without a listener it returns at once.
func (b *Beside) Serve(ctx context.Context, w io.Writer, socket string) error {
	if b.listener == nil {
		return nil
	}
	source := &node{socket: socket}
	q := newQuestions(source.objects, source.settings)
	defer q.closeCluster()
	return b.serveOn(ctx, w, b.listener, ui.Config{Where: "this node", Objects: q.objects, Trace: q.trace}, source)
}
