//go:build nodes

package kube

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// questions are what a node has beside pods and programs: each command's output is compared byte by byte.
var questions = []string{
	"ip -o -d link",
	"ip -o addr",
	"ip -4 route show table all",
	"ip -6 route show table all",
	"ip rule",
	"ip -6 rule",
	"ip neigh show nud permanent",
	"nft list ruleset",
	"find /etc/cni /opt/cni /var/lib/contiv-agent /run/contiv-agent -type f -exec sha256sum {} + 2>/dev/null | sort -k 2",
	"cd /proc/sys/net && grep -rs . ipv4/conf ipv6/conf ipv4/ip_forward | sort",
	"cat /sys/kernel/rcu_expedited",
}

// agents is everything that a running agent adds to these answers, by question; a line that matches is the agent's. In the answer of nft a whole table is, by its
// first line.
var agents = map[string]*regexp.Regexp{
	"ip -o -d link":               regexp.MustCompile(`^\d+: (contiv-host|contiv-vxlan|cv-host|cv-vxlan|cv-[0-9a-f]{12})@`),
	"ip -o addr":                  regexp.MustCompile(`^\d+: (contiv-host|contiv-vxlan|cv-host|cv-vxlan|cv-[0-9a-f]{12}) `),
	"ip -4 route show table all":  regexp.MustCompile(` dev (contiv-host|contiv-vxlan) `),
	"ip -6 route show table all":  regexp.MustCompile(` dev (contiv-host|contiv-vxlan|cv-host|cv-vxlan|cv-[0-9a-f]{12}) `),
	"ip neigh show nud permanent": regexp.MustCompile(`^(169\.254\.1\.(1|6)|fd69:254:1::(1|6)) dev (contiv-host|contiv-vxlan) `),
	"nft list ruleset":            regexp.MustCompile(`^table (inet contiv|arp contiv|inet contiv-node-ports|inet contiv-ports) \{`),
	questions[8]:                  regexp.MustCompile(`  (/etc/cni/net\.d/10-contiv\.conflist|/opt/cni/bin/contiv-cni|/var/lib/contiv-agent/(addresses|attachments)\.db|/run/contiv-agent/journal(\.counts)?)$`),
	questions[9]:                  regexp.MustCompile(`^ipv[46]/conf/(contiv-host|contiv-vxlan|cv-host|cv-vxlan|cv-[0-9a-f]{12})/`),
}

// answers are a node's, by question.
func (n *realNode) answers(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, q := range questions {
		text, err := n.run("sh", "-c", q)
		if err != nil && !strings.HasPrefix(q, "find") { // a folder may not exist
			t.Fatal(err)
		}
		out[q] = text
	}
	return out
}

// notAgents returns an answer without what is ours.
func notAgents(question, answer string) string {
	if agents[question] == nil {
		return answer
	}
	var b strings.Builder
	inOurs := false // of nft's tables
	for line := range strings.Lines(answer) {
		if strings.HasPrefix(question, "nft") {
			if strings.HasPrefix(line, "table ") {
				inOurs = agents[question].MatchString(line)
			}
			if inOurs {
				continue
			}
		} else if agents[question].MatchString(strings.TrimRight(line, "\n")) {
			continue
		}
		b.WriteString(line)
	}
	return b.String()
}

// same compares a node's answers with earlier ones; running: an agent runs, and what is ours does not count.
func same(before, now map[string]string, running bool) (err error) {
	for _, q := range questions {
		text := now[q]
		if running {
			text = notAgents(q, text)
		}
		if text != before[q] {
			err = errors.Join(err, fmt.Errorf("%s\nbefore:\n%s\nnow:\n%s", q, before[q], text))
		}
	}
	return err
}

// asBefore compares all nodes with what they were before the first install.
func (s *realSite) asBefore(t *testing.T, running bool) {
	t.Helper()
	for _, n := range s.real {
		eventually(t, n.name+" is as before", func() error { return same(s.before[n.name], n.answers(t), running) }, s.kubelets()...)
	}
}

// withoutPods deletes the test's pods: nobody can delete a pod whose CNI plugin is gone.
func (s *realSite) withoutPods(t *testing.T) {
	t.Helper()
	s.kubectl(nil, "delete", "daemonset,service,pod", "--all", "--wait")
	eventually(t, "no pods", func() error {
		list, err := s.client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
		if err == nil && len(list.Items) > 0 {
			err = fmt.Errorf("%d pods", len(list.Items))
		}
		return err
	}, s.kubelets()...)
}

// bare removes an install, if the cluster has one: a part of the test may run alone.
func (s *realSite) bare(t *testing.T) {
	t.Helper()
	s.withoutPods(t)
	s.kubectl(nil, "delete", "-k", s.path("install"), "--wait", "--ignore-not-found")
	s.asBefore(t, false)
}

// installedAgain brings the cluster back.
func (s *realSite) installedAgain(t *testing.T) {
	t.Helper()
	s.install(t, "standalone")
	s.allReady(t)
	s.deployWeb(t)
	s.whole(t)
}

