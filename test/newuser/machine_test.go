package newuser

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// cluster has two namespaces, and a policy that keeps one from the other. They stand beside the guestbook.
const cluster = `
apiVersion: v1
kind: Namespace
metadata: {name: dev, labels: {kubernetes.io/metadata.name: dev}}
---
apiVersion: v1
kind: Namespace
metadata: {name: prod, labels: {kubernetes.io/metadata.name: prod}}
---
apiVersion: v1
kind: Pod
metadata: {name: a, namespace: dev}
spec: {nodeName: node-1, containers: [{name: a, image: a}]}
status: {phase: Running, podIP: 10.1.1.200, podIPs: [{ip: 10.1.1.200}]}
---
apiVersion: v1
kind: Pod
metadata: {name: b, namespace: prod}
spec: {nodeName: node-1, containers: [{name: b, image: b}]}
status: {phase: Running, podIP: 10.1.1.201, podIPs: [{ip: 10.1.1.201}]}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: own, namespace: prod}
spec: {podSelector: {}, ingress: [{from: [{podSelector: {}}]}]}
`

// machine is a node in separate namespaces: a simulated VPP and an agent with its manifests at their usual addresses, an empty /usr/local/bin, and a kubectl that
// knows one pod, the node's. It executes each command, and writes its output and its exit code.
const machine = `
mount -t tmpfs tmpfs /run && mkdir -p /run/vpp /run/contiv-agent && mount -t tmpfs tmpfs /usr/local/bin && hostname node-1 || exit 99
cat >/usr/local/bin/kubectl <<'EOF'
#!/bin/bash
case " $* " in
" contiv "*) shift; exec kubectl-contiv "$@" ;;
*" get pods "*) echo '{"items":[{"metadata":{"name":"vswitch"},"spec":{"nodeName":"node-1"},"status":{"phase":"Running"}}]}' ;;
*" exec "*) while [ "$1" != -- ]; do shift; done; shift; exec "$(basename "$1")" "${@:2}" ;;
*) exit 98 ;;
esac
EOF
chmod 755 /usr/local/bin/kubectl
contiv-agent sim --socket /run/vpp/api.sock --manifests cluster >sim.log 2>&1 &
until [ -S /run/vpp/api.sock ]; do sleep 0.1; done
contiv-agent run --manifests cluster --uplink uplink --overlay overlay --host-interface host --host-address 169.254.1.2 --flows 1s --listen '' >agent.log 2>&1 &
contiv-agent status --wait 30s >ready || { cat ready sim.log agent.log; exit 99; }
for file in commands/*; do
  timeout --preserve-status -s INT "$(grep -q ' -f' "$file" && echo 1 || echo 20)" bash -o pipefail "$file" >out 2>&1 </dev/null
  code=$?
  echo "== $file $code"
  cat out
done
`

// machineRuns reports whether the machine's kubectl knows the command: it passes commands to the agent's pod, and starts the plugin.
func machineRuns(command string) bool {
	return regexp.MustCompile(`^kubectl (-n \S+ exec |contiv status)`).MatchString(command)
}

// follows reports whether a command ends when it is stopped, perhaps without output: nobody sends packets in the machine.
func follows(command string) bool { return strings.HasPrefix(command, "contiv-agent flows") }

// TestDocs executes the commands of the pages that need no cluster, in their order.
func TestDocs(t *testing.T) {
	if os.Getenv("CONTIV_NEWUSER") == "" {
		t.Skip("it builds the agent: make newuser")
	}
	top, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	build := exec.CommandContext(t.Context(), "make", "build")
	build.Dir = top
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("make build: %v\n%s", err, out)
	}
	dir := t.TempDir()
	errs := []error{
		os.Symlink(filepath.Join(top, "examples"), filepath.Join(dir, "examples")), os.Mkdir(filepath.Join(dir, "commands"), 0o700),
		os.CopyFS(filepath.Join(dir, "cluster"), os.DirFS(filepath.Join(top, "examples/guestbook"))), os.WriteFile(filepath.Join(dir, "cluster", "all.yaml"), []byte(cluster), 0o600),
	}
	run, _ := remaining(t)
	for i, command := range run {
		errs = append(errs, os.WriteFile(filepath.Join(dir, "commands", fmt.Sprintf("%03d", i)), []byte(command+"\n"), 0o600))
	}
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if err := exec.CommandContext(t.Context(), "unshare", "-Urmupf", "--kill-child", "true").Run(); err != nil {
		t.Skipf("no namespaces for a machine: unshare: %v", err)
	}
	cmd := exec.CommandContext(t.Context(), "unshare", "-Urmupf", "--kill-child", "bash", "-c", machine)
	cmd.Dir, cmd.Env, cmd.WaitDelay = dir, append(os.Environ(), "PATH="+filepath.Join(top, "bin")+":/usr/local/bin:"+os.Getenv("PATH")), time.Minute
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	parts := regexp.MustCompile(`(?m)^== commands/\d+ (\d+)\n`).Split(string(out), -1)
	codes := regexp.MustCompile(`(?m)^== commands/\d+ (\d+)\n`).FindAllStringSubmatch(string(out), -1)
	if len(codes) != len(run) {
		t.Fatalf("%d of %d commands ended:\n%s", len(codes), len(run), out)
	}
	for i, command := range run {
		said := parts[i+1]
		t.Logf("exit code %s, %d bytes  %s", codes[i][1], len(said), command)
		if code := codes[i][1]; code != "0" || said == "" && !follows(command) && !strings.HasPrefix(command, "ln ") {
			t.Errorf("%s: exit code %s\n%s", command, code, said)
		}
	}
}
