package verified

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/space"
	"github.com/contiv-agent/contiv-agent/test/oracle"
	"github.com/contiv-agent/contiv-agent/test/oracle/hear"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy/generate"
	"github.com/contiv-agent/contiv-agent/test/pace"
	"github.com/contiv-agent/contiv-agent/verify/intent/change"
	"github.com/contiv-agent/contiv-agent/verify/intent/class"
	"github.com/contiv-agent/contiv-agent/verify/meaning"
)

// moment is a random cluster at one moment.
type moment struct {
	objects []model.Object
	spec    *policy.Cluster
	pods    map[string]*meaning.Pod
	at      map[netip.Addr]string // addresses of pods → their names
	asked   asked                 // for outside
}

func newMoment(t *testing.T, raw []policy.Object) *moment {
	var all []generate.Change
	for _, o := range raw {
		all = append(all, generate.Change{Key: policy.KeyOf(o), Object: o})
	}
	heard, err := hear.All(all)
	if err != nil {
		t.Fatal(err)
	}
	m := &moment{objects: objectsOf(heard), pods: map[string]*meaning.Pod{}, at: map[netip.Addr]string{}}
	if m.spec, err = policy.Read(raw); err != nil {
		t.Fatal(err)
	}
	m.asked = asked{T: t, whole: meaning.Read(space.New(), class.Complete(m.objects)), pods: map[netip.Addr]*meaning.Pod{}}
	for _, p := range m.asked.whole.Pods {
		m.pods[p.ID.String()] = p
		for _, a := range p.IPs {
			m.at[a], m.asked.pods[a] = p.ID.String(), p
		}
	}
	return m
}

// TestChanges compares random clusters before and after random changes. A flow between pods that both have, or between such a pod and an
// address outside, is in exactly the rows that say so, and in such a row if and only if the specifications allow it at one moment alone.
func TestChanges(t *testing.T) {
	figures := map[string]int{}
	first := oracle.Setting(t, "CONTIV_SEED", 1)
	for seed := first; seed < first+oracle.Setting(t, "CONTIV_CASES", pace.Fewer[uint64](40, 5)) && !t.Failed(); seed++ {
		r := rand.New(rand.NewPCG(seed, 8))
		w := generate.NewWorld(seed, generate.AllKinds())
		raw, _ := withTwins(w)
		old := newMoment(t, raw)
		for range 1 + r.IntN(6) {
			w.Step()
		}
		raw, _ = withTwins(w)
		now := newMoment(t, raw)
		report := change.Compare(old.objects, now.objects)
		figures["rows"] += len(report.Opened) + len(report.Closed)
		figures["not compared"] += len(report.Unknown)
		for _, f := range w.Flows(2) {
			checkChange(t, seed, old, now, &f, report, figures)
		}
		if again := change.Compare(now.objects, now.objects); len(again.Opened)+len(again.Closed) > 0 {
			t.Errorf("seed %d: a cluster differs from itself: %+v", seed, again)
		}
	}
	t.Log(figures)
	for _, what := range []string{"opened", "closed", "same"} {
		if figures[what] == 0 {
			t.Errorf("no flow is %s", what)
		}
	}
}

// checkChange checks a flow of the new moment.
func checkChange(t *testing.T, seed uint64, old, now *moment, f *policy.Flow, report *change.Report, figures map[string]int) {
	before := *f
	for _, end := range []*netip.Addr{&before.Src, &before.Dst} {
		name := now.at[*end]
		switch {
		case name == "" && (!now.asked.outside(*end) || !old.asked.outside(*end)):
			return
		case name == "":
		case old.pods[name] == nil:
			return
		default:
			at := slices.IndexFunc(old.pods[name].IPs, func(a netip.Addr) bool { return a.Is4() == end.Is4() && !class.IsPlaceholder(a) })
			if at < 0 {
				return
			}
			*end = old.pods[name].IPs[at]
		}
		if slices.ContainsFunc(report.Unknown, func(text string) bool { return strings.HasPrefix(text, name+":") }) && name != "" {
			return
		}
	}
	h := headerOf(f)
	if now.at[f.Src] == "" && now.at[f.Dst] == "" || f.Src == f.Dst || !beginsConnection(h) {
		return
	}
	was := old.spec.JudgeEgress(&before).Allowed && old.spec.JudgeIngress(&before).Allowed
	is := now.spec.JudgeEgress(f).Allowed && now.spec.JudgeIngress(f).Allowed
	figures[map[[2]bool]string{{true, true}: "same", {false, false}: "same", {false, true}: "opened", {true, false}: "closed"}[[2]bool{was, is}]]++
	opened, closed := rowsWith(t, report.Opened, now, h), rowsWith(t, report.Closed, now, h)
	if (opened > 0) != (is && !was) || (closed > 0) != (was && !is) || opened+closed > 1 {
		t.Errorf("seed %d: %s (%s -> %s): allowed before %v, after %v; in %d rows of opened, %d of closed", seed, f, now.at[f.Src], now.at[f.Dst], was, is, opened, closed)
	}
}

