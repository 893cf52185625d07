package ui

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/cookiejar"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/contiv-agent/contiv-agent/cmd/exit"
)

// beside returns the page of an agent whose flag has a value.
func beside(t *testing.T, listen string) *Beside {
	t.Helper()
	b := &Beside{}
	fs := pflag.NewFlagSet("run", pflag.ContinueOnError)
	b.AddFlags(fs)
	if err := fs.Parse([]string{"--ui-listen=" + listen}); err != nil {
		t.Fatal(err)
	}
	return b
}

// An agent serves its page until it ends. If the usual port is taken, as by another agent, auto takes a free one.
func TestPageBesideAnAgent(t *testing.T) {
	socket := socketOf(t)
	opened := map[string]bool{}
	for range 2 { // at least one of them does not get the usual port
		b := beside(t, "auto")
		ctx, cancel := context.WithCancel(t.Context())
		if err := errors.Join(b.Check(false), b.Open(ctx)); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(b.Close)
		out, in := io.Pipe()
		ended := make(chan error, 1)
		go func() { ended <- b.Serve(ctx, in, socket) }()
		t.Cleanup(func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
		text := make([]byte, 1000)
		n, err := out.Read(text)
		if err != nil {
			t.Fatal(err)
		}
		address := strings.TrimSpace(strings.TrimPrefix(string(text[:n]), "open "))
		jar, err := cookiejar.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		if page := get(t, &http.Client{Jar: jar}, address); !strings.Contains(page, "this node") {
			t.Error(page)
		}
		opened[address[:strings.Index(address, "/?")]] = true
	}
	if len(opened) != 2 {
		t.Errorf("pages at %v", opened)
	}
}

func TestPageBesideAnAgentIsOff(t *testing.T) {
	b := beside(t, "")
	if err := errors.Join(b.Check(true), b.Open(t.Context()), b.Serve(t.Context(), io.Discard, "none")); err != nil {
		t.Error(err)
	}
	b.Close()
	for listen, once := range map[string]bool{"0.0.0.0:0": false, "nothing": false, "auto": true} {
		var wrong *exit.Error
		if err := beside(t, listen).Check(once); !errors.As(err, &wrong) || wrong.Code != exit.Wrong || !strings.Contains(err.Error(), "--ui-listen") {
			t.Errorf("%s: %v", listen, err)
		}
	}
}
