package kubelet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/contiv-agent/contiv-agent/interop/kube/netns"
)

// network calls CNI plugins by libcni, as container runtimes do.
type network struct {
	cni   *libcni.CNIConfig
	lists string
	names string // folder of network namespaces
	log   *slog.Logger
}

// callLimit is how long a call of a plugin may take; that of containerd is longer.
const callLimit = 2 * time.Minute

func newNetwork(cfg *Config, log *slog.Logger) *network {
	return &network{
		cni:   libcni.NewCNIConfigWithCacheDir([]string{cfg.Plugins}, filepath.Join(cfg.Dir, "cni"), nil),
		lists: cfg.Lists, names: filepath.Join(cfg.Dir, "netns"), log: log,
	}
}

// list reads the first network configuration list.
func (n *network) list() (*libcni.NetworkConfigList, error) {
	files, err := libcni.ConfFiles(n.lists, []string{".conflist"})
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("cni plugin not initialized: no network configuration list in %s", n.lists)
	}
	return libcni.ConfListFromFile(files[0])
}

// status returns why no Pod can be connected; nil: it can.
func (n *network) status(ctx context.Context) error {
	list, err := n.list()
	if err != nil {
		return err
	}
	return n.cni.GetStatusNetworkList(ctx, list)
}

// sandbox is the network of a Pod.
type sandbox struct {
	id, netns string
	ips       []netip.Addr
	took      time.Duration // by ADD
}

// config returns what a runtime passes to plugins of a Pod.
func (s *sandbox) config(pod *corev1.Pod) *libcni.RuntimeConf {
	args := [][2]string{
		{"IgnoreUnknown", "1"},
		{"K8S_POD_NAMESPACE", pod.Namespace},
		{"K8S_POD_NAME", pod.Name},
		{"K8S_POD_INFRA_CONTAINER_ID", s.id},
		{"K8S_POD_UID", string(pod.UID)},
	}
	c := &libcni.RuntimeConf{ContainerID: s.id, NetNS: s.netns, IfName: "eth0", Args: args, CapabilityArgs: map[string]any{}}
	var ports []map[string]any
	for _, container := range pod.Spec.Containers {
		for _, p := range container.Ports {
			if p.HostPort > 0 {
				ports = append(ports, map[string]any{"hostPort": p.HostPort, "containerPort": p.ContainerPort, "protocol": string(p.Protocol), "hostIP": p.HostIP})
			}
		}
	}
	if ports != nil {
		c.CapabilityArgs["portMappings"] = ports
	}
	if len(pod.Annotations) > 0 {
		c.CapabilityArgs["io.kubernetes.cri.pod-annotations"] = pod.Annotations
	}
	if limits := bandwidth(pod); limits != nil {
		c.CapabilityArgs["bandwidth"] = limits
	}
	return c
}

// add makes the network of a Pod. If it fails, nothing is left.
func (n *network) add(ctx context.Context, pod *corev1.Pod, id string) (*sandbox, error) {
	list, err := n.list()
	if err != nil {
		return nil, err
	}
	s := &sandbox{id: id, netns: filepath.Join(n.names, "cni-"+id)}
	if err := netns.Make(s.netns); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	began := time.Now()
	out, err := n.cni.AddNetworkList(ctx, list, s.config(pod))
	s.took = time.Since(began)
	if err == nil {
		err = s.read(out)
	}
	if err != nil {
		return nil, errors.Join(err, n.remove(pod, s))
	}
	n.log.Info("ADD", "pod", pod.Namespace+"/"+pod.Name, "took", s.took, "addresses", s.ips)
	return s, nil
}

// read takes the addresses of the Pod's own interface.
func (s *sandbox) read(out types.Result) error {
	result, err := types100.NewResultFromResult(out)
	if err != nil {
		return err
	}
	for _, ip := range result.IPs {
		if ip.Interface != nil && *ip.Interface < len(result.Interfaces) && result.Interfaces[*ip.Interface].Sandbox == "" {
			continue
		}
		if addr, ok := netip.AddrFromSlice(ip.Address.IP); ok {
			s.ips = append(s.ips, addr.Unmap())
		}
	}
	if len(s.ips) == 0 {
		return errors.New("the plugin gave no address")
	}
	return nil
}

// remove removes the network of a Pod by DEL, whatever exists of it. It does not end with the kubelet's context.
func (n *network) remove(pod *corev1.Pod, s *sandbox) error {
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	began := time.Now()
	list, err := n.list()
	if err == nil {
		err = n.cni.DelNetworkList(ctx, list, s.config(pod))
	} else if cached, e := n.cached(s); e == nil { // the list is withdrawn; the runtime knows what it has called
		err = n.cni.DelNetworkList(ctx, cached, s.config(pod))
	}
	if err != nil {
		return fmt.Errorf("DEL: %w", err)
	}
	n.log.Info("DEL", "pod", pod.Namespace+"/"+pod.Name, "took", time.Since(began))
	return netns.Delete(s.netns)
}

func (n *network) cached(s *sandbox) (*libcni.NetworkConfigList, error) {
	all, err := n.cni.GetCachedAttachments(s.id)
	if err != nil {
		return nil, err
	}
	for _, a := range all {
		return libcni.ConfListFromBytes(a.Config)
	}
	return nil, os.ErrNotExist
}

// forget removes the networks of a former life, by GC and their names.
func (n *network) forget(ctx context.Context) {
	if list, err := n.list(); err == nil {
		if err := n.cni.GCNetworkList(ctx, list, &libcni.GCArgs{}); err != nil {
			n.log.Warn("GC", "err", err)
		}
	}
	left, err := filepath.Glob(filepath.Join(n.names, "cni-*"))
	for _, file := range left {
		err = errors.Join(err, netns.Delete(file))
	}
	if err != nil {
		n.log.Warn("network namespaces of a former life", "err", err)
	}
}

// bandwidth returns the limits that a Pod's annotations ask for, in bits, as runtimes pass them.
func bandwidth(pod *corev1.Pod) map[string]any {
	out := map[string]any{}
	for annotation, kind := range map[string]string{"kubernetes.io/ingress-bandwidth": "ingress", "kubernetes.io/egress-bandwidth": "egress"} {
		if q, err := resource.ParseQuantity(pod.Annotations[annotation]); err == nil {
			out[kind+"Rate"], out[kind+"Burst"] = q.Value(), math.MaxInt32 // as dockershim and CRI runtimes
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}
