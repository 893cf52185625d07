package policy

import (
	"encoding/json"
	"fmt"
	"net/netip"

	"github.com/contiv-agent/contiv-agent/model"
)

// allowedSources returns the prefixes from which a pod may send according to its annotations, beside its addresses. An invalid
// annotation allows nothing; problem says why it is invalid.
func allowedSources(p *model.Pod) (out []netip.Prefix, problem string) {
	switch v := p.Annotations[model.AnnotationSourceCheck]; v {
	case "", "true":
	case "false":
		return []netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0)}, ""
	default:
		problem = fmt.Sprintf("metadata.annotations[%s]: %q is neither \"true\" nor \"false\": sources are checked", model.AnnotationSourceCheck, v)
	}
	text := p.Annotations[model.AnnotationAllowedSources]
	if text == "" {
		return nil, problem
	}
	out, err := parseSources(text)
	if err != nil {
		problem = fmt.Sprintf("metadata.annotations[%s]: %v: no further sources are allowed", model.AnnotationAllowedSources, err)
	}
	return out, problem
}

// parseSources parses a JSON list of prefixes or addresses.
func parseSources(text string) ([]netip.Prefix, error) {
	var list []string
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, fmt.Errorf("not a JSON list of prefixes: %w", err)
	}
	out := make([]netip.Prefix, 0, len(list))
	for i, s := range list {
		p, err := netip.ParsePrefix(s)
		if a, bare := netip.ParseAddr(s); bare == nil && a.Zone() == "" {
			p, err = netip.PrefixFrom(a, a.BitLen()), nil
		}
		if err != nil || p.Addr().Is4In6() {
			return nil, fmt.Errorf("[%d]: %q is not a prefix", i, s)
		}
		out = append(out, p.Masked())
	}
	return out, nil
}
