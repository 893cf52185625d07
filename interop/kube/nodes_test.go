//go:build nodes

package kube

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/contiv-agent/contiv-agent/interop/kube/netns"
)

// realSite is a cluster of bare nodes with the real kubelet, containerd and runc. Nothing on them knows this project before its manifests are applied.
type realSite struct {
	*site
	real   []*realNode
	before map[string]map[string]string // answers of the bare nodes
}

// bareSite starts the API server, controllers, scheduler and nodes, which stay NotReady: they have no network.
func bareSite(t *testing.T, programs, images string, names ...string) *realSite {
	t.Helper()
	s := &realSite{site: newAPIServer(t, names), before: map[string]map[string]string{}}
	for _, n := range s.nodes {
		s.real = append(s.real, &realNode{siteNode: n, programs: programs})
	}
	s.controllerFlags = []string{"--allocate-node-cidrs", "--cluster-cidr", "10.1.0.0/16"}
	s.control("daemonset-controller", "job-controller", "node-lifecycle-controller", "node-ipam-controller", "root-ca-certificate-publisher-controller", "endpoints-controller",
		"pod-garbage-collector-controller")
	s.scheduler = s.schedule()
	s.kubectl(nil, "apply", "-f", "testdata/kubelet.yaml")
	s.programs()
	stop := s.step("containerd and kubelet on each node, with images")
	files, err := filepath.Glob(filepath.Join(images, "*.tar"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, n := range s.real {
		s.boot(n)
		s.startContainerd(n)
		s.load(n, files)
		s.startRealKubelet(n)
	}
	eventually(t, "nodes have registered", func() error {
		list, err := s.client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		if err == nil && len(list.Items) < len(names) {
			err = fmt.Errorf("%d of %d", len(list.Items), len(names))
		}
		return err
	}, s.kubelets()...)
	stop()
	return s
}

// install applies a folder of deploy, with the images and further text in a kustomization, as docs/operations.md says. The agents find the API server themselves.
func (s *realSite) install(t *testing.T, folder string, more ...string) string {
	t.Helper()
	dir, from := s.path("install"), s.relative(t, "install", folder)
	s.write("install/kustomization.yaml", fmt.Sprintf(`resources: [%s]
images:
  - {name: contiv-agent, newTag: e2e}
  - {name: contiv-vpp, newTag: e2e}
%s`, from, strings.Join(more, "")))
	s.kubectl(nil, "apply", "-k", dir)
	return dir
}

// ready returns why a node is not; "": it is.
func (s *realSite) unready(t *testing.T, name string) string {
	t.Helper()
	n, err := s.client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		return err.Error()
	}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			if c.Status == corev1.ConditionTrue {
				return ""
			}
			return c.Message
		}
	}
	return "no condition yet"
}

// allReady waits until all nodes are.
func (s *realSite) allReady(t *testing.T) {
	t.Helper()
	eventually(t, "nodes are ready", func() (err error) {
		for _, n := range s.real {
			if why := s.unready(t, n.name); why != "" {
				err = errors.Join(err, fmt.Errorf("%s: %s", n.name, why))
			}
		}
		return err
	}, s.kubelets()...)
}

// shortOf is the environment variable that leaves only the install, pods that talk, and kubectl delete of TestNodes.
const shortOf = "CONTIV_NODES_SHORT"

// TestNodes installs deploy/standalone on bare nodes by kubectl apply alone, and examines what pods, the runtime and operators see of it.
func TestNodes(t *testing.T) {
	if os.Getenv(inNamespace) == "" {
		aloneOnMachine(t, nil)
		return
	}
	s := bareSite(t, os.Getenv(nodeProgramsIn), built.scratch, "node-1", "node-2")
	defer func() {
		if t.Failed() {
			s.explain(t)
		}
	}()
	for _, n := range s.real {
		if why := s.unready(t, n.name); !strings.Contains(why, "cni") {
			t.Errorf("%s is bare, and %q", n.name, why)
		}
		s.before[n.name] = n.answers(t)
	}
	began := time.Now()
	s.install(t, "standalone")
	s.allReady(t)
	t.Logf("from kubectl apply to ready nodes: %s", time.Since(began).Round(time.Second/10))
	s.deployWeb(t)
	t.Logf("from kubectl apply to answers on all paths, also through a Service: %s", time.Since(began).Round(time.Second/10))
	s.asBefore(t, true)
	if os.Getenv(shortOf) != "" {
		t.Run("kubectl delete", func(t *testing.T) { installIsDeleted(t, s) })
		return
	}
	for _, part := range []struct {
		name string
		do   func(t *testing.T, s *realSite)
	}{
		{"kubectl contiv connectivity test", networkIsTested},
		{"a pod is deleted", podIsDeleted},
		{"the DaemonSet is away", agentIsAway},
		{"VPP hangs", vppHangs},
		{"rolling update", rollingUpdate},
		{"containerd and kubelet are killed", runtimeIsKilled},
		{"kubectl delete", installIsDeleted},
		{"helm uninstall", chartIsUninstalled},
		{"the page install.md", pageIsFollowed},
		{"contiv-remove", nodesAreCleaned},
		{"VPP has the NICs", nicsAreVPPs},
		{"a node crashes", nodeCrashes},
		{"programs are killed", programsAreKilled},
	} {
		if !t.Run(part.name, func(t *testing.T) { part.do(t, s) }) {
			return
		}
	}
}

