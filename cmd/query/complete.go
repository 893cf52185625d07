package query

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/contiv-agent/contiv-agent/agent/control"
	"github.com/contiv-agent/contiv-agent/agent/status"
	"github.com/contiv-agent/contiv-agent/cmd/flags"
	"github.com/contiv-agent/contiv-agent/cmd/show"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/source/manifest"
)

// CompletionName is the file that kubectl runs from PATH to complete a command line of kubectl contiv.
const CompletionName = "kubectl_complete-contiv"

// completionLimit bounds the time of a completion: a person waits for it at the prompt.
const completionLimit = 2 * time.Second

// fetchFor returns the status of a running agent for a completion; an empty one if it does not answer.
func fetchFor(cmd *cobra.Command, socket string) *status.Status {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(contextOf(cmd)), completionLimit)
	defer cancel()
	st, err := control.FetchStatus(ctx, flags.StatusSocket(socket), false)
	if err != nil {
		return &status.Status{}
	}
	return st
}

func contextOf(cmd *cobra.Command) context.Context {
	if ctx := cmd.Context(); ctx != nil {
		return ctx
	}
	return context.Background()
}

// complete completes the names of Services and policies of the running agent.
func (f *statusFlags) complete(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	st := fetchFor(cmd, f.socket)
	kind := ""
	if len(args) > 0 {
		kind = args[0]
	}
	if show.Select(st, slices.DeleteFunc([]string{kind}, func(k string) bool { return k != "services" && k != "policies" }), f.namespaces) != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []string
	if kind == "policies" {
		for _, p := range st.Policies {
			out = append(out, (&model.PodID{Namespace: p.Namespace, Name: p.Name}).String())
		}
	} else {
		for _, s := range st.Services {
			out = append(out, s.Name)
		}
	}
	if len(args) == 0 {
		out = append(out, "services", "policies")
	}
	return fitting(out, args, word), cobra.ShellCompDirectiveNoFileComp
}

// fitting returns the sorted candidates that begin as the word does and are no arguments yet. A policy without a namespace has only its name.
func fitting(candidates, args []string, word string) (out []string) {
	for _, c := range candidates {
		if c = strings.TrimPrefix(c, "/"); strings.HasPrefix(c, word) && !slices.Contains(args, c) {
			out = append(out, c)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// completePods completes the names of pods: those of manifests, or those that the running agent applies policies to.
func completePods(manifests *[]string, socket *string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, word string) (out []string, _ cobra.ShellCompDirective) {
		for _, ref := range refsOf(cmd, *manifests) {
			if ref.Kind == model.KindPod {
				out = append(out, ref.Namespace+"/"+ref.Name)
			}
		}
		if len(*manifests) == 0 {
			for _, p := range fetchFor(cmd, *socket).Policies {
				out = append(out, p.Endpoints...)
			}
		}
		return fitting(out, args, word), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeWords completes the words of a question about manifests: a pod, then a Service with each of its ports.
func completeWords(manifests *[]string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, word string) (out []string, _ cobra.ShellCompDirective) {
		directive := cobra.ShellCompDirectiveNoFileComp
		switch len(args) {
		case 0:
			return completePods(manifests, new(string))(cmd, args, word)
		case 1:
			for _, ref := range refsOf(cmd, *manifests) {
				if ref.Kind == model.KindService || ref.Kind == model.KindPod {
					out, directive = append(out, ref.Namespace+"/"+ref.Name+":"), directive|cobra.ShellCompDirectiveNoSpace
				}
			}
		case 2:
			out = []string{"TCP", "UDP", "SCTP", "ICMP"}
		}
		return fitting(out, nil, word), directive
	}
}

// refsOf returns the objects of manifests; none if there are no manifests, or wrong ones.
func refsOf(cmd *cobra.Command, manifests []string) (out []model.Ref) {
	if len(manifests) == 0 || slices.Contains(manifests, "-") {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(contextOf(cmd)), completionLimit)
	defer cancel()
	changes, err := manifest.LoadUntil(ctx, manifests...)
	if err != nil {
		return nil
	}
	for _, ch := range changes {
		out = append(out, ch.Ref)
	}
	return out
}
