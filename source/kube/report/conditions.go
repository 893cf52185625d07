package report

import (
	"context"
	"encoding/hex"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/source/kube"
)

// Types of conditions of policies. They are there, with the status False, only while something is wrong: a cluster of thousands of nodes
// where all is well writes none.
const (
	// Accepted says what all agents see in the policy itself.
	Accepted = kube.ConditionPrefix + "Accepted"
	// Programmed, followed by a node's name, says what that node has of it.
	Programmed = kube.ConditionPrefix + "Programmed-"
)

// mostNodes is how many nodes have their say in the conditions of one policy: an object has a limit of its size, and each word is told to
// every watcher.
const mostNodes = 10

// withConditions are the kinds of policies whose API has conditions.
func withConditions() []model.Kind {
	return []model.Kind{model.Kind(model.KindAdminNetworkPolicy), model.Kind(model.KindBaselinePolicy), model.Kind(model.KindClusterNetworkPolicy)}
}

// verdict is a condition there is to be, or not to be, of a policy.
type verdict struct {
	object kube.Identity
	kind   string // type of the condition
	node   string // whose it is; "": everybody's
	reason event.Reason
	text   string // "": the condition is to go
}

// key tells one verdict from the next of the same condition: what changes begins to last anew.
type verdictKey struct {
	uid        types.UID
	kind, text string
}

// said is what the API server has of the condition.
func (v *verdict) said() (metav1.Condition, bool) {
	i := slices.IndexFunc(v.object.Conditions, func(c metav1.Condition) bool { return c.Type == v.kind })
	if i < 0 {
		return metav1.Condition{}, false
	}
	return v.object.Conditions[i], true
}

// verdicts compares conditions with what there is to say, and remembers since when they differ.
type verdicts struct {
	since map[verdictKey]time.Time
}

// due are the conditions to be changed now.
func (c *verdicts) due(now time.Time, l *ledger, objects Objects, problems []event.Problem) (out []verdict) {
	nodes := map[string]bool{l.node: true}
	for _, n := range l.nodes {
		nodes[n] = true
	}
	texts := map[model.Ref][2]map[event.Reason][]string{}
	for _, p := range problems {
		if slices.Contains(withConditions(), p.Ref.Kind) {
			t := texts[p.Ref]
			at := 1
			if p.Reason.Everywhere() {
				at = 0
			}
			if t[at] == nil {
				t[at] = map[event.Reason][]string{}
			}
			t[at][p.Reason] = append(t[at][p.Reason], p.Text)
			texts[p.Ref] = t
		}
	}
	differ := map[verdictKey]time.Time{}
	objects.Identities(func(ref model.Ref, id *kube.Identity) bool {
		for _, v := range wanted(l.node, nodes, id, texts[ref]) {
			key := verdictKey{id.UID, v.kind, v.text}
			since, known := c.since[key]
			if !known {
				since = now
			}
			differ[key] = since
			if now.Sub(since) >= l.patience(&v) {
				out = append(out, v)
			}
		}
		return true
	}, withConditions()...)
	c.since = differ
	slices.SortFunc(out, func(a, b verdict) int {
		return strings.Compare(a.object.Kind+" "+a.object.Name+" "+a.kind, b.object.Kind+" "+b.object.Name+" "+b.kind)
	})
	return out
}

// patience is how long this node lets a condition be wrong.
func (l *ledger) patience(v *verdict) time.Duration {
	if v.node == l.node {
		return l.wait(cause{v.object.UID, event.NotProgrammed, v.kind})
	}
	rank := l.rank(v.object.UID, tellers)
	if rank == tellers {
		return refresh // others do it; they may go
	}
	return brief + time.Duration(rank)*turn
}

// wanted are the conditions of one policy that are not as they should be.
func wanted(node string, nodes map[string]bool, id *kube.Identity, texts [2]map[event.Reason][]string) (out []verdict) {
	add := func(kind, whose string, by map[event.Reason][]string) {
		v := verdict{object: *id, kind: kind, node: whose}
		for _, reason := range []event.Reason{event.NotUnderstood, event.NotSupported, event.NotEnforced, event.NotProgrammed} {
			if len(by[reason]) > 0 {
				v.reason, v.text = reason, shorten(strings.Join(by[reason], "; "), mostNote)
				break
			}
		}
		have, is := v.said()
		if is != (v.text != "") || is && (have.Reason != string(v.reason) || have.Message != v.text || have.ObservedGeneration != id.Generation) {
			out = append(out, v)
		}
	}
	add(Accepted, "", texts[0])
	others := 0
	for _, c := range id.Conditions {
		other, ok := strings.CutPrefix(c.Type, Programmed)
		switch {
		case !ok || other == node:
		case nodes[other]:
			others++
		default:
			add(c.Type, other, nil) // of a node that is not there any more
		}
	}
	if others < mostNodes || len(texts[1]) == 0 {
		add(Programmed+node, node, texts[1])
	}
	return out
}

// apply writes one condition, or takes it away, as the only thing its field manager has in the object: conditions of others stay.
func (r *Reporter) apply(ctx context.Context, now time.Time, v *verdict) error {
	list := []any{}
	if v.text != "" {
		at := metav1.NewTime(now)
		if have, is := v.said(); is {
			at = have.LastTransitionTime
		}
		list = append(list, map[string]any{
			"type": v.kind, "status": string(metav1.ConditionFalse), "reason": string(v.reason), "message": v.text,
			"observedGeneration": v.object.Generation, "lastTransitionTime": at.UTC().Format(time.RFC3339),
		})
	}
	obj := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": v.object.Name, "uid": string(v.object.UID)}, // of this very object, or none
		"status":   map[string]any{"conditions": list},
	}}
	obj.SetGroupVersionKind(v.object.GroupVersionKind)
	policies := r.dynamic.Resource(v.object.GroupVersion().WithResource(v.object.Resource))
	_, err := policies.ApplyStatus(ctx, v.object.Name, obj, metav1.ApplyOptions{FieldManager: fieldManager(v.node), Force: true})
	return err
}

// fieldManager is who writes the conditions of a node; "" is all nodes. A name may have 128 bytes.
func fieldManager(node string) string {
	if node == "" {
		return Controller
	}
	if len(Controller)+1+len(node) > mostInstance {
		h := fnv.New64a()
		h.Write([]byte(node))
		return Controller + "-" + node[:80] + "-" + hex.EncodeToString(h.Sum(nil))
	}
	return Controller + "-" + node
}
