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

// Condition types of policies. A policy has such a condition, with the status False, only while something is wrong. A
// cluster of thousands of nodes without problems therefore writes none.
const (
	// Accepted reports problems of the policy itself, which all agents find.
	Accepted = kube.ConditionPrefix + "Accepted"
	// Programmed, followed by a node's name, reports problems of that node.
	Programmed = kube.ConditionPrefix + "Programmed-"
)

// mostNodes is how many nodes may have a condition in one policy. The size of an object is limited, and every change of it
// is sent to every watcher.
const mostNodes = 10

// withConditions returns the policy kinds whose API has conditions.
func withConditions() (kinds []model.Kind) {
	for _, k := range model.PolicyKinds() {
		if k.Conditions {
			kinds = append(kinds, model.Kind(k.Kind))
		}
	}
	return kinds
}

// verdict is a condition that a policy should have, or should no longer have.
type verdict struct {
	object kube.Identity
	kind   string // type of the condition
	node   string // the node it is about; "": all nodes
	reason event.Reason
	text   string // "": remove the condition
}

// verdictKey identifies a verdict. Its text is part of it: a changed text starts a new waiting time.
type verdictKey struct {
	uid        types.UID
	kind, text string
}

// current returns the condition as the API server has it.
func (v *verdict) current() (metav1.Condition, bool) {
	i := slices.IndexFunc(v.object.Conditions, func(c metav1.Condition) bool { return c.Type == v.kind })
	if i < 0 {
		return metav1.Condition{}, false
	}
	return v.object.Conditions[i], true
}

// verdicts compares the conditions that policies have with those they should have, and remembers since when they differ.
type verdicts struct {
	since map[verdictKey]time.Time
}

// due returns the conditions to change now.
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

// patience returns how long this node waits before it corrects a condition.
func (l *ledger) patience(v *verdict) time.Duration {
	if v.node == l.node {
		return l.wait(cause{v.object.UID, event.NotProgrammed, v.kind})
	}
	rank := l.rank(v.object.UID, reporters)
	if rank == reporters {
		return refresh // other nodes write it; they may be removed
	}
	return brief + time.Duration(rank)*turn
}

// wanted returns the conditions of one policy that must change.
func wanted(node string, nodes map[string]bool, id *kube.Identity, texts [2]map[event.Reason][]string) (out []verdict) {
	add := func(kind, whose string, by map[event.Reason][]string) {
		v := verdict{object: *id, kind: kind, node: whose}
		for _, reason := range []event.Reason{event.NotUnderstood, event.NotSupported, event.NotEnforced, event.NotProgrammed} {
			if len(by[reason]) > 0 {
				v.reason, v.text = reason, shorten(strings.Join(by[reason], "; "), mostNote)
				break
			}
		}
		have, is := v.current()
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
			add(c.Type, other, nil) // its node no longer exists
		}
	}
	if others < mostNodes || len(texts[1]) == 0 {
		add(Programmed+node, node, texts[1])
	}
	return out
}

// applyCondition writes or removes one condition by server-side apply, with one field manager per node. The field manager owns
// nothing else in the object, so conditions of other writers stay.
func (r *Reporter) applyCondition(ctx context.Context, now time.Time, v *verdict) error {
	list := []any{}
	if v.text != "" {
		at := metav1.NewTime(now)
		if have, is := v.current(); is {
			at = have.LastTransitionTime
		}
		list = append(list, map[string]any{
			"type": v.kind, "status": string(metav1.ConditionFalse), "reason": string(v.reason), "message": v.text,
			"observedGeneration": v.object.Generation, "lastTransitionTime": at.UTC().Format(time.RFC3339),
		})
	}
	obj := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": v.object.Name, "uid": string(v.object.UID)}, // the UID makes the request fail if the object was replaced
		"status":   map[string]any{"conditions": list},
	}}
	obj.SetGroupVersionKind(v.object.GroupVersionKind)
	policies := r.dynamic.Resource(v.object.GroupVersion().WithResource(v.object.Resource))
	_, err := policies.ApplyStatus(ctx, v.object.Name, obj, metav1.ApplyOptions{FieldManager: fieldManager(v.node), Force: true})
	return err
}

// fieldManager returns the field manager for the conditions of a node; "" means all nodes. The API permits 128 bytes.
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
