package kubelet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/contiv-agent/contiv-agent/interop/kube/netns"
)

// machineFolders are what containers see of the machine, read-only.
var machineFolders = []string{
	"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64",
	"/etc/alternatives", "/etc/ca-certificates", "/etc/group", "/etc/ld.so.cache", "/etc/nsswitch.conf", "/etc/passwd", "/etc/protocols", "/etc/services", "/etc/ssl",
}

// mounts is the file system of a container.
func (c *container) mounts(ctx context.Context, pod *corev1.Pod, image *Image) ([]netns.Mount, error) {
	if err := os.MkdirAll(filepath.Join(c.w.dir, "root"), 0o755); err != nil {
		return nil, err
	}
	out := []netns.Mount{
		{Source: "/dev", Target: "/dev"},
		{Source: "/proc", Target: "/proc"},
		{Target: "/sys", Type: "sysfs"},
		{Target: "/run", Type: "tmpfs"},
		{Target: "/tmp", Type: "tmpfs"},
	}
	for _, folder := range machineFolders {
		if _, err := os.Stat(folder); err == nil {
			out = append(out, netns.Mount{Source: folder, Target: folder, ReadOnly: true})
		}
	}
	if image.Program != "" {
		out = append(out, netns.Mount{Source: image.Program, Target: image.Path, ReadOnly: true})
	}
	own, err := c.w.ownFiles(pod)
	if err != nil {
		return nil, err
	}
	out = append(out, own...)
	for _, m := range c.spec.VolumeMounts {
		source, err := c.w.volume(ctx, pod, m.Name)
		if err != nil {
			return nil, fmt.Errorf("%w: volume %s: %w", errConfig, m.Name, err)
		}
		out = append(out, netns.Mount{Source: filepath.Join(source, m.SubPath), Target: m.MountPath, ReadOnly: m.ReadOnly})
	}
	return out, nil
}

// ownFiles are the Pod's host name, and how it finds others.
func (w *worker) ownFiles(pod *corev1.Pod) (out []netns.Mount, err error) {
	w.mu.Lock()
	addresses := slices.Clone(w.address)
	w.mu.Unlock()
	name := hostname(pod, w.k.cfg.Node)
	hosts := "127.0.0.1\tlocalhost\n::1\tlocalhost\n"
	for _, a := range addresses {
		hosts += a + "\t" + name + "\n"
	}
	for _, alias := range pod.Spec.HostAliases {
		hosts += alias.IP + "\t" + strings.Join(alias.Hostnames, "\t") + "\n"
	}
	for file, text := range map[string]string{"/etc/hostname": name + "\n", "/etc/hosts": hosts, "/etc/resolv.conf": w.resolver(pod)} {
		at := filepath.Join(w.dir, filepath.Base(file))
		err = errors.Join(err, os.WriteFile(at, []byte(text), 0o644)) //nolint:gosec // everybody in the Pod reads it
		out = append(out, netns.Mount{Source: at, Target: file})
	}
	return out, err
}

// resolver is the Pod's resolv.conf.
func (w *worker) resolver(pod *corev1.Pod) string {
	var servers, searches, options []string
	const domain = "cluster.local"
	switch policy := pod.Spec.DNSPolicy; {
	case policy == corev1.DNSNone:
	case policy == corev1.DNSDefault, pod.Spec.HostNetwork && policy != corev1.DNSClusterFirstWithHostNet, w.k.cfg.DNS == "":
		text, _ := os.ReadFile("/etc/resolv.conf") // a machine without one has no DNS
		return string(text)
	default:
		servers, options = []string{w.k.cfg.DNS}, []string{"ndots:5"}
		searches = []string{w.namespace + ".svc." + domain, "svc." + domain, domain}
	}
	if c := pod.Spec.DNSConfig; c != nil {
		servers, searches = append(servers, c.Nameservers...), append(searches, c.Searches...)
		for _, o := range c.Options {
			text := o.Name
			if o.Value != nil {
				text += ":" + *o.Value
			}
			options = append(options, text)
		}
	}
	out := "search " + strings.Join(searches, " ") + "\noptions " + strings.Join(options, " ") + "\n"
	for _, s := range servers {
		out += "nameserver " + s + "\n"
	}
	return out
}

