// Package probe measures paths from inside a pod: probes in, an outcome for each out. Its server is the other end of a path.
//
//	kubectl ── exec ──▶ Run(probes) ──── TCP, UDP, ICMP, DNS ────▶ Serve in another pod
//	        ◀─ outcomes ─┘
//
// Invariant: an outcome says what was measured, never why. Package connectivity decides what an outcome means.
package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Kind is what a probe does.
type Kind string

// The kinds of probes.
const (
	TCP     Kind = "tcp"     // Times connections to a Server, each with Bytes of payload in both directions
	UDP     Kind = "udp"     // one datagram to a Server and its answer
	ICMP    Kind = "icmp"    // an echo request
	MTU     Kind = "mtu"     // datagrams of the size of the own link's MTU that no hop may fragment, to a Server and back
	Refused Kind = "refused" // a connection that has to be refused
	TLS     Kind = "tls"     // a TLS handshake; certificates are not verified
	DNS     Kind = "dns"     // addresses of a name
	Hold    Kind = "hold"    // a connection to a Server that is used until it has no answer any more, or until Limit
	Self    Kind = "self"    // the links and name servers of this pod
)

// Probe is one measurement.
type Probe struct {
	ID     int    `json:"id"`
	Kind   Kind   `json:"kind"`
	To     string `json:"to,omitempty"`     // address:port; ICMP: an address; DNS: a name
	Server string `json:"server,omitempty"` // DNS: address:port of the server; "": those of resolv.conf
	Family int    `json:"family,omitempty"` // DNS: 4 or 6
	Times  int    `json:"times,omitempty"`  // TCP; 0: once
	Bytes  int    `json:"bytes,omitempty"`  // TCP
	// Limit is that of one connection or question, in nanoseconds. In a TCP connection it begins again with each part of the payload that arrives, five times at most.
	Limit time.Duration `json:"limit"`
}

// Symptom is how a measurement failed.
type Symptom string

// The symptoms.
const (
	Silence     Symptom = "silence"     // no answer within Limit
	Refusal     Symptom = "refusal"     // "connection refused"
	Unreachable Symptom = "unreachable" // an ICMP error, or no route here
	Stalled     Symptom = "stalled"     // the connection was made, and its payload did not arrive
	Cut         Symptom = "cut"         // the connection was made, and then ended by the other side or a hop
	Unsupported Symptom = "unsupported" // this pod may not do that
	Other       Symptom = "other"
)

// Answer is one answer of a Server.
type Answer struct {
	Server string `json:"server"` // its name
	Client string `json:"client"` // the client's address, as the server saw it
}

// Outcome is the result of a probe.
type Outcome struct {
	ID        int           `json:"id"`
	Answers   []Answer      `json:"answers,omitempty"`   // of each connection that succeeded
	Failed    int           `json:"failed,omitempty"`    // connections that did not
	Symptom   Symptom       `json:"symptom,omitempty"`   // of the last one that did not; "": all succeeded
	Error     string        `json:"error,omitempty"`     // the same in words
	Addresses []string      `json:"addresses,omitempty"` // DNS
	MTU       int           `json:"mtu,omitempty"`       // MTU: that of the own link
	Passes    int           `json:"passes,omitempty"`    // MTU: the largest packet that arrives in both directions; 0: none
	Holds     bool          `json:"holds,omitempty"`     // Hold: the connection works, at its begin and, in a second outcome, at its end
	Links     []Link        `json:"links,omitempty"`     // Self
	Servers   []string      `json:"servers,omitempty"`   // Self: name servers
	Took      time.Duration `json:"took"`
}

// Link is a network interface of the pod.
type Link struct {
	Name      string   `json:"name"`
	Up        bool     `json:"up"`
	MTU       int      `json:"mtu"`
	Addresses []string `json:"addresses,omitempty"`
}

// atOnce is how many probes run at the same time.
const atOnce = 64

// Run executes probes, many at the same time, and calls emit with each outcome, one call at a time. A Hold has two outcomes: one when its
// connection works, one at its end.
func Run(ctx context.Context, probes []Probe, emit func(Outcome)) {
	var all sync.WaitGroup
	var one sync.Mutex
	slots := make(chan struct{}, atOnce)
	for _, p := range probes {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			began := time.Now()
			say := func(o Outcome) {
				o.ID, o.Took = p.ID, time.Since(began)
				one.Lock()
				defer one.Unlock()
				emit(o)
			}
			say(p.execute(ctx, say))
		})
	}
	all.Wait()
}

// execute does what one probe asks for.
func (p *Probe) execute(ctx context.Context, early func(Outcome)) Outcome {
	switch p.Kind {
	case TCP:
		return p.dialTCP(ctx)
	case UDP:
		return p.sendDatagram(ctx)
	case ICMP:
		return p.ping(ctx)
	case MTU:
		return p.measureMTU(ctx)
	case Refused:
		return p.wantRefusal(ctx)
	case TLS:
		return p.shakeHands(ctx)
	case DNS:
		return p.lookUp(ctx)
	case Hold:
		return p.hold(ctx, early)
	case Self:
		return describeSelf()
	}
	return Outcome{Failed: 1, Symptom: Unsupported, Error: fmt.Sprintf("no such kind of probe: %q", p.Kind)}
}

// fail adds a failure to an outcome.
func (o *Outcome) fail(err error) {
	o.Failed++
	o.Symptom, o.Error = symptomOf(err), strings.ReplaceAll(err.Error(), "\n", "; ")
}

// These errors mark failures of connections that were made.
var (
	errStalled = errors.New("connected, and then no data arrived")
	errSlow    = errors.New("connected, and then too slow for the whole payload")
	errCut     = errors.New("connected, and then cut")
)

// symptomOf classifies an error of a socket.
func symptomOf(err error) Symptom {
	var timeout net.Error
	switch {
	case errors.Is(err, errStalled), errors.Is(err, errSlow):
		return Stalled
	case errors.Is(err, errCut):
		return Cut
	case errors.Is(err, syscall.ECONNREFUSED):
		return Refusal
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.ENETDOWN):
		return Unreachable
	case errors.Is(err, syscall.EPERM), errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPROTONOSUPPORT):
		return Unsupported
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return Silence
	}
	return Other
}

// sleep waits, or until the context ends.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
