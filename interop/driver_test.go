package interop

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/contiv-agent/contiv-agent/sim/cni"
)

// story is a real Felix with our dataplane driver.
type story struct {
	*stage
	vpp    *simulated
	driver string // the program Felix starts
	config string // its file
	socket string // its status socket
}

// newStory starts a Typha with the namespace prod, and prepares a driver that is not yet started.
func newStory(t *testing.T) *story { t.Helper(); return newStoryOf(t, newSimulated(t), "") }

// newStoryOf is newStory with a given VPP and more of the driver's configuration.
func newStoryOf(t *testing.T, v *simulated, more string) *story {
	t.Helper()
	dir := t.TempDir()
	s := &story{
		stage: newStage(t), vpp: v, driver: filepath.Join(dir, "contiv-felix-driver"),
		config: filepath.Join(dir, "driver.yaml"), socket: filepath.Join(dir, "status.sock"),
	}
	file := fmt.Sprintf("node: %s\nvpp: {socket: %s}\ninterfaces: {uplink: %s, overlay: %s, host: %s, hostAddresses: [%s]}\n"+
		"statusSocket: %s\nlisten: none\njournal: none\nlog: {level: debug}\n%s",
		node1, s.vpp.socket, cni.Uplink, cni.Overlay, cni.Host, cni.HostLink, s.socket, more)
	if err := os.WriteFile(s.config, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(product(t), s.driver); err != nil {
		t.Fatal(err)
	}
	allow := []object{{"action": "allow"}}
	s.put("/calico/v1/policy/profile/kns.prod/rules", object{"inbound_rules": allow, "outbound_rules": allow})
	return s
}

// run starts Felix, and with it the driver.
func (s *story) run() { s.t.Helper(); s.start(s.driver, "CONTIV_FELIX_DRIVER_CONFIG="+s.config) }

// pod adds a pod to the VPP and to the datastore.
func (s *story) pod(name, addr string) {
	s.t.Helper()
	s.vpp.plumb(name, addr)
	s.put(podKey("prod/"+name), podValue(addr, map[string]string{"app": name}))
}

// admit is a policy that lets only some pods dial a pod's port 80.
func (s *story) admit(policy, pod string, clients ...string) {
	s.t.Helper()
	s.put(policyKeyOf("prod/knp.default."+policy), object{
		"namespace": "prod", "order": 1000, "selector": fmt.Sprintf("app == '%s'", pod), "types": []string{"ingress"},
		"inbound_rules": []object{{
			"action": "allow", "protocol": "tcp", "dst_ports": []int{80},
			"src_selector": fmt.Sprintf("app in { '%s' }", strings.Join(clients, "', '")),
		}},
	})
}

// up waits until Felix's datastore says that a pod's endpoint is up.
func (s *story) up(names ...string) {
	s.t.Helper()
	for _, name := range names {
		s.reported(fmt.Sprintf(podStatus, "prod%2f"+name), "up")
	}
}

// forget removes all statuses from Felix's datastore, so that later ones are new. It returns the revision.
func (s *story) forget() int64 {
	s.t.Helper()
	reply, err := s.store.Delete(context.Background(), "/calico/felix/", clientv3.WithPrefix())
	if err != nil {
		s.t.Fatal(err)
	}
	return reply.Header.Revision
}

// never checks that no endpoint had a status at any time since a revision.
func (s *story) never(status string, since int64) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	now, err := s.store.Get(ctx, "/")
	if err != nil {
		s.t.Fatal(err)
	}
	watch := s.store.Watch(ctx, "/calico/felix/", clientv3.WithPrefix(), clientv3.WithRev(since+1), clientv3.WithProgressNotify())
	if err := s.store.RequestProgress(ctx); err != nil {
		s.t.Fatal(err)
	}
	for reply := range watch {
		for _, ev := range reply.Events {
			if strings.Contains(string(ev.Kv.Value), `"status":"`+status+`"`) {
				s.t.Errorf("%s was %s for a while", ev.Kv.Key, ev.Kv.Value)
			}
		}
		if reply.Header.Revision >= now.Header.Revision {
			return
		}
	}
	s.t.Fatalf("etcd does not return its history: %v", ctx.Err())
}

