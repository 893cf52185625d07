package lossguard

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/contiv-agent/contiv-agent/model"
)

// tally counts what objects are, by class: their kinds, and the classes below.
type tally map[string]int

// Classes that are no kinds.
const (
	endpoints  = "endpoints"   // ready endpoints of EndpointSlices
	frontends  = "frontends"   // addresses of Services, times their ports
	allowRules = "allow rules" // of policies, staged ones excepted
)

// classText returns a class for people.
func classText(class string, n int) string {
	switch class {
	case endpoints, frontends, allowRules:
		return class
	}
	if n == 1 {
		return "object of kind " + class
	}
	return "objects of kind " + class
}

// classOf returns the class of the parts of an object of that kind, which parts counts; "": its removal alone matters.
func classOf(kind model.Kind) string {
	switch kind {
	case model.KindEndpointSlice:
		return endpoints
	case model.KindService:
		return frontends
	}
	if _, is := model.PolicyKind(kind).Info(); is || kind == model.Kind(model.KindTieredPolicy) {
		return allowRules
	}
	return ""
}

// parts counts the parts of an object, of the class of its kind.
func parts(obj model.Object) (n int) {
	switch o := obj.(type) {
	case *model.EndpointSlice:
		for i := range o.Endpoints {
			if o.Endpoints[i].Ready {
				n++
			}
		}
	case *model.Service:
		return len(o.Ports) * len(addrsOf(o))
	case *model.Policy:
		if o.StagedAction() != "" {
			return 0
		}
		for _, rules := range [2][]model.Rule{o.InboundRules, o.OutboundRules} {
			for i := range rules {
				if rules[i].Action.Allows() {
					n++
				}
			}
		}
	}
	return n
}

// addrsOf returns the addresses that clients dial, or that belong to a pod.
func addrsOf(obj model.Object) (out []netip.Addr) {
	switch o := obj.(type) {
	case *model.Service:
		out = append(append(out, o.ClusterIPs...), o.ExternalIPs...)
		for _, lb := range o.LoadBalancerIPs {
			out = append(out, lb.Addr)
		}
	case *model.Pod:
		if !o.HostNetwork && !o.Finished {
			return o.IPs
		}
	}
	return out
}

// addCount adds to the number of a class.
func (t tally) addCount(class string, n int) {
	if t[class] += n; t[class] == 0 {
		delete(t, class)
	}
}

// excess is the part of a tally that is too large: "120 of 150 endpoints, 40 of 40 frontends"; "": none. The classes are sorted.
func excess(lost, had tally, l *Limits) string {
	var texts []string
	for _, class := range slices.Sorted(maps.Keys(lost)) {
		if n := lost[class]; n >= l.Least && n*100 > int(l.Share)*had[class] {
			texts = append(texts, fmt.Sprintf("%d of %d %s", n, had[class], classText(class, had[class])))
		}
	}
	return strings.Join(texts, ", ")
}

// small reports that a loss passes at once: at most a tenth of each class, or half of what the guard never holds.
func small(lost, had tally, l *Limits) bool {
	for class, n := range lost {
		if n > max(had[class]/10, l.Least/2) {
			return false
		}
	}
	return true
}
