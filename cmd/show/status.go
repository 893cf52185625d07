package show

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/contiv-agent/contiv-agent/agent/attachment"
	"github.com/contiv-agent/contiv-agent/agent/nattable"
	"github.com/contiv-agent/contiv-agent/agent/status"
	"github.com/contiv-agent/contiv-agent/cmd/terminal"
)

// Status writes the status as lines of a table for people; without all, Services and policies that are configured and have no remark
// are only counted. With more, each has a second line.
func Status(w io.Writer, st *status.Status, all, more bool) {
	tw := terminal.NewTable(w)
	state := "in sync"
	if !st.InSync {
		state = "not in sync: " + st.Waiting
	}
	health := "healthy: all objects are served as they ask"
	if !st.Healthy {
		health = withReason("not healthy", st.Summary)
	}
	fmt.Fprintf(tw, "node\t%s\t%s; %s\n", st.Node, state, health)
	vpp := "connected"
	switch {
	case !st.VPP.Connected:
		vpp = "not connected"
	case st.VPP.Simulated:
		vpp = "connected; the simulated VPP"
	}
	fmt.Fprintf(tw, "vpp\t%s\t%s\n", orDash(st.VPP.Version), withReason(vpp, st.VPP.Error))
	if p := st.VPP.Proof; p != nil {
		fmt.Fprintf(tw, "verify\t%s\t%s\n", p.At.Format(time.TimeOnly), p)
	}
	for _, src := range st.Sources {
		fmt.Fprintf(tw, "source\t%s\t%s\n", src.Name, withReason(withReason(src.Status, src.Error), src.Note))
	}
	writeFelix(tw, st.Felix, all)
	writeDriver(tw, st.Driver, all)
	if st.Ifs != nil {
		fmt.Fprintf(tw, "interfaces\tuplink %s\toverlay %s, host %s, %d pods\n", orDash(st.Ifs.Uplink), orDash(st.Ifs.Overlay), orDash(st.Ifs.Host), len(st.Ifs.Pods))
	}
	writeNATTable(tw, st.NAT)
	for _, s := range st.VPP.Flows {
		fmt.Fprintf(tw, "flows\t%s\tshow a part: %d of %d connections in VPP were read (%.2g %%)\n", s.Name, s.Read, s.Present, 100*s.Share())
	}
	for _, name := range slices.Sorted(maps.Keys(st.Settings)) {
		fmt.Fprintf(tw, "setting\t--%s\t%s\n", name, st.Settings[name])
	}
	fmt.Fprintf(tw, "values\t%d\t%d mappings; %d values not configured\n", st.Values, st.Mappings, len(st.Unwell))
	if t := st.Last; t != nil {
		fmt.Fprintf(tw, "last\ttxn %d\t%s\n", t.Seq, transactionText(t))
	}
	for _, d := range st.Spoofed {
		what := "with a source address that is not the pod's"
		if d.Pod == "" {
			what = "from outside with a source address that only this node has"
		}
		fmt.Fprintf(tw, "source check\t%s\t%d packets dropped %s\n", orDash(d.Pod), d.Packets, what)
	}
	for _, r := range st.Refused {
		fmt.Fprintf(tw, "refused\t%s\t%s\n", r.Object, r.Error)
	}
	for _, n := range st.Notes {
		fmt.Fprintf(tw, "note\t%s\t%s\n", n.Object, n.Reason)
	}
	for i, d := range st.Drift {
		if i == mostDrift && !all {
			fmt.Fprintf(tw, "drift\tand %d more\t(--all shows them)\n", len(st.Drift)-i)
			break
		}
		fmt.Fprintf(tw, "drift\t%s\t%s\n", d.Key, driftText(&d))
	}
	for _, f := range st.Foreign {
		fmt.Fprintf(tw, "foreign\t%s\tmade by another program; the agent does not change it\n", f)
	}
	for _, t := range st.History {
		fmt.Fprintf(tw, "%s\ttxn %d\t%s\n", t.At.Format(time.TimeOnly), t.Seq, transactionText(&t))
		for _, op := range t.Ops {
			fmt.Fprintf(tw, "\t\t%s\n", op)
		}
	}
	hidden, quiet := writeServices(tw, st, all, more), writePolicyStates(tw, st, all, more)
	_ = tw.Flush() // an error means that standard output is closed
	if hidden > 0 {
		fmt.Fprintf(w, "%d Services are configured without remarks (--all shows them)\n", hidden)
	}
	if quiet > 0 {
		fmt.Fprintf(w, "%d policies are configured, or not needed here, without remarks (--all shows them)\n", quiet)
	}
}