// installIsDeleted deletes what was applied, alone: each node is as it was.
func installIsDeleted(t *testing.T, s *realSite) {
	s.withoutPods(t)
	began := time.Now()
	s.kubectl(nil, "delete", "-k", s.path("install"), "--wait")
	t.Logf("kubectl delete took %s", time.Since(began).Round(time.Second/10))
	s.asBefore(t, false)
	t.Logf("from kubectl delete to nodes as before: %s", time.Since(began).Round(time.Second/10))
	for _, n := range s.real {
		eventually(t, n.name+" is not ready", func() error {
			if why := s.unready(t, n.name); !strings.Contains(why, "cni") {
				return fmt.Errorf("%q", why)
			}
			return nil
		}, s.kubelets()...)
	}
}

// upgradeFails begins an upgrade to an image that does not exist. It returns when one node has no agent; the other one keeps its agent.
func (s *realSite) upgradeFails(t *testing.T) (stuck, other *realNode) {
	t.Helper()
	s.kubectl(nil, "-n", system, "set", "image", "daemonset/contiv-vswitch", "agent=contiv-agent:none")
	eventually(t, "the image is missing", func() error {
		list, err := s.client.CoreV1().Pods(system).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, pod := range list.Items {
			for _, c := range pod.Status.ContainerStatuses {
				if w := c.State.Waiting; c.Name == "agent" && w != nil && strings.Contains(w.Reason, "Image") {
					for i, n := range s.real {
						if n.name == pod.Spec.NodeName {
							stuck, other = n, s.real[1-i]
						}
					}
					return nil
				}
			}
		}
		return errors.New("no such pod")
	}, s.kubelets()...)
	return stuck, other
}

// clean applies deploy/remove.
func (s *realSite) clean(t *testing.T) {
	t.Helper()
	s.write("clean/kustomization.yaml", fmt.Sprintf("resources: [%s]\nimages: [{name: contiv-agent, newTag: e2e}]\n", s.relative(t, "clean", "remove")))
	s.kubectl(nil, "apply", "-k", s.path("clean"))
}

// nodesAreCleaned lets an upgrade fail. It can be rolled back. After the deletion, the agent of the other node cleans its node, and deploy/remove the rest; while an
// agent runs, its pods wait.
func nodesAreCleaned(t *testing.T, s *realSite) {
	s.installedAgain(t)
	s.clean(t)
	eventually(t, "cleanup waits while an agent runs", func() error {
		out, err := s.try("-n", "contiv-remove", "logs", "daemonset/contiv-remove", "-c", "cleanup")
		if err == nil && !strings.Contains(out, "waiting: an agent is running on this VPP: stop it first") {
			err = errors.New(out)
		}
		return err
	}, s.kubelets()...)
	s.kubectl(nil, "delete", "-k", s.path("clean"), "--wait")
	s.whole(t)

	_, other := s.upgradeFails(t)
	s.gets(t, s.on(t, other.name, "client").Name, "http://"+s.on(t, other.name, "web").Status.PodIP+":8080/hostname", s.on(t, other.name, "web").Name)
	s.kubectl(nil, "-n", system, "rollout", "undo", "daemonset/contiv-vswitch")
	s.kubectl(nil, "-n", system, "rollout", "status", "daemonset/contiv-vswitch", "--timeout=300s")
	s.whole(t)

	stuck, other := s.upgradeFails(t)
	s.withoutPods(t)
	s.kubectl(nil, "delete", "-k", s.path("install"), "--wait")
	eventually(t, other.name+" is as before", func() error { return same(s.before[other.name], other.answers(t), false) }, s.kubelets()...)
	if err := same(s.before[stuck.name], stuck.answers(t), false); err == nil {
		t.Errorf("%s is clean, although no agent was there", stuck.name)
	}
	s.clean(t)
	s.kubectl(nil, "-n", "contiv-remove", "rollout", "status", "daemonset/contiv-remove", "--timeout=300s")
	s.asBefore(t, false)
	for _, n := range s.real {
		if out, err := n.run("ls", "-d", "/var/lib/contiv-agent", "/run/contiv-agent"); err == nil || strings.Contains(out, "\n/") {
			t.Errorf("%s: %s", n.name, out)
		}
	}
	s.kubectl(nil, "delete", "-k", s.path("clean"), "--wait")
	s.asBefore(t, false)
	s.installedAgain(t)
}

// relative is a folder of deploy, as seen from a folder of the test.
func (s *realSite) relative(t *testing.T, from, folder string) string {
	t.Helper()
	here, err := filepath.Abs(filepath.Join(deploy, folder))
	if err == nil {
		err = os.MkdirAll(s.path(from), 0o700)
	}
	if err == nil {
		here, err = filepath.Rel(s.path(from), here)
	}
	if err != nil {
		t.Fatal(err)
	}
	return here
}
