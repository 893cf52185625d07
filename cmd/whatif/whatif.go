// Package whatif turns a source of objects into a simulated cluster, and questions about packets into answers.
//
// Invariant: it changes neither the source nor a VPP.
package whatif

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/contiv-agent/contiv-agent/cmd/exit"
	"github.com/contiv-agent/contiv-agent/cmd/flags"
	"github.com/contiv-agent/contiv-agent/cmd/show"
	"github.com/contiv-agent/contiv-agent/cmd/terminal"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/source/kube"
	"github.com/contiv-agent/contiv-agent/source/manifest"
	"github.com/contiv-agent/contiv-agent/trace"
)

// maxLine bounds an input line: a question is short.
const maxLine = 1 << 20

// Source select the source of a what-if cluster's objects.
type Source struct {
	Manifests           []string
	Kubeconfig, Context string
	InCluster           bool
	API                 bool // the kubeconfig's API server, also of the default kubeconfig
	Ignored             []string
}

// Load builds the what-if cluster and reports its unusable objects.
func (f *Source) Load(ctx context.Context, settings *flags.Agent, toReply bool, warn io.Writer) (*trace.Cluster, error) {
	changes, err := f.Changes(ctx)
	if err != nil {
		return nil, err
	}
	return Build(ctx, changes, settings, toReply, warn)
}

// Validate returns an error unless the flags name one source.
func (f *Source) Validate() error {
	api := f.isAPI()
	switch {
	case api && len(f.Manifests) > 0:
		return exit.Usage(errors.New("give --manifests or an API server, not both"))
	case f.InCluster && f.Kubeconfig != "":
		return exit.Usage(errors.New("--in-cluster and --kubeconfig exclude each other"))
	case !api && (f.Context != "" || len(f.Ignored) > 0):
		return exit.Usage(errors.New("--context and --ignore-policy-kinds need an API server: --kubeconfig or --in-cluster"))
	case !api && len(f.Manifests) == 0:
		return exit.Usage(errors.New("no source of objects: give --manifests, --kubeconfig or --in-cluster"))
	}
	return nil
}

// Given reports whether the flags name a source, or mean to.
func (f *Source) Given() bool {
	return f.isAPI() || len(f.Manifests) > 0 || f.Context != "" || len(f.Ignored) > 0
}

func (f *Source) isAPI() bool { return f.API || f.InCluster || f.Kubeconfig != "" }

// Changes returns the objects of the source, as changes that create them.
func (f *Source) Changes(ctx context.Context) ([]event.Change, error) {
	if err := f.Validate(); err != nil {
		return nil, err
	}
	if !f.isAPI() {
		return loadManifests(ctx, f.Manifests)
	}
	cfg := kube.Config{Kubeconfig: f.Kubeconfig, Context: f.Context, IgnorePolicyKinds: f.Ignored}
	if err := cfg.Validate(); err != nil {
		return nil, exit.Usage(err)
	}
	return kube.Snapshot(ctx, cfg)
}

// Load builds the what-if cluster of manifests and reports their unusable objects.
func Load(ctx context.Context, paths []string, settings *flags.Agent, toReply bool, warn io.Writer) (*trace.Cluster, error) {
	if len(paths) == 0 {
		return nil, exit.Usage(errors.New("--manifests is required"))
	}
	changes, err := loadManifests(ctx, paths)
	if err != nil {
		return nil, err
	}
	return Build(ctx, changes, settings, toReply, warn)
}

func loadManifests(ctx context.Context, paths []string) ([]event.Change, error) {
	changes, err := manifest.LoadUntil(ctx, paths...)
	return changes, exit.Usage(err)
}

