// Command agnhost is what a test image of ours needs beside Kubernetes' agnhost: nc and nslookup with the options that Kubernetes' tests use, and SCTP in pods of
// a kernel without it. The name under which it starts says which.
//
// Invariant: everything but SCTP is done by Kubernetes' program, and SCTP too if the kernel has it.
package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"
)

// upstream is the file of Kubernetes' program in the image.
const upstream = "/usr/local/bin/agnhost"

func main() {
	err := run(filepath.Base(os.Args[0]), os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(name string, args []string) error {
	switch {
	case name == "nc":
		return netcat(args, os.Stdin, os.Stdout)
	case name == "nslookup":
		return lookup(args)
	case len(args) > 0 && args[0] == "porter" && !kernelHasSCTP():
		return porter(os.Environ())
	case len(args) > 0 && args[0] == "connect" && !kernelHasSCTP():
		if to, timeout, ok := asksSCTP(args[1:]); ok {
			return connect(to, timeout)
		}
	}
	return syscall.Exec(upstream, append([]string{"agnhost"}, args...), os.Environ())
}

// netcat is nc of OpenBSD: it writes its input to an address, and what is answered to its output, until the other side closes or says nothing for the time of -w.
func netcat(args []string, in io.Reader, out io.Writer) error {
	flags := pflag.NewFlagSet("nc", pflag.ContinueOnError)
	flags.BoolP("verbose", "v", false, "")
	flags.BoolP("telnet", "t", false, "")
	udp := flags.BoolP("udp", "u", false, "")
	wait := flags.IntP("wait", "w", 10, "")
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("nc: %w", err)
	}
	if flags.NArg() != 2 {
		return fmt.Errorf("nc: want a host and a port, have %q", flags.Args())
	}
	network := "tcp"
	if *udp {
		network = "udp"
	}
	idle := time.Duration(*wait) * time.Second
	conn, err := net.DialTimeout(network, net.JoinHostPort(flags.Arg(0), flags.Arg(1)), idle)
	if err != nil {
		return fmt.Errorf("nc: %w", err)
	}
	defer conn.Close()
	go func() { _, _ = io.Copy(conn, in) }() // a connection that is closed ends the program by its other direction
	for buf := make([]byte, 4096); ; {
		if err := conn.SetReadDeadline(time.Now().Add(idle)); err != nil {
			return err
		}
		n, err := conn.Read(buf)
		if _, failed := out.Write(buf[:n]); failed != nil {
			return failed
		}
		if err != nil {
			return nil // nc says nothing about the end of a connection
		}
	}
}

// lookup is nslookup of one name.
func lookup(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("nslookup: want a name, have %q", args)
	}
	addrs, err := net.LookupHost(args[0])
	if err != nil {
		return fmt.Errorf("** server can't find %s: %w", args[0], err)
	}
	for _, addr := range addrs {
		fmt.Printf("Name:\t%s\nAddress: %s\n", args[0], addr)
	}
	return nil
}

// kernelHasSCTP reports whether the kernel makes sockets of SCTP.
func kernelHasSCTP() bool {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, syscall.IPPROTO_SCTP)
	if err == nil {
		_ = syscall.Close(fd) // nothing used it
	}
	return err == nil
}

// portsOf is how the variables begin that give porter ports of SCTP.
const portsOf = "SERVE_SCTP_PORT_"

// porter serves the ports of SCTP that the environment names, and has Kubernetes' program serve the others.
func porter(env []string) error {
	texts, rest, others := map[uint16]string{}, []string{}, false
	for _, entry := range env {
		key, text, _ := strings.Cut(entry, "=")
		port, ok := strings.CutPrefix(key, portsOf)
		if !ok {
			rest, others = append(rest, entry), others || strings.HasPrefix(key, "SERVE_")
			continue
		}
		number, err := strconv.ParseUint(port, 10, 16)
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		texts[uint16(number)] = text
	}
	ended := make(chan error, 2)
	if others {
		cmd := exec.Command(upstream, "porter")
		cmd.Env, cmd.Stdout, cmd.Stderr = rest, os.Stdout, os.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		go func() { ended <- errors.Join(errors.New("porter ended"), cmd.Run()) }()
	}
	if len(texts) > 0 {
		conn, err := net.ListenIP(ipSCTP, nil)
		if err != nil {
			return err
		}
		go func() { ended <- serve(conn, texts) }()
	}
	if !others && len(texts) == 0 {
		return errors.New("porter: no port")
	}
	return <-ended
}

// asksSCTP reads the arguments of connect; ok: they ask for SCTP, to an IPv4 address.
func asksSCTP(args []string) (to netip.AddrPort, timeout time.Duration, ok bool) {
	flags := pflag.NewFlagSet("connect", pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	flags.SetOutput(io.Discard)
	flags.DurationVar(&timeout, "timeout", 0, "")
	protocol := flags.String("protocol", "tcp", "")
	if err := flags.Parse(args); err != nil || *protocol != "sctp" || flags.NArg() != 1 {
		return to, 0, false
	}
	to, err := netip.ParseAddrPort(flags.Arg(0))
	return to, timeout, err == nil && to.Addr().Is4()
}

// connect is agnhost's connect, in its words.
func connect(to netip.AddrPort, timeout time.Duration) error {
	err := dial(to, timeout)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		return errors.New("TIMEOUT")
	}
	return fmt.Errorf("OTHER: %w", err)
}
