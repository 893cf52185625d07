// Package tracer turns a filter for packets into their paths through a running VPP, by VPP's packet tracer.
//
// Invariant: a trace of another program is left alone, and the tracer is off when a trace has ended.
package tracer

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"sync"
	"time"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/vlib"

	"github.com/contiv-agent/contiv-agent/vpp"
)

// Do sends requests to VPP; vpp.Conn.Do is one.
type Do func(context.Context, ...vpp.Call) []vpp.Reply

// Errors of a trace.
var (
	ErrForeign = errors.New("another program traces packets: VPP has one tracer (vppctl show trace, show classify filter; vppctl clear trace ends it)")
	ErrBusy    = errors.New("this agent traces packets already: VPP has one tracer")
	ErrAbsent  = errors.New("this VPP has no packet tracer; the simulated VPP has none")
)

const (
	// mostPackets bounds the packets that VPP keeps at a time, each of up to about 10 kB of text.
	mostPackets = 32
	// lookEvery is how often a trace is read. Each time VPP executes a command on its main thread.
	lookEvery = 100 * time.Millisecond
	// endLimit bounds the end of a trace, also of one that nobody waits for.
	endLimit = 5 * time.Second
	// MostTime bounds a trace.
	MostTime = time.Minute

	showFilter  = "show classify filter"
	clearTrace  = "clear trace"
	clearFilter = "classify filter trace del"
	// Mark is what the filter's table of an agent has in common, and no table that VPP makes by default.
	mark = "buckets 16"
)

// Filter selects packets by fields of their headers.
type Filter struct {
	Source, Destination netip.Addr
	Protocol            uint8
	Port                uint16 // the destination's, of TCP and UDP; 0: any
}

// command is the command that makes VPP's tracer look at these packets alone (VPP 24.06 to 26.06).
func (f Filter) command() string {
	family := "ip4"
	if f.Destination.Is6() {
		family = "ip6"
	}
	mask, match := fmt.Sprintf("l3 %s src dst proto", family), fmt.Sprintf("l3 %s src %s dst %s proto %d", family, f.Source, f.Destination, f.Protocol)
	if f.Port != 0 {
		mask, match = mask+" l4 dst_port", fmt.Sprintf("%s l4 dst_port %d", match, f.Port)
	}
	return fmt.Sprintf("classify filter trace %s mask %s match %s", mark, mask, match)
}

// Tracer traces for one request at a time. It is safe for concurrent use.
type Tracer struct{ busy sync.Mutex }

// Trace returns the packets of a filter that come by an input node of VPP's graph. It calls begun when VPP traces; an error of begun ends the trace. The
// trace also ends when enough returns true for the packets so far, after the time, or when ctx ends; then the error is that of ctx.
func (t *Tracer) Trace(ctx context.Context, do Do, node string, f Filter, most time.Duration, begun func() error, enough func([]Packet) bool) (out []Packet, err error) {
	if !t.busy.TryLock() {
		return nil, ErrBusy
	}
	defer t.busy.Unlock()
	if most <= 0 || most > MostTime {
		return nil, fmt.Errorf("%s: must be more than 0, and at most %s", most, MostTime)
	}
	if err := EndLeft(ctx, do); err != nil {
		return nil, err
	}
	if text, err := command(ctx, do, "show trace max 1"); err != nil || len(Parse(text)) > 0 {
		return nil, errors.Join(ErrForeign, err)
	}
	defer func() { err = errors.Join(err, endTrace(ctx, do)) }()
	if err := armTracer(ctx, do, node, f); err != nil {
		return nil, err
	}
	if err := begun(); err != nil {
		return nil, err
	}
	whole, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	out, err = awaitPackets(whole, do, node, enough)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return out, err
}

// armTracer makes VPP trace.
func armTracer(ctx context.Context, do Do, node string, f Filter) error {
	for _, line := range []string{f.command(), addTrace(node)} {
		text, err := command(ctx, do, line)
		if text = strings.TrimSpace(text); err == nil && text != "" {
			err = fmt.Errorf("vpp command %q: %s", line, text)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func addTrace(node string) string { return fmt.Sprintf("trace add %s %d filter", node, mostPackets) }

// awaitPackets reads packets until they are enough. A full buffer without enough is emptied.
func awaitPackets(ctx context.Context, do Do, node string, enough func([]Packet) bool) ([]Packet, error) {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	var last []Packet
	for {
		select {
		case <-ctx.Done():
			return last, nil
		case <-look.C:
		}
		text, err := command(ctx, do, fmt.Sprintf("show trace max %d", mostPackets))
		if err != nil && ctx.Err() != nil {
			return last, nil
		}
		if err != nil {
			return last, err
		}
		now := Parse(text)
		if len(now) == 0 {
			continue
		}
		if last = now; enough(last) {
			return last, nil
		}
		if len(now) < mostPackets {
			continue
		}
		for _, line := range []string{clearTrace, addTrace(node)} { // the filter stays
			if _, err := command(ctx, do, line); err != nil && ctx.Err() == nil {
				return last, err
			}
		}
	}
}

// endTrace turns the tracer off, whatever has happened to ctx. VPP takes no packet for the filter once the tracer is off, so it is removed then.
func endTrace(ctx context.Context, do Do) error {
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), endLimit)
	defer cancel()
	_, err := command(last, do, clearTrace)
	_, errFilter := command(last, do, clearFilter)
	return errors.Join(err, errFilter)
}

var (
	filterTable = regexp.MustCompile(`packet tracer:\s+first table (\d+|none)`)
	tableMark   = regexp.MustCompile(`\bn` + mark + `,`)
)

// EndLeft ends the trace of an agent that ended before its trace. A trace of another program is left alone, with ErrForeign.
func EndLeft(ctx context.Context, do Do) error {
	text, err := command(ctx, do, showFilter)
	if _, refused := errors.AsType[*vpp.Retval](err); refused {
		return ErrAbsent
	}
	if err != nil {
		return err
	}
	m := filterTable.FindStringSubmatch(text)
	switch {
	case m == nil:
		return ErrAbsent
	case m[1] == "none":
		return nil
	}
	table, err := command(ctx, do, "show classify tables index "+m[1])
	if err != nil {
		return err
	}
	if !tableMark.MatchString(table) {
		return ErrForeign
	}
	return endTrace(ctx, do)
}

// command runs a command of VPP's command line.
func command(ctx context.Context, do Do, line string) (string, error) {
	r := do(ctx, vpp.Call{Msg: &vlib.CliInband{Cmd: line}})[0]
	m, ok := r.Msg.(*vlib.CliInbandReply)
	if _, refused := errors.AsType[*vpp.Retval](r.Err); refused && ok {
		return "", fmt.Errorf("vpp command %q: %s: %w", line, strings.TrimSpace(m.Reply), r.Err)
	}
	if r.Err != nil || !ok {
		return "", fmt.Errorf("vpp command %q: %w", line, r.Err)
	}
	return m.Reply, nil
}

// Needs are the requests of the package.
func Needs() []api.Message { return []api.Message{&vlib.CliInband{}} }
