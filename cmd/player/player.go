// Package player turns a journal of a flight recorder into an agent on an embedded VPP, as the flags of contiv-agent replay say.
//
// Invariant: the package holds no logic; it maps flags, results and errors to output and exit codes.
package player

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/cmd/exit"
	"github.com/contiv-agent/contiv-agent/cmd/flags"
	"github.com/contiv-agent/contiv-agent/cmd/show"
	"github.com/contiv-agent/contiv-agent/replay"
	"github.com/contiv-agent/contiv-agent/trace"
)

// player has the flags of the command.
type player struct {
	flags.Agent
	at     string
	node   string
	bisect string
	all    bool
	values bool
	out    show.Output
}

// New returns the command.
func New() *cobra.Command {
	var f player
	cmd := &cobra.Command{
		Use:   "replay FILE|FOLDER",
		Short: "Play the journal of a flight recorder into a simulated VPP, or find the record that changed the fate of a packet",
		Long: `replay plays what an agent recorded (run --flight-recorder) into another agent with an embedded VPP. It shows each record, and what the agent then
does in VPP. It changes neither the journal nor a running VPP. It may read the journal of a running agent.

A line that begins with "recorded:" is the result of a transaction on the recorded VPP. The interfaces of the embedded VPP have other names than
those of the recorded VPP. VPP's restarts are shown and not repeated. Damaged and missing records are named; the state at the beginning of the
next file then replaces what the records before it say. Flags about Services, policies, interfaces and limits are those of the recorded agent,
unless the command line sets them.

With --bisect it sends a packet (a question of the trace command) into a cluster with an agent and an embedded VPP for each recorded Node. If the
packet's verdicts after the first and the last record differ, it finds by binary search one record that changed the verdict. If they are equal, or
with --all, it sends the packet after every record, and finds all changes. The result names the object, the fields that differ, and both verdicts.

Exit code 0: done; with --bisect: a record was found. Exit code 3: with --bisect, no record changed the verdict. Exit code 2: the journal or a flag
is wrong.`,
		Example: `  contiv-agent replay /var/lib/contiv-agent/recorder
  contiv-agent replay /var/lib/contiv-agent/recorder --at 2026-11-27T07:15:00Z --values
  contiv-agent replay recorder/00000007.journal --at 120 -o json
  contiv-agent replay recorder/ --bisect '{"from":"pod:guestbook/client","to":"service:guestbook/frontend:80","protocol":"TCP"}'`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return exit.Usage(fmt.Errorf("replay: want one file or folder, not %d", len(args)))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return f.replayJournal(cmd, args[0]) },
	}
	f.Agent.AddFlags(cmd)
	f.out.AddFlag(cmd)
	fs := cmd.Flags()
	fs.StringVar(&f.at, "at", "", "end after this record (a number) or at this time (as 2026-11-27T07:15:00Z)")
	fs.StringVar(&f.node, "node", "", "name of the node (default: the recorded one)")
	fs.StringVar(&f.bisect, "bisect", "", "find the record that changed the verdict of this packet, a question of the trace command")
	fs.BoolVar(&f.all, "all", false, "with --bisect: send the packet after every record")
	fs.BoolVar(&f.values, "values", false, "also show every value that the agent then wants in VPP")
	return cmd
}

func (f *player) replayJournal(cmd *cobra.Command, path string) error {
	t, err := replay.Load(path)
	if err != nil {
		return exit.Usage(err)
	}
	if f.node != "" {
		t.Node = f.node
	}
	if t.Node == "" {
		return exit.Usage(errors.New("the journal does not name its node: give --node"))
	}
	if err := f.shorten(t); err != nil {
		return exit.Usage(err)
	}
	cfg, err := f.recordedConfig(cmd, t)
	if err != nil {
		return err
	}
	if f.bisect != "" {
		return f.bisectPacket(cmd, t, cfg)
	}
	if f.all {
		return exit.Usage(errors.New("--all needs --bisect"))
	}
	return f.play(cmd, t, cfg)
}

// shorten ends the timeline where --at says.
func (f *player) shorten(t *replay.Timeline) error {
	if f.at == "" {
		return nil
	}
	number, err := strconv.ParseUint(f.at, 10, 64)
	var at time.Time
	if err != nil || number == 0 {
		if at, err = time.Parse(time.RFC3339Nano, f.at); err != nil {
			return fmt.Errorf("--at %s: must be the number of a record, or a time as 2026-11-27T07:15:00Z", f.at)
		}
	}
	if t.Steps = t.Steps[:t.Until(number, at)]; len(t.Steps) == 0 {
		return fmt.Errorf("--at %s: the journal begins later", f.at)
	}
	return nil
}

