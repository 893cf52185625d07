package closed

import (
	"hash/fnv"
	"strings"

	"github.com/contiv-agent/contiv-agent/budget"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/renderer/acl/denial"
	"github.com/contiv-agent/contiv-agent/renderer/acl/endpoint"
	"github.com/contiv-agent/contiv-agent/renderer/acl/match"
)

// Refusals are copies of a closed pod's policies at other pods. Their number is a product of senders, closed pods and ports, so it is compared with
// limits before the rules are written:
//
//	exact refusals of all senders ─▶ a claim for the pods of one pair of programs ─▶ too large: each refusal becomes one rule for TCP and one for UDP
//
// A short refusal denies all that a sender sends to the closed pods, as a refused policy does.

// ask is the size of the exact refusal at one sender.
type ask struct {
	content uint64 // equal for refusals with equal lines: senders share their table
	each    int    // rules for single closed pods
	all     int    // rules for each closed pod
}

func askOf(res *refusal) ask {
	h := fnv.New64a()
	h.Write([]byte(res.sig))
	a := ask{content: h.Sum64()}
	for _, l := range res.lines {
		if l.to.IsValid() {
			a.each += len(l.rects)
		} else {
			a.all += len(l.rects)
		}
	}
	return a
}

// updateRefusal computes the refusal of closed pods at a sender again.
func (g *Refuser) updateRefusal(i *endpoint.Iface, s *sender, c *closedPods) {
	res := g.refusal(i, s, c)
	g.resized = true
	if delete(s.asks, c); res != nil {
		s.asks[c] = askOf(res)
		if c.refused != "" {
			res = res.short()
		}
	}
	s.replaceRefusal(c, res)
}

// short returns a refusal of all packets of TCP and UDP to the same closed pods.
func (res *refusal) short() *refusal {
	out := &refusal{}
	for _, l := range res.lines {
		rects := make([]denial.Rect, 0, 2)
		for _, proto := range [...]uint8{match.TCP, match.UDP} {
			rects = append(rects, denial.Rect{Proto: proto, Sport: match.AllPorts, Dport: match.AllPorts, Cause: l.rects[0].Cause})
		}
		out.lines = append(out.lines, refusalLine{from: l.from, to: l.to, rects: rects})
	}
	out.sign()
	return out
}

// boundRefusals compares the refusals of all closed pods with the limits, and computes those again whose verdict changed. The verdict depends on
// the exact refusals alone.
func (g *Refuser) boundRefusals() {
	sizes := map[*closedPods]map[ask]struct{}{}
	for _, s := range g.senders {
		for c, a := range s.asks {
			if sizes[c] == nil {
				sizes[c] = map[ask]struct{}{}
			}
			sizes[c][a] = struct{}{}
		}
	}
	ledger := budget.NewLedger(g.limits)
	for c, asks := range sizes {
		size := budget.Size{budget.Tables: len(asks)}
		for a := range asks {
			size[budget.Rules] += a.each + a.all*len(c.addrs)
		}
		ledger.Claim(budget.Claim{Ref: refOf(g.pods, c), Size: size})
	}
	ledger.Settle()
	for _, c := range g.closed {
		was := c.refused
		c.refused = ledger.Refused(refOf(g.pods, c))
		g.pods.Leaving = g.pods.Leaving || c.refused != was // notes
		if (was == "") == (c.refused == "") {
			continue
		}
		for i, s := range g.senders {
			if _, asks := s.asks[c]; asks {
				g.updateRefusal(i, s, c)
			}
		}
	}
	g.resized = false
}

// refOf returns the object that pays for refusals: the pod with the lowest of the addresses.
func refOf(pods *endpoint.Pods, c *closedPods) model.Ref {
	i := pods.Ifaces[pods.Node.Interfaces[c.addrs[0]]]
	if i == nil || len(i.Work) == 0 {
		return model.Ref{Name: c.key}
	}
	ref := i.Work[0].Ref()
	if namespace, _, named := strings.Cut(ref.Name, "/"); named {
		ref.Namespace = namespace
	}
	return ref
}

// notesRefused notes the closed pods that other pods of the node cannot reach because exact refusals would be too large.
func (g *Refuser) notesRefused() (notes []model.Note) {
	for _, v := range g.inOrder() {
		if v.served != nil || v.refused == "" {
			continue
		}
		for _, a := range v.closedPods.addrs {
			if i := g.pods.Ifaces[g.pods.Node.Interfaces[a]]; i != nil {
				notes = append(notes, i.Notes("copies of its policies at other pods: "+v.refused+": TCP and UDP from pods of this node that its policies restrict are denied")...)
			}
		}
	}
	return notes
}
