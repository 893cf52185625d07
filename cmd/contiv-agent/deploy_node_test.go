package main

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/contiv-agent/contiv-agent/cmd/flags"
	"github.com/contiv-agent/contiv-agent/doctor"
	"github.com/contiv-agent/contiv-agent/plugins/cni"
	"github.com/contiv-agent/contiv-agent/plugins/cni/protocol"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/linux/nic"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/rcu"
)

// needs are the capabilities that a container needs.
func needs(c *corev1.Container) []corev1.Capability {
	switch {
	case c.Name == "vpp":
		return []corev1.Capability{"IPC_LOCK", "NET_RAW"}
	case connectsPods(c):
		return []corev1.Capability{"NET_ADMIN", "NET_RAW", "SYS_ADMIN"}
	}
	return nil
}

// connectsPods reports whether a container is an agent that connects pods.
func connectsPods(c *corev1.Container) bool {
	return slices.Contains(c.Env, corev1.EnvVar{Name: "CNI", Value: "true"})
}

// checkNode checks that an agent that connects pods and the programs of its node mean the same files: the runtime reads the list and the plugin in its
// own folders, the plugin finds the socket and the folder for recorded DELs where the list and its defaults say, the runtime names network namespaces, and
// VPP makes sockets where the agent says.
func checkNode(t *testing.T, set *pflag.FlagSet, agent *corev1.Container, pod *corev1.PodSpec) {
	t.Helper()
	state := set.Lookup("cni-state").Value.String()
	for what, path := range map[string]string{
		"lists": set.Lookup("cni-conf-dir").Value.String(), "plugins": set.Lookup("cni-bin-dir").Value.String(), "state": state, "socket": protocol.DefaultSocket,
		"recorded DELs": protocol.DefaultSpool, "namespaces": "/var/run/netns/cni-1", "switch": rcu.SwitchPath, "lock": flags.LockPath(flags.Auto, set.Lookup("vpp-socket").Value.String()),
		"journal": "/run/contiv-agent/journal",
	} {
		checkShared(t, agent, pod, what, path)
	}
	checkSettings(t, agent, pod)
	vpp := &pod.Containers[slices.IndexFunc(pod.Containers, func(c corev1.Container) bool { return c.Name == "vpp" })]
	checkShared(t, vpp, pod, "sockets of pods", state+"/memif")
	if other := set.Lookup("status-socket").Value.String(); other != flags.Auto {
		t.Errorf("%s: --status-socket=%s", agent.Name, other)
	}
}

// checkShared checks that a container has a file or a folder of its node under the same path.
func checkShared(t *testing.T, c *corev1.Container, pod *corev1.PodSpec, what, path string) {
	t.Helper()
	i := slices.IndexFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return strings.HasPrefix(path+"/", m.MountPath+"/") })
	if i < 0 {
		t.Errorf("%s: %s (%s) are in no volume", c.Name, what, path)
		return
	}
	m := c.VolumeMounts[i]
	v := pod.Volumes[slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })]
	if v.HostPath == nil || v.HostPath.Path != m.MountPath || m.ReadOnly {
		t.Errorf("%s: %s: %s is not that path of the node: %+v", c.Name, what, m.MountPath, v)
	}
	if live := m.MountPropagation != nil && *m.MountPropagation == corev1.MountPropagationHostToContainer; live != (what == "namespaces") {
		t.Errorf("%s: %s: mount propagation %v", c.Name, what, m.MountPropagation)
	}
}

// checkSettings checks that a container may change the kernel's settings of its node's network.
func checkSettings(t *testing.T, c *corev1.Container, pod *corev1.PodSpec) {
	t.Helper()
	i := slices.IndexFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == nic.HostSettings })
	if i < 0 || c.VolumeMounts[i].ReadOnly {
		t.Errorf("%s: no volume at %s that it may write", c.Name, nic.HostSettings)
		return
	}
	v := pod.Volumes[slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == c.VolumeMounts[i].Name })]
	if v.HostPath == nil || v.HostPath.Path != "/proc/sys/net" {
		t.Errorf("%s: %s: %+v", c.Name, nic.HostSettings, v)
	}
}

// The image of VPP preloads the library of deploy/vpp/epoll.c, under the name that doctor looks for.
func TestVPPImage(t *testing.T) {
	text, err := os.ReadFile("../../deploy/vpp/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	path := "/usr/local/lib/" + doctor.EpollLibrary
	for _, want := range []string{"COPY epoll.c /", "-o /" + doctor.EpollLibrary + " /epoll.c", "COPY --from=library /" + doctor.EpollLibrary + " " + path, "ENV LD_PRELOAD=" + path, `ENTRYPOINT ["vpp"]`} {
		if !strings.Contains(string(text), want+"\n") {
			t.Errorf("no line ends with %s", want)
		}
	}
}

// TestRemove: the pods of deploy/remove have all files of the node that cleanup --node removes, under the same paths, and the rights for it; they are
// ready when a dry run finds nothing.
func TestRemove(t *testing.T) {
	all := built(t, "remove")
	set, ok := all["DaemonSet contiv-remove/contiv-remove"].(*appsv1.DaemonSet)
	if !ok || all["Namespace /contiv-remove"] == nil || len(all) != 2 {
		t.Fatalf("%v", slices.Sorted(maps.Keys(all)))
	}
	pod := &set.Spec.Template.Spec
	if !pod.HostNetwork || !slices.ContainsFunc(pod.Tolerations, func(o corev1.Toleration) bool { return o == corev1.Toleration{Operator: corev1.TolerationOpExists} }) {
		t.Errorf("it is not on the network of all nodes: %+v", pod)
	}
	for name, want := range map[string][]string{"cleanup": {"cleanup", "--node", "--wait"}, "clean": {"cleanup", "--node", "--dry-run", "--stay"}} {
		list := slices.Concat(pod.InitContainers, pod.Containers)
		c := &list[slices.IndexFunc(list, func(c corev1.Container) bool { return c.Name == name })]
		if !slices.Equal(c.Args, want) || c.SecurityContext.Capabilities == nil || !slices.Equal(c.SecurityContext.Capabilities.Add, []corev1.Capability{"NET_ADMIN", "SYS_ADMIN"}) {
			t.Errorf("%s: %q, %+v", name, c.Args, c.SecurityContext)
		}
		checkCommand(t, all, c, pod)
		checkSettings(t, c, pod)
		for _, path := range []string{
			"/etc/cni/net.d/" + cni.ListName, "/opt/cni/bin/" + cni.ProgramName, flags.CNIState, protocol.DefaultSocket, "/run/contiv-agent", "/run/vpp/api.sock", rcu.SwitchPath,
		} {
			i := slices.IndexFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return strings.HasPrefix(path+"/", m.MountPath+"/") })
			if i < 0 {
				t.Errorf("%s: %s is in no volume", name, path)
				continue
			}
			m := c.VolumeMounts[i]
			v := pod.Volumes[slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })]
			if v.HostPath == nil || v.HostPath.Path != m.MountPath || m.ReadOnly || path == m.MountPath && path != rcu.SwitchPath {
				t.Errorf("%s: %s: %+v, %+v", name, path, m, v)
			}
		}
	}
}