// recordedConfig returns the configuration of the recorded agent, as far as the command line does not change it.
func (f *player) recordedConfig(cmd *cobra.Command, t *replay.Timeline) (agent.Config, error) {
	settings := maps.Clone(t.Settings)
	if settings == nil {
		settings = map[string]string{}
	}
	maps.Copy(settings, flags.Settings(cmd.Flags()))
	var recorded flags.Agent
	if err := recorded.Apply(settings); err != nil {
		return agent.Config{}, exit.Usage(err)
	}
	return recorded.Config()
}

// replayed is the result of replay.
type replayed struct {
	Node     string            `json:"node"`
	Version  string            `json:"version,omitempty"`
	Settings map[string]string `json:"settings,omitempty"`
	Remarks  []string          `json:"remarks,omitempty"`
	Records  []replay.Played   `json:"records"`
	Values   []string          `json:"values,omitempty"`
	Summary  string            `json:"summary"`
	Found    *replay.Found     `json:"found,omitempty"`
}

func (f *player) play(cmd *cobra.Command, t *replay.Timeline, cfg agent.Config) error {
	p, err := replay.NewPlayer(cmd.Context(), t.Node, cfg)
	if err != nil {
		return err
	}
	defer p.Close()
	out := replayed{Node: t.Node, Version: t.Version, Settings: t.Settings, Remarks: t.Remarks, Records: []replay.Played{}}
	for i := range t.Steps {
		played, err := p.PlayStep(cmd.Context(), &t.Steps[i])
		if err != nil {
			return err
		}
		out.Records = append(out.Records, played)
	}
	st := p.Status()
	out.Summary = fmt.Sprintf("%d values, %d of them not configured; %d Services, %d policies, %d refused objects", st.Values, len(st.Unwell), len(st.Services), len(st.Policies), len(st.Refused))
	if f.values {
		out.Values = p.Values()
	}
	return f.out.Print(cmd.OutOrStdout(), &out, func(w io.Writer) { writeReplayed(w, &out) })
}

func writeReplayed(w io.Writer, r *replayed) {
	fmt.Fprintf(w, "node %s, recorded by version %s\n", r.Node, r.Version)
	for _, remark := range r.Remarks {
		fmt.Fprintf(w, "remark: %s\n", remark)
	}
	for _, p := range r.Records {
		fmt.Fprintf(w, "%6s  %s  %s\n", recordText(p.Record), p.At, p.Text)
		for _, op := range p.Operations {
			fmt.Fprintf(w, "          %s\n", op)
		}
	}
	fmt.Fprintf(w, "at the end: %s\n", r.Summary)
	for _, v := range r.Values {
		fmt.Fprintln(w, v)
	}
}

func recordText(number uint64) string {
	if number == 0 {
		return "-"
	}
	return strconv.FormatUint(number, 10)
}

func (f *player) bisectPacket(cmd *cobra.Command, t *replay.Timeline, cfg agent.Config) error {
	packet, err := trace.ParseStep([]byte(f.bisect))
	if err != nil {
		return exit.Usage(fmt.Errorf("--bisect: not a question: %w", err))
	}
	found, err := replay.Bisect(cmd.Context(), t, cfg, packet, f.all)
	if err != nil {
		return err
	}
	out := replayed{Node: t.Node, Version: t.Version, Settings: t.Settings, Remarks: t.Remarks, Records: []replay.Played{}, Found: found}
	out.Summary = fmt.Sprintf("%d states asked", found.Probes)
	if err := f.out.Print(cmd.OutOrStdout(), &out, func(w io.Writer) { writeFound(w, &out) }); err != nil {
		return err
	}
	if len(found.Turns) == 0 {
		return &exit.Error{Code: exit.Differs}
	}
	return nil
}

func writeFound(w io.Writer, r *replayed) {
	for _, remark := range r.Remarks {
		fmt.Fprintf(w, "remark: %s\n", remark)
	}
	found := r.Found
	fmt.Fprintf(w, "first: %s\nlast:  %s\n", fateText(found.First), fateText(found.Last))
	for _, t := range found.Turns {
		fmt.Fprintf(w, "record %d  %s  %s\n", t.Record, t.At, t.Text)
		for _, c := range t.Changes {
			fmt.Fprintf(w, "    %s\n", c)
		}
		fmt.Fprintf(w, "  before: %s\n  after:  %s\n", fateText(t.Before), fateText(t.After))
	}
	switch {
	case !found.Whole:
		fmt.Fprintf(w, "%s by binary search; --all finds every record that changed the verdict\n", r.Summary)
	case len(found.Turns) == 0:
		fmt.Fprintf(w, "%s: no record changed the verdict\n", r.Summary)
	default:
		fmt.Fprintf(w, "%s, after every record: %d records changed the verdict\n", r.Summary, len(found.Turns))
	}
}

func fateText(f replay.Fate) string {
	if f.Reason == "" {
		return f.Verdict
	}
	return f.Verdict + ": " + f.Reason
}
