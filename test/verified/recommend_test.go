package verified

import (
	"net/netip"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"

	"github.com/contiv-agent/contiv-agent/flows"
	"github.com/contiv-agent/contiv-agent/flows/recommend"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/test/oracle"
	"github.com/contiv-agent/contiv-agent/test/oracle/hear"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy/generate"
	"github.com/contiv-agent/contiv-agent/test/pace"
	"github.com/contiv-agent/contiv-agent/verify/intent/class"
)

// TestRecommendedPolicies makes policies from the allowed flows of random clusters. With them, the specifications still allow each of these flows.
func TestRecommendedPolicies(t *testing.T) {
	figures := map[string]int{}
	first := oracle.Setting(t, "CONTIV_SEED", 1)
	for seed := first; seed < first+oracle.Setting(t, "CONTIV_CASES", pace.Fewer[uint64](60, 10)) && !t.Failed(); seed++ {
		w := generate.NewWorld(seed, generate.AllKinds())
		raw := w.Objects()
		spec, err := policy.Read(raw)
		if err != nil {
			t.Fatal(err)
		}
		p := peersOf(t, raw)
		var seen []policy.Flow
		var list []flows.Flow
		namespaces := map[string]bool{}
		for _, f := range w.Sample(w.Flows(1), 40) {
			record := p.record(&f)
			toItself := record.Source.Kind == flows.Pod && record.Source.String() == record.Destination.String() // which passes regardless of policies
			if !opens(headerOf(&f)) || toItself || record.Source.Kind != flows.Pod && record.Destination.Kind != flows.Pod || !spec.JudgeEgress(&f).Allowed || !spec.JudgeIngress(&f).Allowed {
				continue
			}
			seen, list = append(seen, f), append(list, record)
			for _, end := range []*flows.Peer{&record.Source, &record.Destination} {
				if end.Kind == flows.Pod {
					namespaces[end.Namespace] = true
				}
			}
		}
		after := raw
		for ns := range namespaces {
			if seed%3 == 0 && len(after) > len(raw) {
				break // one namespace alone
			}
			r := recommend.Policies(list, ns)
			if len(r.Skipped) > 0 {
				t.Errorf("seed %d: %q", seed, r.Skipped)
			}
			after = append(after[:len(after):len(after)], parsed(t, r)...)
			figures["policies"] += len(r.Policies)
		}
		then, err := policy.Read(after)
		if err != nil {
			t.Fatal(err)
		}
		for i := range seen {
			out, in := then.JudgeEgress(&seen[i]), then.JudgeIngress(&seen[i])
			if figures["flows"]++; !out.Allowed || !in.Allowed {
				t.Errorf("seed %d: %s was allowed, now: %s; %s\n%s", seed, &seen[i], out.Why, in.Why, policy.YAML(after[len(raw):]))
			}
		}
		for _, f := range w.Sample(w.Flows(1), 40) {
			if spec.JudgeEgress(&f).Allowed && spec.JudgeIngress(&f).Allowed && !(then.JudgeEgress(&f).Allowed && then.JudgeIngress(&f).Allowed) {
				figures["others denied"]++
			}
		}
	}
	t.Log(figures)
	for _, what := range []string{"policies", "flows", "others denied"} {
		if figures[what] == 0 {
			t.Errorf("no case of: %s", what)
		}
	}
}

// parsed reads the YAML of policies as an API server does.
func parsed(t *testing.T, r *recommend.Result) (out []policy.Object) {
	text, err := r.YAML()
	if err != nil {
		t.Fatal(err)
	}
	for _, doc := range strings.Split(text, "---\n")[1:] {
		o := &networkingv1.NetworkPolicy{}
		if err := yaml.UnmarshalStrict([]byte(doc), o); err != nil {
			t.Fatalf("%v:\n%s", err, doc)
		}
		out = append(out, o)
	}
	return out
}

// peers are the ends of flows by address, as an agent names them.
type peers map[netip.Addr]flows.Peer

func peersOf(t *testing.T, raw []policy.Object) peers {
	var changes []generate.Change
	for _, o := range raw {
		changes = append(changes, generate.Change{Key: policy.KeyOf(o), Object: o})
	}
	heard, err := hear.All(changes)
	if err != nil {
		t.Fatal(err)
	}
	p := peers{}
	for _, object := range objectsOf(heard) {
		switch o := object.(type) {
		case *model.Pod:
			for _, a := range o.IPs {
				if !o.HostNetwork && !o.Finished {
					p[a] = flows.Peer{Kind: flows.Pod, Address: a, Namespace: o.ID.Namespace, Name: o.ID.Name, Workload: class.Workload(o), Node: o.NodeName, Labels: o.Labels}
				}
			}
		case *model.Node:
			for _, a := range o.Addrs() {
				if _, taken := p[a]; !taken {
					p[a] = flows.Peer{Kind: flows.Node, Name: o.Name, Address: a}
				}
			}
		}
	}
	return p
}

// record is the flow as an agent shows it.
func (p peers) record(f *policy.Flow) flows.Flow {
	at := func(a netip.Addr) flows.Peer {
		if peer, known := p[a]; known {
			return peer
		}
		return flows.Peer{Kind: flows.Outside, Address: a}
	}
	out := flows.Flow{Source: at(f.Src), Destination: at(f.Dst), Protocol: model.Protocol(f.Proto).String(), Verdict: flows.Allowed, Counts: flows.Counts{Connections: 1}}
	if f.Proto == policy.TCP || f.Proto == policy.UDP || f.Proto == policy.SCTP {
		out.Port = f.DstPort
	}
	return out
}
