package acl

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/sctp"
)

// reachLists denies everything in a direction that names an unwanted ACL, and keeps both directions while a wanted ACL is
// missing: the agent retries a refused ACL, but an unwanted one may never be added.
func reachLists(w *descriptor.World, has, wants any, in func(key string) any) (any, []string, string) {
	want, have := wants.(*accessLists), &accessLists{}
	if owner := listOwner(w, want); owner != want.key {
		return want, nil, fmt.Sprintf("interface: %s, by another name, has lists already: %s", want.iface, owner)
	}
	if has != nil {
		have = has.(*accessLists)
	}
	want, missing, held := reachFront(w, have, want, in)
	want, missing = withoutInterim(want, missing, in)
	look := func(keys []string) (unknown bool) {
		for _, k := range keys {
			filter := needsFilter(k)
			switch {
			case filter != "" && in(filter) == nil:
				held, k = true, filter
			case in(k) != nil, fixed(k):
				continue
			case w.Wanted(k) == nil:
				unknown = true
			default:
				held = true
			}
			if !slices.Contains(missing, k) {
				missing = append(missing, k)
			}
		}
		return unknown || want.why != "" && len(keys) > 0
	}
	denyIn, denyOut := look(want.in), look(want.out)
	if !held && !denyIn && !denyOut {
		return want, missing, ""
	}
	l := &accessLists{key: want.key, iface: want.iface, keepFront: want.keepFront}
	l.in, l.keepIn = reachDirection(w, have.in, want.in, denyIn, held)
	l.out, l.keepOut = reachDirection(w, have.out, want.out, denyOut, held)
	return l, missing, want.why
}

// withoutInterim leaves out the missing ACLs that the interface can do without.
func withoutInterim(want *accessLists, missing []string, in func(key string) any) (*accessLists, []string) {
	l := *want
	for _, keys := range []*[]string{&l.in, &l.out} {
		rest := slices.DeleteFunc(slices.Clone(*keys), func(k string) bool {
			lacks := kv.IsInterimACL(strings.TrimPrefix(k, aclPrefix)) && in(k) == nil
			if lacks {
				missing = append(missing, k)
			}
			return lacks
		})
		if len(rest) == 0 && len(*keys) > 0 { // never open
			rest = []string{denyKey}
		}
		*keys = rest
	}
	return &l, missing
}

// noteLists returns a remark such as "input denied altogether, output as it was".
func noteLists(state any) string {
	l := state.(*accessLists)
	direction := func(name string, keys []string, keep bool) string {
		switch {
		case keep && len(keys) > 0:
			return name + " as it was"
		case slices.Equal(keys, []string{denyKey}):
			return name + " denied altogether"
		}
		return ""
	}
	in, out := direction("input", l.in, l.keepIn), direction("output", l.out, l.keepOut)
	if in != "" && out != "" {
		in += ", "
	}
	return in + out
}

func reachDirection(w *descriptor.World, have, want []string, deny, held bool) (keys []string, keep bool) {
	switch {
	case held && !hasFilters(w, have):
		return []string{denyKey}, false
	case held && (len(have) > 0 || len(want) == 0):
		return have, true
	case held || deny:
		return []string{denyKey}, false
	}
	return want, false
}

// needsFilter returns the key of the filter without which an ACL must not be in VPP, or in a list; "": none.
func needsFilter(aclKey string) string {
	name, ok := strings.CutPrefix(aclKey, aclPrefix)
	if !ok {
		return ""
	}
	return kv.SCTPFilterOf(name)
}

// readyFilter refuses changes of such an ACL until the filter equals its desired state.
func readyFilter(_ *descriptor.World, _, want any, sure func(key string) any) error {
	if filter := needsFilter(want.(*accessList).key); filter != "" && sure(filter) == nil {
		return errors.New("ports of SCTP are not decided yet")
	}
	return nil
}

// hasFilters reports that VPP has the filter of each ACL of a list that needs one: without it the list cannot stay unchanged.
func hasFilters(w *descriptor.World, list []string) bool {
	return !slices.ContainsFunc(list, func(k string) bool {
		filter := needsFilter(k)
		return filter != "" && sctp.Lacks(w, filter)
	})
}