// Build builds the what-if cluster of objects and reports those that are refused.
func Build(ctx context.Context, changes []event.Change, settings *flags.Agent, toReply bool, warn io.Writer) (*trace.Cluster, error) {
	cfg, err := settings.Config()
	if err != nil {
		return nil, err
	}
	for _, ch := range changes {
		if ch.Err != nil {
			fmt.Fprintf(warn, "refused: %s\n", terminal.Plain(ch.Err.Error()))
		}
	}
	cluster := trace.NewCluster(trace.Config{Agent: cfg, Seed: 1, ToReply: toReply, Progress: terminal.Progress(warn, "nodes that have their agent")})
	if err := cluster.Apply(ctx, changes); err != nil {
		cluster.Close()
		return nil, err
	}
	return cluster, nil
}

// Answers say how questions are answered: in text, lines of JSON, or documents of YAML. The zero value writes text and expects nothing.
type Answers struct {
	Out    show.Output
	Expect string // the verdict that every answer should have; "": any
}

// AddFlags adds the flags about verdicts.
func (f *Answers) AddFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.Expect, "expect", "", "the verdict that all answers should have (delivered, rejected or dropped); exit code 3 if one has another")
}

// Check returns an error of the user for a wrong verdict.
func (f *Answers) Check() error {
	verdicts := []string{string(trace.Delivered), string(trace.Rejected), string(trace.Dropped)}
	if f.Expect != "" && !slices.Contains(verdicts, f.Expect) {
		return exit.Usage(fmt.Errorf("--expect %s: must be %s", f.Expect, strings.Join(verdicts, ", ")))
	}
	return nil
}

// Answer answers each line when it has read it; it skips empty lines. The error has exit code 2 if a question has no answer, and 3 if a verdict is not the
// expected one.
func (f *Answers) Answer(ask func(trace.Step) trace.Answer, in io.Reader, w io.Writer) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 0, 64<<10), maxLine)
	buffered := bufio.NewWriter(w)
	enc := json.NewEncoder(buffered)
	enc.SetEscapeHTML(false)
	asked, wrong, other := 0, 0, 0
	for lines.Scan() {
		if strings.TrimSpace(lines.Text()) == "" {
			continue
		}
		a := answerLine(ask, lines.Bytes())
		switch asked++; {
		case a.Error != "":
			wrong++
		case f.Expect != "" && string(a.Verdict) != f.Expect:
			other++
		}
		switch f.Out {
		case "json":
			_ = enc.Encode(a) // Flush has the error
		case "yaml":
			fmt.Fprintln(buffered, "---")
			fallthrough
		default:
			_ = f.Out.Print(buffered, &a, func(w io.Writer) { trace.WriteText(w, a) }) // as above
		}
		if err := buffered.Flush(); err != nil { // a program may wait for the answer
			return err
		}
	}
	switch err := lines.Err(); {
	case err != nil:
		return exit.Usage(fmt.Errorf("standard input: %w", err))
	case wrong > 0:
		return exit.Usage(fmt.Errorf("%d of %d questions have no answer: see \"error\"", wrong, asked))
	case other > 0:
		return &exit.Error{Code: exit.Differs, Err: fmt.Errorf("%d of %d verdicts are not %s", other, asked, f.Expect)}
	}
	return nil
}

func answerLine(ask func(trace.Step) trace.Answer, line []byte) trace.Answer {
	s, err := trace.ParseStep(line)
	if err != nil {
		return trace.Answer{Error: fmt.Sprintf("not a question: %v", err)}
	}
	return ask(s)
}

// NodeAmong returns an error that lists the Nodes among objects if a Node is not one of them.
func NodeAmong(changes []event.Change, name string) error {
	var names []string
	for _, ch := range changes {
		if ch.Ref.Kind == model.KindNode {
			names = append(names, ch.Ref.Name)
		}
	}
	switch {
	case slices.Contains(names, name):
		return nil
	case len(names) == 0:
		return fmt.Errorf("--node %s: the manifests have no Node", name)
	}
	return fmt.Errorf("--node %s: the manifests have no such Node, but %s", name, strings.Join(names, ", "))
}