// gone waits until Felix has ended, and its driver with it.
func (s *story) gone() {
	s.t.Helper()
	_ = s.felix.Wait() // with any result
	eventually(s.t, "the driver ends with its Felix", func() error {
		dirs, err := filepath.Glob("/proc/[0-9]*/exe")
		if err != nil {
			return err
		}
		for _, link := range dirs {
			raw, err := os.ReadFile(filepath.Join(filepath.Dir(link), "cmdline"))
			if err == nil && strings.HasPrefix(string(raw), s.driver) {
				return errors.New("it still runs: " + filepath.Dir(link))
			}
		}
		return nil
	})
}

// TestFelixDrivesUs is the life of a node under a real Felix.
func TestFelixDrivesUs(t *testing.T) {
	s := newStory(t)
	s.pod("web", "10.1.1.2")
	s.pod("client", "10.1.1.3")
	s.pod("other", "10.1.1.4")
	s.admit("web", "web", "client")
	s.inSync()
	open := []try{{"client", "web", 80, true}, {"other", "web", 80, true}, {"client", "web", 81, true}}
	shut := []try{{"client", "web", 80, true}, {"other", "web", 80, false}, {"client", "web", 81, false}, {"web", "other", 80, true}}
	s.vpp.now("before a Felix is there", open...)

	s.run()
	s.vpp.eventually("the policy is enforced", shut...)
	s.up("web", "client", "other")
	s.processStatus()

	// Updates flow.
	s.admit("web", "web", "client", "other")
	s.vpp.eventually("the policy admits another", try{"other", "web", 80, true}, try{"other", "web", 81, false})
	s.admit("web", "web", "client")
	s.vpp.eventually("and no longer", shut...)
	s.pod("late", "10.1.1.5")
	s.up("late")
	s.vpp.now("a late pod is under the policy", try{"late", "web", 80, false}, try{"late", "other", 80, true})
	s.remove(podKey("prod/late"))
	s.reported(fmt.Sprintf(podStatus, "prod%2flate"), "")
	s.vpp.unplumb("late")

	// A connection, and what VPP holds.
	syn, fate := s.vpp.dial("client", "web", 80)
	if !s.vpp.delivered(fate, "web") {
		t.Fatalf("%s: %v", syn, fate.Hops)
	}
	held := s.vpp.lists()
	goesOn := func(what string) {
		t.Helper()
		if got := s.vpp.lists(); got != held {
			t.Fatalf("%s: VPP holds\n%s\nbefore:\n%s", what, got, held)
		}
		s.vpp.now(what, shut...)
		reply := syn.Reply()
		if fate := s.vpp.Send(cni.PodInterface(podID("web")), reply); !s.vpp.delivered(fate, "client") {
			t.Fatalf("%s: the reply of a connection does not pass: %v", what, fate.Hops)
		}
	}

	ends := []struct {
		how string
		end func()
	}{
		{"Felix is killed", func() { s.felix.Signal(syscall.SIGKILL) }},
		{"Felix gets SIGTERM", func() { s.felix.Signal(syscall.SIGTERM) }},
		{"the driver is killed, and Felix ends itself", func() {
			for _, pid := range children(s.felix.cmd.Process.Pid, s.driver) {
				_ = syscall.Kill(pid, syscall.SIGKILL) // gone() reports it
			}
		}},
	}
	for _, e := range ends {
		e.end()
		s.gone()
		goesOn(e.how)
		s.vpp.ClearLog()
		since := s.forget()
		s.run()
		s.up("web", "client", "other")
		goesOn(e.how + ", and is back")
		s.never("down", since)
		if n := s.vpp.Writes(); n != 0 {
			t.Fatalf("Felix is back, nothing has changed, and VPP was written %d times: %v", n, s.vpp.written())
		}
	}

	// VPP restarts under the driver: all its configuration is restored.
	s.forget()
	s.vpp.Restart()
	s.vpp.eventually("VPP is back, and so are its lists", shut...)
	eventually(t, "VPP holds what it held", func() error {
		if got := s.vpp.lists(); got != held {
			return errors.New(got)
		}
		return nil
	})

	// Objects deleted while Felix was away are removed after its start.
	s.felix.Signal(syscall.SIGKILL)
	s.gone()
	s.remove(policyKeyOf("prod/knp.default.web"))
	s.run()
	s.vpp.eventually("the policy is gone", open...)
	s.up("web", "client", "other")
}

