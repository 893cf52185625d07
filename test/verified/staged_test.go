package verified

import (
	"bytes"
	"encoding/json"
	"maps"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/source/convert"
	"github.com/contiv-agent/contiv-agent/space"
	"github.com/contiv-agent/contiv-agent/test/oracle"
	"github.com/contiv-agent/contiv-agent/test/oracle/hear"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy/generate"
	"github.com/contiv-agent/contiv-agent/test/pace"
	"github.com/contiv-agent/contiv-agent/verify/staged"
)

// drafts is a random cluster of which some policies are staged.
type drafts struct {
	*testing.T
	rand      *rand.Rand
	model     []model.Object  // as the agent gets them
	now, then []policy.Object // as the specifications read them: without staged policies, and with all of them enforced
	figures   map[string]int
}

// TestStagedPolicies stages policies of random clusters: by annotations and by Calico's kinds, new ones, ones that replace or delete an enforced one,
// and ones to ignore. The decision then about each flow is that of the specifications for the cluster in which these policies are enforced, and the
// decision now is that for the cluster without them.
func TestStagedPolicies(t *testing.T) {
	figures := map[string]int{}
	first := oracle.Setting(t, "CONTIV_SEED", 1)
	for seed := first; seed < first+oracle.Setting(t, "CONTIV_CASES", pace.Fewer[uint64](100, 20)) && !t.Failed(); seed++ {
		w := generate.NewWorld(seed, generate.AllKinds())
		d := newDrafts(t, w, seed, figures)
		d.compare(seed, w.Sample(w.Flows(1), 60))
	}
	t.Log(figures)
	for _, what := range []string{"annotation", "Set", "Delete", "Learn", "Ignore", "replaced", "would be dropped", "would be allowed", "another rule", "flows"} {
		if figures[what] == 0 {
			t.Errorf("no case of: %s", what)
		}
	}
}

func newDrafts(t *testing.T, w *generate.World, seed uint64, figures map[string]int) *drafts {
	d := &drafts{T: t, rand: rand.New(rand.NewPCG(seed, 22)), figures: figures}
	for _, o := range w.Objects() {
		d.draw(o, w)
	}
	return d
}

// TestStagedPoliciesChangeNothingInVPP programs random clusters with and without staged policies: the VPPs are equal.
func TestStagedPoliciesChangeNothingInVPP(t *testing.T) {
	figures := map[string]int{}
	first := oracle.Setting(t, "CONTIV_SEED", 1)
	for seed := first; seed < first+oracle.Setting(t, "CONTIV_CASES", pace.Fewer[uint64](5, 2)); seed++ {
		d := newDrafts(t, generate.NewWorld(seed, generate.AllKinds()), seed, figures)
		var with, without []event.Change
		for _, o := range d.model {
			ch := event.Change{Ref: o.Ref(), Object: o}
			with = append(with, ch)
			if p, ok := o.(*model.Policy); !ok || p.StagedAction() == "" {
				without = append(without, ch)
			}
		}
		figures["staged"] += len(with) - len(without)
		one, other := start(t, with, seed), start(t, without, seed)
		for _, node := range one.Nodes() {
			if diff := cmp.Diff(other.Sim(node).Dump(), one.Sim(node).Dump()); diff != "" {
				t.Errorf("seed %d: %s with staged policies (-without +with):\n%s", seed, node, diff)
			}
		}
	}
	if figures["staged"] == 0 {
		t.Error("no policy is staged")
	}
}

// draw puts an object into the clusters, a policy perhaps as a staged one.
func (d *drafts) draw(o policy.Object, w *generate.World) {
	if _, isPolicy := specOf(o); !isPolicy || d.rand.IntN(3) == 0 {
		d.hear(o)
		d.now, d.then = append(d.now, o), append(d.then, o)
		return
	}
	_, stageable := kindStaged(o)
	action := "annotation"
	if stageable {
		action = pick(d.rand, []string{"annotation", "Set", "", "Learn", "Delete", "Ignore", "replaced"})
	}
	d.figures[action]++
	switch action {
	case "annotation":
		tree := d.tree(o)
		tree["metadata"].(map[string]any)["annotations"] = map[string]any{model.AnnotationStaged: "true"}
		d.read(tree)
		d.then = append(d.then, o)
	case "Set", "", "Learn":
		d.readStaged(o, action)
		d.then = append(d.then, o)
	case "Delete":
		d.hear(o)
		d.readStaged(o, action)
		d.now = append(d.now, o)
	case "Ignore":
		d.hear(o)
		d.readStaged(d.other(o, w), action)
		d.now, d.then = append(d.now, o), append(d.then, o)
	case "replaced":
		other := d.other(o, w)
		d.hear(o)
		d.readStaged(other, "Set")
		d.now, d.then = append(d.now, o), append(d.then, other)
	}
}

// other returns a policy with the name and the place of a policy, and the rules of another one of its kind.
func (d *drafts) other(o policy.Object, w *generate.World) policy.Object {
	var all []policy.Object
	for _, p := range w.Objects() {
		if policy.KeyOf(p).Kind == policy.KeyOf(o).Kind && policy.KeyOf(p).APIVersion == policy.KeyOf(o).APIVersion && p.GetNamespace() == o.GetNamespace() {
			all = append(all, p)
		}
	}
	from := pick(d.rand, all)
	switch o := o.(type) {
	case *networkingv1.NetworkPolicy:
		out := o.DeepCopy()
		out.Spec = from.(*networkingv1.NetworkPolicy).Spec
		return out
	case *policy.CalicoPolicy:
		out := *o
		out.Spec = from.(*policy.CalicoPolicy).Spec
		out.Spec.Tier, out.Spec.Order = o.Spec.Tier, o.Spec.Order
		return &out
	}
	d.Fatalf("%T has no staged kind", o)
	return nil
}

