package encode

import (
	"encoding/json"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"pgregory.net/rapid"

	"github.com/contiv-agent/contiv-agent/calico/datastore"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/source/convert"
)

type tree = map[string]any

// v3Draw draws valid policies of Calico's.
type v3Draw struct{ *rapid.T }

func (d v3Draw) percent(n int) bool { return rapid.IntRange(0, 99).Draw(d.T, "percent") < n }

func (d v3Draw) one(list ...any) any { return rapid.SampledFrom(list).Draw(d.T, "one") }

func (d v3Draw) several(list ...any) []any {
	return rapid.SliceOfN(rapid.SampledFrom(list), 1, 3).Draw(d.T, "several")
}

func (d v3Draw) maybe(percent int, into tree, key string, v func() any) {
	if d.percent(percent) {
		into[key] = v()
	}
}

func (d v3Draw) selector() any {
	return d.one("app == 'web'", "has(a) || b in {'x','y'}", "all()", "!has(q)", "a != 'b'")
}

func (d v3Draw) inherited() any { return d.one("all()", "team == 'a'", "has(x) && y == 'z'") }

func (d v3Draw) ports() any { return d.several(80, "443", "http", "90:95", 0, 65535, "a.b-c_D", "7:7") }

func (d v3Draw) entity(ported bool) any {
	e := tree{}
	d.maybe(30, e, "nets", func() any { return d.several("10.0.0.0/8", "10.1.2.3/16", "1.2.3.4") })
	d.maybe(20, e, "notNets", func() any { return d.several("10.9.0.0/16", "9.9.9.9/31") })
	d.maybe(40, e, "selector", d.selector)
	d.maybe(20, e, "notSelector", d.selector)
	d.maybe(30, e, "namespaceSelector", func() any { return d.one("global()", d.inherited()) })
	if ported {
		d.maybe(40, e, "ports", d.ports)
		d.maybe(20, e, "notPorts", d.ports)
	}
	d.maybe(20, e, "serviceAccounts", func() any {
		a := tree{}
		d.maybe(60, a, "names", func() any { return d.several("b", "a", "web") })
		d.maybe(50, a, "selector", d.inherited)
		return a
	})
	return e
}

func (d v3Draw) rules(inbound bool) any {
	var out []any
	for range rapid.IntRange(0, 3).Draw(d.T, "rules") {
		r := tree{"action": d.one("Allow", "Deny", "Log", "Pass")}
		protocol := d.one("TCP", "sctp", 6, "17", "ICMP", 58, 47, "UDPLite", nil)
		ported := slices.Contains([]any{"TCP", "sctp", 6, "17"}, protocol)
		if protocol != nil {
			r["protocol"] = protocol
		}
		if protocol == "ICMP" || protocol == 58 {
			d.maybe(50, r, "icmp", func() any { return d.one(tree{"type": 8}, tree{"type": 3, "code": 1}) })
			d.maybe(20, r, "notICMP", func() any { return tree{"type": 5} })
		}
		d.maybe(10, r, "notProtocol", func() any { return d.one("UDP", 132) })
		d.maybe(20, r, "ipVersion", func() any { return 4 })
		d.maybe(70, r, "source", func() any { return d.entity(ported) })
		d.maybe(70, r, "destination", func() any { return d.entity(ported) })
		d.maybe(10, r, "metadata", func() any { return tree{"annotations": tree{"a": "b"}} })
		if d.percent(10) {
			side := map[bool]string{true: "source", false: "destination"}[inbound]
			r[side] = tree{"services": d.one(tree{"name": "svc", "namespace": "prod"}, tree{"name": "svc", "namespace": "other"})}
		}
		out = append(out, r)
	}
	return out
}

