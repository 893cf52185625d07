package controller

import (
	"fmt"
	"strings"

	"github.com/contiv-agent/contiv-agent/model"
)

// mostCauses is the largest number of causes that are counted. VPP may be away for days, and each Pod that is created or deleted
// adds one.
const mostCauses = 10_000

// causes are the causes of the next transaction: the name of the first, and the number of all.
type causes struct {
	first string
	more  map[string]struct{}
}

func (c *causes) addCause(cause string) {
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

// String returns "service/default/web", or "service/default/web and 3 more", or, beyond the largest count, "… and 10000 or more".
func (c *causes) String() string {
	switch len(c.more) {
	case 0:
		return c.first
	case mostCauses:
		return fmt.Sprintf("%s and %d or more", c.first, mostCauses)
	}
	return fmt.Sprintf("%s and %d more", c.first, len(c.more))
}

// causeOf returns "service/default/web": kind in lower case, namespace, name.
func causeOf(ref model.Ref) string {
	kind := strings.ToLower(string(ref.Kind))
	if ref.Namespace == "" {
		return kind + "/" + ref.Name
	}
	return kind + "/" + ref.Namespace + "/" + ref.Name
}
