package realvpp

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// tally is what one flow saw, or what some saw together.
type tally struct {
	flows, alive int // alive: those that go on after the event
	// excused are those that need not go on, as VPP lost what they need, and do not.
	excused int
	// sent and lost are single messages and connections between the event and the end; streams lose none, they wait.
	sent, lost int
	gap        time.Duration // the longest between two messages, of those that go on
	// meanwhile and forbidden are packets that policies deny and that reached the server: up to a second after the acknowledgement, and later.
	meanwhile, forbidden int
	// back are packets of servers that reached their clients after that second: pushes of UDP, and what TCP sends again.
	back int
}

func (t *tally) add(o tally) {
	t.flows += o.flows
	t.alive += o.alive
	t.excused += o.excused
	t.sent += o.sent
	t.lost += o.lost
	t.gap = max(t.gap, o.gap)
	t.meanwhile += o.meanwhile
	t.forbidden += o.forbidden
	t.back += o.back
}

// tally counts what a flow saw in a round that is over.
func (r *round) tally(f *flow) (t tally) {
	t.flows = 1
	log := f.seen()
	late, never := r.acknowledged+grace, r.end+time.Hour
	if !f.after {
		from := r.event
		if !f.before {
			from = 0
		}
		t.meanwhile, t.forbidden = within(log[toServer], from, late), within(log[toServer], late, never)
		t.back = within(log[toClient], late, never)
		return t
	}
	if heard := f.heard(); within(heard, r.acknowledged, never) >= warm {
		t.alive, t.gap = 1, longest(heard, r.event, r.end)
	} else if !r.goesOn(f) {
		t.excused = 1
	}
	if !f.before {
		t.meanwhile = within(log[toServer], 0, r.event)
	}
	if t.alive == 1 && (f.kind.fresh || f.kind.protocol != unix.IPPROTO_TCP) {
		t.sent, t.lost = r.lost(f)
	}
	return t
}

// lost counts messages since the event, and those without an answer; of a flow that is let in, since the acknowledgement.
func (r *round) lost(f *flow) (sentSince, lost int) {
	from := r.event
	if !f.before {
		from = r.acknowledged
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for n, at := range f.log[sent] {
		if at >= from && at < r.end-dialling {
			sentSince++
			if !f.got[n] {
				lost++
			}
		}
	}
	return sentSince, lost
}

// longest is the longest time between two messages since the event, and before the end.
func longest(heard []time.Duration, event, end time.Duration) (gap time.Duration) {
	last := event
	for _, at := range heard {
		if at > event {
			gap = max(gap, at-last)
		}
		last = max(last, at)
	}
	return max(gap, end-last)
}

// class is what policies say of a flow before and after the event.
func (f *flow) class() string {
	switch {
	case f.before && f.after:
		return "allowed"
	case f.before:
		return "revoked"
	case f.after:
		return "let in"
	}
	return "denied"
}

// tallies are those of a round, by class, of all flows and of each kind.
func (r *round) tallies() (all map[string]*tally, kinds []string, by map[string]map[string]*tally) {
	all, by = noTallies(), map[string]map[string]*tally{}
	for _, f := range r.flows {
		key := f.kind.name + " by " + f.by
		if f.server == late {
			key = f.kind.name + ", new pod"
		}
		if f.six {
			key = "IPv6 " + key
		}
		if by[key] == nil {
			kinds, by[key] = append(kinds, key), noTallies()
		}
		n := r.tally(f)
		by[key][f.class()].add(n)
		all[f.class()].add(n)
	}
	return all, kinds, by
}

func noTallies() map[string]*tally {
	return map[string]*tally{"allowed": {}, "revoked": {}, "let in": {}, "denied": {}}
}

// gapUnit is the precision of a gap in documents.
const gapUnit = 10 * time.Millisecond

// cells are the columns of the table, which docs/traffic.md explains.
func cells(by map[string]*tally) string {
	allowed, letIn, revoked, denied := by["allowed"], by["let in"], by["revoked"], by["denied"]
	goOn := fmt.Sprintf("%d of %d", allowed.alive, allowed.flows)
	if allowed.excused > 0 {
		goOn += fmt.Sprintf(", %d end", allowed.excused)
	}
	return strings.Join([]string{
		goOn, fmt.Sprintf("%d of %d", allowed.lost, allowed.sent), allowed.gap.Round(gapUnit).String(),
		fmt.Sprintf("%d of %d", letIn.alive, letIn.flows),
		fmt.Sprint(revoked.flows), fmt.Sprint(revoked.meanwhile), fmt.Sprint(revoked.forbidden), fmt.Sprint(revoked.back),
		fmt.Sprint(denied.flows), fmt.Sprint(denied.meanwhile), fmt.Sprint(denied.forbidden),
	}, " | ")
}

func (r *round) took() time.Duration { return (r.acknowledged - r.event).Round(10 * time.Millisecond) }

// The documents with the tables, by version of VPP: one row for each event, and one for each kind of flow in each event.
const trafficTable, trafficDetails = "../../docs/traffic.md", "testdata/traffic-%s.txt"

// recordTraffic writes the tables of a run if CONTIV_TRAFFIC_RECORD is set.
func recordTraffic(t *testing.T, version string, rows []string, details string) {
	if os.Getenv("CONTIV_TRAFFIC_RECORD") == "" {
		return
	}
	if err := os.WriteFile(fmt.Sprintf(trafficDetails, version), []byte(details), 0o644); err != nil {
		t.Error(err)
	}
	recordTable(t, version, tableHead+strings.Join(rows, "\n")+"\n")
}

// recordTable writes a table into the document, between two comments with a name, if CONTIV_TRAFFIC_RECORD is set.
func recordTable(t *testing.T, name, table string) {
	if os.Getenv("CONTIV_TRAFFIC_RECORD") == "" {
		return
	}
	text, err := os.ReadFile(trafficTable)
	if err != nil {
		t.Fatal(err)
	}
	begin, end := "<!-- "+name+" -->\n", "<!-- end of "+name+" -->"
	from, to := strings.Index(string(text), begin), strings.Index(string(text), end)
	if from < 0 || to < from {
		t.Fatalf("%s has no place for a run on %s", trafficTable, name)
	}
	out := string(text[:from]) + begin + table + string(text[to:])
	if err := os.WriteFile(trafficTable, []byte(out), 0o644); err != nil {
		t.Error(err)
	}
}

const tableHead = `
| event | renderer | acknowledged after | allowed: go on | lost | longest gap | let in: go on | revoked: flows | packets until +1 s | **later** | from servers later | denied: flows | packets until +1 s | **later** |
|---|---|---|---|---|---|---|---|---|---|---|---|---|---|
`

// release is the number of a VPP's version.
var release = regexp.MustCompile(`^\d+\.\d+`)
