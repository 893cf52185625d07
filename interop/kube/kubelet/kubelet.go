package kubelet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/record"
)

// Kubelet is the kubelet of one node.
type Kubelet struct {
	cfg     Config
	client  kubernetes.Interface
	network *network
	events  record.EventRecorder
	log     *slog.Logger

	mu      sync.Mutex
	workers map[types.UID]*worker
	jobs    sync.WaitGroup // the workers
}

// requestLimit is how long a request to the API server may take.
const requestLimit = 10 * time.Second

// New returns a kubelet.
func New(cfg Config, log *slog.Logger) (*Kubelet, error) {
	rest, err := clientcmd.BuildConfigFromFlags("", cfg.Kubeconfig)
	if err != nil {
		return nil, err
	}
	rest.QPS = -1
	rest.AcceptContentTypes, rest.ContentType = "application/vnd.kubernetes.protobuf,application/json", "application/vnd.kubernetes.protobuf"
	client, err := kubernetes.NewForConfig(rest)
	if err != nil {
		return nil, err
	}
	return &Kubelet{cfg: cfg, client: client, network: newNetwork(&cfg, log), log: log, workers: map[types.UID]*worker{}}, nil
}

// Run works until the context ends, and then ends all Pods: none survives its kubelet. Their objects stay.
func (k *Kubelet) Run(ctx context.Context) error {
	if err := k.forget(ctx); err != nil {
		return err
	}
	broadcaster := record.NewBroadcaster()
	defer broadcaster.Shutdown()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: k.client.CoreV1().Events("")})
	k.events = broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "kubelet", Host: k.cfg.Node})
	if k.cfg.Cert != "" {
		stop, err := k.serve()
		if err != nil {
			return err
		}
		defer stop()
	}
	var jobs sync.WaitGroup
	jobs.Go(func() { k.report(ctx) })
	jobs.Go(func() { k.renew(ctx) })
	k.follow(ctx)
	jobs.Wait()
	k.jobs.Wait()
	return nil
}

// forget removes what a former life has left: its processes ended with it.
func (k *Kubelet) forget(ctx context.Context) error {
	if err := os.MkdirAll(k.cfg.Dir, 0o700); err != nil {
		return err
	}
	k.network.forget(ctx)
	return errors.Join(os.RemoveAll(filepath.Join(k.cfg.Dir, "pods")))
}

// follow hears of Pods until the context ends.
func (k *Kubelet) follow(ctx context.Context) {
	source := cache.NewListWatchFromClient(k.client.CoreV1().RESTClient(), "pods", metav1.NamespaceAll, fields.OneTermEqualSelector("spec.nodeName", k.cfg.Node))
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: source, ObjectType: &corev1.Pod{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(obj any) { k.hear(ctx, obj.(*corev1.Pod), false) },
			UpdateFunc: func(_, obj any) { k.hear(ctx, obj.(*corev1.Pod), false) },
			DeleteFunc: func(obj any) {
				if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
					obj = gone.Obj
				}
				k.hear(ctx, obj.(*corev1.Pod), true)
			},
		},
	})
	informer.RunWithContext(ctx)
}

// hear brings a Pod to its worker, which begins with it.
func (k *Kubelet) hear(ctx context.Context, pod *corev1.Pod, gone bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	w := k.workers[pod.UID]
	if w == nil {
		over := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
		if gone || over && pod.DeletionTimestamp == nil || ctx.Err() != nil {
			return
		}
		k.log.Info("Pod", "pod", pod.Namespace+"/"+pod.Name)
		w = newWorker(k, pod)
		k.workers[pod.UID] = w
		k.jobs.Go(func() {
			w.run(ctx)
			k.mu.Lock()
			defer k.mu.Unlock()
			delete(k.workers, pod.UID)
		})
	}
	w.hear(pod, gone)
}

// find returns the worker of a Pod.
func (k *Kubelet) find(namespace, name, uid string) (*worker, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for id, w := range k.workers {
		if w.namespace == namespace && w.name == name && (uid == "" || types.UID(uid) == id) {
			return w, nil
		}
	}
	return nil, fmt.Errorf("pod %s/%s does not run on %s", namespace, name, k.cfg.Node)
}
