package report

import (
	"context"
	"encoding/json"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/source/kube/api"
)

const (
	beat      = 10 * time.Second // between two renewals of the Lease, plus up to a tenth
	leaseTerm = 40               // seconds after which a Lease that is not renewed expires, as a kubelet's
	parting   = 2 * time.Second  // limit for the last requests of an agent that ends
)

// Ready and Waiting are annotations of a Lease: whether the agent is ready ("true" or "false"), and what it waits for.
const (
	Ready   = "contiv-agent.io/ready"
	Waiting = "contiv-agent.io/waiting"
	// Problems counts what VPP does not have as objects require, by state: "2 FAILED, 16 REFUSED". It does not depend on
	// Ready.
	Problems = "contiv-agent.io/problems"
)

// NodeCondition is the type of the condition of the Node.
const NodeCondition corev1.NodeConditionType = "ContivAgentReady"

// lease renews the Lease until ctx ends, and then releases it. An expired Lease therefore means a crash, a released one a
// stop.
func (r *Reporter) lease(ctx context.Context) {
	for {
		health := r.health.Load()
		_ = r.attempt(ctx, "lease", func(ctx context.Context) error { return r.renew(ctx, time.Now(), r.cfg.Node, health) })
		if !pause(ctx, wait.Jitter(beat, 0.1)) {
			break
		}
	}
	r.part(ctx, "lease", func(ctx context.Context) error {
		return r.renew(ctx, time.Now(), "", &event.Report{Waiting: "the agent was stopped"})
	})
}

// renew writes the Lease without reading it first: the agent with the node's name is its holder.
func (r *Reporter) renew(ctx context.Context, now time.Time, holder string, health *event.Report) error {
	at, term := metav1.NewMicroTime(now), int32(leaseTerm)
	l := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Name: r.cfg.Node, Namespace: r.cfg.LeaseNamespace, Annotations: map[string]string{Ready: "false", Waiting: "the first look"},
		},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &term, RenewTime: &at},
	}
	if health != nil {
		l.Annotations[Waiting] = shorten(health.Waiting, mostNote)
		if health.Ready {
			l.Annotations = map[string]string{Ready: "true", Waiting: ""}
		}
		l.Annotations[Problems] = shorten(health.Summary, mostNote)
	}
	metadata := map[string]any{"annotations": l.Annotations}
	if node, ok := r.objects.Identity(r.nodeRef()); ok && node.UID != "" { // deleted with the Node; at first the Node may be unknown
		l.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}}
		metadata["ownerReferences"] = l.OwnerReferences
	}
	lease := api.Target{GroupVersionResource: coordinationv1.SchemeGroupVersion.WithResource("leases"), Namespace: l.Namespace, Name: l.Name}
	patch, err := json.Marshal(map[string]any{"metadata": metadata, "spec": l.Spec})
	if err != nil {
		return err
	}
	err = r.client.Patch(ctx, lease, types.MergePatchType, patch)
	if !apierrors.IsNotFound(err) || holder == "" {
		return err
	}
	l.Spec.AcquireTime = &at
	lease.Name = ""
	return r.client.Create(ctx, lease, l)
}

func (r *Reporter) nodeRef() model.Ref { return model.Ref{Kind: model.KindNode, Name: r.cfg.Node} }

// condition is the agent's condition on the Node.
type condition struct {
	status          corev1.ConditionStatus
	reason, message string
}

// written is what the Node has been given.
type written struct {
	condition      // the last one
	network   bool // and NetworkUnavailable: False
}

func conditionOf(health *event.Report) condition {
	switch {
	case health.Ready && health.Summary != "": // without figures: each change of one would write every Node
		return condition{corev1.ConditionTrue, "AgentReadyWithProblems", "not everything is as Kubernetes asks for: contiv-agent status names it"}
	case health.Ready:
		return condition{corev1.ConditionTrue, "AgentReady", "VPP is as Kubernetes asks for"}
	}
	return condition{corev1.ConditionFalse, "AgentNotReady", shorten(health.Waiting, mostNote)}
}

// nodeCondition writes the condition of the Node if it differs from the last written one. Ready is written at once,
// anything else once it has lasted: a transaction in progress is not worth a write.
func (r *Reporter) nodeCondition(ctx context.Context, now time.Time, health *event.Report) {
	want := conditionOf(health)
	if want == r.written.condition {
		r.unready = time.Time{}
		return
	}
	if want.status != corev1.ConditionTrue || r.written.status == corev1.ConditionTrue {
		if r.unready.IsZero() {
			r.unready = now
		}
		if now.Sub(r.unready) < settled {
			return
		}
	}
	if !r.nodeBackoff.Due(now) {
		return
	}
	err := r.attempt(ctx, "node condition", func(ctx context.Context) error { return r.writeCondition(ctx, now, want) })
	if record(&r.nodeBackoff, now, err); err == nil {
		r.unready = time.Time{}
	}
}

// writeCondition changes this condition of the Node, and the first time NetworkUnavailable (Config.Pods). It keeps all others.
func (r *Reporter) writeCondition(ctx context.Context, now time.Time, c condition) error {
	at := metav1.NewTime(now)
	entry := map[string]any{"type": NodeCondition, "status": c.status, "reason": c.reason, "message": c.message, "lastHeartbeatTime": at}
	if c.status != r.written.status {
		entry["lastTransitionTime"] = at
	}
	entries := []any{entry}
	network := r.cfg.Pods && !r.written.network && c.status == corev1.ConditionTrue
	if network {
		entries = append(entries, map[string]any{
			"type": corev1.NodeNetworkUnavailable, "status": corev1.ConditionFalse, "reason": "ContivAgentReady", "message": "contiv-agent connects pods",
			"lastHeartbeatTime": at, "lastTransitionTime": at,
		})
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": entries}})
	if err != nil {
		return err
	}
	node := api.Target{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("nodes"), Name: r.cfg.Node, Subresource: "status"}
	if err = r.client.Patch(ctx, node, types.StrategicMergePatchType, patch); err == nil {
		r.written = written{c, r.written.network || network}
	}
	return err
}

// part sends the last report, after ctx has ended.
func (r *Reporter) part(ctx context.Context, what string, say func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), parting)
	defer cancel()
	_ = r.attempt(ctx, what, say)
}

// pause waits for d; false: ctx has ended.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
