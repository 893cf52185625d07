package controller

import (
	"fmt"
	"strings"

	"github.com/contiv-agent/contiv-agent/model"
)

// mostCauses is how many are counted: VPP may be away for days, and each Pod that comes and goes is one.
const mostCauses = 10_000

// causes are the reasons of the next transaction: the first by name, the others by number.
type causes struct {
	first string
	more  map[string]struct{}
}

func (c *causes) add(cause string) {
	switch {
	case c.first == "":
		c.first = cause
	case cause != c.first && len(c.more) < mostCauses:
		if c.more == nil {
			c.more = map[string]struct{}{}
		}
		c.more[cause] = struct{}{}
	}
}

// String is "service/default/web", or "service/default/web and 3 more", or, if nobody counts any more, "… and 10000 or more".
func (c *causes) String() string {
	switch len(c.more) {
	case 0:
		return c.first
	case mostCauses:
		return fmt.Sprintf("%s and %d or more", c.first, mostCauses)
	}
	return fmt.Sprintf("%s and %d more", c.first, len(c.more))
}

// causeOf is "service/default/web": kind in small letters, namespace, name.
func causeOf(ref model.Ref) string {
	kind := strings.ToLower(string(ref.Kind))
	if ref.Namespace == "" {
		return kind + "/" + ref.Name
	}
	return kind + "/" + ref.Namespace + "/" + ref.Name
}
