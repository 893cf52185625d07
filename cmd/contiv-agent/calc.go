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
	"github.com/contiv-agent/contiv-agent/datastore"
	"github.com/contiv-agent/contiv-agent/felix"
	pb "github.com/contiv-agent/contiv-agent/proto/felix"
)

// calcFlags are the flags of calc.
type calcFlags struct {
	hostname      string
	nodeResources bool
	routeSource   string
	driver        string
	linger        time.Duration
	log           logFlags
}

func newCalc() *cobra.Command {
	var f calcFlags
	cmd := &cobra.Command{
		Use:   "calc",
		Short: "Calculate what Felix would send to its dataplane driver",
		Long: `calc is the calculation graph alone: it reads changes of Calico's datastore, in the datastore's own keys and values, and
writes the messages that a dataplane driver of this node is to get, as Felix v3.31 sends them.

In come lines of JSON:

    {"key":"/calico/v1/host/n1/bird_ip","value":"10.0.0.1"}   a value, as text, or as JSON itself
    {"key":"/calico/v1/host/n1/bird_ip","deleted":true}       a key that is gone
    {"status":"in-sync"}                                      all there was at the start has come; before that nothing is said of
                                                              policies and endpoints. Also: wait-for-ready, resync
    {"flush":true}                                            now write what follows from all that

Out go lines of JSON: one for each message (ToDataplane, in protobuf's JSON), and {"flushed":true} behind those of each flush. The
end of the input is a flush, if anything came since the last. A line that is not understood gives {"error":…} with its number and
key; what it was to set counts as deleted, and the next line is read. So does a policy whose selector is not understood, at the
flush.

With --driver the messages go to a dataplane driver instead, a program that is started as Felix starts it (no arguments, messages
on its file descriptors 3 and 4), and again when it ends, and is then told everything again. What it says (FromDataplane) is written as
JSON, a line each. At the end of the input it is told what it was not told yet; --linger later its pipe is closed, and calc ends with it.

Policies may have the keys of Calico up to v3.31 (/calico/v1/policy/tier/TIER/policy/NAME) and of v3.32
(/calico/v1/policy/KIND/NAMESPACE/NAME); the messages name them by tier and name.`,
		Example: `  contiv-agent calc --hostname node-1 <changes.jsonl
  printf '%s\n' '{"status":"in-sync"}' '{"key":"/calico/v1/config/LogSeverity","value":"info"}' '{"flush":true}' |
    contiv-agent calc --hostname node-1
  contiv-agent calc --hostname node-1 --driver ./my-driver <changes.jsonl`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	fs := cmd.Flags()
	fs.StringVar(&f.hostname, "hostname", "", "name of this node in the datastore (default: $NODE_NAME, or the name of the host)")
	fs.BoolVar(&f.nodeResources, "use-node-resources", false, "take nodes' addresses from Node resources rather than from bird_ip")
	fs.StringVar(&f.routeSource, "route-source", "CalicoIPAM", "what routes to workloads are made of: CalicoIPAM (blocks), or WorkloadIPs (all workloads)")
	fs.StringVar(&f.driver, "driver", "", "tell this program, a dataplane driver of Felix's, in place of writing the messages")
	fs.DurationVar(&f.linger, "linger", 0, "with --driver: how long to listen to it after the end of the input")
	f.log.add(cmd)
	return cmd
}

func (f *calcFlags) run(cmd *cobra.Command) error {
	lines := datastore.Lines{Graph: calc.Config{Node: nodeName(f.hostname), NodeResources: f.nodeResources}}
	switch f.routeSource {
	case "CalicoIPAM":
	case "WorkloadIPs":
		lines.Graph.WorkloadRoutes = true
	default:
		return usage(fmt.Errorf("--route-source %s: must be CalicoIPAM or WorkloadIPs", f.routeSource))
	}
	if f.driver == "" {
		return unless(cmd.Context(), func() error { return lines.Run(cmd.InOrStdin(), cmd.OutOrStdout()) })
	}
	return f.drive(cmd, lines)
}

// unless is what do returns, unless ctx ends before. Then do is left to the end of the process: nothing ends reading a terminal.
func unless(ctx context.Context, do func() error) error {
	done := make(chan error, 1)
	go func() { done <- do() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// drive tells a driver what follows from lines.
func (f *calcFlags) drive(cmd *cobra.Command, lines datastore.Lines) error {
	log, err := f.log.logger(cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	out := &lineWriter{out: cmd.OutOrStdout()}
	driver, err := supervise(felix.SupervisorConfig{
		Path: f.driver, Logger: log, OnMessage: func(m *pb.FromDataplane) { out.message(m) },
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
	err = unless(ctx, func() error { return lines.Run(cmd.InOrStdin(), out) })
	if err == nil {
		err = driver.Told(ctx)
	}
	select {
	case <-ctx.Done():
	case <-time.After(f.linger):
	}
	cancel()
	<-ended
	return stopped(cmd.Context(), errors.Join(err, out.failed()))
}

// lineWriter writes whole lines that come from two sides.
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

func (w *lineWriter) message(m *pb.FromDataplane) {
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
