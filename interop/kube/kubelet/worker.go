package kubelet

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"os"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/contiv-agent/contiv-agent/interop/kube/netns"
)

// worker is the life of one Pod.
type worker struct {
	k               *Kubelet
	namespace, name string
	uid             types.UID
	dir             string // of its files
	began           metav1.Time
	stir            chan struct{} // something has changed; holds at most one
	over            chan struct{} // closed when the Pod is to end

	mu         sync.Mutex
	pod        *corev1.Pod       // as it was last heard of
	gone       bool              // the API server has it no more
	sandbox    *sandbox          // nil: none yet, or none any more
	address    []string          // of the Pod
	sent       *corev1.PodStatus // the last that the API server took; nil: none
	init, main []*container
	prepared   bool // the init containers have ended as they should
}

func newWorker(k *Kubelet, pod *corev1.Pod) *worker {
	w := &worker{
		k: k, namespace: pod.Namespace, name: pod.Name, uid: pod.UID, dir: filepath.Join(k.cfg.Dir, "pods", string(pod.UID)),
		began: metav1.Now(), stir: make(chan struct{}, 1), over: make(chan struct{}), pod: pod,
	}
	for i := range pod.Spec.InitContainers {
		w.init = append(w.init, newContainer(w, &pod.Spec.InitContainers[i], restartsOf(pod.Status.InitContainerStatuses, pod.Spec.InitContainers[i].Name)))
	}
	for i := range pod.Spec.Containers {
		w.main = append(w.main, newContainer(w, &pod.Spec.Containers[i], restartsOf(pod.Status.ContainerStatuses, pod.Spec.Containers[i].Name)))
	}
	return w
}

// restartsOf counts the lives of a container before this life of the kubelet.
func restartsOf(all []corev1.ContainerStatus, name string) int32 {
	for _, s := range all {
		if s.Name == name && s.ContainerID != "" {
			return s.RestartCount + 1
		}
	}
	return 0
}

// hear takes what the API server has.
func (w *worker) hear(pod *corev1.Pod, gone bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pod, w.gone = pod, w.gone || gone
	if (gone || pod.DeletionTimestamp != nil) && !isClosed(w.over) {
		close(w.over)
	}
	w.changed()
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// changed lets the status be reported.
func (w *worker) changed() {
	select {
	case w.stir <- struct{}{}:
	default:
	}
}

func (w *worker) object() *corev1.Pod {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pod
}

// run is the Pod's life, to the end of its last process and of its network.
func (w *worker) run(ctx context.Context) {
	alive, end := context.WithCancel(ctx)
	defer end()
	lived := make(chan struct{})
	go func() {
		defer close(lived)
		w.live(alive)
	}()
	over, finished := w.over, lived
	for tick := time.NewTicker(time.Second); finished != nil; {
		select {
		case <-over:
			over = nil
			end()
		case <-finished:
			finished = nil
			tick.Stop()
		case <-w.stir:
			w.report(ctx)
		case <-tick.C:
			w.report(ctx) // nothing is sent if nothing has changed
		}
	}
	w.leave(ctx)
}

// live starts the network and the containers, and ends when all have ended.
func (w *worker) live(ctx context.Context) {
	pod := w.object()
	if !w.connect(ctx, pod) {
		return
	}
	for _, c := range w.init {
		if !c.run(ctx, initPolicy(pod.Spec.RestartPolicy)) {
			return
		}
	}
	w.mu.Lock()
	w.prepared = true
	w.mu.Unlock()
	w.changed()
	var all sync.WaitGroup
	for _, c := range w.main {
		all.Go(func() { c.run(ctx, pod.Spec.RestartPolicy) })
	}
	all.Wait()
}

// initPolicy repeats init containers that fail, unless the Pod fails with them.
func initPolicy(p corev1.RestartPolicy) corev1.RestartPolicy {
	if p == corev1.RestartPolicyNever {
		return p
	}
	return corev1.RestartPolicyOnFailure
}

// retryAfter is how long after a failed ADD the next one begins, as a kubelet's.
const retryAfter = 2 * time.Second

// connect makes the Pod's network, and tries until it succeeds or the Pod ends.
func (w *worker) connect(ctx context.Context, pod *corev1.Pod) bool {
	if pod.Spec.HostNetwork {
		w.connected(nil, []string{w.k.cfg.Address})
		return true
	}
	for said := ""; ctx.Err() == nil; {
		s, err := w.k.network.add(ctx, pod, newID())
		if err == nil {
			addresses := []string{}
			for _, ip := range s.ips {
				addresses = append(addresses, ip.String())
			}
			w.connected(s, addresses)
			return true
		}
		if said != err.Error() && ctx.Err() == nil {
			said = err.Error()
			w.k.log.Warn("ADD failed", "pod", w.namespace+"/"+w.name, "err", err)
			w.k.events.Eventf(pod, corev1.EventTypeWarning, "FailedCreatePodSandBox", "Failed to create pod sandbox: %v", err)
		}
		sleep(ctx, retryAfter)
	}
	return false
}

func (w *worker) connected(s *sandbox, addresses []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sandbox, w.address = s, addresses
	w.changed()
}

// netns is the file of the Pod's network namespace; "": it is on the node's network.
func (w *worker) netns() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.sandbox == nil {
		return ""
	}
	return w.sandbox.netns
}

