package main

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/agent/status"
	"github.com/contiv-agent/contiv-agent/cmd/exit"
	"github.com/contiv-agent/contiv-agent/cmd/flags"
	"github.com/contiv-agent/contiv-agent/cmd/show"
	"github.com/contiv-agent/contiv-agent/cmd/terminal"
	"github.com/contiv-agent/contiv-agent/cmd/whatif"
	"github.com/contiv-agent/contiv-agent/plugins/policy"
	"github.com/contiv-agent/contiv-agent/trace"
)

// hostile is text that would clear a terminal, set its title, write a separate line, and turn the direction.
const hostile = "x\x1b[2J\x1b]0;owned\x07\nservice  prod/web  CONFIGURED\r\u009b1m\u202e\xff\t"

// Commands print text of objects as plain text that never begins a line.
func TestTextOfObjectsIsPlain(t *testing.T) {
	st := &status.Status{
		Node: hostile, Waiting: hostile, Summary: hostile,
		Services: []status.Service{{Name: hostile, State: "PENDING", Reasons: []string{hostile}, Text: hostile}},
		Refused:  []status.Refusal{{Object: hostile, Error: hostile}},
		Notes:    []status.Note{{Object: hostile, Reason: hostile}},
		Settings: map[string]string{"loopback": hostile},
		Last:     &status.Transaction{Cause: hostile, Error: hostile},
		Policies: []status.Policy{{Object: hostile, State: "PENDING", Reasons: []string{hostile}, Text: hostile}},
	}
	described := []*policy.Description{{Endpoint: hostile, Interfaces: []string{hostile}, Ingress: []policy.Tier{{Name: hostile, Policies: []policy.Policy{{Object: hostile, Rules: []policy.Rule{{Name: hostile, Match: hostile}}}}}}}}
	answer := trace.Answer{From: hostile, To: hostile, Verdict: trace.Dropped, Reason: hostile, Outcomes: []trace.Outcome{{Address: hostile}}}
	text := show.Output("text")
	for name, write := range map[string]func(w io.Writer) error{
		"status": func(w io.Writer) error {
			return text.Print(w, st, func(w io.Writer) { show.Status(w, st, true, true) })
		},
		"policy": func(w io.Writer) error {
			return text.Print(w, described, func(w io.Writer) { show.Policies(w, described[0]) })
		},
		"trace": func(w io.Writer) error {
			var plain whatif.Answers
			return plain.Answer(func(trace.Step) trace.Answer { return answer }, strings.NewReader("{\"from\":\"pod:a/b\",\"to\":\"10.0.0.1:80\",\"protocol\":\"TCP\"}\n"), w)
		},
	} {
		var b bytes.Buffer
		if err := write(&b); err != nil {
			t.Fatal(name, err)
		}
		for line := range strings.Lines(b.String()) {
			if strings.HasPrefix(strings.TrimSpace(line), "service  prod/web") || terminal.Plain(strings.TrimSuffix(line, "\n")) != strings.TrimSuffix(line, "\n") {
				t.Errorf("%s writes %q", name, line)
			}
		}
		if !strings.Contains(b.String(), `x\u001b[2J`) {
			t.Errorf("%s does not write the text at all:\n%s", name, b.String())
		}
	}
}

// Text of objects is one field of one log line, in both formats.
func TestLogsArePlain(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		var b bytes.Buffer
		f := flags.Log{Format: format, Level: "info"}
		log, err := f.Logger(&terminal.Writer{Writer: &b})
		if err != nil {
			t.Fatal(err)
		}
		log.Info(hostile, "name", hostile, hostile, "x")
		if got := b.String(); strings.Count(got, "\n") != 1 || strings.ContainsAny(got, "\x1b\r\x07\u009b") {
			t.Errorf("%s: %q", format, got)
		}
	}
}

// Errors name the given value, and reach the terminal through the same writer.
func TestErrorsArePlain(t *testing.T) {
	root := newRoot()
	var b bytes.Buffer
	root.SetErr(&b)
	if code := execute(t.Context(), root, []string{"run", "--sim", "--source", "\x1b]0;owned\x07"}); code != exit.Wrong {
		t.Errorf("exit code %d", code)
	}
	if got := b.String(); !strings.Contains(got, `--source \u001b]0;owned\u0007: must be`) {
		t.Errorf("%q", got)
	}
}
