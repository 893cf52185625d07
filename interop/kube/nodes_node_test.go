//go:build nodes

package kube

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/interop/kube/netns"
)

// nodesPossible returns why this machine cannot have nodes with the real kubelet; nil: it can.
func nodesPossible() error {
	if os.Getuid() != 0 {
		return errors.New("nodes need root")
	}
	if err := netns.Possible(); err != nil {
		return err
	}
	for _, program := range []string{"unshare", "nsenter", "mount", "sh", "hostname", "nft", "find", "ldd"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("nodes need the program %s: %w", program, err)
		}
	}
	for _, controller := range []string{"cpu", "cpuacct", "cpuset", "devices", "freezer", "memory", "pids"} {
		_, err := os.Stat("/sys/fs/cgroup/" + controller + "/tasks")
		if probe := "/sys/fs/cgroup/" + controller + "/contiv-probe"; err == nil {
			_ = os.Remove(probe) // of a process that was killed
			err = errors.Join(os.Mkdir(probe, 0o700), os.Remove(probe))
		}
		if err != nil {
			return fmt.Errorf("the nodes' kubelets and runc need the controllers of cgroup v1: %w", err)
		}
	}
	dir, err := os.MkdirTemp("", "contiv-overlay-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	const overlay = `cd "$1" && mkdir lower upper work all && mount -t overlay -o lowerdir=lower,upperdir=upper,workdir=work overlay all && touch all/file`
	if out, err := exec.Command("unshare", "--mount", "sh", "-c", overlay, "sh", dir).CombinedOutput(); err != nil {
		return fmt.Errorf("nodes and containerd need overlay file systems in %s: %w: %s", os.TempDir(), err, out)
	}
	return nil
}

// realNode is a node with the real kubelet, containerd and runc, in namespaces of network, mounts and host name.
type realNode struct {
	*siteNode
	init       *process // the node's namespaces exist as long as it
	containerd *process
	programs   string // folder
}

// cgroupsOf is where the cgroups of all nodes are, in each of the kernel's hierarchies.
const cgroupsOf = "contiv-nodes"

// boot gives a node what a bare machine has: folders that programs of other nodes do not see, and cgroups.
//
// The folders of a node are below its dir: var/lib, var/log, opt, and what it changes of /etc. /run is new, and its mounts are shared, as on a machine.
// The settings of the kernel that a kubelet changes are files of the node: all nodes and this machine have one kernel.
const boot = `
hostname "$NODE"
mount --make-rprivate /
mkdir -p "$DIR/var/lib" "$DIR/var/log" "$DIR/opt" "$DIR/etc" "$DIR/etc.work"
mount -t tmpfs -o mode=755 tmpfs /run
mount --bind "$DIR/var/lib" /var/lib
mount --bind "$DIR/var/log" /var/log
mount --bind "$DIR/opt" /opt
mount -t overlay -o "lowerdir=/etc,upperdir=$DIR/etc,workdir=$DIR/etc.work" overlay /etc
for f in vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops kernel/keys/root_maxkeys kernel/keys/root_maxbytes; do
	mkdir -p "$DIR/sys/${f%/*}"
	cat "/proc/sys/$f" >"$DIR/sys/$f"
	mount --bind "$DIR/sys/$f" "/proc/sys/$f"
done
mount --make-rshared /
for c in /sys/fs/cgroup/*/tasks; do
	for d in "${c%/tasks}/` + cgroupsOf + `" "${c%/tasks}/` + cgroupsOf + `/$NODE"; do
		mkdir -p "$d"
		if [ -e "$d/cpuset.cpus" ]; then
			cat "${d%/*}/cpuset.cpus" >"$d/cpuset.cpus"
			cat "${d%/*}/cpuset.mems" >"$d/cpuset.mems"
		fi
	done
done
touch "$DIR/booted"
exec sleep infinity
`

func (s *realSite) boot(n *realNode) {
	s.t.Helper()
	n.init = launch(s.t, "init of "+n.name, netns.Program{
		Netns: n.netns, Args: []string{"unshare", "--mount", "--uts", "sh", "-ec", boot}, Env: append(os.Environ(), "DIR="+n.dir, "NODE="+n.name),
	})
	eventually(s.t, n.name+" has booted", func() error { _, err := os.Stat(n.file("booted")); return err }, n.init)
}

// inside is a program with the node's network and files.
func (n *realNode) inside(args ...string) netns.Program {
	enter := []string{"nsenter", fmt.Sprintf("--mount=/proc/%d/ns/mnt", n.init.pid()), fmt.Sprintf("--uts=/proc/%d/ns/uts", n.init.pid()), "--"}
	return netns.Program{Netns: n.netns, Args: append(enter, args...), Env: []string{"PATH=" + n.programs + ":" + os.Getenv("PATH")}}
}