// specOf reports whether an object is a policy.
func specOf(o policy.Object) (model.PolicyKind, bool) {
	kind := model.PolicyKind(hear.Ref(policy.KeyOf(o)).Kind)
	_, is := kind.Info()
	return kind, is
}

// kindStaged returns the staged kind of Calico's that corresponds to that of a policy.
func kindStaged(o policy.Object) (string, bool) {
	switch kind, _ := specOf(o); kind {
	case model.KindNetworkPolicy:
		return "StagedKubernetesNetworkPolicy", true
	case model.KindCalicoNetworkPolicy, model.KindGlobalNetworkPolicy:
		return "Staged" + policy.KeyOf(o).Kind, true
	}
	return "", false
}

func (d *drafts) hear(o policy.Object) { d.read(d.tree(o)) }

func (d *drafts) readStaged(o policy.Object, action string) {
	tree := d.tree(o)
	tree["apiVersion"] = "projectcalico.org/v3"
	tree["kind"], _ = kindStaged(o)
	spec := tree["spec"].(map[string]any)
	if action == "Delete" {
		maps.DeleteFunc(spec, func(k string, _ any) bool { return k != "tier" })
	}
	if action != "" {
		spec["stagedAction"] = action
	}
	d.read(tree)
}

func (d *drafts) tree(o policy.Object) map[string]any {
	text, err := json.Marshal(o)
	if err != nil {
		d.Fatal(err)
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var tree map[string]any
	if err := dec.Decode(&tree); err != nil {
		d.Fatal(err)
	}
	maps.DeleteFunc(tree, func(k string, _ any) bool {
		return k == "status" && tree["kind"] != "Pod" && tree["kind"] != "Node" && tree["kind"] != "Service"
	})
	return tree
}

// read converts an object as the agent's sources do.
func (d *drafts) read(tree map[string]any) {
	apiVersion, _ := tree["apiVersion"].(string)
	name, _ := tree["kind"].(string)
	group, _, grouped := strings.Cut(apiVersion, "/")
	if !grouped {
		group = ""
	}
	kind, known := convert.KindOf(group, name)
	if !known {
		d.Fatalf("%s %s is no kind", apiVersion, name)
	}
	o, _, err := kind.Decode(tree)
	if err != nil && !strings.Contains(err.Error(), "domainNames") {
		d.Fatal(err)
	}
	if o != nil {
		d.model = append(d.model, o)
	}
}

// compare compares the decisions about flows with the specifications.
func (d *drafts) compare(seed uint64, flows []policy.Flow) {
	preview := staged.Read(d.model)
	if preview == nil {
		d.figures["without staged policies"]++
		return
	}
	now, err := policy.Read(d.now)
	if err != nil {
		d.Fatal(err)
	}
	then, err := policy.Read(d.then)
	if err != nil {
		d.Fatal(err)
	}
	pods, nodes := map[netip.Addr]model.PodID{}, map[netip.Addr]bool{}
	for _, object := range d.model {
		switch o := object.(type) {
		case *model.Pod:
			for _, a := range o.IPs {
				if !o.HostNetwork && !o.Finished {
					pods[a] = o.ID
				}
			}
		case *model.Node:
			for _, a := range o.Addrs() {
				nodes[a] = true
			}
		}
	}
	for i := range flows {
		f := &flows[i]
		h := headerOf(f)
		if nodes[f.Src] || pods[f.Src] == pods[f.Dst] || !opens(h) {
			continue
		}
		for egress, end := range map[bool]netip.Addr{true: f.Src, false: f.Dst} {
			o, known := preview.Decide(pods[end], egress, h)
			if !known {
				continue
			}
			wantNow, wantThen := now.JudgeIngress(f), then.JudgeIngress(f)
			if egress {
				wantNow, wantThen = now.JudgeEgress(f), then.JudgeEgress(f)
			}
			if o.Now.Allowed != wantNow.Allowed || o.Then.Allowed != wantThen.Allowed {
				d.Fatalf("seed %d: %s, egress %v: now %v (%s), want %v (%s); then %v (%s), want %v (%s)", seed, f, egress,
					o.Now.Allowed, o.Now.Text, wantNow.Allowed, wantNow.Why, o.Then.Allowed, o.Then.Text, wantThen.Allowed, wantThen.Why)
			}
			if o.Changes() != (o.By != nil) {
				d.Fatalf("seed %d: %s: %+v", seed, f, o)
			}
			d.count(&o)
		}
	}
}

func (d *drafts) count(o *staged.Outcome) {
	d.figures["flows"]++
	switch {
	case o.Now.Allowed && !o.Then.Allowed:
		d.figures["would be dropped"]++
	case !o.Now.Allowed && o.Then.Allowed:
		d.figures["would be allowed"]++
	case o.Changes():
		d.figures["another rule"]++
	}
}

// opens reports whether a packet opens a connection, as between does for assertions.
func opens(h space.Header) bool {
	switch h.Protocol {
	case space.ICMP:
		return h.SrcPort == 8 || h.SrcPort == 13
	case space.ICMPv6:
		return h.SrcPort == 128 || h.SrcPort == 139
	}
	return true
}
