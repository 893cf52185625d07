//go:build nodes

package kube

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/contiv-agent/contiv-agent/interop/kube/netns"
)

// addresses are those of the pods with a label, by the pods' names.
func (s *realSite) addresses(t *testing.T, app string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, pod := range s.byLabel(t, app) {
		out[pod.Name] = pod.Status.PodIP
	}
	return out
}

// on is the pod with a label on a node, as soon as it exists.
func (s *realSite) on(t *testing.T, node, app string) (out *corev1.Pod) {
	t.Helper()
	eventually(t, "pod "+app+" on "+node, func() error {
		for _, pod := range s.byLabel(t, app) {
			if pod.Spec.NodeName == node && pod.DeletionTimestamp == nil {
				out = &pod
				return nil
			}
		}
		return errors.New("none")
	}, s.kubelets()...)
	return out
}

// linksOf are VPP's ends of pods' links: the other ends are in other namespaces.
var linksOf = regexp.MustCompile(`(?m)^\d+: cv-\w+@if`)

// whole waits until the cluster is as it should be: all pods ready, all paths open, and on each node a link, a namespace and an address for each pod, and no
// more.
func (s *realSite) whole(t *testing.T) {
	t.Helper()
	s.allReady(t)
	eventually(t, "pods are ready", func() error { return s.podsReady(t, "default", system) }, s.kubelets()...)
	s.talk(t)
	for _, n := range s.real {
		eventually(t, "links and namespaces of "+n.name, func() error {
			list, err := s.client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=" + n.name})
			if err != nil {
				return err
			}
			links, err := n.run("ip", "-o", "link", "show")
			names, failed := n.run("ls", "/run/netns")
			if err := errors.Join(err, failed); err != nil {
				return err
			}
			if a, b := len(linksOf.FindAllString(links, -1)), len(strings.Fields(names)); a != len(list.Items) || b != len(list.Items) {
				return fmt.Errorf("%d pods, %d links, %d namespaces\n%s%s", len(list.Items), a, b, links, names)
			}
			return nil
		}, s.kubelets()...)
	}
	used := map[string]string{}
	for _, app := range []string{"web", "client"} {
		for name, address := range s.addresses(t, app) {
			if other := used[address]; other != "" {
				t.Errorf("%s and %s have the address %s", name, other, address)
			}
			used[address] = name
		}
	}
}

var callsOf = regexp.MustCompile(`(?m)^contiv_cni_calls_total{code="(\d+)",verb="(\w+)"} (\d+)$`)

// calls are the runtime's calls that a node's agent has answered since its start, by verb and code.
func (s *realSite) calls(t *testing.T, n *realNode) map[string]int {
	t.Helper()
	text, err := get("http://" + n.listen() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]int{}
	for _, m := range callsOf.FindAllStringSubmatch(text, -1) {
		out[m[2]+" "+m[1]], _ = strconv.Atoi(m[3]) // digits
	}
	return out
}

// networkIsTested runs the test that operators run after an install. trace says what VPP does with SCTP, too: here nat44 has no address for it.
func networkIsTested(t *testing.T, s *realSite) {
	stdout, stderr, code := s.kubectlAs("contiv", "connectivity", "test")
	t.Logf("exit code %d\n%s%s", code, stdout, stderr)
	if code != 0 || !strings.Contains(stdout, " 0 failed") {
		t.Error("not all checks are ok")
	}
	from, to := s.on(t, s.real[0].name, "client").Name, s.on(t, s.real[0].name, "web").Name
	for protocol, want := range map[string]string{"TCP": "delivered", "SCTP": "no address for this protocol"} {
		stdout, stderr, _ := s.kubectlAs("contiv", "trace", fmt.Sprintf(`{"from":"pod:default/%s","to":"pod:default/%s:8080","protocol":%q}`, from, to, protocol))
		if !strings.Contains(stdout, want) {
			t.Errorf("%s: want %q:\n%s%s", protocol, want, stdout, stderr)
		}
	}
}