func beginsConnection(h space.Header) bool {
	switch h.Protocol {
	case space.ICMP:
		return !slices.Contains([]uint16{0, 3, 11, 12}, h.SrcPort)
	case space.ICMPv6:
		return !slices.Contains([]uint16{1, 2, 3, 4, 129, 133, 134, 135, 136, 137}, h.SrcPort)
	}
	return true
}

// rowsWith counts the rows whose text has a header.
func rowsWith(t *testing.T, rows []change.Row, m *moment, h space.Header) (n int) {
	for i := range rows {
		r := &rows[i]
		family := map[bool]string{true: "IPv4", false: "IPv6"}[h.Src.Is4()]
		if slices.Contains(r.Families, family) && groupsHave(t, r.From, m, h.Src) && groupsHave(t, r.To, m, h.Dst) && portsHave(t, r.Ports, h) {
			n++
		}
	}
	return n
}

func groupsHave(t *testing.T, list []change.Group, m *moment, a netip.Addr) bool {
	pod := m.at[a]
	return slices.ContainsFunc(list, func(g change.Group) bool {
		except, excepted := strings.CutPrefix(g.Name, "outside except ")
		namespace, isNamespace := strings.CutPrefix(g.Name, "ns:")
		switch {
		case g.Name == "every pod":
			return pod != ""
		case isNamespace:
			return strings.HasPrefix(pod, namespace+"/")
		case g.Name == "outside":
			return pod == ""
		case excepted:
			return pod == "" && !slices.ContainsFunc(strings.Split(except, ", "), func(text string) bool { return rangeHas(t, text, a) })
		case len(g.Pods) > 0:
			return slices.Contains(g.Pods, pod)
		case m.pods[g.Name] != nil || pod != "":
			return pod == g.Name
		}
		return !strings.ContainsAny(g.Name, "ghijklmnopqrstuvwxyz") && rangeHas(t, g.Name, a) // no name of a pod that was removed
	})
}

func rangeHas(t *testing.T, text string, a netip.Addr) bool {
	if first, last, found := strings.Cut(text, "-"); found {
		low, high := netip.MustParseAddr(first), netip.MustParseAddr(last)
		return low.Is4() == a.Is4() && !a.Less(low) && !high.Less(a)
	}
	p, err := netip.ParsePrefix(text)
	if err != nil {
		t.Fatalf("range %q: %v", text, err)
	}
	return p.Contains(a)
}

// portsHave reads "TCP 80, 443 from port 5; UDP; ICMP type 8 code 0; other protocols".
func portsHave(t *testing.T, text string, h space.Header) bool {
	span := func(list string, v uint16) bool {
		return slices.ContainsFunc(strings.Split(list, ", "), func(text string) bool {
			first, last, isRange := strings.Cut(text, "-")
			if !isRange {
				last = first
			}
			low, err := strconv.ParseUint(first, 10, 16)
			high, err2 := strconv.ParseUint(last, 10, 16)
			if err != nil || err2 != nil {
				t.Fatalf("ports %q", text)
			}
			return low <= uint64(v) && uint64(v) <= high
		})
	}
	name := map[uint8]string{space.TCP: "TCP", space.UDP: "UDP", space.SCTP: "SCTP", space.ICMP: "ICMP", space.ICMPv6: "ICMPv6"}[h.Protocol]
	return text == "all protocols" || slices.ContainsFunc(strings.Split(text, "; "), func(item string) bool {
		ports, fits := strings.CutPrefix(item, name+" ")
		switch {
		case name == "":
			return item == "other protocols" || strings.HasPrefix(item, "protocols ") && span(item[len("protocols "):], uint16(h.Protocol))
		case item == name:
			return true
		case !fits:
			return false
		}
		if message, is := strings.CutPrefix(ports, "type "); is {
			kind, code, has := strings.Cut(message, " code ")
			return span(kind, h.SrcPort) && (!has || span(code, h.DstPort))
		}
		to, from, has := strings.Cut(ports, " from port ")
		return span(to, h.DstPort) && (!has || span(from, h.SrcPort))
	})
}
