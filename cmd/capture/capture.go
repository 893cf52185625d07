// Package capture turns the flags of contiv-agent capture, and the packets of a pod that an agent captures, into a pcap file.
//
// Invariant: the file is written only when the capture has ended, and complete.
package capture

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/contiv-agent/contiv-agent/agent/control"
	"github.com/contiv-agent/contiv-agent/atomicfile"
	"github.com/contiv-agent/contiv-agent/cmd/exit"
	"github.com/contiv-agent/contiv-agent/cmd/flags"
	"github.com/contiv-agent/contiv-agent/cmd/terminal"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/vpp/capture"
)

const (
	// stdout as a file's name is standard output.
	stdout = "-"
	// answerLimit is how long an agent may take beyond the time of the capture.
	answerLimit = 30 * time.Second

	limitsText = `A capture ends after --count packets, after --duration, or by Ctrl-C, and its packets are written then. VPP keeps them in its memory until the end: at
most 32 MiB. A program that is killed, or a lost connection, ends the capture, too, and its packets are lost.

VPP has one capture at a time. A capture of another program is left alone, and the command fails. While a pod is captured, the flows of this node lack
dropped packets.`
	exitText = "Exit code 0: the file is written, perhaps without packets. 1: no agent answers, the pod is unknown, VPP captures already, or the file cannot be written.\n2: a flag or the argument is wrong."
)

// settings are the flags that the commands of a node and of a cluster share.
type settings struct {
	limits capture.Limits
	file   string
}

func (s *settings) addFlags(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVarP(&s.file, "write", "w", stdout, "file to write; an existing one is replaced; - is standard output")
	fs.Uint32Var(&s.limits.Packets, "count", 1000, "end after this many packets, at most 100000")
	fs.DurationVar(&s.limits.Time, "duration", 30*time.Second, "end after this time, at most 10m")
	fs.Uint32Var(&s.limits.Bytes, "bytes", 256, "bytes to keep of each packet, 32 to 9000")
}

// checkArgs returns the pod of the arguments, and what is wrong.
func (s *settings) checkArgs(out io.Writer, args []string) (model.PodID, error) {
	if len(args) != 1 {
		return model.PodID{}, exit.Usage(errors.New("want one argument, NAMESPACE/POD"))
	}
	namespace, name, ok := strings.Cut(args[0], "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return model.PodID{}, exit.Usage(fmt.Errorf("pod %q: want NAMESPACE/POD", args[0]))
	}
	if err := s.limits.Validate(); err != nil {
		return model.PodID{}, exit.Usage(err)
	}
	if s.file == stdout && terminal.IsTerminal(out) {
		return model.PodID{}, exit.Usage(errors.New("standard output is a terminal: give a file with -w, or a pipe"))
	}
	return model.PodID{Namespace: namespace, Name: name}, nil
}

// New returns the command.
func New() *cobra.Command {
	var socket string
	var s settings
	var until bool
	cmd := &cobra.Command{
		Use:   "capture NAMESPACE/POD",
		Short: "Capture the packets of a pod of this node in VPP, as a pcap file",
		Long: `capture writes a pcap file with the packets that the pod's interface in VPP receives from the pod and sends to it, for Wireshark and tcpdump. Packets of
the pod are as it sent them: before access lists and NAT. Packets to the pod are as it gets them.

` + limitsText + "\n\n" + exitText,
		Example: `  contiv-agent capture prod/web-0 -w web.pcap
  contiv-agent capture prod/web-0 -w web.pcap --count 100 --duration 5m
  contiv-agent capture prod/web-0 --bytes 1500 | tcpdump -nr -`,
		RunE: func(cmd *cobra.Command, args []string) error {
			pod, err := s.checkArgs(cmd.OutOrStdout(), args)
			if err != nil {
				return err
			}
			ctx := cmd.Context()
			if until {
				var stop func()
				ctx, stop = flags.UntilEnd(ctx, cmd.InOrStdin())
				defer stop()
			}
			whole, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.limits.Time+answerLimit)
			defer cancel()
			file, err := control.FetchCapture(whole, flags.StatusSocket(socket), pod, s.limits, ctx.Done())
			if err != nil {
				return err
			}
			return s.save(file, pod, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	s.addFlags(cmd)
	cmd.Flags().StringVar(&socket, "status-socket", flags.Auto, "unix socket of the agent; auto: $"+flags.EnvStatusSocket+", or the default of run")
	cmd.Flags().BoolVar(&until, flags.UntilInputEnds, false, "stop when standard input ends; kubectl contiv capture uses it")
	return cmd
}

// save writes the file, and says how many packets it has.
func (s *settings) save(file []byte, pod model.PodID, out, progress io.Writer) error {
	n, err := capture.Count(file)
	if err != nil {
		return fmt.Errorf("the agent's answer: %w", err)
	}
	if s.file == stdout {
		_, err = terminal.Raw(out).Write(file)
	} else {
		err = atomicfile.Write(s.file, file, 0o600)
	}
	if err == nil {
		fmt.Fprintf(progress, "%d packets of %s\n", n, pod)
	}
	return err
}
