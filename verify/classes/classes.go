// Package classes turns the access lists of a cluster's VPPs and its policies into classes of packets, with one packet for each.
//
// Two packets are of one class if they have the same ends and the same protocol, the same rule of the sender's input lists decides about both,
// the same rule of the receiver's output lists, and policies allow both or neither. An end is a pod, all pods of other nodes, or all hosts outside.
//
// Invariant: every packet that opens a connection of TCP or UDP, or asks for an echo, between two pods or a pod and a host outside, is of one
// class. Packets to and from port 0, and packets of a pod to itself, are of none.
package classes

import (
	"net/netip"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/space"
	"github.com/contiv-agent/contiv-agent/verify/dump"
	"github.com/contiv-agent/contiv-agent/verify/intent"
	"github.com/contiv-agent/contiv-agent/verify/meaning"
)

// Class is packets that the access lists and the policies of a cluster do not distinguish.
type Class struct {
	// From and To are the ends; nil: a host outside, or, if Away is true, To is the pods of other nodes than From's, of which only the sender's side is considered.
	From, To *meaning.Pod
	Away     bool
	// Passes says that the rules let the class pass, Allowed that policies do.
	Passes, Allowed bool
	// Doubt says why a policy cannot be evaluated; "": it can.
	Doubt string
	// Rules are those that decide, the sender's first.
	Rules []string
	set   space.Set
	sends bool     // the sender's lists let it pass
	shows []string // what a packet of the class shows, if it does what the class says
}

// Finder is the objects of a cluster and the state of its VPPs. It is not safe for concurrent use.
type Finder struct {
	space  *space.Space
	intent *intent.Cluster
	states map[string]*dump.State // by node
	kinds  []space.Set            // by protocol
}

// New reads objects. States has the state of the VPP of each node.
func New(objects []model.Object, states map[string]*dump.State) *Finder {
	s := space.New()
	f := &Finder{space: s, intent: intent.ReadInto(s, objects), states: states}
	ports := space.Boxes(s, func(b *space.Box) {
		b.SrcPorts, b.DstPorts = space.Span{First: 1, Last: 65535}, space.Span{First: 1, Last: 65535}
	})
	for _, protocol := range []uint16{space.TCP, space.UDP} {
		f.kinds = append(f.kinds, s.Intersect(s.Intersect(f.intent.Fresh(), space.OfProtocol(s, protocol)), ports))
	}
	f.kinds = append(f.kinds, space.Echo(s))
	return f
}

// Find returns the classes of all pairs of ends.
func (f *Finder) Find() (list []Class) {
	for _, from := range f.ends() {
		for _, to := range f.ends() {
			if from == to {
				continue
			}
			region := f.space.Intersect(f.addrs(from, false), f.addrs(to, true))
			for _, kind := range f.kinds {
				if set := f.space.Intersect(region, kind); !set.Empty() {
					list = append(list, f.receiver(f.sender(Class{From: from, To: to, Passes: true, Allowed: true, set: set}))...)
				}
			}
		}
	}
	return list
}

// Count returns how many of these classes have a packet.
func (f *Finder) Count(list []Class, h space.Header) (n int) {
	for i := range list {
		if f.space.Contains(list[i].set, h) {
			n++
		}
	}
	return n
}

// ends are the pods with an interface, and nil for all hosts outside.
func (f *Finder) ends() (list []*meaning.Pod) {
	for _, p := range f.intent.Full.Pods {
		if f.iface(p) != nil {
			list = append(list, p)
		}
	}
	return append(list, nil)
}

func (f *Finder) iface(p *meaning.Pod) *dump.Interface {
	state := f.states[p.NodeName]
	if state == nil || len(p.IPs) == 0 {
		return nil
	}
	index, known := state.Behind[p.IPs[0]]
	if !known {
		return nil // the pod has no address yet
	}
	return state.Interfaces[index]
}

func (f *Finder) addrs(p *meaning.Pod, destination bool) space.Set {
	switch {
	case p == nil:
		return f.intent.Outside(destination)
	case destination:
		return f.space.Destinations(p.Nets()...)
	}
	return f.space.Sources(p.Nets()...)
}

// sender divides a class by what decides about it at the sender.
func (f *Finder) sender(c Class) []Class {
	if c.From == nil {
		c.sends = true
		return []Class{c}
	}
	list := f.byPolicy(f.byRules([]Class{c}, c.From, f.iface(c.From).Input), c.From, true)
	for i := range list {
		list[i].sends = list[i].Passes
	}
	return list
}

// receiver divides classes with the same ends by what decides about them at the receiver.
func (f *Finder) receiver(list []Class) []Class {
	to := list[0].To
	if to == nil {
		return list
	}
	return f.byPolicy(f.byRules(list, to, f.iface(to).Output), to, false)
}

// byRules divides classes by the rule of an interface's lists that decides.
func (f *Finder) byRules(list []Class, p *meaning.Pod, vector []uint32) (out []Class) {
	if len(vector) == 0 {
		return list // everything passes
	}
	for _, c := range list {
		rest := c.set
		for _, index := range vector {
			l := f.states[p.NodeName].Lists[index]
			if l == nil {
				continue // it was removed between two dumps
			}
			for i := range l.Space {
				if rest.Empty() {
					break
				}
				hit := f.space.Intersect(rest, f.space.Box(l.Space[i].Box))
				if hit.Empty() {
					continue
				}
				out = append(out, c.part(hit, l.Space[i].Verdict != dump.Deny, l.Name+": "+l.Text(i)))
				rest = f.space.Minus(rest, hit)
			}
		}
		if !rest.Empty() {
			out = append(out, c.part(rest, false, "no rule"))
		}
	}
	return out
}

// part is the headers of a class about which a rule decides.
func (c *Class) part(set space.Set, passes bool, rule string) Class {
	out := *c
	out.set, out.Passes = set, c.Passes && passes
	out.Rules = append(c.Rules[:len(c.Rules):len(c.Rules)], rule)
	return out
}

// byPolicy divides classes by what policies of an end say.
func (f *Finder) byPolicy(list []Class, p *meaning.Pod, egress bool) (out []Class) {
	allowed, doubts := f.intent.Full.Allowed(p, egress)
	for _, c := range list {
		if len(doubts) > 0 {
			c.Doubt = doubts[0]
		}
		for _, part := range []struct {
			set space.Set
			may bool
		}{{f.space.Intersect(c.set, allowed), c.Allowed}, {f.space.Minus(c.set, allowed), false}} {
			if !part.set.Empty() {
				one := c
				one.set, one.Allowed = part.set, part.may
				out = append(out, one)
			}
		}
	}
	return out
}

// Packet returns a packet of a class. If the class has one from a port, it has this port. Otherwise its ports are different, if the class has such
// packets, so that it is no answer to the packet of the opposite class.
func (f *Finder) Packet(c *Class, port uint16) space.Header {
	s := f.space
	set := space.Narrow(s, c.set, s.Box(space.All4()))
	hosts := []netip.Prefix{netip.MustParsePrefix("198.51.100.7/32"), netip.MustParsePrefix("2001:db8::7/128")}
	if c.From == nil {
		set = space.Narrow(s, set, s.Sources(hosts...))
	}
	if c.To == nil {
		set = space.Narrow(s, set, s.Destinations(hosts...))
	}
	set = space.Narrow(s, set, space.Boxes(s, func(b *space.Box) { b.SrcPorts = space.One(port) }))
	set = space.Narrow(s, set, space.Boxes(s, func(b *space.Box) { b.DstPorts = space.Span{First: 2, Last: 65535} }))
	h, _ := s.Witness(set)
	return h
}