// leave ends what is left of the Pod, and its object if that is to be deleted. It is called after the last container has ended.
func (w *worker) leave(ctx context.Context) {
	w.disconnect(ctx)
	for ctx.Err() == nil {
		w.report(ctx)
		pod := w.object()
		w.mu.Lock()
		gone := w.gone
		w.mu.Unlock()
		if gone {
			break
		}
		if pod.DeletionTimestamp == nil {
			select { // it is kept to be looked at
			case <-w.over:
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
			continue
		}
		if w.deleteObject(ctx) {
			break
		}
		sleep(ctx, time.Second)
	}
	_ = os.RemoveAll(w.dir) // the kubelet removes all at its next start
}

// disconnect removes the Pod's network, and tries until it succeeds.
func (w *worker) disconnect(ctx context.Context) {
	w.mu.Lock()
	s, pod := w.sandbox, w.pod
	w.mu.Unlock()
	if s == nil {
		return
	}
	for n := 1; n > 0; { // programs that were started by exec, and those that left their process group
		var err error
		if n, err = netns.Kill(s.netns); err != nil {
			break
		}
		if n > 0 {
			time.Sleep(time.Millisecond)
		}
	}
	for {
		err := w.k.network.remove(pod, s)
		if err == nil {
			break
		}
		w.k.log.Warn("DEL failed", "pod", w.namespace+"/"+w.name, "err", err)
		if sleep(ctx, retryAfter); ctx.Err() != nil {
			return // GC removes it in the next life
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sandbox = nil
}

// deleteObject deletes the object of a Pod that has ended.
func (w *worker) deleteObject(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	now := int64(0)
	err := w.k.client.CoreV1().Pods(w.namespace).Delete(ctx, w.name, metav1.DeleteOptions{
		GracePeriodSeconds: &now, Preconditions: metav1.NewUIDPreconditions(string(w.uid)),
	})
	return err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err)
}

// container returns a container by its name; "" is the first.
func (w *worker) container(name string) *container {
	for _, list := range [][]*container{w.main, w.init} {
		for _, c := range list {
			if c.spec.Name == name || name == "" {
				return c
			}
		}
	}
	return nil
}

// grace is how long the Pod's processes may take to end.
func (w *worker) grace() time.Duration {
	pod := w.object()
	for _, s := range []*int64{pod.DeletionGracePeriodSeconds, pod.Spec.TerminationGracePeriodSeconds} {
		if s != nil {
			return time.Duration(*s) * time.Second
		}
	}
	return corev1.DefaultTerminationGracePeriodSeconds * time.Second
}

// sleep waits, or until the context ends.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// newID is an identifier as runtimes give them.
func newID() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // it never fails
	return hex.EncodeToString(b[:])
}
