package kube

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// cluster is an etcd, an API server and, if asked for, the controllers and the scheduler.
type cluster struct {
	t           tb
	dir         string
	etcd        string // its URL
	address     string // the API server's
	port        int
	users       []user
	api         *process
	controllers *process
	client      *kubernetes.Clientset // as an administrator, in protobuf, and without a rate limit
	more        []string              // flags of the API server beside those it always has
	services    string                // where cluster IPs come from; "": serviceRange

	controllerFlags []string // of the controllers, likewise
}

// user is a name that the API server accepts with a token.
type user struct {
	file        string // of the kubeconfig, without its extension
	name, group string
	token       string
}

// newUser returns a user with a random token: with real Pods, an administrator can start programs on this machine.
func newUser(file, name, group string) user { return user{file, name, group, rand.Text()} }

// people are the users of every cluster.
func people() []user {
	return []user{newUser("admin", "admin", "system:masters"), newUser("agent", "contiv-agent", "contiv-agents")}
}

// alone are flags of an API server that nobody reaches by its Service, and of Pods without tokens.
var alone = []string{"--advertise-address", "192.0.2.1", "--endpoint-reconciler-type", "none", "--disable-admission-plugins", "ServiceAccount"}

// newCluster starts an etcd and an API server on loopback, with these flags beside those it always has, and waits until the latter is ready.
func newCluster(t tb, flags ...string) *cluster {
	t.Helper()
	c := &cluster{t: t, dir: t.TempDir(), address: "127.0.0.1", port: freePort(t), users: people(), more: slices.Concat(alone, flags)}
	c.begin()
	return c
}

// begin starts an etcd and an API server as the cluster's fields have it.
func (c *cluster) begin() {
	t := c.t
	t.Helper()
	users := ""
	for i, u := range c.users {
		users += fmt.Sprintf("%s,%s,%d,%s\n", u.token, u.name, i, u.group)
	}
	c.write("users.csv", users)
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	c.write("sa.key", string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})))
	c.etcd = fmt.Sprintf("http://127.0.0.1:%d", freePort(t))
	peers := fmt.Sprintf("http://127.0.0.1:%d", freePort(t))
	start(t, "etcd", exec.Command(built.cluster, "etcd", "--data-dir", c.path("etcd"), "--log-level", "error", "--unsafe-no-fsync",
		"--listen-client-urls", c.etcd, "--advertise-client-urls", c.etcd,
		"--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers, "--initial-cluster", "default="+peers))
	c.serve()
	for _, u := range c.users {
		c.kubeconfigOf(u.file, u.token)
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", c.path("admin.kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	cfg.QPS = -1
	cfg.AcceptContentTypes, cfg.ContentType = "application/vnd.kubernetes.protobuf,application/json", "application/vnd.kubernetes.protobuf"
	if c.client, err = kubernetes.NewForConfig(cfg); err != nil {
		t.Fatal(err)
	}
	c.ready()
}

func (c *cluster) path(name string) string { return filepath.Join(c.dir, name) }

func (c *cluster) write(name, text string) {
	c.t.Helper()
	if err := os.WriteFile(c.path(name), []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
}

// serve starts the API server; after its end again, with the same port, certificate and etcd.
func (c *cluster) serve() {
	c.t.Helper()
	args := append([]string{
		"kube-apiserver",
		"--etcd-servers", c.etcd, "--cert-dir", c.path("certs"), "--bind-address", c.address, "--secure-port", fmt.Sprint(c.port),
		"--token-auth-file", c.path("users.csv"), "--authorization-mode", "Node,RBAC",
		"--service-cluster-ip-range", cmp.Or(c.services, serviceRange), "--service-account-issuer", "https://kubernetes.default.svc",
		"--service-account-key-file", c.path("sa.key"), "--service-account-signing-key-file", c.path("sa.key"), "--allow-privileged",
	}, c.more...)
	c.api = start(c.t, "kube-apiserver", exec.Command(built.cluster, args...))
	key := c.path("certs/apiserver.key") // it is written after the certificate, of which clients would trust a part otherwise
	eventually(c.t, "key of the API server", func() error { _, err := os.Stat(key); return err }, c.api)
}

// serviceRange is where cluster IPs come from.
const serviceRange = "10.96.0.0/16"

// ready waits until the API server says so.
func (c *cluster) ready() {
	c.t.Helper()
	eventually(c.t, "API server", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second) // a server that starts may leave a request without an answer
		defer cancel()
		return c.client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	}, c.api)
}

// kubeconfigOf writes <name>.kubeconfig, for who shows that token.
func (c *cluster) kubeconfigOf(name, token string) {
	c.t.Helper()
	c.write(name+".kubeconfig", fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: it
clusters: [{name: it, cluster: {server: "https://%s:%d", certificate-authority: %q}}]
users: [{name: it, user: {token: %q}}]
contexts: [{name: it, context: {cluster: it, user: it}}]
`, c.address, c.port, c.path("certs/apiserver.crt"), token))
}

// controllers are those that make Pods and EndpointSlices.
const controllers = "endpointslice-controller,serviceaccount-controller,namespace-controller,deployment-controller," +
	"replicaset-controller,statefulset-controller,garbage-collector-controller,service-cidr-controller"

// control starts the controllers, and these beside those that every cluster has.
func (c *cluster) control(more ...string) {
	c.t.Helper()
	c.controllers = start(c.t, "kube-controller-manager", exec.Command(built.cluster, append([]string{
		"kube-controller-manager", "--kubeconfig", c.path("admin.kubeconfig"), "--bind-address", "127.0.0.1", "--secure-port", fmt.Sprint(freePort(c.t)), "--cert-dir", c.path("kcm"),
		"--leader-elect=false", "--service-account-private-key-file", c.path("sa.key"), "--root-ca-file", c.path("certs/apiserver.crt"),
		"--kube-api-qps", "500", "--kube-api-burst", "1000",
		"--controllers", strings.Join(append([]string{controllers}, more...), ","),
	}, c.controllerFlags...)...))
}

// schedule starts the scheduler.
func (c *cluster) schedule() *process {
	c.t.Helper()
	return start(c.t, "kube-scheduler", exec.Command(built.cluster, "kube-scheduler", "--kubeconfig", c.path("admin.kubeconfig"),
		"--authentication-kubeconfig", c.path("admin.kubeconfig"), "--authorization-kubeconfig", c.path("admin.kubeconfig"),
		"--bind-address", "127.0.0.1", "--secure-port", fmt.Sprint(freePort(c.t)), "--leader-elect=false",
		"--kube-api-qps", "500", "--kube-api-burst", "1000"))
}

// controlAgain ends the controllers and starts them anew, as happens to those that are elected and lose their lease while the API server
// is away. These would go on, but what failed then they may try again minutes later only.
func (c *cluster) controlAgain() {
	c.t.Helper()
	c.controllers.kill()
	c.control()
}

// kubectl runs kubectl as who may do everything, with this on its standard input, and returns what it says.
func (c *cluster) kubectl(stdin *os.File, args ...string) string {
	c.t.Helper()
	cmd := exec.Command(built.cluster, append([]string{"kubectl", "--kubeconfig", c.path("admin.kubeconfig")}, args...)...)
	cmd.Stdin = stdin
	out, err := cmd.CombinedOutput()
	if err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			c.t.Fatal(err)
		}
		c.t.Fatalf("kubectl %q: %v\n%s", args, err, out)
	}
	return string(out)
}
