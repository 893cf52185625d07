package whatif

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/contiv-agent/contiv-agent/cmd/exit"
	"github.com/contiv-agent/contiv-agent/cmd/show"
	"github.com/contiv-agent/contiv-agent/cmd/terminal"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/trace"
	"github.com/contiv-agent/contiv-agent/trace/table"
)

// Matrix select questions about all pairs of pods.
type Matrix struct {
	Matrix, Diff     bool
	ports            []string
	clients, servers []string // namespaces
}

// AddFlags adds the flags to a command.
func (f *Matrix) AddFlags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.Matrix, "matrix", false, "ask for each pair of pods and each --port")
	cmd.Flags().BoolVar(&f.Diff, "diff", false, "show the connections that start and stop to be possible from one folder to another, given as arguments; with one folder: when its objects are applied to the present ones")
	cmd.Flags().StringSliceVar(&f.ports, "port", nil, "with --matrix or --diff: port to dial, such as 80/TCP, 53/UDP or ICMP; may be repeated")
	cmd.Flags().StringSliceVar(&f.clients, "from-namespace", nil, "with --matrix or --diff: ask only for clients in these namespaces")
	cmd.Flags().StringSliceVar(&f.servers, "to-namespace", nil, "with --matrix or --diff: ask only for servers in these namespaces")
}

// Loader loads what-if clusters and their objects.
type Loader struct {
	Load func(paths []string) (*trace.Cluster, error) // of folders or files
	// Present returns the objects of the cluster as it is, and Build builds a cluster of objects.
	Present func() ([]event.Change, error)
	Build   func([]event.Change) (*trace.Cluster, error)
}

// sides are the clusters that --diff compares: of two folders, or of the present objects without and with those of one folder.
func (l Loader) sides(cmd *cobra.Command, args []string) (before, after func() (*trace.Cluster, error), err error) {
	if len(args) == 2 {
		return func() (*trace.Cluster, error) { return l.Load(args[:1]) }, func() (*trace.Cluster, error) { return l.Load(args[1:]) }, nil
	}
	given, err := loadManifests(cmd.Context(), args)
	if err != nil {
		return nil, nil, err
	}
	now, err := l.Present()
	if err != nil {
		return nil, nil, err
	}
	return func() (*trace.Cluster, error) { return l.Build(now) }, func() (*trace.Cluster, error) { return l.Build(Overlay(now, given)) }, nil
}

// Run answers for each pair of pods. The error has exit code 3 if --diff finds a difference.
func (f *Matrix) Run(cmd *cobra.Command, l Loader, manifests, args []string, out *show.Output) error {
	ports, err := f.checkPorts(manifests, args)
	if err != nil {
		return exit.Usage(err)
	}
	ask := func(load func() (*trace.Cluster, error), each func([]trace.Cell) error) ([]trace.Cell, error) {
		cluster, err := load()
		if err != nil {
			return nil, err
		}
		defer cluster.Close()
		return cluster.Matrix(cmd.Context(), trace.Pairs{
			Ports: ports, Clients: f.clients, Servers: f.servers, Progress: terminal.Progress(cmd.ErrOrStderr(), "clients"),
			Each: each,
		})
	}
	if f.Matrix {
		whole := func() (*trace.Cluster, error) { return l.Load(manifests) }
		if *out == "json" { // each line as soon as it is known
			_, err := ask(whole, func(row []trace.Cell) error { return writeLines(cmd.OutOrStdout(), row, out, nil) })
			return err
		}
		cells, err := ask(whole, nil)
		if err != nil {
			return err
		}
		return writeLines(cmd.OutOrStdout(), cells, out, func(w io.Writer, cells []trace.Cell) {
			table.Write(w, cells, terminal.StyleOf(w).Width)
		})
	}
	first, second, err := l.sides(cmd, args)
	if err != nil {
		return err
	}
	before, err := ask(first, nil)
	if err != nil {
		return err
	}
	after, err := ask(second, nil)
	if err != nil {
		return err
	}
	diffs := trace.Compare(before, after)
	if err := writeLines(cmd.OutOrStdout(), diffs, out, trace.WriteDifferences); err != nil {
		return err
	}
	if len(diffs) > 0 {
		return &exit.Error{Code: exit.Differs}
	}
	return nil
}

// checkPorts parses the ports. The error names flags and arguments that exclude each other.
func (f *Matrix) checkPorts(manifests, args []string) ([]trace.Port, error) {
	switch {
	case f.Matrix && f.Diff:
		return nil, errors.New("--matrix and --diff exclude each other")
	case f.Matrix && len(args) > 0:
		return nil, errors.New("--matrix takes no questions")
	case f.Diff && len(manifests) > 0:
		return nil, errors.New("--diff takes its folders as arguments, not --manifests")
	case f.Diff && len(args) != 1 && len(args) != 2:
		return nil, fmt.Errorf("--diff takes one folder, whose objects are applied to the present ones, or two, not %d", len(args))
	case len(f.ports) == 0:
		return nil, errors.New("--port is required with --matrix and --diff")
	}
	var ports []trace.Port
	for _, s := range f.ports {
		p, err := trace.ParsePort(s)
		if err != nil {
			return nil, fmt.Errorf("--port: %w", err)
		}
		ports = append(ports, p)
	}
	return ports, nil
}

// writeLines writes lines of JSON, a list in YAML, or text.
func writeLines[T any](w io.Writer, lines []T, out *show.Output, text func(io.Writer, []T)) error {
	if *out != "json" {
		return out.Print(w, lines, func(w io.Writer) { text(w, lines) })
	}
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	for _, line := range lines {
		if err := enc.Encode(line); err != nil {
			return err
		}
	}
	return nil
}
