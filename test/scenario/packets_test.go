package scenario

import (
	"bufio"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/contiv-agent/contiv-agent/trace"
)

// question parses FROM PROTO TO.
func question(args []string) (trace.Question, error) {
	if len(args) < 3 {
		return trace.Question{}, fmt.Errorf("want FROM PROTO TO")
	}
	q := trace.Question{From: args[0], Protocol: strings.ToUpper(args[1]), To: args[2]}
	switch {
	case !strings.Contains(q.From, ":") && strings.Contains(q.From, "/"):
		q.From = "pod:" + q.From
	case !strings.Contains(q.From, ":"):
		q.From = "pod:default/" + q.From
	}
	for _, kind := range []string{"pod:", "service:"} {
		if rest, ok := strings.CutPrefix(q.To, kind); ok && !strings.Contains(rest, "/") {
			q.To = kind + "default/" + rest
		}
	}
	return q, nil
}

// expectation is the part after "=>".
type expectation struct {
	verdict   string
	addresses string // "" unless given; sorted, joined by commas
	sources   string
	because   string
}

func expect(args []string) (expectation, error) {
	if len(args) < 2 || args[0] != "=>" {
		return expectation{}, fmt.Errorf("want => VERDICT [ADDR,…] [from SOURCE,…] [because TEXT …]")
	}
	e, rest := expectation{verdict: args[1]}, args[2:]
	if !slices.Contains([]string{"delivered", "rejected", "dropped", "error"}, e.verdict) {
		return e, fmt.Errorf("unknown verdict %q", e.verdict)
	}
	if len(rest) > 0 && rest[0] != "from" && rest[0] != "because" {
		e.addresses, rest = sorted(strings.Split(rest[0], ",")), rest[1:]
	}
	if len(rest) > 1 && rest[0] == "from" {
		e.sources, rest = sorted(strings.Split(rest[1], ",")), rest[2:]
	}
	if len(rest) > 1 && rest[0] == "because" {
		e.because, rest = strings.Join(rest[1:], " "), nil
	}
	if len(rest) > 0 {
		return e, fmt.Errorf("cannot read %q", strings.Join(rest, " "))
	}
	if e.verdict == "delivered" && e.addresses == "" {
		return e, fmt.Errorf("delivered to whom?")
	}
	return e, nil
}

// sorted joins the distinct elements of list by commas.
func sorted(list []string) string {
	list = slices.Clone(list)
	slices.Sort(list)
	return strings.Join(slices.Compact(list), ",")
}

// got returns an answer in the form of an expectation.
func got(a trace.Answer) expectation {
	e := expectation{verdict: string(a.Verdict), because: a.Reason}
	if a.Error != "" {
		e.verdict, e.because = "error", a.Error
	}
	var addresses, sources []string
	for _, o := range a.Outcomes {
		addresses, sources = append(addresses, o.Address), append(sources, o.Source)
	}
	e.addresses, e.sources = sorted(addresses), sorted(sources)
	return e
}

func (e expectation) String() string {
	text := e.verdict
	if e.addresses != "" {
		text += " " + e.addresses
	}
	if e.sources != "" {
		text += " from " + e.sources
	}
	if e.because != "" {
		text += " because " + e.because
	}
	return text
}

// meets reports whether an answer is as expected. Addresses of backends that do not get the packet are optional.
func (e expectation) meets(a trace.Answer) bool {
	is := got(a)
	return is.verdict == e.verdict && (e.addresses == "" || is.addresses == e.addresses) &&
		(e.sources == "" || is.sources == e.sources) && strings.Contains(is.because, e.because)
}

func (s *story) cmdPkt(_ *testscript.TestScript, args []string) error {
	q, err := question(args)
	if err != nil {
		return err
	}
	want, err := expect(args[3:])
	if err != nil {
		return err
	}
	a := s.world().Answer(q)
	if want.meets(a) {
		return nil
	}
	text := fmt.Sprintf("%s\nwant %s\ngot  %s", strings.Join(args[:3], " "), want, got(a))
	for _, o := range a.Outcomes {
		text += fmt.Sprintf("\n%s %s from %s: %s: %s", o.Backend, o.Address, o.Source, o.Verdict, o.Reason)
		for _, h := range o.Hops {
			text += "\n    " + h
		}
	}
	return fmt.Errorf("%s", text)
}

func (s *story) cmdTrace(ts *testscript.TestScript, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("want FILE")
	}
	lines := bufio.NewScanner(strings.NewReader(ts.ReadFile(args[0])))
	out := json.NewEncoder(ts.Stdout())
	out.SetEscapeHTML(false)
	for lines.Scan() {
		var q trace.Question
		if err := json.Unmarshal(lines.Bytes(), &q); err != nil {
			return err
		}
		if err := out.Encode(s.world().Answer(q)); err != nil {
			return err
		}
	}
	return lines.Err()
}

// talk is a connection that stays open.
type talk struct {
	*trace.Connection
	address string
	source  string
}

// firstPort is the client's port of the first connection of a script; each further connection uses the next port.
const firstPort = 50000

func (s *story) cmdConnect(_ *testscript.TestScript, args []string) error {
	if len(args) != 4 && len(args) != 5 {
		return fmt.Errorf("want NAME FROM PROTO TO [ADDR]")
	}
	q, err := question(args[1:])
	if err != nil {
		return err
	}
	want := ""
	if len(args) == 5 {
		want = args[4]
	}
	k, o, err := s.world().Connect(q, uint16(firstPort+len(s.talks)), want)
	if err != nil {
		return err
	}
	s.talks[args[0]] = &talk{Connection: k, address: o.Address, source: o.Source}
	return nil
}

func (s *story) cmdStill(_ *testscript.TestScript, args []string) error {
	if len(args) != 1 || s.talks[args[0]] == nil {
		return fmt.Errorf("want the NAME of a connection")
	}
	t := s.talks[args[0]]
	o, err := t.Send()
	switch {
	case err != nil:
		return err
	case o.Verdict != trace.Delivered:
		return fmt.Errorf("%s to %s is %s: %s\n    %s", args[0], t.address, o.Verdict, o.Reason, strings.Join(o.Hops, "\n    "))
	case o.Address != t.address:
		return fmt.Errorf("%s went to %s, now it goes to %s", args[0], t.address, o.Address)
	case o.Source != t.source:
		return fmt.Errorf("%s came from %s, now it comes from %s", args[0], t.source, o.Source)
	}
	return nil
}