// web is what the test runs on the cluster: a server on each node, behind a Service, and a client on each node.
const web = `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
        - {name: web, image: "agnhost:e2e", args: [netexec, --http-port=8080], readinessProbe: {httpGet: {path: /hostname, port: 8080}, periodSeconds: 1}}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {clusterIP: 10.96.7.7, selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: client}
spec:
  selector: {matchLabels: {app: client}}
  template:
    metadata: {labels: {app: client}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
        - {name: client, image: "agnhost:e2e", args: [pause]}
`

// webURL is the Service's.
const webURL = "http://10.96.7.7/hostname"

// deployWeb starts it, and waits until every client gets an answer of every server, and of the Service.
func (s *realSite) deployWeb(t *testing.T) {
	t.Helper()
	s.apply(t, web)
	eventually(t, "pods are ready", func() error { return s.podsReady(t, "default") }, s.kubelets()...)
	s.talk(t)
}

// byLabel are the pods of the test with that label.
func (s *realSite) byLabel(t *testing.T, app string) []corev1.Pod {
	t.Helper()
	list, err := s.client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app=" + app})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// talk waits until every client gets an answer of every server, and of the Service.
func (s *realSite) talk(t *testing.T) {
	t.Helper()
	servers := s.byLabel(t, "web")
	for _, client := range s.byLabel(t, "client") {
		for _, server := range servers {
			s.gets(t, client.Name, "http://"+server.Status.PodIP+":8080/hostname", server.Name)
		}
		s.gets(t, client.Name, webURL, "web-")
	}
}

// gets waits until a client gets a page with this text.
func (s *realSite) gets(t *testing.T, client, url, want string) {
	t.Helper()
	eventually(t, client+" gets "+url, func() error {
		out, err := exec.Command("timeout", "20", filepath.Join(s.bin, "kubectl"), "--kubeconfig", s.path("admin.kubeconfig"), "exec", client, "--",
			"guestbook", "get", url).CombinedOutput() // a node that crashes ends no connection
		if err == nil && !strings.Contains(string(out), want) {
			err = fmt.Errorf("want %q", want)
		}
		if err != nil {
			err = fmt.Errorf("%q: %w", out, err)
		}
		return err
	}, s.kubelets()...)
}

// explain logs what the cluster says of itself.
func (s *realSite) explain(t *testing.T) {
	t.Helper()
	for _, args := range [][]string{
		{"get", "nodes,pods,daemonsets", "-A", "-o", "wide"},
		{"get", "events", "-A", "--sort-by=.lastTimestamp"},
		{"-n", system, "describe", "pods"},
		{"-n", system, "logs", "-l", "app.kubernetes.io/name=contiv-vswitch", "-c", "agent", "--tail=40", "--prefix"},
		{"-n", system, "logs", "-l", "app.kubernetes.io/name=contiv-vswitch", "-c", "vpp", "--tail=20", "--prefix"},
	} {
		out, err := s.try(args...)
		t.Logf("kubectl %q: %v\n%s", args, err, out)
	}
}

// nodeProgramsIn is the environment variable with the folder of the nodes' programs.
const nodeProgramsIn = "CONTIV_KUBE_NODE_PROGRAMS"

// aloneOnMachine builds programs and images, and runs the test in a process with separate namespaces of network, mounts and processes: none of the nodes'
// processes outlives it. more, unless it is nil, makes images beside those that every cluster has.
func aloneOnMachine(t *testing.T, more func(t *testing.T) []imageOf) {
	t.Helper()
	if err := nodesPossible(); err != nil {
		t.Skip(err)
	}
	dir := buildNodePrograms(t)
	if err := goBuild(t.Context(), os.Stdout, "simvpp", filepath.Join(built.scratch, "vpp"), ".", "-ldflags=-s -w"); err != nil {
		t.Fatal(err)
	}
	if realVPP() != "" {
		if err := buildEpoll(filepath.Join(built.scratch, "epoll.so")); err != nil {
			t.Skip(err)
		}
	}
	if os.Getenv(shortOf) == "" {
		if _, err := helm(); err != nil { // the nodes reach no module proxy
			t.Fatal(err)
		}
	}
	var images []imageOf
	if more != nil {
		images = more(t)
	}
	archives(t, built.scratch, images...)
	keepMachine(t)
	args := []string{"-c", `mount --make-rprivate / && mount -t proc proc /proc && "$@"; exit $?`, "sh", self(), "-test.v", "-test.timeout", "150m", "-test.run"}
	args = append(args, flag.Lookup("test.run").Value.String(), fmt.Sprintf("-report=%t", *writeReport))
	cmd := exec.Command("sh", args...)
	cmd.Env = append(os.Environ(), inNamespace+"="+built.scratch, apart+"=1", nodeProgramsIn+"="+dir)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL}
	err := netns.Start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		t.Fatalf("in separate namespaces: %v", err)
	}
}
