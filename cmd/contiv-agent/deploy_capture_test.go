package main

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// largestCaptures is what VPP writes at a time: the largest capture of a pod, and two files with dropped packets (docs/capture.md, docs/flows.md).
const largestCaptures = 32<<20 + 2*20_000*(16+256)

// checkCaptures checks that an agent finds what VPP writes to its /tmp in the folder of --flows-folder, may remove it, and that it stays in memory.
func checkCaptures(t *testing.T, folder string, agent *corev1.Container, pod *corev1.PodSpec) {
	t.Helper()
	mounted := func(c *corev1.Container, path string) string {
		i := slices.IndexFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == path && !m.ReadOnly && m.SubPath == "" })
		if i < 0 {
			t.Errorf("%s: no volume at %s that it may write", c.Name, path)
			return ""
		}
		return c.VolumeMounts[i].Name
	}
	vpp := &pod.Containers[slices.IndexFunc(pod.Containers, func(c corev1.Container) bool { return c.Name == "vpp" })]
	if theirs, ours := mounted(vpp, "/tmp"), mounted(agent, folder); theirs != ours {
		t.Errorf("VPP writes captures to volume %q, and the agent looks into %q", theirs, ours)
	} else if i := slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == ours }); i >= 0 {
		v := pod.Volumes[i].EmptyDir
		if v == nil || v.Medium != corev1.StorageMediumMemory || v.SizeLimit == nil || v.SizeLimit.Value() < largestCaptures || v.SizeLimit.Value() > 2*vpp.Resources.Limits.Memory().Value()/10 {
			t.Errorf("volume %s: %+v: want memory with a limit that the largest captures fit in, and a small part of VPP's", ours, pod.Volumes[i])
		}
	}
}
