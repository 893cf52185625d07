package acl

import (
	"errors"
	"slices"
	"strings"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/sctp"
)

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
