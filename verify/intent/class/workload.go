package class

import (
	"strings"

	"github.com/contiv-agent/contiv-agent/model"
)

// Workload is the name of what made a pod, by its labels and its name: a Deployment, a StatefulSet, a DaemonSet, a Job, or the pod itself.
// The model has no owners, and a label that a user may write can be wrong: use it for texts and for pairs of pods only.
func Workload(p *model.Pod) string {
	name := p.ID.Name
	if hash := p.Labels["pod-template-hash"]; hash != "" {
		if before, _, found := strings.Cut(name, "-"+hash+"-"); found {
			return before
		}
	}
	if job := p.Labels["batch.kubernetes.io/job-name"]; job != "" {
		return job
	}
	before, suffix, found := cutLast(name)
	if !found || before == "" {
		return name
	}
	if suffix != "" && strings.Trim(suffix, "0123456789") == "" || p.Labels["controller-revision-hash"] != "" {
		return before // a number of a StatefulSet, or the random letters of a DaemonSet
	}
	return name
}

func cutLast(name string) (before, after string, found bool) {
	at := strings.LastIndexByte(name, '-')
	if at < 0 {
		return name, "", false
	}
	return name[:at], name[at+1:], true
}