// podIsDeleted deletes a pod. containerd sends DEL again, also with an empty namespace and up to a minute later, while another pod is added: each has to succeed.
func podIsDeleted(t *testing.T, s *realSite) {
	n := s.real[0]
	before := s.calls(t, n)
	gone := s.on(t, n.name, "web")
	s.kubectl(nil, "delete", "pod", gone.Name, "--wait")
	s.whole(t)
	eventually(t, "DELs", func() error {
		if now := s.calls(t, n); now["DEL 0"] < before["DEL 0"]+2 {
			return fmt.Errorf("%v, before %v", now, before)
		}
		return nil
	}, s.kubelets()...)
	for what, count := range s.calls(t, n) {
		if strings.HasPrefix(what, "DEL ") && what != "DEL 0" {
			t.Errorf("%d calls %s", count, what)
		}
	}
	if _, err := s.exec("default", s.on(t, n.name, "client").Name, "guestbook", "get", "http://"+gone.Status.PodIP+":8080/hostname"); err == nil {
		t.Errorf("the address %s of the deleted pod answers", gone.Status.PodIP)
	}
}

// startOn makes a pod on a node that is not ready, or about not to be: no scheduler is asked, and no taint keeps it away.
func (s *realSite) startOn(t *testing.T, name, node string) {
	t.Helper()
	s.apply(t, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %[1]s}
spec:
  nodeName: %[2]s
  terminationGracePeriodSeconds: 1
  tolerations: [{operator: Exists}]
  containers: [{name: %[1]s, image: "agnhost:e2e", args: [pause]}]
`, name, node))
}

// keep examines whether pods with a label still have the addresses that they had.
func (s *realSite) keep(t *testing.T, app string, had map[string]string) {
	t.Helper()
	for name, address := range s.addresses(t, app) {
		if had[name] != address {
			t.Errorf("%s had the address %s and has %s", name, had[name], address)
		}
	}
}

// agentIsAway deletes the DaemonSet. The node is not ready, for the plugin's reason; a pod can be deleted; a new pod starts when the DaemonSet is back.
func agentIsAway(t *testing.T, s *realSite) {
	n := s.real[1]
	kept := s.addresses(t, "client")
	s.kubectl(nil, "-n", system, "delete", "daemonset", "contiv-vswitch", "--wait")
	eventually(t, n.name+" is not ready", func() error {
		if why := s.unready(t, n.name); !strings.Contains(why, "contiv-agent") {
			return fmt.Errorf("%q", why)
		}
		return nil
	}, s.kubelets()...)
	t.Logf("%s: %s", n.name, s.unready(t, n.name))
	gone := s.on(t, n.name, "web")
	s.kubectl(nil, "delete", "pod", gone.Name, "--wait")
	s.startOn(t, "early", n.name)
	eventually(t, "a new pod waits, for the plugin's reason", func() error {
		out, err := s.try("get", "events", "--field-selector", "involvedObject.name=early")
		if err == nil && !strings.Contains(out, "no agent listens") {
			err = errors.New(out)
		}
		return err
	}, s.kubelets()...)
	s.install(t, "standalone")
	s.whole(t)
	s.keep(t, "client", kept)
}

// vppHangs stops the process of a VPP. ADD is refused, so that the runtime repeats it; the node is not ready, for the plugin's reason. When VPP continues,
// the pod starts.
func vppHangs(t *testing.T, s *realSite) {
	n := s.real[0]
	kept := s.addresses(t, "web")
	before := s.calls(t, n)
	n.signal(t, "vpp", syscall.SIGSTOP)
	s.startOn(t, "refused", n.name)
	eventually(t, "ADD is refused", func() error {
		if now := s.calls(t, n); now["ADD 11"] == before["ADD 11"] {
			return fmt.Errorf("%v, before %v", now, before)
		}
		return nil
	}, s.kubelets()...)
	eventually(t, n.name+" is not ready", func() error {
		if why := s.unready(t, n.name); !strings.Contains(why, "VPP") {
			return fmt.Errorf("%q", why)
		}
		return nil
	}, s.kubelets()...)
	t.Logf("%s: %s", n.name, s.unready(t, n.name))
	n.signal(t, "vpp", syscall.SIGCONT)
	s.whole(t)
	s.keep(t, "web", kept)
}

// signal sends a signal to a program of the node.
func (n *realNode) signal(t *testing.T, program string, number syscall.Signal) {
	t.Helper()
	all, err := netns.Processes(n.netns, program)
	for _, pid := range all {
		err = errors.Join(err, syscall.Kill(pid, number))
	}
	if err != nil || len(all) == 0 {
		t.Fatalf("%s: %d processes of %s: %v", n.name, len(all), program, err)
	}
}

// rollingUpdate restarts VPP and the agent on one node after the other. Pods keep their addresses and do not restart.
func rollingUpdate(t *testing.T, s *realSite) {
	kept := s.addresses(t, "web")
	s.kubectl(nil, "-n", system, "rollout", "restart", "daemonset/contiv-vswitch")
	s.kubectl(nil, "-n", system, "rollout", "status", "daemonset/contiv-vswitch", "--timeout=300s")
	s.whole(t)
	for _, pod := range s.byLabel(t, "web") {
		if kept[pod.Name] != pod.Status.PodIP || pod.Status.ContainerStatuses[0].RestartCount != 0 {
			t.Errorf("%s: address %s, was %s; %d restarts", pod.Name, pod.Status.PodIP, kept[pod.Name], pod.Status.ContainerStatuses[0].RestartCount)
		}
	}
}

// runtimeIsKilled kills containerd and the kubelet of a node, which start again. Pods talk meanwhile, and keep their addresses.
func runtimeIsKilled(t *testing.T, s *realSite) {
	n := s.real[0]
	kept := s.addresses(t, "web")
	n.containerd.kill()
	n.kubelet.kill()
	if text, err := page("http://" + s.on(t, n.name, "web").Status.PodIP + ":8080/hostname"); err == nil {
		t.Logf("a pod without its kubelet says %q", text)
	}
	s.startContainerd(n)
	s.startRealKubelet(n)
	s.whole(t)
	s.kubectl(nil, "delete", "pod", s.on(t, n.name, "client").Name, "--wait")
	s.whole(t)
	s.keep(t, "web", kept)
}

// nodeCrashes ends all that runs on a node, with its network, as a loss of power does; then the node boots. Its disk stays.
func nodeCrashes(t *testing.T, s *realSite) {
	n := s.real[1]
	n.kubelet.kill()
	n.containerd.kill()
	n.init.kill()
	eventually(t, n.name+" is dead", func() error { return n.killAll() })
	if err := os.Remove(n.file("booted")); err != nil {
		t.Fatal(err)
	}
	s.wireAgain(1)
	s.boot(n)
	s.hasNewLinks(t, n)
	s.startContainerd(n)
	s.startRealKubelet(n)
	eventually(t, "pods of "+n.name+" have restarted", func() error {
		for _, app := range []string{"web", "client"} {
			if c := s.on(t, n.name, app).Status.ContainerStatuses; len(c) == 0 || c[0].RestartCount == 0 {
				return errors.New(app)
			}
		}
		return nil
	}, s.kubelets()...)
	s.whole(t)
}

// hasNewLinks takes what a node that has just booted answers about its network for what it answers without agents. All else is as before.
func (s *realSite) hasNewLinks(t *testing.T, n *realNode) {
	t.Helper()
	eventually(t, n.name+" has its addresses", func() error {
		for question, answer := range n.answers(t) {
			if strings.Contains(answer, "tentative") {
				return fmt.Errorf("%s: %s", question, answer)
			}
			if !strings.HasPrefix(question, "find") && !strings.HasPrefix(question, "cat") { // files, and a setting of the whole machine
				s.before[n.name][question] = answer
			}
		}
		return nil
	})
}

// killAll kills what runs in the node's cgroups or network; an error: something did.
func (n *realNode) killAll() error {
	count, err := netns.Kill(n.netns)
	if err != nil {
		return err
	}
	err = filepath.WalkDir("/sys/fs/cgroup/pids/"+cgroupsOf+"/"+n.name, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Base(path) != "cgroup.procs" {
			return err
		}
		b, _ := os.ReadFile(path) // the cgroup may have ended
		for pid := range strings.FieldsSeq(string(b)) {
			if id, err := strconv.Atoi(pid); err == nil && id > 0 && syscall.Kill(id, syscall.SIGKILL) == nil {
				count++
			}
		}
		return nil
	})
	if count > 0 {
		err = errors.Join(err, fmt.Errorf("%d processes ran", count))
	}
	return err
}

// wireAgain gives a node a new network namespace, with nothing in it but its NIC.
func (s *realSite) wireAgain(i int) {
	s.t.Helper()
	n := s.nodes[i]
	_ = netns.IP("", fmt.Sprintf("link del %s-%d\n", bridge, i+1)) // it ends with the namespace
	err := errors.Join(netns.Delete(n.netns), s.connect(i))
	if err != nil {
		s.t.Fatal(err)
	}
}
