package policy

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/renderer/dataplane"
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

// sourceNotes names the invalid source annotations of local pods.
func (p *Processor) sourceNotes() (out []model.Note) {
	for _, pod := range p.local {
		if _, problem := allowedSources(pod); problem != "" {
			out = append(out, model.Note{Ref: model.Ref{Kind: model.KindPod, Namespace: pod.ID.Namespace, Name: pod.ID.Name}, Reason: problem, Refused: true})
		}
	}
	slices.SortFunc(out, func(a, b model.Note) int { return a.Ref.Compare(b.Ref) })
	return out
}

// hostNotes says that packets from the node itself do not reach its pods, because they look like packets that NAT gave the node's
// address.
func (p *Processor) hostNotes() []model.Note {
	isV4 := func(a netip.Addr) bool { return a.Is4() }
	if !p.synced || p.node.View4 != dataplane.PreDNAT || !slices.ContainsFunc(p.node.Addrs, isV4) || slices.ContainsFunc(p.node.HostAddrs, isV4) {
		return nil
	}
	return []model.Note{{
		Ref: model.Ref{Kind: model.KindNode, Name: p.cfg.NodeName}, Refused: true,
		Reason: "no host-link address is known (--host-address): what the node's own processes send from its addresses is dropped at pods with " +
			"policies, because nat44 gives these addresses to pods, too. Route the node's traffic to pods with a source address of its own, or let " +
			"its addresses in and accept that pods may use them (--trust-node-addresses)",
	}}
}
