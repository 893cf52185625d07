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
	"strings"

	"github.com/contiv-agent/contiv-agent/cmd/exit"
	"github.com/contiv-agent/contiv-agent/cmd/flags"
	"github.com/contiv-agent/contiv-agent/cmd/terminal"
	"github.com/contiv-agent/contiv-agent/event"
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
	api := f.API || f.InCluster || f.Kubeconfig != ""
	switch {
	case api && len(f.Manifests) > 0:
		return nil, exit.Usage(errors.New("give --manifests or an API server, not both"))
	case f.InCluster && f.Kubeconfig != "":
		return nil, exit.Usage(errors.New("--in-cluster and --kubeconfig exclude each other"))
	case !api && (f.Context != "" || len(f.Ignored) > 0):
		return nil, exit.Usage(errors.New("--context and --ignore-policy-kinds need an API server: --kubeconfig or --in-cluster"))
	case !api && len(f.Manifests) == 0:
		return nil, exit.Usage(errors.New("no source of objects: give --manifests, --kubeconfig or --in-cluster"))
	case !api:
		return Load(ctx, f.Manifests, settings, toReply, warn)
	}
	cfg := kube.Config{Kubeconfig: f.Kubeconfig, Context: f.Context, IgnorePolicyKinds: f.Ignored}
	if err := cfg.Validate(); err != nil {
		return nil, exit.Usage(err)
	}
	changes, err := kube.Snapshot(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return newCluster(ctx, changes, settings, toReply, warn)
}

// Load builds the what-if cluster of manifests and reports their unusable objects.
func Load(ctx context.Context, paths []string, settings *flags.Agent, toReply bool, warn io.Writer) (*trace.Cluster, error) {
	if len(paths) == 0 {
		return nil, exit.Usage(errors.New("--manifests is required"))
	}
	changes, err := manifest.Load(paths...)
	if err != nil {
		return nil, exit.Usage(err)
	}
	return newCluster(ctx, changes, settings, toReply, warn)
}

func newCluster(ctx context.Context, changes []event.Change, settings *flags.Agent, toReply bool, warn io.Writer) (*trace.Cluster, error) {
	cfg, err := settings.Config()
	if err != nil {
		return nil, err
	}
	for _, ch := range changes {
		if ch.Err != nil {
			fmt.Fprintf(warn, "refused: %s\n", terminal.Plain(ch.Err.Error()))
		}
	}
	cluster := trace.NewCluster(trace.Config{Agent: cfg, Seed: 1, ToReply: toReply})
	if err := cluster.Apply(ctx, changes); err != nil {
		cluster.Close()
		return nil, err
	}
	return cluster, nil
}

// Answer answers one line after the other; it skips empty lines.
func Answer(ask func(trace.Step) trace.Answer, in io.Reader, w io.Writer, asJSON bool) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 0, 64<<10), maxLine)
	buffered := bufio.NewWriter(w)
	enc := json.NewEncoder(buffered)
	enc.SetEscapeHTML(false)
	for lines.Scan() {
		if strings.TrimSpace(lines.Text()) == "" {
			continue
		}
		a := answerLine(ask, lines.Bytes())
		if !asJSON {
			terminal.PlainAll(&a)
			trace.WriteText(buffered, a)
			continue
		}
		if err := enc.Encode(a); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return exit.Usage(fmt.Errorf("standard input: %w", err))
	}
	return buffered.Flush()
}

func answerLine(ask func(trace.Step) trace.Answer, line []byte) trace.Answer {
	s, err := trace.ParseStep(line)
	if err != nil {
		return trace.Answer{Error: fmt.Sprintf("not a question: %v", err)}
	}
	return ask(s)
}
