package probe

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"
)

// pause is the time between attempts.
const pause = 200 * time.Millisecond

// dialTCP opens the connections: the first alone, again while it is refused, because a Service may be new; then all others at once.
func (p *Probe) dialTCP(ctx context.Context) (o Outcome) {
	deadline := time.Now().Add(p.Limit)
	first, err := p.exchange(ctx)
	for errors.Is(err, syscall.ECONNREFUSED) && time.Now().Add(pause).Before(deadline) && ctx.Err() == nil {
		sleep(ctx, pause)
		first, err = p.exchange(ctx)
	}
	var one sync.Mutex
	add := func(a Answer, err error) {
		one.Lock()
		defer one.Unlock()
		if err != nil {
			o.fail(err)
			return
		}
		o.Answers = append(o.Answers, a)
	}
	add(first, err)
	var all sync.WaitGroup
	for range p.Times - 1 {
		all.Go(func() { add(p.exchange(ctx)) })
	}
	all.Wait()
	return o
}

// exchange opens one connection and exchanges its payload.
func (p *Probe) exchange(ctx context.Context) (Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, p.Limit)
	defer cancel()
	conn, err := dialIn(ctx, p.To)
	if err != nil {
		return Answer{}, err
	}
	defer conn.Close()
	return transfer(conn, p.Bytes, p.Limit)
}

// slowest is how many limits a transfer may take that makes progress.
const slowest = 5

// transfer exchanges a payload over a new connection. A slow path loses no packets for good: whenever a part arrives, the next one has a whole limit again.
func transfer(conn net.Conn, size int, limit time.Duration) (Answer, error) {
	in := &patient{Conn: conn, limit: limit, end: time.Now().Add(slowest * limit)}
	return echo(conn, bufio.NewReader(in), size, time.Now().Add(limit))
}

// patient is a connection whose limit begins with each Read again, until its end.
type patient struct {
	net.Conn
	limit time.Duration
	end   time.Time
}

// Read implements io.Reader.
func (p *patient) Read(b []byte) (int, error) {
	deadline := time.Now().Add(p.limit)
	if p.end.Before(deadline) {
		deadline = p.end
	}
	if err := p.SetDeadline(deadline); err != nil {
		return 0, err
	}
	n, err := p.Conn.Read(b)
	if err != nil && !time.Now().Before(p.end) {
		err = fmt.Errorf("%w: %w", errSlow, err)
	}
	return n, err
}

// dialIn opens a TCP connection within the context's time.
func dialIn(ctx context.Context, to string) (net.Conn, error) {
	return dialFrom(ctx, "tcp", to, nil)
}

// echo sends a line and so many bytes, and reads both back.
func echo(conn net.Conn, in *bufio.Reader, size int, deadline time.Time) (a Answer, err error) {
	defer func() {
		switch {
		case err == nil, errors.Is(err, errSlow):
		case symptomOf(err) == Silence:
			err = fmt.Errorf("%w: %w", errStalled, err)
		default:
			err = fmt.Errorf("%w: %w", errCut, err)
		}
	}()
	if err := conn.SetDeadline(deadline); err != nil {
		return a, err
	}
	payload := bytes.Repeat([]byte("contiv! "), size/8+1)[:size]
	sent := make(chan error, 1)
	go func() {
		_, err := fmt.Fprintf(conn, "%d\n%s", size, payload)
		sent <- err
	}()
	line, err := in.ReadString('\n')
	if err == nil {
		got := make([]byte, size)
		if _, err = io.ReadFull(in, got); err == nil && !bytes.Equal(got, payload) {
			err = errors.New("other bytes came back")
		}
	}
	if err = errors.Join(err, <-sent); err != nil {
		return a, err
	}
	return parseAnswer(line)
}

// parseAnswer reads the line of a Server.
func parseAnswer(line string) (Answer, error) {
	fields := strings.Fields(line)
	if len(fields) != 3 {
		return Answer{}, fmt.Errorf("%q is no answer of a server of this test", line)
	}
	return Answer{Server: fields[0], Client: fields[1]}, nil
}

// wantRefusal tries until the connection is refused. A connection that is made ends it.
func (p *Probe) wantRefusal(ctx context.Context) (o Outcome) {
	deadline := time.Now().Add(p.Limit)
	for {
		within, cancel := context.WithTimeout(ctx, min(p.Limit, 1500*time.Millisecond))
		conn, err := dialIn(within, p.To)
		cancel()
		if err == nil {
			_ = conn.Close() // it should not exist
			o.fail(errors.New("connected"))
			return o
		}
		if s := symptomOf(err); s == Refusal || s == Unreachable {
			return o
		}
		if time.Now().Add(pause).After(deadline) || ctx.Err() != nil {
			o.fail(err)
			return o
		}
		sleep(ctx, pause)
	}
}

// shakeHands makes a TLS connection, whose certificates fill several packets of full size.
func (p *Probe) shakeHands(ctx context.Context) (o Outcome) {
	ctx, cancel := context.WithTimeout(ctx, p.Limit)
	defer cancel()
	conn, err := dialIn(ctx, p.To)
	if err == nil {
		defer conn.Close()
		secure := tls.Client(conn, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // nothing is sent; the path is measured, not the server
		if err = secure.HandshakeContext(ctx); err != nil {
			err = fmt.Errorf("%w: %w", map[bool]error{true: errStalled, false: errCut}[symptomOf(err) == Silence], err)
		}
	}
	if err != nil {
		o.fail(err)
	}
	return o
}

// A connection that is held has a request each holdEvery, and has ended if one has no answer within holdLoses.
const (
	holdEvery = 100 * time.Millisecond
	holdLoses = 2 * time.Second
)

// hold uses one connection until it ends, or until Limit.
func (p *Probe) hold(ctx context.Context, early func(Outcome)) (o Outcome) {
	within, cancel := context.WithTimeout(ctx, p.Limit)
	defer cancel()
	conn, err := dialIn(within, p.To)
	if err != nil {
		o.fail(err)
		return o
	}
	defer conn.Close()
	in := bufio.NewReader(conn)
	for said := false; within.Err() == nil; sleep(within, holdEvery) {
		a, err := echo(conn, in, 0, time.Now().Add(holdLoses))
		if err != nil {
			o.fail(err)
			return o
		}
		if !said {
			early(Outcome{Holds: true, Answers: []Answer{a}})
			said = true
		}
	}
	o.Holds = true
	return o
}
