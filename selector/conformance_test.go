package selector

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/calico/recorded"
)

// The rules that Felix v3.31.0 received give every set identifier that it sent.
func TestIdentifiersOfRealSets(t *testing.T) {
	known, used := map[string]bool{}, map[string]bool{}
	for _, list := range recorded.Lists() {
		for _, step := range list.Steps {
			for _, kv := range step.KVs {
				var p policy
				if !strings.Contains(kv.Key, "/policy/") || json.Unmarshal([]byte(kv.Value), &p) != nil {
					continue
				}
				for _, r := range append(p.Inbound, p.Outbound...) {
					r.addIDs(t, known)
				}
			}
			for _, m := range step.Messages {
				var told struct {
					IPSetUpdate *struct{ ID string } `json:"ipsetUpdate"`
				}
				if err := json.Unmarshal(m, &told); err != nil {
					t.Fatal(err)
				}
				if told.IPSetUpdate != nil {
					used[told.IPSetUpdate.ID] = true
				}
			}
		}
	}
	for id := range used {
		if !known[id] {
			t.Errorf("%s: no rule makes it", id)
		}
	}
	if len(used) < 14 {
		t.Errorf("only %d sets in the data", len(used))
	}
}

type policy struct {
	Inbound  []rule `json:"inbound_rules"`
	Outbound []rule `json:"outbound_rules"`
}

type rule struct {
	Protocol     string
	Src          string `json:"src_selector"`
	NotSrc       string `json:"!src_selector"`
	Dst          string `json:"dst_selector"`
	NotDst       string `json:"!dst_selector"`
	SrcPorts     []any  `json:"src_ports"`
	NotSrcPorts  []any  `json:"!src_ports"`
	DstPorts     []any  `json:"dst_ports"`
	NotDstPorts  []any  `json:"!dst_ports"`
	SrcService   string `json:"src_service"`
	SrcServiceNS string `json:"src_service_ns"`
	DstService   string `json:"dst_service"`
	DstServiceNS string `json:"dst_service_ns"`
}

func (r rule) addIDs(t *testing.T, ids map[string]bool) {
	t.Helper()
	side := func(positive, negative string, ports []any) {
		text := positive
		if positive != "" && negative != "" {
			text = "(" + positive + ") && (!(" + negative + "))"
		} else if negative != "" {
			ids[mustParse(t, negative).UniqueID()] = true
		}
		s := mustParse(t, text)
		if text != "" {
			ids[s.UniqueID()] = true
		}
		for _, port := range ports {
			if name, ok := port.(string); ok {
				ids[s.NamedPortID(r.Protocol, name)] = true
			}
		}
	}
	side(r.Src, r.NotSrc, append(r.SrcPorts, r.NotSrcPorts...))
	side(r.Dst, r.NotDst, append(r.DstPorts, r.NotDstPorts...))
	if r.SrcService != "" {
		ids[ServiceNoPortID(r.SrcServiceNS, r.SrcService)] = true
	}
	if r.DstService != "" {
		ids[ServiceID(r.DstServiceNS, r.DstService)] = true
	}
}
