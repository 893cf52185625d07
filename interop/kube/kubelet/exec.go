package kubelet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"

	"github.com/contiv-agent/contiv-agent/interop/kube/netns"
)

// beside is a program beside the container's, in the same surroundings.
func (c *container) beside(ctx context.Context, command []string) (*netns.Program, error) {
	c.mu.Lock()
	running := c.state.Running != nil
	c.mu.Unlock()
	if !running {
		return nil, fmt.Errorf("container %s does not run", c.spec.Name)
	}
	image, err := c.w.k.cfg.image(c.spec.Image)
	if err != nil {
		return nil, err
	}
	p, err := c.program(ctx, image)
	if err != nil {
		return nil, err
	}
	if p.Args = command; p.Root == nil {
		p.Args = image.onMachine(command)
	}
	return p, nil
}

// ExecInContainer implements remotecommand.Executor.
func (w *worker) ExecInContainer(ctx context.Context, _, _, name string, command []string, in io.Reader, out, complaint io.WriteCloser, tty bool, resize <-chan remotecommand.TerminalSize, _ time.Duration) error {
	c := w.container(name)
	if c == nil {
		return fmt.Errorf("pod %s/%s has no container %q", w.namespace, w.name, name)
	}
	p, err := c.beside(ctx, command)
	if err != nil {
		return err
	}
	if tty {
		err = withTerminal(ctx, p, in, out, resize)
	} else {
		err = withStreams(ctx, p, in, out, complaint)
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		code := exit.ExitCode()
		if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			code = 128 + int(ws.Signal())
		}
		return utilexec.CodeExitError{Err: err, Code: code}
	}
	return err
}

// withStreams runs a program on the client's streams, and ends it when the client has gone.
func withStreams(ctx context.Context, p *netns.Program, in io.Reader, out, complaint io.WriteCloser) error {
	var input io.WriteCloser
	var failed error
	cmd, err := p.Start(func(cmd *exec.Cmd) {
		prepare(cmd, nil, nil, nil)
		if out != nil {
			cmd.Stdout = out
		}
		if complaint != nil {
			cmd.Stderr = complaint
		}
		if in != nil {
			input, failed = cmd.StdinPipe()
		}
	})
	if err := errors.Join(failed, err); err != nil {
		return err
	}
	if input != nil {
		go func() {
			_, _ = io.Copy(input, in) // ends with the client's stream, or the program
			_ = input.Close()
		}()
	}
	stop := context.AfterFunc(ctx, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	defer stop()
	return cmd.Wait()
}

// withTerminal runs a program at a terminal.
func withTerminal(ctx context.Context, p *netns.Program, in io.Reader, out io.WriteCloser, resize <-chan remotecommand.TerminalSize) error {
	ours, its, err := openTerminal()
	if err != nil {
		return err
	}
	defer ours.Close()
	p.Env = append(p.Env, "TERM=xterm")
	cmd, err := p.Start(func(cmd *exec.Cmd) {
		cmd.Stdin, cmd.Stdout, cmd.Stderr = its, its, its
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setsid: true, Setctty: true}
	})
	_ = its.Close() // the program has it
	if err != nil {
		return err
	}
	go func() {
		for size := range resize {
			_ = unix.IoctlSetWinsize(int(ours.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: size.Height, Col: size.Width}) //nolint:gosec // a file descriptor
		}
	}()
	if in != nil {
		go func() { _, _ = io.Copy(ours, in) }() // ends with the terminal, or the client's stream
	}
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		if out != nil {
			_, _ = io.Copy(out, ours) // an error is the terminal's end
		}
	}()
	stop := context.AfterFunc(ctx, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	defer stop()
	err = cmd.Wait()
	select {
	case <-copied:
	case <-time.After(time.Second): // a program in the background holds the terminal
	}
	return err
}

// openTerminal returns both ends of a new terminal.
func openTerminal() (ours, its *os.File, err error) {
	ours, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}
	fd := int(ours.Fd()) //nolint:gosec // a file descriptor
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		its, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		return nil, nil, errors.Join(err, ours.Close())
	}
	return ours, its, nil
}

// PortForward implements portforward.PortForwarder: it connects to the Pod's loopback interface, as runtimes do.
func (w *worker) PortForward(_ context.Context, _, _ string, port int32, stream io.ReadWriteCloser) error {
	defer stream.Close()
	conn, err := w.dial(port)
	if err != nil {
		return fmt.Errorf("port %d of pod %s/%s: %w", port, w.namespace, w.name, err)
	}
	defer conn.Close()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_, _ = io.Copy(conn, stream) // its end shows at the other side
		_ = conn.(*net.TCPConn).CloseWrite()
	}()
	_, err = io.Copy(stream, conn)
	select {
	case <-sent:
	case <-time.After(time.Second): // the client keeps its side open
	}
	return err
}

// dial connects to a port of the Pod, from inside.
func (w *worker) dial(port int32) (conn net.Conn, err error) {
	connect := func() error {
		for _, host := range []string{"127.0.0.1", "::1"} {
			var e error
			if conn, e = net.DialTimeout("tcp", net.JoinHostPort(host, fmt.Sprint(port)), requestLimit); e == nil {
				return nil
			}
			err = errors.Join(err, e)
		}
		return err
	}
	file := w.netns()
	if file == "" {
		if !w.object().Spec.HostNetwork {
			return nil, errors.New("it has no network")
		}
		return conn, connect()
	}
	err = netns.Do(file, connect)
	return conn, err
}
