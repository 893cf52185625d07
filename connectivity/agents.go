package connectivity

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/contiv-agent/contiv-agent/agent/status"
	"github.com/contiv-agent/contiv-agent/event"
)

// findAgents finds the agent of each node, asks it for its state, and returns the image of the test's pods.
func (t *run) findAgents(ctx context.Context) (image string, err error) {
	var list corev1.PodList
	if err := t.cluster.Read(ctx, &list, "pods", "--namespace="+t.cfg.Agents, "--selector="+t.cfg.Selector); err != nil {
		return "", err
	}
	pods := map[string]*corev1.Pod{}
	for i := range list.Items {
		p := &list.Items[i]
		if known := pods[p.Spec.NodeName]; known == nil || known.DeletionTimestamp != nil || known.Status.Phase != corev1.PodRunning {
			pods[p.Spec.NodeName] = p // of two pods on a node, one is ending
		}
		for _, c := range p.Spec.Containers {
			if c.Name == t.cfg.Container {
				image = c.Image
			}
		}
	}
	eachAtOnce(t.nodes, func(m *machine) {
		pod := pods[m.name]
		if pod == nil {
			m.trouble = []string{fmt.Sprintf("no agent: no pod in namespace %s has label %s there", t.cfg.Agents, t.cfg.Selector)}
			return
		}
		m.agent = pod.Name
		if why := notRunning(pod, t.cfg.Container); why != "" {
			m.trouble = []string{"the agent does not run: " + why}
			return
		}
		t.askAgent(ctx, m)
	})
	if t.cfg.Image != "" {
		image = t.cfg.Image
	}
	if image == "" {
		return "", errors.New("no agent was found whose image the test's pods could run: give its namespace (-n) and label (-l), or an image (--image)")
	}
	return image, nil
}

// notRunning returns why a container of a pod does not run; "": it runs.
func notRunning(pod *corev1.Pod, container string) string {
	for _, c := range pod.Status.ContainerStatuses {
		if c.Name == container && c.State.Running != nil {
			return ""
		}
	}
	return fmt.Sprintf("pod %s/%s: %s", pod.Namespace, pod.Name, waitsFor(pod))
}

// waitsFor returns why a pod is not ready, in its own words.
func waitsFor(pod *corev1.Pod) string {
	for _, c := range pod.Status.ContainerStatuses {
		why := ""
		if w := c.State.Waiting; w != nil {
			why = strings.TrimRight(c.Name+" waits: "+w.Reason+" "+w.Message, " ")
		}
		for _, end := range []*corev1.ContainerStateTerminated{c.State.Terminated, c.LastTerminationState.Terminated} {
			if end != nil && !c.Ready {
				return strings.TrimRight(fmt.Sprintf("%s; %s ended with exit code %d: %s", why, c.Name, end.ExitCode, end.Message), ": ")
			}
		}
		if why != "" {
			return why
		}
	}
	for _, c := range pod.Status.Conditions {
		if c.Status != corev1.ConditionTrue && c.Message != "" {
			return c.Message
		}
	}
	if pod.Spec.NodeName == "" {
		return "it has no node"
	}
	return "it is " + string(pod.Status.Phase)
}

// askAgent asks an agent for its state.
func (t *run) askAgent(ctx context.Context, m *machine) {
	ctx, cancel := context.WithTimeout(ctx, 3*t.cfg.Limit)
	defer cancel()
	st, err := t.agents.Status(ctx, m.name, m.agent)
	if err != nil {
		m.trouble = []string{"the agent does not answer: " + err.Error()}
		return
	}
	m.status, m.trouble = st, troubles(st)
}

// troubles returns what an agent reports that is no matter of a single object: an object that it refuses, or serves in part, is its owner's.
func troubles(st *status.Status) (out []string) {
	if !st.InSync {
		out = append(out, "the agent is not in sync: "+st.Waiting)
	}
	for _, p := range st.Problems {
		if p.State != status.Refused && p.State != status.Partial {
			out = append(out, p.String())
		}
	}
	return out
}

// checkAgents is the check of what agents report.
func (w *world) checkAgents() Result {
	r := Result{Group: GroupAgents, Check: "in sync, VPP connected", State: OK}
	refused := 0
	versions := map[string]bool{}
	for _, m := range w.nodes {
		for _, why := range m.trouble {
			r.State = Failed
			r.Failures = append(r.Failures, Failure{From: m.name, Reason: why})
		}
		if len(m.trouble) > 0 {
			if cause := w.causeOfTrouble(m); !slices.Contains(r.Causes, cause) {
				r.Causes = append(r.Causes, cause)
			}
		}
		if m.status != nil {
			refused += len(m.status.Problems)
			versions[m.status.VPP.Version] = true
		}
	}
	r.Found = fmt.Sprintf("%s, VPP %s", counted(len(w.nodes), "node"), joinKeys(versions))
	switch {
	case r.State == Failed:
		r.Found = fmt.Sprintf("%d of %s", w.troubled(), counted(len(w.nodes), "node"))
	case refused > 0:
		r.Found += fmt.Sprintf("; %s refused or served in part: kubectl contiv status", counted(refused, "object"))
	}
	return r
}

func joinKeys(m map[string]bool) string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// troubled counts the nodes whose agents are not well.
func (w *world) troubled() (n int) {
	for _, m := range w.nodes {
		if len(m.trouble) > 0 {
			n++
		}
	}
	return n
}

// causeOfTrouble says what an agent's trouble means, and where to look.
func (w *world) causeOfTrouble(m *machine) string {
	logs := fmt.Sprintf("kubectl logs -n %s %s -c %s", w.cfg.Agents, m.agent, w.cfg.Container)
	switch {
	case m.agent == "":
		return fmt.Sprintf("%s has no agent: the DaemonSet's nodeSelector or tolerations exclude it, or the pod was refused: kubectl describe daemonset -n %s", m.name, w.cfg.Agents)
	case m.status == nil:
		return fmt.Sprintf("the agent of %s is down: pods there keep their network, and changes of Services, policies and pods do not reach its VPP: %s", m.name, logs)
	case !m.status.VPP.Connected || m.status.VPP.Silent != "":
		return fmt.Sprintf("VPP of %s does not run, or hangs: its pods have no network: kubectl logs -n %s %s -c vpp", m.name, w.cfg.Agents, m.agent)
	case slices.ContainsFunc(m.status.Problems, func(p status.Problem) bool {
		return p.State == event.Failed.String() || p.State == event.Retrying.String()
	}):
		return fmt.Sprintf("VPP or the kernel of %s refuses what its agent wants: kubectl contiv status --node %s; contiv-agent doctor there", m.name, m.name)
	}
	return fmt.Sprintf("the agent of %s waits: kubectl contiv status --node %s; %s", m.name, m.name, logs)
}
