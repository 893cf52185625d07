package kubelet

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
)

const (
	lookEvery   = time.Second      // at whether Pods can be connected
	renewEvery  = 10 * time.Second // the node's Lease, as a kubelet
	leaseLength = 40
	maxPods     = 110
)

// report keeps the Node's status until the context ends. The node is ready when the CNI plugin's STATUS has no error.
func (k *Kubelet) report(ctx context.Context) {
	said := "?"
	for ; ctx.Err() == nil; sleep(ctx, lookEvery) {
		why := ""
		if err := k.network.status(ctx); err != nil {
			why = "container runtime network not ready: " + err.Error()
		}
		if err := k.reportNode(ctx, why); err != nil && ctx.Err() == nil {
			k.log.Warn("status of the node", "err", err)
			continue
		}
		if said != why {
			said = why
			k.log.Info("node", "ready", why == "", "why", why)
		}
	}
}

func (k *Kubelet) reportNode(ctx context.Context, why string) error {
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		node, err := k.client.CoreV1().Nodes().Get(ctx, k.cfg.Node, metav1.GetOptions{ResourceVersion: "0"})
		if err != nil {
			return err
		}
		want := node.DeepCopy()
		k.nodeStatus(&want.Status, why)
		if equality.Semantic.DeepEqual(node.Status, want.Status) {
			return nil
		}
		_, err = k.client.CoreV1().Nodes().UpdateStatus(ctx, want, metav1.UpdateOptions{})
		if apierrors.IsConflict(err) { // the API server's cache is late
			if node, err = k.client.CoreV1().Nodes().Get(ctx, k.cfg.Node, metav1.GetOptions{}); err == nil {
				k.nodeStatus(&node.Status, why)
				_, err = k.client.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{})
			}
		}
		return err
	})
}

// nodeStatus sets what a kubelet is responsible for.
func (k *Kubelet) nodeStatus(s *corev1.NodeStatus, why string) {
	for _, a := range []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: k.cfg.Address}, {Type: corev1.NodeHostName, Address: k.cfg.Node}} {
		if !slices.Contains(s.Addresses, a) {
			s.Addresses = append(slices.DeleteFunc(s.Addresses, func(b corev1.NodeAddress) bool {
				return b.Type == a.Type && a.Type == corev1.NodeHostName
			}), a)
		}
	}
	s.DaemonEndpoints.KubeletEndpoint.Port = Port
	s.Capacity = corev1.ResourceList{
		corev1.ResourceCPU: *resource.NewQuantity(int64(runtime.NumCPU()), resource.DecimalSI), corev1.ResourceMemory: memory(),
		corev1.ResourcePods: *resource.NewQuantity(maxPods, resource.DecimalSI),
	}
	s.Allocatable = s.Capacity.DeepCopy()
	s.NodeInfo.KubeletVersion, s.NodeInfo.KubeProxyVersion = k.cfg.Version, ""
	s.NodeInfo.ContainerRuntimeVersion = "processes://" + k.cfg.Version
	s.NodeInfo.OperatingSystem, s.NodeInfo.Architecture = runtime.GOOS, runtime.GOARCH
	release, _ := os.ReadFile("/proc/sys/kernel/osrelease") // for people
	s.NodeInfo.KernelVersion, s.NodeInfo.OSImage = strings.TrimSpace(string(release)), "no containers: processes of this machine"
	for _, c := range []corev1.NodeCondition{
		{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientMemory"},
		{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasNoDiskPressure"},
		{Type: corev1.NodePIDPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientPID"},
		readyCondition(why),
	} {
		setNodeCondition(s, c)
	}
}

func readyCondition(why string) corev1.NodeCondition {
	if why != "" {
		return corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: "KubeletNotReady", Message: why}
	}
	return corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "the CNI plugin is ready"}
}

func setNodeCondition(s *corev1.NodeStatus, c corev1.NodeCondition) {
	c.LastTransitionTime, c.LastHeartbeatTime = metav1.Now(), metav1.Now()
	for i := range s.Conditions {
		have := &s.Conditions[i]
		if have.Type != c.Type {
			continue
		}
		if have.Status == c.Status {
			c.LastTransitionTime = have.LastTransitionTime
			if have.Reason == c.Reason && have.Message == c.Message {
				c.LastHeartbeatTime = have.LastHeartbeatTime // the Lease is the heartbeat
			}
		}
		*have = c
		return
	}
	s.Conditions = append(s.Conditions, c)
}

func memory() resource.Quantity {
	text, _ := os.ReadFile("/proc/meminfo") // a kernel has it
	var kib int64
	_, _ = fmt.Sscanf(string(text), "MemTotal: %d kB", &kib)
	return *resource.NewQuantity(kib<<10, resource.BinarySI)
}

// renew keeps the node's Lease, by which controllers know that its kubelet lives.
func (k *Kubelet) renew(ctx context.Context) {
	for ; ctx.Err() == nil; sleep(ctx, renewEvery) {
		if err := k.renewOnce(ctx); err != nil && ctx.Err() == nil {
			k.log.Warn("lease of the node", "err", err)
		}
	}
}

func (k *Kubelet) renewOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	leases := k.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	now := metav1.NowMicro()
	lease, err := leases.Get(ctx, k.cfg.Node, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = leases.Create(ctx, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: k.cfg.Node, Namespace: corev1.NamespaceNodeLease},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &k.cfg.Node, LeaseDurationSeconds: ptr.To[int32](leaseLength), RenewTime: &now},
		}, metav1.CreateOptions{})
		return err
	}
	if err != nil {
		return err
	}
	lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds, lease.Spec.RenewTime = &k.cfg.Node, ptr.To[int32](leaseLength), &now
	_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	return err
}