func (d v3Draw) policy() *unstructured.Unstructured {
	kind := d.one("NetworkPolicy", "GlobalNetworkPolicy", "StagedNetworkPolicy", "StagedGlobalNetworkPolicy").(string)
	spec := tree{"types": d.one([]any{"Ingress"}, []any{"Egress"}, []any{"Egress", "Ingress"}), "tier": "sec", "ingress": d.rules(true), "egress": d.rules(false)}
	meta := tree{"name": "sec.x", "resourceVersion": "7"}
	d.maybe(60, spec, "order", func() any { return d.one(5, 1.5) })
	d.maybe(60, spec, "selector", d.selector)
	d.maybe(30, spec, "serviceAccountSelector", d.inherited)
	d.maybe(10, spec, "performanceHints", func() any { return []any{"AssumeNeededOnEveryNode"} })
	if strings.HasSuffix(kind, "GlobalNetworkPolicy") {
		d.maybe(40, spec, "namespaceSelector", d.inherited)
		d.maybe(20, spec, "applyOnForward", func() any { return true })
	} else {
		meta["namespace"] = "prod"
	}
	if strings.HasPrefix(kind, "Staged") {
		d.maybe(50, spec, "stagedAction", func() any { return d.one("Set", "Learn", "Ignore") })
	}
	text, err := json.Marshal(tree{"apiVersion": d.one("projectcalico.org/v3", "crd.projectcalico.org/v1"), "kind": kind, "metadata": meta, "spec": spec})
	u := &unstructured.Unstructured{}
	if err == nil {
		err = json.Unmarshal(text, &u.Object)
	}
	if err != nil {
		d.Fatal(err)
	}
	return u
}

// sameButForNodes makes the policy that source/convert returned equal to what the stored value can say: the agent's selectors do
// not match Nodes, rules have an origin, and rules of a direction without effect are omitted.
func sameButForNodes(have, stored *model.Policy) {
	have.Created, have.UID = stored.Created, stored.UID
	if have.Namespace != "" {
		have.ApplyOnForward = false // the value of a policy in a namespace omits it
	}
	if !have.Ingress {
		stored.InboundRules = nil
	}
	if !have.Egress {
		stored.OutboundRules = nil
	}
	for _, list := range [][]model.Rule{have.InboundRules, have.OutboundRules} {
		for i := range list {
			r := &list[i]
			r.Origin = ""
			for _, text := range []*string{&r.Source.Selector, &r.Source.NotSelector, &r.Destination.Selector, &r.Destination.NotSelector} {
				if before, ok := strings.CutSuffix(*text, ") && !has("+model.LabelNode+")"); ok {
					*text = strings.TrimPrefix(before, "(")
				}
			}
		}
	}
}

// One form of a policy of Calico's has two results: the agent that reads the policy from the API server and the agent that reads
// the stored value behind a fan-out server have the same policy. And it makes no difference to the value whether the policy was
// read before.
func TestBothResultsOfAV3PolicyAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		u := v3Draw{t}.policy()
		read := convert.Read(u)
		if read.Err != nil {
			t.Fatalf("%v\n%v", read.Err, u.Object)
		}
		list, err := Object(u, read)
		if err != nil || len(list) != 1 {
			t.Fatal(list, err)
		}
		alone, err := Object(u, convert.Result{})
		if err != nil || !reflect.DeepEqual(alone, list) { // versions included, which KV.Equal ignores
			t.Fatalf("error %v; read by Encode:\n%q\nread before:\n%q", err, alone, list)
		}
		decoded, err := datastore.Decode(list[0].Key, list[0].Value)
		if err != nil {
			t.Fatal(err)
		}
		have, stored := read.Object.(*model.Policy), decoded.Value.(*model.Policy)
		stored.ID = have.ID // v3.31 does not say it in the key of every kind
		sameButForNodes(have, stored)
		if d := cmp.Diff(have, stored, cmpopts.EquateComparable(netip.Prefix{})); d != "" {
			t.Fatalf("from the object (-) and from its value (+):\n%s\n%s", d, list[0].Value)
		}
	})
}
