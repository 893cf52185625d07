package reasons

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/plugins/policy"
	contivnat "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/nat"
	"github.com/contiv-agent/contiv-agent/renderer"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/acl"
)

// explainRange returns the Service behind a rule of the source ranges' access list.
func (f *Finder) explainRange(rule int) (policy.Reason, bool) {
	byKey := map[string]*contivnat.SourceRanges{}
	f.Values.Each(func(key string, msg proto.Message) {
		if m, ok := msg.(*contivnat.SourceRanges); ok {
			byKey[key] = m
		}
	})
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		m := byKey[key]
		n := acl.SourceRangesRules(m)
		if per := n / max(len(m.GetFrontends()), 1); rule < n {
			return restrictedReason(m, m.GetFrontends()[rule/per]), true
		}
		rule -= n
	}
	return policy.Reason{}, false
}

func restrictedReason(m *contivnat.SourceRanges, f *contivnat.SourceRanges_Frontend) policy.Reason {
	name, _, _ := strings.Cut(m.GetLabel(), "@")
	ns, name, _ := strings.Cut(name, "/")
	return policy.Reason{Denied: true, Text: fmt.Sprintf("denied: %s takes clients of %s only at %s:%d/%s",
		model.Ref{Kind: model.KindService, Namespace: ns, Name: name}, strings.Join(m.GetRanges(), ", "),
		f.GetAddress(), f.GetPort(), renderer.ProtocolType(f.GetProtocol()))}
}