// run runs a program on the node, and returns what it writes.
func (n *realNode) run(args ...string) (string, error) {
	var out strings.Builder
	cmd, err := n.inside(args...).Start(func(cmd *exec.Cmd) { cmd.Stdout, cmd.Stderr = &out, &out })
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		err = fmt.Errorf("%s: %q: %w: %s", n.name, args, err, out.String())
	}
	return out.String(), err
}

// containerdConfig is that of a node without AppArmor and without the right to lower oom_score_adj.
const containerdConfig = `
version = 3
disabled_plugins = ["io.containerd.nri.v1.nri"]
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "docker.io/library/pause:e2e"
[plugins."io.containerd.cri.v1.runtime"]
  disable_apparmor = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["/opt/cni/bin"]
    conf_dir = "/etc/cni/net.d"
    use_internal_loopback = true
`

// startContainerd starts it, after its end again.
func (s *realSite) startContainerd(n *realNode) {
	s.t.Helper()
	if err := os.WriteFile(n.file("containerd.toml"), []byte(containerdConfig), 0o600); err != nil {
		s.t.Fatal(err)
	}
	n.containerd = launch(s.t, "containerd of "+n.name, n.inside("containerd", "--config", n.file("containerd.toml")))
	eventually(s.t, "containerd of "+n.name, func() error { _, err := n.run("ctr", "version"); return err }, n.containerd)
}

// load imports images.
func (s *realSite) load(n *realNode, archives []string) {
	s.t.Helper()
	for _, file := range archives {
		if _, err := n.run("ctr", "-n", "k8s.io", "images", "import", "--local", file); err != nil {
			s.t.Fatal(err)
		}
	}
}

// startRealKubelet starts it, after its end again.
func (s *realSite) startRealKubelet(n *realNode) {
	s.t.Helper()
	config := fmt.Sprintf(`kind: KubeletConfiguration
apiVersion: kubelet.config.k8s.io/v1beta1
address: %s
authentication: {anonymous: {enabled: false}, webhook: {enabled: false}, x509: {clientCAFile: %q}}
authorization: {mode: AlwaysAllow}
tlsCertFile: %q
tlsPrivateKeyFile: %q
cgroupDriver: cgroupfs
cgroupRoot: /%s/%s
failCgroupV1: false
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
enforceNodeAllocatable: []
evictionHard: {nodefs.available: 0%%, nodefs.inodesFree: 0%%, imagefs.available: 0%%, imagefs.inodesFree: 0%%, memory.available: 0%%}
failSwapOn: false
imageGCHighThresholdPercent: 100
imagePullCredentialsVerificationPolicy: NeverVerify
localStorageCapacityIsolation: false
makeIPTablesUtilChains: false
nodeStatusUpdateFrequency: 2s
oomScoreAdj: 0
clusterDNS: [10.96.0.10]
clusterDomain: cluster.local
resolvConf: ""
syncFrequency: 10s
`, n.address, s.path("kubelet-ca.crt"), s.path(n.name+".crt"), s.path(n.name+".key"), cgroupsOf, n.name)
	if err := os.WriteFile(n.file("kubelet.yaml"), []byte(config), 0o600); err != nil {
		s.t.Fatal(err)
	}
	n.kubelet = launch(s.t, "kubelet of "+n.name, n.inside("kubelet", "--config", n.file("kubelet.yaml"), "--kubeconfig", s.path(n.name+".kubeconfig"),
		"--hostname-override", n.name, "--node-ip", n.address, "--cert-dir", n.file("kubelet-certs")))
}

// keepMachine removes the cgroups of nodes when the test ends, and examines whether the kernel has other settings than before.
func keepMachine(t *testing.T) {
	t.Helper()
	for _, name := range []string{"vm/overcommit_memory", "kernel/panic", "kernel/panic_on_oops"} {
		was, _ := os.ReadFile("/proc/sys/" + name) // empty twice, if it does not exist
		t.Cleanup(func() {
			if now, _ := os.ReadFile("/proc/sys/" + name); string(now) != string(was) {
				t.Errorf("%s was %s and is %s", name, was, now)
			}
		})
	}
	t.Cleanup(func() {
		roots, _ := filepath.Glob("/sys/fs/cgroup/*/" + cgroupsOf) // the pattern has no error
		for _, root := range roots {
			removeCgroup(root)
		}
	})
}

// removeCgroup removes a cgroup and those in it. Its processes have ended.
func removeCgroup(dir string) {
	inner, _ := filepath.Glob(dir + "/*/") // the pattern has no error
	for _, dir := range inner {
		removeCgroup(dir)
	}
	_ = os.Remove(dir) // an empty cgroup that stays harms nobody
}
