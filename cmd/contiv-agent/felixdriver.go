package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/felix"
	"github.com/contiv-agent/contiv-agent/sim"
)

// driverName is what this program is called where Felix starts it: Felix passes no arguments.
const driverName = "contiv-felix-driver"

// implied are the arguments that the name of the program stands for.
func implied(program string, args []string) []string {
	if filepath.Base(program) == driverName {
		return append([]string{"felix-driver"}, args...)
	}
	return args
}

// The ends of Felix's pipes (Felix v3.31, felix/dataplane/external).
const (
	fdFromFelix = 3
	fdToFelix   = 4
)

func newFelixDriver() *cobra.Command {
	var path, folder string
	cmd := &cobra.Command{
		Use:   "felix-driver",
		Short: "Be the dataplane driver of a Felix",
		Long: `felix-driver is started by Felix (Calico, any version from 3.28 on) as its external dataplane driver: Felix calculates which policies
apply to which endpoint of this node, felix-driver keeps VPP's access lists equal to it, and tells Felix how endpoints are. Felix
starts it without arguments, so a copy of this program, or a link to it, that is called ` + driverName + ` is this command:

    ln -s contiv-agent /usr/local/bin/` + driverName + `
    FELIX_USEINTERNALDATAPLANEDRIVER=false FELIX_DATAPLANEDRIVER=/usr/local/bin/` + driverName + ` calico-felix

Where Felix is in a container of its own, an init container of this program's image puts both into a folder they share, and ends:

    contiv-agent felix-driver --install /driver

It reads Felix's messages from file descriptor 3 and writes its own to 4: eight bytes of length, little-endian, then a protobuf. Nothing is
programmed before Felix has sent its configuration and in_sync; then VPP is compared with all there is, and made equal. Later messages
are programmed as they come, all that can be read without waiting in one transaction. When Felix goes, or on SIGTERM, it ends with exit
code 0 and leaves VPP as it is: the next one goes on from there, and if nothing has changed it writes nothing. A frame that is too
long, ends early or holds no message ends it with an error and exit code 1.

Endpoints are told to Felix as "up" when VPP has acknowledged all their policies ask for, "error" when VPP refuses something of it, and
"down" when VPP has no interface for them, or is away. An endpoint's interface is the one that VPP's route to its address leads to;
or the one tagged with the workload (namespace/name); or the one that has the name, or the tag, of the endpoint's interface on the host.

` + configHelp + `
What becomes of Felix's messages:

` + indent(felix.Manual()),
		Example: `  contiv-agent felix-driver --config /etc/contiv-agent/felix-driver.yaml 3</run/from-felix 4>/run/to-felix
  ` + envConfig + `=./driver.yaml ` + driverName + ` 3</run/from-felix 4>/run/to-felix`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if folder != "" {
				return install(folder)
			}
			return runDriver(cmd, path)
		},
	}
	cmd.Flags().StringVar(&path, "config", "", "file of the configuration (default: $"+envConfig+", or "+defaultDriverConfig+" if there is one)")
	cmd.Flags().StringVar(&folder, "install", "", "put a copy of this program into this folder, and a link to it that is called "+driverName+", and end")
	return cmd
}

// indent makes lines of a table stand as they are in a manual page.
func indent(table string) string {
	out := ""
	for line := range lines(table) {
		out += "    " + line + "\n"
	}
	return out
}

func runDriver(cmd *cobra.Command, path string) error {
	file, err := loadDriver(path, os.Getenv)
	if err != nil {
		return usage(err)
	}
	flags := file.Log.flags()
	log, err := flags.logger(cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	file.level = &flags.current
	in, err := pipe(fdFromFelix, "from Felix")
	if err != nil {
		return usage(err)
	}
	out, err := pipe(fdToFelix, "to Felix")
	if err != nil {
		return usage(errors.Join(err, in.Close()))
	}
	return driveVPP(cmd.Context(), file, in, out, log)
}

// driveVPP runs one session with Felix. That Felix is gone, or that it was told to end, is no error.
func driveVPP(ctx context.Context, file *driverFile, in io.ReadCloser, out io.WriteCloser, log *slog.Logger) error {
	cfg, err := file.agent(log)
	if err != nil {
		return usage(errors.Join(err, in.Close(), out.Close()))
	}
	limitSizes(&cfg, limitMemory(log, os.DirFS("/")), log)
	driver := felix.NewDriver(felix.Config{In: in, Out: out, Limit: file.MaxFrame, Logger: log})
	cfg.Felix = &agent.Felix{Driver: driver}
	if file.VPP.Sim {
		v := sim.New(sim.Config{Seed: 1, PuntLocal: true})
		defer v.Close()
		if c := plumb(&cfg, v); cfg.NoServices { // or pods are plumbed as those sources say
			cfg.Felix.Before = plumbMessages(c, cfg.NodeName, log)
		}
	}
	for began := time.Now(); ; {
		a, err := agent.New(cfg)
		if err != nil {
			return usage(errors.Join(err, in.Close(), out.Close()))
		}
		err = a.Run(ctx)
		switch {
		case errors.Is(err, felix.ErrGone):
			log.Info("felix is gone; VPP stays as it is")
			return nil
		case !errors.Is(err, syscall.EADDRINUSE) || time.Since(began) > ending || !pause(ctx):
			return stopped(ctx, err)
		}
		log.Warn("waiting for the driver before this one to end", "err", err)
	}
}

// ending is how long a driver may take to end: Felix kills it after 4 s (v3.31). Its successor may be there before, and has to wait
// for the places where it answers.
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

// pipe is an open file that Felix made for us.
func pipe(fd int, what string) (*os.File, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFIFO && st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return nil, fmt.Errorf("file descriptor %d (%s) is no pipe: felix-driver is started by Felix", fd, what)
	}
	unix.CloseOnExec(fd)
	if err := syscall.SetNonblock(fd, true); err != nil { // so that waiting for Felix can be ended
		return nil, fmt.Errorf("file descriptor %d (%s): %w", fd, what, err)
	}
	return os.NewFile(uintptr(fd), what), nil
}
