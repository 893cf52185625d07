package main

import (
	"context"
	"errors"
	"io"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/agent/attachment"
	"github.com/contiv-agent/contiv-agent/agent/heap"
	"github.com/contiv-agent/contiv-agent/calico/felix"
	"github.com/contiv-agent/contiv-agent/cmd/driver"
	"github.com/contiv-agent/contiv-agent/cmd/embedded"
	"github.com/contiv-agent/contiv-agent/cmd/exit"
	"github.com/contiv-agent/contiv-agent/sim"
)

// implied returns the arguments that the program's name implies.
func implied(program string, args []string) []string {
	if filepath.Base(program) == driver.Program {
		return append([]string{"felix-driver"}, args...)
	}
	return args
}

func newFelixDriver() *cobra.Command {
	var path, folder string
	cmd := &cobra.Command{
		Use:   "felix-driver",
		Short: "Run as Felix's dataplane driver",
		Long: `Felix (Calico, any version from 3.28 on) starts felix-driver as its external dataplane driver. Felix calculates which policies apply
to which endpoint of this node. felix-driver keeps VPP's access lists equal to that, and reports the state of endpoints to Felix. Felix
starts it without arguments: a copy of this program, or a link to it, with the name ` + driver.Program + ` runs this command:

    ln -s "$(command -v contiv-agent)" /usr/local/bin/` + driver.Program + `
    FELIX_USEINTERNALDATAPLANEDRIVER=false FELIX_DATAPLANEDRIVER=/usr/local/bin/` + driver.Program + ` calico-felix

If Felix runs in a separate container, an init container of this program's image installs both in a shared folder, and ends:

    contiv-agent felix-driver --install /driver

It reads Felix's messages from file descriptor 3 and writes its own to 4: eight bytes of length, little-endian, then a protobuf. It programs
nothing before Felix has sent its configuration and in_sync; then it compares VPP with the desired state and makes VPP equal. Of later
messages it programs all that it can read without waiting as one transaction. When Felix ends, or on SIGTERM, it ends with exit
code 0 and does not change VPP: the next driver adopts VPP's state, and writes nothing if nothing has changed. A frame that is too
long, ends early or contains no message ends it with an error and exit code 1.

It reports an endpoint to Felix as "up" when VPP has acknowledged all values of its policies, "error" when VPP refuses one of them, and
"down" when VPP has no interface for it, or is away. An endpoint's interface is the one of VPP's route to its address;
or the one tagged with the workload (namespace/name); or the one whose name or tag is that of the endpoint's interface on the host.

` + driver.Help + `
How it handles Felix's messages:

` + indent(felix.Manual()),
		Example: `  contiv-agent felix-driver --config /etc/contiv-agent/felix-driver.yaml 3</run/from-felix 4>/run/to-felix
  ` + driver.EnvConfig + `=./driver.yaml ` + driver.Program + ` 3</run/from-felix 4>/run/to-felix`,
		Args: exit.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if folder != "" {
				return driver.Install(folder)
			}
			return runDriver(cmd, path)
		},
	}
	cmd.Flags().StringVar(&path, "config", "", "file of the configuration (default: $"+driver.EnvConfig+", or "+driver.DefaultFile+" if it exists)")
	cmd.Flags().StringVar(&folder, "install", "", "copy this program into this folder, with a link to it named "+driver.Program+", and end")
	return cmd
}

// indent indents the lines of a table, so that a manual page does not reflow them.
func indent(table string) string {
	out := ""
	for line := range lines(table) {
		out += "    " + line + "\n"
	}
	return out
}

func runDriver(cmd *cobra.Command, path string) error {
	file, err := driver.Load(path, os.Getenv)
	if err != nil {
		return exit.Usage(err)
	}
	logs := file.Log.Flags()
	log, err := logs.Logger(cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	file.Level = &logs.Current
	in, err := driver.Pipe(driver.FromFelix, "from Felix")
	if err != nil {
		return exit.Usage(err)
	}
	out, err := driver.Pipe(driver.ToFelix, "to Felix")
	if err != nil {
		return exit.Usage(errors.Join(err, in.Close()))
	}
	return driveVPP(cmd.Context(), file, in, out, log)
}

// driveVPP runs one session with Felix. The end of Felix, or a stop signal, is not an error.
func driveVPP(ctx context.Context, file *driver.File, in io.ReadCloser, out io.WriteCloser, log *slog.Logger) error {
	cfg, err := file.Agent(version, log)
	if err != nil {
		return exit.Usage(errors.Join(err, in.Close(), out.Close()))
	}
	cfg.Limits = heap.Sizes(cfg.Limits, heap.Limit(log, os.DirFS("/")), log)
	driver := felix.NewDriver(felix.Config{In: in, Out: out, Limit: file.MaxFrame, Logger: log})
	cfg.Policies.Felix = &attachment.Felix{Driver: driver}
	if file.VPP.Sim {
		v := sim.New(sim.Config{Seed: 1, PuntLocal: true})
		defer v.Close()
		if c := embedded.Plumb(&cfg, v); cfg.Services.Off { // else the CNI follows the sources' pods
			cfg.Policies.Felix.Before = embedded.PlumbMessages(c, cfg.NodeName, log)
		}
	}
	for began := time.Now(); ; {
		a, err := agent.New(cfg)
		if err != nil {
			return exit.Usage(errors.Join(err, in.Close(), out.Close()))
		}
		err = a.Run(ctx)
		switch {
		case errors.Is(err, felix.ErrGone):
			log.Info("felix ended; VPP stays as it is")
			return nil
		case !errors.Is(err, syscall.EADDRINUSE) || time.Since(began) > ending || !pause(ctx):
			return stopped(ctx, err)
		}
		log.Warn("waiting for the previous driver to end", "err", err)
	}
}

// ending bounds how long a driver may take to end: Felix kills it after 4 s (v3.31). Its successor may start earlier, and
// waits for the listeners.
const ending = 10 * time.Second

// pause waits a little; false: ctx has ended.
func pause(ctx context.Context) bool {
	timer := time.NewTimer(100 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// lines iterates over the lines of a text whose last line is complete.
func lines(text string) iter.Seq[string] {
	return strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n")
}
