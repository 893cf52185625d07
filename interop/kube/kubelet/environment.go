package kubelet

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// searchPath is where programs are looked for in a container.
const searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/"

// environment returns the environment of a container, NAME=VALUE.
func (c *container) environment(ctx context.Context, pod *corev1.Pod) ([]string, error) {
	env := []string{"PATH=" + searchPath, "HOSTNAME=" + hostname(pod, c.w.k.cfg.Node)}
	if svc, err := c.w.k.client.CoreV1().Services(metav1.NamespaceDefault).Get(ctx, "kubernetes", metav1.GetOptions{}); err == nil && len(svc.Spec.Ports) > 0 {
		env = append(env, "KUBERNETES_SERVICE_HOST="+svc.Spec.ClusterIP, fmt.Sprintf("KUBERNETES_SERVICE_PORT=%d", svc.Spec.Ports[0].Port))
	}
	for _, from := range c.spec.EnvFrom {
		data, err := c.w.wholeSource(ctx, from)
		if err != nil {
			return nil, err
		}
		for _, key := range slices.Sorted(maps.Keys(data)) {
			env = append(env, from.Prefix+key+"="+string(data[key]))
		}
	}
	for _, e := range c.spec.Env {
		value := substitute(e.Value, env)
		if e.ValueFrom != nil {
			var err error
			if value, err = c.w.value(ctx, pod, e.ValueFrom); err != nil {
				return nil, fmt.Errorf("%w: env %s: %w", errConfig, e.Name, err)
			}
		}
		env = append(env, e.Name+"="+value)
	}
	return env, nil
}

func (w *worker) wholeSource(ctx context.Context, from corev1.EnvFromSource) (map[string][]byte, error) {
	switch {
	case from.ConfigMapRef != nil:
		return w.configMap(ctx, from.ConfigMapRef.Name, from.ConfigMapRef.Optional)
	case from.SecretRef != nil:
		return w.secret(ctx, from.SecretRef.Name, from.SecretRef.Optional)
	}
	return nil, fmt.Errorf("%w: envFrom: only ConfigMaps and Secrets", errConfig)
}

// value is that of a variable which comes from elsewhere.
func (w *worker) value(ctx context.Context, pod *corev1.Pod, from *corev1.EnvVarSource) (string, error) {
	var data map[string][]byte
	var key string
	var optional *bool
	var err error
	switch {
	case from.FieldRef != nil:
		return w.field(pod, from.FieldRef.FieldPath)
	case from.ConfigMapKeyRef != nil:
		r := from.ConfigMapKeyRef
		key, optional = r.Key, r.Optional
		data, err = w.configMap(ctx, r.Name, r.Optional)
	case from.SecretKeyRef != nil:
		r := from.SecretKeyRef
		key, optional = r.Key, r.Optional
		data, err = w.secret(ctx, r.Name, r.Optional)
	default:
		return "", fmt.Errorf("only fields, ConfigMaps and Secrets can give a value here")
	}
	text, ok := data[key]
	if err == nil && !ok && (optional == nil || !*optional) {
		err = fmt.Errorf("no key %q", key)
	}
	return string(text), err
}

func (w *worker) configMap(ctx context.Context, name string, optional *bool) (map[string][]byte, error) {
	cm, err := w.k.client.CoreV1().ConfigMaps(w.namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, missing(err, optional)
	}
	out := map[string][]byte{}
	for k, v := range cm.Data {
		out[k] = []byte(v)
	}
	maps.Copy(out, cm.BinaryData)
	return out, nil
}

func (w *worker) secret(ctx context.Context, name string, optional *bool) (map[string][]byte, error) {
	s, err := w.k.client.CoreV1().Secrets(w.namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, missing(err, optional)
	}
	return s.Data, nil
}

// missing is no error for what is optional.
func missing(err error, optional *bool) error {
	if apierrors.IsNotFound(err) && optional != nil && *optional {
		return nil
	}
	return fmt.Errorf("%w: %w", errConfig, err)
}

// field is the value of a field of the Pod, as the downward API has it.
func (w *worker) field(pod *corev1.Pod, path string) (string, error) {
	name, key, _ := strings.Cut(strings.TrimSuffix(path, "']"), "['")
	w.mu.Lock()
	addresses := slices.Clone(w.address)
	w.mu.Unlock()
	switch name {
	case "metadata.name":
		return pod.Name, nil
	case "metadata.namespace":
		return pod.Namespace, nil
	case "metadata.uid":
		return string(pod.UID), nil
	case "metadata.labels":
		return ofMap(pod.Labels, key), nil
	case "metadata.annotations":
		return ofMap(pod.Annotations, key), nil
	case "spec.nodeName":
		return pod.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return pod.Spec.ServiceAccountName, nil
	case "status.hostIP", "status.hostIPs":
		return w.k.cfg.Address, nil
	case "status.podIP":
		if len(addresses) == 0 {
			return "", nil
		}
		return addresses[0], nil
	case "status.podIPs":
		return strings.Join(addresses, ","), nil
	}
	return "", fmt.Errorf("field %s is not supported", path)
}

// ofMap is a value, or all of them in lines.
func ofMap(m map[string]string, key string) string {
	if key != "" {
		return m[key]
	}
	var lines []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		lines = append(lines, fmt.Sprintf("%s=%q", k, m[k]))
	}
	return strings.Join(lines, "\n")
}

// token gets a token of the Pod's service account.
func (w *worker) token(ctx context.Context, pod *corev1.Pod, audience string, seconds *int64) ([]byte, error) {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: seconds,
		BoundObjectRef:    &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID},
	}}
	if audience != "" {
		request.Spec.Audiences = []string{audience}
	}
	got, err := w.k.client.CoreV1().ServiceAccounts(pod.Namespace).CreateToken(ctx, pod.Spec.ServiceAccountName, request, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	return []byte(got.Status.Token), nil
}

func hostname(pod *corev1.Pod, node string) string {
	switch {
	case pod.Spec.HostNetwork:
		return node
	case pod.Spec.Hostname != "":
		return pod.Spec.Hostname
	}
	return pod.Name
}

// expand replaces $(NAME) in arguments.
func expand(args, env []string) ([]string, error) {
	out := make([]string, len(args))
	for i, a := range args {
		out[i] = substitute(a, env)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%w: no command", errConfig)
	}
	return out, nil
}

// substitute replaces $(NAME) by its value; $$ is a dollar, and names without a value stay.
func substitute(text string, env []string) string {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(text, "$")
		out.WriteString(before)
		if !found {
			return out.String()
		}
		text = rest
		switch {
		case strings.HasPrefix(rest, "$"):
			out.WriteByte('$')
			text = rest[1:]
		case strings.HasPrefix(rest, "(") && strings.Contains(rest, ")"):
			name, after, _ := strings.Cut(rest[1:], ")")
			value := "$(" + name + ")"
			for _, e := range env {
				if v, ok := strings.CutPrefix(e, name+"="); ok {
					value = v
				}
			}
			out.WriteString(value)
			text = after
		default:
			out.WriteByte('$')
		}
	}
}
