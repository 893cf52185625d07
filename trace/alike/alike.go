// Package alike turns questions about all pairs of pods into fewer: pods that are alike share answers.
//
//	pods a1 a2 of one class, b1 … b3 of another: a1 -> b1 and a2 -> b3 are asked
//	both answers are the same but for the names ─▶ they hold for all six pairs; else each pair is asked
//
// Pods are of one class if no policy distinguishes them, they are on one node, and they are endpoints of the same Services. Two questions about six
// pairs are no proof. The first reason to expect the same answer is the class; the second question finds what the class does not know, such as an
// object that has the name of a pod.
//
// Invariant: an answer has the verdict and the words of the answer to the single question.
package alike

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/space"
	"github.com/contiv-agent/contiv-agent/verify/intent/class"
	"github.com/contiv-agent/contiv-agent/verify/meaning"
)

// Config says what the pods' cluster is, and how it answers.
type Config struct {
	Objects []model.Object
	// IsOrdinary reports that a pod alone has one of its addresses, and that the address is of its node's range.
	IsOrdinary func(*model.Pod, netip.Addr) bool
	// AddrOf returns the address of a pod that packets have.
	AddrOf func(*model.Pod) netip.Addr
	// Ask asks about one pair.
	Ask func(from, to *model.Pod) (verdict, reason string)
}

// Pods are pods by class. It is not safe for concurrent use.
type Pods struct {
	cfg     Config
	class   map[*model.Pod]int
	members [][]*model.Pod // by class
	known   map[[2]int]*shared
}

// shared is the answer for all pairs of two classes.
type shared struct {
	differs bool // each pair is asked
	verdict string
	reason  []string // the reason's text; between two parts is the name or address at the same index of marks
	marks   []int    // indexes of names
}

// Of finds the classes of pods.
func Of(pods []*model.Pod, cfg Config) *Pods {
	l := &Pods{cfg: cfg, class: map[*model.Pod]int{}, known: map[[2]int]*shared{}}
	index := map[string]int{}
	keys := classKeys(&cfg)
	for _, p := range pods {
		if _, again := l.class[p]; again {
			continue
		}
		key, found := keys[p.ID]
		if !found {
			key = "alone " + p.ID.String()
		}
		at, known := index[key]
		if !known {
			at = len(l.members)
			index[key] = at
			l.members = append(l.members, nil)
		}
		l.members[at] = append(l.members[at], p)
		l.class[p] = at
	}
	return l
}

// classKeys returns what distinguishes each pod, except pods that are like no other: those with several addresses of a family, and those with an
// address that is not ordinary.
func classKeys(cfg *Config) map[model.PodID]string {
	endpointOf := map[netip.Addr][]string{}
	for _, o := range cfg.Objects {
		if s, is := o.(*model.EndpointSlice); is {
			for i := range s.Endpoints {
				e := &s.Endpoints[i]
				endpointOf[e.Addr] = append(endpointOf[e.Addr], fmt.Sprint(s.Service, s.Ports, e.Ready, e.Serving, e.Terminating, e.Zone, e.ForZones))
			}
		}
	}
	keys := map[model.PodID]string{}
	for _, m := range class.Members(meaning.Read(space.New(), cfg.Objects)) {
		var b strings.Builder
		fmt.Fprintf(&b, "%q %q", m.NodeName, m.Key)
		for _, k := range slices.Sorted(maps.Keys(m.Annotations)) {
			fmt.Fprintf(&b, " %q=%q", k, m.Annotations[k])
		}
		alike := len(m.Addrs) == 1 || len(m.Addrs) == 2 && m.Addrs[0].Is4() != m.Addrs[1].Is4()
		for _, a := range m.Addrs {
			alike = alike && cfg.IsOrdinary(m.Pod.Pod, a)
			slices.Sort(endpointOf[a])
			fmt.Fprintf(&b, " %q", endpointOf[a])
		}
		if alike {
			keys[m.ID] = b.String()
		}
	}
	return keys
}

// pair is a question.
type pair struct{ from, to *model.Pod }

// namesOf are the texts of a reason that differ between pairs that are alike.
func (l *Pods) namesOf(p pair) []string {
	return []string{p.from.ID.String(), p.to.ID.String(), l.cfg.AddrOf(p.from).String(), l.cfg.AddrOf(p.to).String()}
}

// Answer returns verdict and reason of a pair.
func (l *Pods) Answer(from, to *model.Pod) (verdict, reason string) {
	key := [2]int{l.class[from], l.class[to]}
	s := l.known[key]
	if s == nil {
		s = l.shareAnswer(key)
		l.known[key] = s
	}
	switch {
	case s.differs:
		return l.cfg.Ask(from, to)
	case len(s.marks) == 0:
		return s.verdict, s.reason[0]
	}
	return s.verdict, s.reasonWith(l.namesOf(pair{from, to}))
}

// shareAnswer asks about the first members of two classes, and about the last ones.
func (l *Pods) shareAnswer(key [2]int) *shared {
	from, to := l.members[key[0]], l.members[key[1]]
	first, last := pair{from[0], to[0]}, pair{from[len(from)-1], to[len(to)-1]}
	if key[0] == key[1] {
		first, last = pair{from[0], to[len(to)-1]}, pair{from[len(from)-1], to[0]}
	}
	s := &shared{}
	var text string
	s.verdict, text = l.cfg.Ask(first.from, first.to)
	s.reason, s.marks = divide(text, l.namesOf(first))
	if first == last {
		return s
	}
	verdict, text := l.cfg.Ask(last.from, last.to)
	reason, marks := divide(text, l.namesOf(last))
	s.differs = s.verdict != verdict || !slices.Equal(s.reason, reason) || !slices.Equal(s.marks, marks)
	return s
}

// divide divides a text at names.
func divide(text string, names []string) (parts []string, marks []int) {
	begin := 0
	for at := 0; at < len(text); {
		found := -1
		for i, name := range names {
			if strings.HasPrefix(text[at:], name) && isWhole(text, at, at+len(name)) && (found < 0 || len(name) > len(names[found])) {
				found = i
			}
		}
		if found < 0 {
			at++
			continue
		}
		parts, marks = append(parts, text[begin:at]), append(marks, found)
		at += len(names[found])
		begin = at
	}
	return append(parts, text[begin:]), marks
}

// isWhole reports that the text from begin to end is not a part of a longer name.
func isWhole(text string, begin, end int) bool {
	const inNames = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._/"
	if begin > 0 && strings.IndexByte(inNames, text[begin-1]) >= 0 {
		return false
	}
	return end == len(text) || strings.IndexByte(inNames, text[end]) < 0
}

// reasonWith is the reason with the names of a pair.
func (s *shared) reasonWith(names []string) string {
	var b strings.Builder
	for i, mark := range s.marks {
		b.WriteString(s.reason[i])
		b.WriteString(names[mark])
	}
	b.WriteString(s.reason[len(s.marks)])
	return b.String()
}
