package classes

import (
	"context"
	"fmt"
	"iter"
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/space"
	"github.com/contiv-agent/contiv-agent/verify/example"
	"github.com/contiv-agent/contiv-agent/verify/meaning"
)

// Cover yields classes of packets that pods of a node send, until a packet of each would show each verdict: of each rule of a sender's input lists, and of each rule of a
// receiver's output lists that such a packet reaches, for each protocol. So they are fewer than those of Find, which has each pair of rules. Receivers are pods of the node, pods of all other
// nodes together, and hosts outside. It ends early with ctx.
func (f *Finder) Cover(ctx context.Context, node string) iter.Seq[Class] {
	return func(yield func(Class) bool) {
		shown, pods, away := map[string]bool{}, f.Senders(node), f.elsewhere(node)
		for i, from := range pods {
			receivers := append(slices.Concat(pods[i+1:], pods[:i]), nil) // another one first for each sender
			for k, kind := range f.kinds {
				whole := Class{From: from, Passes: true, Allowed: true, set: f.space.Intersect(f.addrs(from, false), kind)}
				for n, c := range f.sender(whole) {
					c.shows = []string{fmt.Sprint("from ", from.ID, k, n)}
					if ctx.Err() != nil || !f.coverReceivers(ctx, &c, receivers, away, k, shown, yield) {
						return
					}
				}
			}
		}
	}
}

// coverReceivers yields what a class of a sender has for each receiver, as far as it shows something new.
func (f *Finder) coverReceivers(ctx context.Context, c *Class, receivers []*meaning.Pod, away space.Set, kind int, shown map[string]bool, yield func(Class) bool) bool {
	for _, to := range receivers {
		if ctx.Err() != nil {
			return false
		}
		one := *c
		one.To, one.set = to, f.space.Intersect(c.set, f.addrs(to, true))
		parts := []Class{one}
		if to != nil && one.Passes && !one.set.Empty() {
			parts = f.receiver(parts)
			for n := range parts {
				parts[n].shows = append(parts[n].shows[:1:1], fmt.Sprint("to ", to.ID, kind, parts[n].Rules[len(c.Rules):], parts[n].Allowed))
			}
		}
		if to != nil && !one.Passes { // policies decide about both ends, lists about the sender alone
			parts = f.byPolicy(parts, to, false)
		}
		for _, part := range parts {
			if !part.set.Empty() && !offer(part, shown, yield) {
				return false
			}
		}
	}
	one := *c
	one.Away, one.set = true, f.space.Intersect(c.set, away)
	return one.set.Empty() || offer(one, shown, yield)
}

// offer yields a class that shows something new.
func offer(c Class, shown map[string]bool, yield func(Class) bool) bool {
	isNew := false
	for _, what := range c.shows {
		isNew = isNew || !shown[what]
		shown[what] = true
	}
	return !isNew || yield(c)
}

// elsewhere are the headers to pods of all nodes but one.
func (f *Finder) elsewhere(node string) space.Set {
	var nets []netip.Prefix
	for _, p := range f.intent.Full.Pods {
		if p.NodeName != node {
			nets = append(nets, p.Nets()...)
		}
	}
	return f.space.Destinations(nets...)
}

// Decide returns the class of a header between the ends of a class of another Finder. Its Doubt says if an end is gone.
func (f *Finder) Decide(c *Class, h space.Header) Class {
	ends := map[*meaning.Pod]*meaning.Pod{nil: nil}
	for _, p := range []*meaning.Pod{c.From, c.To} {
		if p == nil {
			continue
		}
		i := slices.IndexFunc(f.intent.Full.Pods, func(q *meaning.Pod) bool { return q.ID == p.ID && slices.Equal(q.IPs, p.IPs) })
		if i < 0 || f.iface(f.intent.Full.Pods[i]) == nil {
			return Class{From: c.From, To: c.To, Doubt: "pod " + p.ID.String() + " has gone"}
		}
		ends[p] = f.intent.Full.Pods[i]
	}
	box := space.Box{
		Src: netip.PrefixFrom(h.Src, h.Src.BitLen()), Dst: netip.PrefixFrom(h.Dst, h.Dst.BitLen()), Protocols: space.One(uint16(h.Protocol)),
		SrcPorts: space.One(h.SrcPort), DstPorts: space.One(h.DstPort), FlagMask: 255, FlagBits: h.Flags,
	}
	return f.receiver(f.sender(Class{From: ends[c.From], To: ends[c.To], Away: c.Away, Passes: true, Allowed: true, set: f.space.Box(box)}))[0]
}

// Reasons are what the policies of both ends decide about a packet of a class.
func (f *Finder) Reasons(c *Class, h space.Header) (out []example.Decision) {
	for i, p := range []*meaning.Pod{c.From, c.To} {
		if p != nil {
			d := f.intent.Full.Decide(p, i == 0, h)
			out = append(out, example.DecisionOf(p.ID, i == 0, &d))
		}
	}
	return out
}

// Senders are the pods of a node that have an interface.
func (f *Finder) Senders(node string) (list []*meaning.Pod) {
	for _, p := range f.ends() {
		if p != nil && p.NodeName == node {
			list = append(list, p)
		}
	}
	return list
}

// Interface is the name of a sender's interface in VPP.
func (f *Finder) Interface(p *meaning.Pod) string { return f.iface(p).Name }

// SenderPasses reports whether the lists of the sender let the class pass.
func (c *Class) SenderPasses() bool { return c.sends }
