package connectivity

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/contiv-agent/contiv-agent/connectivity/probe"
)

// State is the result of a check.
type State string

// The states of checks.
const (
	OK      State = "ok"
	Failed  State = "FAILED"
	Skipped State = "skipped"
)

// Result is what came of a check.
type Result struct {
	Group    string        `json:"group"`
	Check    string        `json:"check"`
	State    State         `json:"state"`
	Found    string        `json:"found,omitempty"`    // in a few words; why it is skipped
	Failures []Failure     `json:"failures,omitempty"` // each path that failed, and how
	Causes   []string      `json:"causes,omitempty"`   // probable ones
	Took     time.Duration `json:"tookNanoseconds"`    // the longest of its paths
}

// Failure is a path that failed, an agent with trouble, or a pod that does not run. A field that says nothing of it is "" or 0.
type Failure struct {
	From     string        `json:"from"`               // the pod of the test that measured, "node/pod"; a node, without To: its agent
	To       string        `json:"to,omitempty"`       // where the path leads, in words
	Node     string        `json:"node,omitempty"`     // whose address or pod it leads to, or where the pod is to run
	Service  string        `json:"service,omitempty"`  // through which it leads
	Kind     probe.Kind    `json:"kind,omitempty"`     // of the measurement
	Address  string        `json:"address,omitempty"`  // that it dialled, with the port; a name for DNS
	Symptom  probe.Symptom `json:"symptom,omitempty"`  // of the last connection that failed
	Answered int           `json:"answered,omitempty"` // connections
	Failed   int           `json:"failed,omitempty"`   // connections
	Reason   string        `json:"reason"`             // in words
}

// String is the failure in words.
func (f *Failure) String() string {
	switch {
	case f.To != "":
		return f.From + " → " + f.To + ": " + f.Reason
	case f.Node != "":
		return f.From + " on " + f.Node + ": " + f.Reason
	}
	return f.From + ": " + f.Reason
}

// Report is what came of a test.
type Report struct {
	Passed  bool          `json:"passed"` // no check failed
	Results []Result      `json:"checks"`
	Took    time.Duration `json:"tookNanoseconds"`
}

// count returns the number of checks with a state.
func (r *Report) count(s State) int {
	n := 0
	for i := range r.Results {
		if r.Results[i].State == s {
			n++
		}
	}
	return n
}

// shown is how many failing paths and causes of a check the text names.
const shown = 6

// WriteText writes a result as lines: the check, and below it failures and causes.
func (r *Result) WriteText(w io.Writer) {
	fmt.Fprintln(w, strings.TrimRight(fmt.Sprintf("%-8s %-9s %-40s %s", r.State, r.Group, r.Check, r.Found), " "))
	for i := range r.Failures {
		if i == shown {
			fmt.Fprintf(w, "           and %d more\n", len(r.Failures)-shown)
			break
		}
		fmt.Fprintf(w, "           %s\n", &r.Failures[i])
	}
	for i, c := range r.Causes {
		if i == shown {
			fmt.Fprintf(w, "           and %d more causes\n", len(r.Causes)-shown)
			break
		}
		fmt.Fprintf(w, "           cause: %s\n", c)
	}
}

// WriteSummary writes the last line of a report.
func (r *Report) WriteSummary(w io.Writer) {
	fmt.Fprintf(w, "%d checks: %d ok, %d failed, %d skipped, in %s\n",
		len(r.Results), r.count(OK), r.count(Failed), r.count(Skipped), r.Took.Round(time.Second/10))
}

// WriteJSON writes the report as JSON.
func (r *Report) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

// WriteJUnit writes the report as JUnit's XML, which CI systems read.
func (r *Report) WriteJUnit(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, `<?xml version="1.0" encoding="UTF-8"?>
<testsuite name="connectivity" tests="%d" failures="%d" skipped="%d" time="%.3f">
`, len(r.Results), r.count(Failed), r.count(Skipped), r.Took.Seconds())
	for i := range r.Results {
		c := &r.Results[i]
		fmt.Fprintf(&b, `  <testcase classname="connectivity.%s" name="%s" time="%.3f"`, inXML(c.Group), inXML(c.Check), c.Took.Seconds())
		switch c.State {
		case Failed:
			var failures []string
			for i := range c.Failures {
				failures = append(failures, c.Failures[i].String())
			}
			first := slices.Concat(c.Causes, failures)[0]
			text := strings.Join(slices.Concat(failures, c.Causes), "\n")
			fmt.Fprintf(&b, ">\n    <failure message=\"%s\">%s</failure>\n  </testcase>\n", inXML(first), inXML(text))
		case Skipped:
			fmt.Fprintf(&b, ">\n    <skipped message=\"%s\"/>\n  </testcase>\n", inXML(c.Found))
		default:
			b.WriteString("/>\n")
		}
	}
	b.WriteString("</testsuite>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// inXML escapes text for elements and attributes, and replaces characters that XML 1.0 does not have.
func inXML(text string) string {
	text = strings.Map(func(c rune) rune {
		if c < ' ' && c != '\n' && c != '\t' || c == 0xfffe || c == 0xffff {
			return '\ufffd'
		}
		return c
	}, strings.ToValidUTF8(text, "\ufffd"))
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&#34;", "\n", "&#10;").Replace(text)
}