// volume returns the folder or file of a volume, which it fills. Files are those at the container's start.
func (w *worker) volume(ctx context.Context, pod *corev1.Pod, name string) (string, error) {
	at := slices.IndexFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == name })
	if at < 0 {
		return "", errors.New("the Pod has none of that name")
	}
	v, dir := &pod.Spec.Volumes[at], filepath.Join(w.dir, "volumes", name)
	if err := os.MkdirAll(dir, 0o777); err != nil { //nolint:gosec // as an emptyDir is
		return "", err
	}
	var files map[string][]byte
	var err error
	switch {
	case v.EmptyDir != nil:
		return dir, nil
	case v.HostPath != nil:
		if v.HostPath.Type != nil && *v.HostPath.Type == corev1.HostPathDirectoryOrCreate {
			err = os.MkdirAll(v.HostPath.Path, 0o755)
		}
		return v.HostPath.Path, err
	case v.ConfigMap != nil:
		files, err = pick(v.ConfigMap.Items)(w.configMap(ctx, v.ConfigMap.Name, v.ConfigMap.Optional))
	case v.Secret != nil:
		files, err = pick(v.Secret.Items)(w.secret(ctx, v.Secret.SecretName, v.Secret.Optional))
	case v.DownwardAPI != nil:
		files, err = w.fields(pod, v.DownwardAPI.Items)
	case v.Projected != nil:
		files, err = w.projected(ctx, pod, v.Projected.Sources)
	default:
		return "", errors.New("this kubelet has emptyDir, hostPath, configMap, secret, downwardAPI and projected only")
	}
	for file, b := range files {
		path := filepath.Join(dir, file)
		err = errors.Join(err, os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, b, 0o644)) //nolint:gosec // as a kubelet does
	}
	return dir, err
}

// pick takes some keys under other names, or all.
func pick(items []corev1.KeyToPath) func(map[string][]byte, error) (map[string][]byte, error) {
	return func(all map[string][]byte, err error) (map[string][]byte, error) {
		if err != nil || len(items) == 0 {
			return all, err
		}
		out := map[string][]byte{}
		for _, i := range items {
			b, ok := all[i.Key]
			if !ok && all != nil {
				return nil, fmt.Errorf("no key %q", i.Key)
			}
			out[i.Path] = b
		}
		return out, nil
	}
}

func (w *worker) fields(pod *corev1.Pod, items []corev1.DownwardAPIVolumeFile) (map[string][]byte, error) {
	out := map[string][]byte{}
	for _, i := range items {
		if i.FieldRef == nil {
			return nil, errors.New("only fields of the Pod")
		}
		text, err := w.field(pod, i.FieldRef.FieldPath)
		if err != nil {
			return nil, err
		}
		out[i.Path] = []byte(text)
	}
	return out, nil
}

// projected is the files of several sources.
func (w *worker) projected(ctx context.Context, pod *corev1.Pod, sources []corev1.VolumeProjection) (map[string][]byte, error) {
	out := map[string][]byte{}
	for _, s := range sources {
		var files map[string][]byte
		var err error
		switch {
		case s.ServiceAccountToken != nil:
			var token []byte
			token, err = w.token(ctx, pod, s.ServiceAccountToken.Audience, s.ServiceAccountToken.ExpirationSeconds)
			files = map[string][]byte{s.ServiceAccountToken.Path: token}
		case s.ConfigMap != nil:
			files, err = pick(s.ConfigMap.Items)(w.configMap(ctx, s.ConfigMap.Name, s.ConfigMap.Optional))
		case s.Secret != nil:
			files, err = pick(s.Secret.Items)(w.secret(ctx, s.Secret.Name, s.Secret.Optional))
		case s.DownwardAPI != nil:
			files, err = w.fields(pod, s.DownwardAPI.Items)
		default:
			err = errors.New("a source that this kubelet does not have")
		}
		if err != nil {
			return nil, err
		}
		for k, v := range files {
			out[k] = v
		}
	}
	return out, nil
}
