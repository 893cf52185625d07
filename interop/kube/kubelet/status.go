package kubelet

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
)

// report sends the Pod's status to the API server if it differs from the last one that the API server took. The next call retries one that failed.
func (w *worker) report(ctx context.Context) {
	pod := w.object()
	if ctx.Err() != nil {
		return
	}
	want := w.status(pod)
	w.mu.Lock()
	have, gone := w.sent, w.gone
	w.mu.Unlock()
	if gone || have != nil && equality.Semantic.DeepEqual(*have, want) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	pods := w.k.client.CoreV1().Pods(w.namespace)
	first := true
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if !first {
			var err error
			if pod, err = pods.Get(ctx, w.name, metav1.GetOptions{}); err != nil {
				return err
			}
		}
		first = false
		if pod.UID != w.uid {
			return nil
		}
		pod = pod.DeepCopy()
		pod.Status = w.status(pod)
		_, err := pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{})
		return err
	})
	switch {
	case err == nil:
		w.mu.Lock()
		defer w.mu.Unlock()
		w.sent = &want
	case apierrors.IsNotFound(err):
	default:
		w.k.log.Warn("status", "pod", w.namespace+"/"+w.name, "err", err)
	}
}

// status is the Pod's status: what the Pod has, with what the kubelet is responsible for.
func (w *worker) status(pod *corev1.Pod) corev1.PodStatus {
	out := *pod.Status.DeepCopy()
	w.mu.Lock()
	prepared, address := w.prepared, slices.Clone(w.address)
	w.mu.Unlock()
	out.ObservedGeneration = pod.Generation
	out.StartTime = &w.began
	out.HostIP, out.HostIPs = w.k.cfg.Address, []corev1.HostIP{{IP: w.k.cfg.Address}}
	out.PodIP, out.PodIPs = "", nil
	for _, ip := range address {
		out.PodIPs = append(out.PodIPs, corev1.PodIP{IP: ip})
	}
	if len(address) > 0 {
		out.PodIP = address[0]
	}
	out.InitContainerStatuses, out.ContainerStatuses = statuses(w.init, "PodInitializing"), statuses(w.main, "ContainerCreating")
	if !prepared && len(w.init) > 0 {
		for i := range out.ContainerStatuses {
			out.ContainerStatuses[i].State.Waiting = &corev1.ContainerStateWaiting{Reason: "PodInitializing"}
		}
	}
	out.Phase = phase(pod.Spec.RestartPolicy, out.InitContainerStatuses, out.ContainerStatuses)
	ready := out.Phase == corev1.PodRunning && !slices.ContainsFunc(out.ContainerStatuses, func(s corev1.ContainerStatus) bool { return !s.Ready })
	over := out.Phase == corev1.PodSucceeded
	set := func(kind corev1.PodConditionType, yes bool, reason string) {
		setCondition(&out.Conditions, kind, yes, reason, pod.Generation)
	}
	set(corev1.PodScheduled, true, "")
	set(corev1.PodReadyToStartContainers, len(address) > 0, "")
	set(corev1.PodInitialized, prepared, pending(prepared, "ContainersNotInitialized"))
	reason := pending(ready, "ContainersNotReady")
	if over {
		reason = "PodCompleted"
	}
	set(corev1.ContainersReady, ready, reason)
	for _, gate := range pod.Spec.ReadinessGates {
		if !isTrue(out.Conditions, gate.ConditionType) {
			ready, reason = false, "ReadinessGatesNotReady"
		}
	}
	set(corev1.PodReady, ready, reason)
	return out
}

func pending(yes bool, reason string) string {
	if yes {
		return ""
	}
	return reason
}

func isTrue(all []corev1.PodCondition, kind corev1.PodConditionType) bool {
	return slices.ContainsFunc(all, func(c corev1.PodCondition) bool { return c.Type == kind && c.Status == corev1.ConditionTrue })
}

// setCondition changes a condition, and its time only if it changes.
func setCondition(all *[]corev1.PodCondition, kind corev1.PodConditionType, yes bool, reason string, generation int64) {
	status := corev1.ConditionFalse
	if yes {
		status = corev1.ConditionTrue
	}
	for i := range *all {
		if c := &(*all)[i]; c.Type == kind {
			if c.Status != status {
				c.Status, c.LastTransitionTime = status, metav1.Now()
			}
			c.Reason, c.ObservedGeneration = reason, generation
			return
		}
	}
	*all = append(*all, corev1.PodCondition{Type: kind, Status: status, Reason: reason, LastTransitionTime: metav1.Now(), ObservedGeneration: generation})
}

// statuses are those of containers; the reason is that of those that have not begun.
func statuses(all []*container, reason string) (out []corev1.ContainerStatus) {
	for _, c := range all {
		out = append(out, c.status(reason))
	}
	return out
}

func (c *container) status(reason string) corev1.ContainerStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := corev1.ContainerStatus{
		Name: c.spec.Name, Image: c.spec.Image, ImageID: imageID(c), ContainerID: c.id,
		State: *c.state.DeepCopy(), LastTerminationState: *c.last.DeepCopy(), RestartCount: c.restarts, Ready: c.ready, Started: new(bool),
	}
	*s.Started = c.started
	if s.State == (corev1.ContainerState{}) {
		s.State.Waiting = &corev1.ContainerStateWaiting{Reason: reason}
	}
	return s
}

// imageID is empty until a program has run.
func imageID(c *container) string {
	if c.id == "" {
		return ""
	}
	return "program://" + c.spec.Image
}

// phase is a Pod's phase, by the states of its containers, as Kubernetes defines it.
func phase(policy corev1.RestartPolicy, init, main []corev1.ContainerStatus) corev1.PodPhase {
	for _, s := range init {
		switch end := s.State.Terminated; {
		case end == nil, end.ExitCode != 0 && policy != corev1.RestartPolicyNever:
			return corev1.PodPending
		case end.ExitCode != 0:
			return corev1.PodFailed
		}
	}
	running, ended, failed := 0, 0, 0
	for _, s := range main {
		switch {
		case s.State.Running != nil:
			running++
		case s.State.Terminated != nil:
			ended++
			if s.State.Terminated.ExitCode != 0 {
				failed++
			}
		case s.LastTerminationState.Terminated != nil: // between two lives
			running++
		}
	}
	switch {
	case running+ended < len(main):
		return corev1.PodPending
	case running > 0 || policy == corev1.RestartPolicyAlways:
		return corev1.PodRunning
	case policy == corev1.RestartPolicyOnFailure && failed > 0:
		return corev1.PodRunning
	case failed > 0:
		return corev1.PodFailed
	}
	return corev1.PodSucceeded
}