// TestFelixNotInSync: before Felix has all objects, the driver removes nothing from VPP.
func TestFelixNotInSync(t *testing.T) {
	s := newStory(t)
	s.pod("web", "10.1.1.2")
	s.pod("client", "10.1.1.3")
	s.pod("other", "10.1.1.4")
	s.admit("web", "web", "client")
	s.inSync()
	s.run()
	shut := []try{{"client", "web", 80, true}, {"other", "web", 80, false}}
	s.vpp.eventually("the policy is enforced", shut...)
	s.up("web", "client", "other")
	held := s.vpp.lists()
	s.felix.Signal(syscall.SIGKILL)
	s.gone()
	s.vpp.ClearLog()
	since := s.forget()

	s.serve()
	s.run()
	eventually(t, "the driver waits for the end of what there is", func() error {
		out, err := exec.Command(product(t), "status", "--status-socket", s.socket).CombinedOutput()
		if !strings.Contains(string(out), "waiting for in_sync") {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	s.vpp.now("Felix is not in sync", shut...)
	if n := s.vpp.Writes(); n != 0 || s.vpp.lists() != held {
		t.Fatalf("Felix is not in sync, and VPP was written %d times: %v", n, s.vpp.written())
	}
	s.inSync()
	s.up("web", "client", "other")
	s.never("down", since)
	if n := s.vpp.Writes(); n != 0 || s.vpp.lists() != held {
		t.Errorf("nothing has changed, and VPP was written %d times: %v", n, s.vpp.written())
	}
}

// TestFelixRestartsItself: a change of encapsulation makes Felix end and start again; VPP must not change.
func TestFelixRestartsItself(t *testing.T) {
	s := newStory(t)
	s.pod("web", "10.1.1.2")
	s.pod("client", "10.1.1.3")
	s.pod("other", "10.1.1.4")
	s.admit("web", "web", "client")
	s.inSync()
	s.run()
	shut := []try{{"client", "web", 80, true}, {"other", "web", 80, false}}
	s.vpp.eventually("the policy is enforced", shut...)
	s.up("web", "client", "other")
	held := s.vpp.lists()
	s.vpp.ClearLog()

	// Felix looks for pools in its datastore when it starts, and listens for them to Typha.
	s.keep("ippools/pods", `{"kind":"IPPool","apiVersion":"projectcalico.org/v3","metadata":{"name":"pods"},`+
		`"spec":{"cidr":"10.1.0.0/16","vxlanMode":"Always","ipipMode":"Never","natOutgoing":true}}`)
	s.put("/calico/v1/ipam/v4/pool/10.1.0.0-16", object{"cidr": "10.1.0.0/16", "vxlan_mode": "Always", "masquerade": true})
	s.gone()
	s.vpp.now("Felix ended because of a new pool", shut...)
	s.forget()
	s.run()
	s.up("web", "client", "other")
	s.vpp.now("and is back", shut...)
	if got := s.vpp.lists(); got != held {
		t.Errorf("VPP holds\n%s\nbefore:\n%s", got, held)
	}
	if n := s.vpp.Writes(); n != 0 {
		t.Errorf("VPP was written %d times: %v", n, s.vpp.written())
	}
}

// TestFelixHostEndpoint: a host endpoint's policy, and its status.
func TestFelixHostEndpoint(t *testing.T) {
	s := newStory(t)
	s.pod("web", "10.1.1.2")
	s.put("/calico/v1/host/"+node1+"/endpoint/uplink", object{"name": cni.Uplink, "labels": object{"role": "edge"}})
	s.put(policyKeyOf("no-telnet"), object{
		"order": 10, "selector": "role == 'edge'", "types": []string{"ingress"}, "apply_on_forward": true,
		"inbound_rules": []object{{"action": "deny", "protocol": "tcp", "dst_ports": []int{23}}, {"action": "allow"}},
	})
	s.inSync()
	s.run()
	s.up("web")
	s.reported(fmt.Sprintf(hostStatus, "uplink"), "up")
	outside := func(port uint16, want bool) error {
		s.vpp.port++
		p := tcp("203.0.113.9", s.vpp.port, "10.1.1.2", port)
		if fate := s.vpp.Send(cni.Uplink, p); s.vpp.delivered(fate, "web") != want {
			return fmt.Errorf("%s: it is to pass: %v; its way: %v", p, want, fate.Hops)
		}
		return nil
	}
	eventually(t, "the host endpoint's policy", func() error { return errors.Join(outside(23, false), outside(80, true)) })
	s.remove("/calico/v1/host/" + node1 + "/endpoint/uplink")
	eventually(t, "no host endpoint", func() error { return outside(23, true) })
	s.reported(fmt.Sprintf(hostStatus, "uplink"), "")
}

func (s *story) processStatus() {
	s.t.Helper()
	eventually(s.t, "the process's status", func() error {
		all, err := s.status()
		if err == nil && all[processStatus] == "" {
			err = fmt.Errorf("not among %v", all)
		}
		return err
	})
}

// serviceCIDR is an object that Calico's datastore has no key for.
const serviceCIDR = `
apiVersion: networking.k8s.io/v1
kind: ServiceCIDR
metadata: {name: kubernetes}
spec: {cidrs: [10.96.0.0/12]}
`

// TestFelixBetweenUs: Kubernetes objects go through our fan-out to a real Felix, and from there through our driver to VPP.
// Felix accepts all messages.
func TestFelixBetweenUs(t *testing.T) {
	s := newStory(t)
	for i, name := range []string{"web", "client", "other"} {
		s.vpp.plumb(name, fmt.Sprint("10.1.1.", i+2))
	}
	objects := newManifests(t)
	objects.write("cluster", clusterYAML)
	objects.write("cidr", serviceCIDR)
	s.addr = fmt.Sprint("127.0.0.1:", freePort(t))
	fanout := func() *Process {
		return start(t, "contiv-agent fanout", exec.Command(product(t), "fanout", "--listen", s.addr, "--manifests", objects.dir, "--metrics", "", "--drain", "0s"))
	}
	server := fanout()
	open := []try{{"client", "web", 80, true}, {"other", "web", 80, true}}
	shut := []try{{"client", "web", 80, true}, {"other", "web", 80, false}, {"client", "web", 81, false}, {"web", "other", 80, true}}
	s.run()
	s.up("web", "client", "other")
	s.vpp.now("no policy", open...)
	objects.write("policy", policyYAML("client"))
	s.vpp.eventually("a policy", shut...)
	objects.write("policy", policyYAML("other"))
	s.vpp.eventually("it admits another", try{"other", "web", 80, true}, try{"client", "web", 80, false})

	complaints := func(about ...string) {
		t.Helper()
		for _, line := range s.felix.Lines(about...) {
			t.Errorf("Felix complains: %s", line)
		}
	}
	objects.write("cidr", strings.Replace(serviceCIDR, "10.96", "10.112", 1))
	objects.write("policy", policyYAML("web"))
	s.vpp.eventually("it admits no other pod", try{"other", "web", 80, false})
	complaints("[ERROR]")

	// The server ends and returns; meanwhile the policy changes. Felix continues with its state, and then gets the change.
	server.Kill()
	objects.write("policy", policyYAML("client"))
	s.vpp.now("the server is away", try{"other", "web", 80, false}, try{"client", "web", 80, false})
	fanout()
	s.vpp.eventually("the server is back", shut...)
	if !s.felix.Running() || s.starts != 1 {
		t.Errorf("Felix ended because of the server")
	}
	objects.remove("cidr")
	objects.remove("policy")
	s.vpp.eventually("the policy is gone", open...)
	complaints("/contiv/", "deserialize") // it has lost its server meanwhile
}

// TestFelixBeforeVPP: a Felix that starts before VPP gets "down" for its endpoints, and "up" once VPP runs.
func TestFelixBeforeVPP(t *testing.T) {
	s := newStory(t)
	away := s.vpp.socket + ".away"
	if err := os.Rename(s.vpp.socket, away); err != nil {
		t.Fatal(err)
	}
	s.pod("web", "10.1.1.2")
	s.pod("client", "10.1.1.3")
	s.admit("web", "web", "client")
	s.inSync()
	s.run()
	s.reported(fmt.Sprintf(podStatus, "prod%2fweb"), "down")
	s.pod("late", "10.1.1.4")
	s.reported(fmt.Sprintf(podStatus, "prod%2flate"), "down")
	if err := os.Rename(away, s.vpp.socket); err != nil {
		t.Fatal(err)
	}
	s.up("web", "client", "late")
	s.vpp.now("VPP is there", try{"client", "web", 80, true}, try{"late", "web", 80, false})
}