// writeNATTable shows the use of VPP's NAT session table; nil: unknown.
func writeNATTable(w io.Writer, t *nattable.Status) {
	if t == nil {
		return
	}
	text := fmt.Sprintf("%d of %d; freed %d expired, %d of pods above their share", t.Used, t.Limit, t.Expired, t.Evicted)
	fmt.Fprintf(w, "nat\tsessions\t%s\n", withReason(withReason(text, t.Problem), t.Remark))
	if t.Drained+t.Lost > 0 {
		fmt.Fprintf(w, "nat\tdrains\t%d, and %d that failed: their connections ended\n", t.Drained, t.Lost)
	}
	for _, h := range t.Holders {
		fmt.Fprintf(w, "holder\t%s\t%s\n", h.Addr, withReason(fmt.Sprintf("%d sessions", h.Sessions), h.Pod))
	}
}

// writeFelix shows the session with Felix; nil: the agent has none. It only counts endpoints that are up.
func writeFelix(w io.Writer, f *attachment.FelixStatus, all bool) {
	if f == nil {
		return
	}
	messages, up := uint64(0), 0
	for _, n := range f.Messages {
		messages += n
	}
	for _, e := range f.Endpoints {
		if e.Status == "up" {
			up++
		}
	}
	fmt.Fprintf(w, "felix\t%s\t%d messages, the last with number %d, policy names as in %s; %d of %d endpoints up\n",
		f.State, messages, f.Sequence, f.Dialect, up, len(f.Endpoints))
	for _, e := range f.Endpoints {
		if all || e.Status != "up" {
			fmt.Fprintf(w, "endpoint\t%s\t%s\n", e.Name, withReason(e.Status, e.Reason))
		}
	}
}

// writeDriver shows the external driver that enforces policies; nil: the agent enforces them.
func writeDriver(w io.Writer, d *attachment.DriverStatus, all bool) {
	if d == nil {
		return
	}
	state, up := "not running", 0
	switch {
	case d.PID != 0 && d.InSync && d.Behind == 0:
		state = "up to date"
	case d.PID != 0:
		state = fmt.Sprintf("%d messages behind", d.Behind)
	}
	if d.Trouble != "" {
		state = withReason(fmt.Sprintf("%s; started %d times", state, d.Starts), d.Trouble)
	}
	for _, e := range d.Endpoints {
		if e.Status == "up" {
			up++
		}
	}
	fmt.Fprintf(w, "driver\t%s\t%s; %d of %d endpoints up\n", d.Path, state, up, len(d.Endpoints))
	for _, e := range d.Endpoints {
		if all || e.Status != "up" {
			fmt.Fprintf(w, "endpoint\t%s\t%s\n", e.Name, e.Status)
		}
	}
}

// mostDrift bounds the drifted keys that are shown without --all.
const mostDrift = 20

// driftText returns a line such as "missing at 15:04:05, repaired; 3 times since the agent started", with the known contest.
func driftText(d *status.Drift) string {
	repaired := "repaired"
	if !d.Repaired {
		repaired = "not repaired yet"
	}
	if d.Error != "" {
		repaired = withReason("not repaired", d.Error)
	}
	return withReason(fmt.Sprintf("%s at %s, %s; %d times since the agent started", d.What, d.Last.Format(time.TimeOnly), repaired, d.Times), d.Contest)
}

func transactionText(t *status.Transaction) string {
	return withReason(fmt.Sprintf("%s (%s): add %d, mod %d, del %d, %d messages, %s",
		t.Cause, t.Kind, t.Add, t.Mod, t.Del, t.Writes, t.Took.Round(10*time.Microsecond)), t.Error)
}

func writeServices(w io.Writer, st *status.Status, all, more bool) (hidden int) {
	for _, s := range st.Services {
		if !all && s.State == "CONFIGURED" && len(s.Reasons) == 0 {
			hidden++
			continue
		}
		fmt.Fprintf(w, "service\t%s\t%s\n", s.Name, withReason(s.State, strings.Join(s.Reasons, "; ")))
		if more && s.Text != "" {
			fmt.Fprintf(w, "\t\t%s\n", s.Text)
		}
	}
	return hidden
}

func writePolicyStates(w io.Writer, st *status.Status, all, more bool) (hidden int) {
	for _, p := range st.Policies {
		if !all && (p.State == "CONFIGURED" || p.State == "IDLE") && len(p.Reasons) == 0 {
			hidden++
			continue
		}
		fmt.Fprintf(w, "policy\t%s\t%s\n", p.Object, withReason(p.State, strings.Join(p.Reasons, "; ")))
		if more && p.Text != "" {
			fmt.Fprintf(w, "\t\t%s\n", p.Text)
		}
	}
	return hidden
}
