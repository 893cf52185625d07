package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/contiv-agent/contiv-agent/calc"
	"github.com/contiv-agent/contiv-agent/calico/datastore"
	"github.com/contiv-agent/contiv-agent/calico/felix"
	"github.com/contiv-agent/contiv-agent/cmd/driver"
	"github.com/contiv-agent/contiv-agent/cmd/exit"
	"github.com/contiv-agent/contiv-agent/cmd/flags"
	pb "github.com/contiv-agent/contiv-agent/proto/felix"
)

// calcFlags are the flags of calc.
type calcFlags struct {
	hostname      string
	nodeResources bool
	routeSource   string
	driver        string
	linger        time.Duration
	log           flags.Log
}

func newCalc() *cobra.Command {
	var f calcFlags
	cmd := &cobra.Command{
		Use:   "calc",
		Short: "Calculate the messages that Felix sends to its dataplane driver",
		Long: `calc is the calculation graph alone: it reads changes of Calico's datastore, in the datastore's own keys and values, and
writes the messages for a dataplane driver of this node, as Felix v3.31 sends them.

The input is lines of JSON:

    {"key":"/calico/v1/host/n1/bird_ip","value":"10.0.0.1"}   a value, as text, or as JSON itself
    {"key":"/calico/v1/host/n1/bird_ip","deleted":true}       a removed key
    {"status":"in-sync"}                                      the first snapshot is complete; before it, calc writes no policies and
                                                              endpoints. Also: wait-for-ready, resync
    {"flush":true}                                            write the messages that follow from the changes so far

The output is lines of JSON: one for each message (ToDataplane, in protobuf's JSON), and {"flushed":true} after those of each flush. The
end of the input is a flush, if there was a change since the last one. For a line that cannot be parsed calc writes {"error":…} with its
number and key, treats its key as deleted, and reads the next line. A policy with a selector that cannot be parsed does the same at the
flush.

With --driver, calc sends the messages to a dataplane driver instead. It starts the program as Felix does (no arguments, messages on its
file descriptors 3 and 4), restarts it when it ends, and then sends everything again. calc writes the driver's messages (FromDataplane) as
JSON, one per line. At the end of the input calc sends the remaining messages; after --linger it closes the driver's pipe, and ends with it.

Policies may have the keys of Calico up to v3.31 (/calico/v1/policy/tier/TIER/policy/NAME) and of v3.32
(/calico/v1/policy/KIND/NAMESPACE/NAME); the messages name them by tier and name.`,
		Example: `  contiv-agent calc --hostname node-1 <examples/calc/changes.jsonl
  printf '%s\n' '{"status":"in-sync"}' '{"key":"/calico/v1/config/LogSeverity","value":"info"}' '{"flush":true}' |
    contiv-agent calc --hostname node-1
  contiv-agent calc --hostname node-1 --driver ./my-driver <examples/calc/changes.jsonl`,
		Args: exit.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.runCalc(cmd) },
	}
	fs := cmd.Flags()
	fs.StringVar(&f.hostname, "hostname", "", "name of this node in the datastore (default: $NODE_NAME, or the name of the host)")
	fs.BoolVar(&f.nodeResources, "use-node-resources", false, "use the addresses of Node resources instead of bird_ip")
	fs.StringVar(&f.routeSource, "route-source", "CalicoIPAM", "source of the routes to workloads: CalicoIPAM (blocks), or WorkloadIPs (all workloads)")
	fs.StringVar(&f.driver, "driver", "", "send the messages to this program, a dataplane driver for Felix, instead of writing them")
	fs.DurationVar(&f.linger, "linger", 0, "with --driver: how long to read its messages after the end of the input")
	f.log.AddFlags(cmd)
	return cmd
}

func (f *calcFlags) runCalc(cmd *cobra.Command) error {
	lines := datastore.Lines{Graph: calc.Config{Node: flags.NodeName(f.hostname), NodeResources: f.nodeResources}}
	switch f.routeSource {
	case "CalicoIPAM":
	case "WorkloadIPs":
		lines.Graph.WorkloadRoutes = true
	default:
		return exit.Usage(fmt.Errorf("--route-source %s: must be CalicoIPAM or WorkloadIPs", f.routeSource))
	}
	if f.driver == "" {
		return lines.Run(cmd.InOrStdin(), cmd.OutOrStdout())
	}
	return f.drive(cmd, lines)
}

// drive sends a driver the messages that follow from lines.
func (f *calcFlags) drive(cmd *cobra.Command, lines datastore.Lines) error {
	log, err := f.log.Logger(cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	out := &lineWriter{out: cmd.OutOrStdout()}
	driver, err := driver.Supervise(felix.SupervisorConfig{
		Path: f.driver, Logger: log, OnMessage: func(m *pb.FromDataplane) { out.writeMessage(m) },
	}, lines.Graph.Node, map[string]string{"NODE_NAME": lines.Graph.Node})
	if err != nil {
		return err
	}
	lines.Send = func(messages []*pb.ToDataplane) error {
		for _, m := range messages {
			driver.OnUpdate(m)
		}
		driver.Apply()
		return nil
	}
	ctx, cancel := context.WithCancel(cmd.Context())
	ended := make(chan error, 1)
	go func() { ended <- driver.Run(ctx) }()
	err = lines.Run(cmd.InOrStdin(), out)
	if err == nil {
		err = driver.WaitDelivered(ctx)
	}
	select {
	case <-ctx.Done():
	case <-time.After(f.linger):
	}
	cancel()
	<-ended
	return errors.Join(err, out.failed())
}

// lineWriter writes whole lines for two concurrent writers.
type lineWriter struct {
	mu  sync.Mutex
	out io.Writer
	err error
}

// Write implements io.Writer.
func (w *lineWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.out.Write(p)
}

func (w *lineWriter) writeMessage(m *pb.FromDataplane) {
	text, err := protojson.Marshal(m)
	var b bytes.Buffer
	if err == nil {
		err = json.Compact(&b, text)
	}
	if err == nil {
		b.WriteByte('\n')
		_, err = w.Write(b.Bytes())
	}
	if err != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.err = errors.Join(w.err, err)
	}
}

func (w *lineWriter) failed() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}
