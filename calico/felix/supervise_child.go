package felix

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	pb "github.com/contiv-agent/contiv-agent/proto/felix"
)

// childEvent is one of: the driver received a round of so many messages; it sent a message; it sent garbage; it has ended
// completely.
type childEvent struct {
	written uint64
	message *pb.FromDataplane
	garbage error
	gone    error
}

// child is one life of a driver: a process, its two pipes, and this side's goroutines.
type child struct {
	pid    int
	idle   bool // used by the keeper: the driver has received the last round
	rounds chan []*pb.ToDataplane

	cfg    *SupervisorConfig
	cmd    *exec.Cmd
	to     *os.File // this end of its fd 3
	from   *os.File // this end of its fd 4
	prints *os.File // this end of its standard output and error
	events chan<- childEvent
}

// Reasons for the end of a driver's life, beside those of its process.
var (
	errExited      = errors.New("exited")
	errClosedPipes = errors.New("closed its pipe")
)

// startChild starts the driver's process. It reports everything as events; the last event is the end.
func startChild(ctx context.Context, cfg SupervisorConfig, events chan<- childEvent) (*child, error) {
	var files [6]*os.File
	for i := 0; i < len(files); i += 2 {
		var err error
		if files[i], files[i+1], err = os.Pipe(); err != nil {
			return nil, errors.Join(err, closeAll(files[:i]...))
		}
	}
	theirIn, theirOut, theirText := files[0], files[3], files[5]
	c := &child{
		rounds: make(chan []*pb.ToDataplane, 1), idle: true, cfg: &cfg, to: files[1], from: files[2], prints: files[4], events: events,
	}
	c.cmd = exec.Command(cfg.Path) // stopped in steps, not by ctx
	c.cmd.Env = append(os.Environ(), cfg.Env...)
	c.cmd.Stdout, c.cmd.Stderr = theirText, theirText
	c.cmd.ExtraFiles = []*os.File{theirIn, theirOut}        // 3 and 4
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a terminal's Ctrl-C does not reach it, and the group includes what it starts
	if err := errors.Join(c.cmd.Start(), closeAll(theirIn, theirOut, theirText)); err != nil {
		return nil, errors.Join(err, closeAll(c.to, c.from, c.prints))
	}
	c.pid = c.cmd.Process.Pid
	go c.runProcess(ctx)
	return c, nil
}

func closeAll(files ...*os.File) error {
	var errs []error
	for _, f := range files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// runProcess supervises the process to its end. The keeper receives events until the end, so no event blocks for long.
func (c *child) runProcess(ctx context.Context) {
	exited := make(chan error, 1)
	go func() { exited <- c.cmd.Wait() }()
	var exit error
	printed := make(chan struct{})
	go func() {
		defer close(printed)
		_, _ = io.Copy(&lineLogger{log: c.cfg.Logger}, c.prints)
	}()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.writeRounds(ctx) })
	g.Go(func() error { return c.readMessages() })
	g.Go(func() error { // the first to return ends all
		ended := errExited
		select {
		case exit = <-exited:
			_ = c.to.Close()
		case <-ctx.Done():
			ended = ctx.Err()
			exit = c.stop(exited)
		}
		// Processes that the driver started are killed with it, since they may hold the pipe open. The driver's last
		// messages are still read.
		_ = syscall.Kill(-c.pid, syscall.SIGKILL)
		last := time.Now().Add(c.cfg.Grace)
		return errors.Join(ended, c.from.SetReadDeadline(last), c.prints.SetReadDeadline(last))
	})
	err := g.Wait()
	<-printed
	_ = closeAll(c.to, c.from, c.prints) // some may be closed already
	c.events <- childEvent{gone: fmt.Errorf("%w (%s)", err, exitText(exit))}
}

// stop ends the process: it closes its pipe, then sends SIGTERM, then SIGKILL. It returns the exit error.
func (c *child) stop(exited <-chan error) error {
	_ = c.to.Close()
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		timer := time.NewTimer(c.cfg.Grace)
		select {
		case err := <-exited:
			timer.Stop()
			return err
		case <-timer.C:
			_ = syscall.Kill(-c.pid, signal) // the whole process group
		}
	}
	return <-exited
}

func exitText(err error) string {
	if err == nil {
		return "exit status 0"
	}
	return err.Error()
}

// writeAtOnce is how many bytes are written together.
const writeAtOnce = 64 << 10

// writeRounds writes rounds as they arrive.
func (c *child) writeRounds(ctx context.Context) error {
	var seq uint64
	var buf []byte
	for {
		var round []*pb.ToDataplane
		select {
		case <-ctx.Done():
			return ctx.Err()
		case round = <-c.rounds:
		}
		for i, m := range round {
			var err error
			numbered := pb.ToDataplane{SequenceNumber: seq, Payload: m.Payload} // m is shared
			if buf, err = AppendFrame(buf, &numbered); err != nil {
				return err
			}
			seq++
			if len(buf) < writeAtOnce && i < len(round)-1 {
				continue
			}
			if _, err := c.to.Write(buf); err != nil {
				return fmt.Errorf("%w: %w", errClosedPipes, err)
			}
			if buf = buf[:0]; cap(buf) > keepBuffer {
				buf = nil
			}
		}
		c.events <- childEvent{written: uint64(len(round))}
	}
}

// readMessages reads the driver's messages to the end of its pipe.
func (c *child) readMessages() error {
	in := NewReader(c.from, c.cfg.Limit)
	for {
		m := &pb.FromDataplane{}
		err := in.Read(m)
		switch {
		case err == nil:
			c.events <- childEvent{message: m}
		case errors.Is(err, ErrGarbage):
			c.events <- childEvent{garbage: err}
		case errors.Is(err, io.EOF):
			return errClosedPipes
		default:
			return err
		}
	}
}

// lineLogger logs the driver's output line by line.
type lineLogger struct {
	log  *slog.Logger
	rest []byte
}

// longestLine is the longest logged part of a line, in bytes.
const longestLine = 4 << 10

// Write implements io.Writer; it never fails.
func (l *lineLogger) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		line, rest, ended := bytes.Cut(p, []byte("\n"))
		if room := longestLine - len(l.rest); room > 0 {
			l.rest = append(l.rest, line[:min(room, len(line))]...)
		}
		if p = rest; ended {
			l.log.Info("driver output", "line", string(l.rest))
			l.rest = l.rest[:0]
		}
	}
	return n, nil
}
