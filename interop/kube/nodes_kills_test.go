//go:build nodes

package kube

import (
	"math/rand/v2"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/interop/kube/netns"
)

// Environment variables: the number of kills ("": 6), and the seed of the first ("": 0).
const (
	killsOf = "CONTIV_NODES_KILLS"
	seedOf  = "CONTIV_NODES_SEED"
)

// victims are the programs that a kill ends. The kubelet starts agent and VPP again and the runtime repeats the call of a plugin; this test starts containerd and kubelet.
var victims = []string{"containerd", "kubelet", "contiv-agent", "vpp", "contiv-cni"}

// patient is how long a kill looks for its program: some start late, and the plugin runs briefly.
const patient = 4 * time.Second

// programsAreKilled kills a program in the middle of an install, of the deletion of a pod, or of a removal; step, program, node and time follow from a seed. Each time all paths
// open again by themselves, and nothing is left.
func programsAreKilled(t *testing.T, s *realSite) {
	kills, first := numberOf(t, killsOf, 6), numberOf(t, seedOf, 0)
	s.kubectl(nil, "delete", "pod", "--all", "--wait") // no DaemonSet makes those of earlier parts again
	s.whole(t)
	steps := []struct {
		name   string
		latest time.Duration                  // a kill comes then after the step began, or earlier
		do     func(n *realNode, kill func()) // returns when all is as before
	}{
		{"a pod is deleted", 4 * time.Second, func(n *realNode, kill func()) {
			gone := s.on(t, n.name, "web").Name
			s.kubectl(nil, "delete", "pod", gone, "--wait=false")
			kill()
			s.kubectl(nil, "wait", "--for=delete", "pod/"+gone, "--timeout=300s")
			s.whole(t)
		}},
		{"install", 4 * time.Second, func(_ *realNode, kill func()) {
			s.withoutPods(t)
			s.kubectl(nil, "delete", "-k", s.path("install"), "--wait=false")
			s.removed(t) // the step before may have killed an agent a moment ago
			s.install(t, "standalone")
			kill()
			s.allReady(t)
			s.deployWeb(t)
			s.whole(t)
		}},
		{"removal", time.Second, func(_ *realNode, kill func()) {
			s.withoutPods(t)
			s.kubectl(nil, "delete", "-k", s.path("install"), "--wait=false")
			kill()
			s.removed(t)
			s.installedAgain(t)
		}},
	}
	missed := 0
	for seed := first; seed < first+kills; seed++ {
		r := rand.New(rand.NewPCG(uint64(seed), 0))
		step, victim, n := steps[seed%len(steps)], victims[r.IntN(len(victims))], s.real[r.IntN(len(s.real))]
		after := time.Duration(r.Int64N(int64(step.latest)))
		found := 0
		began := time.Now()
		step.do(n, func() {
			time.Sleep(after)
			found = s.kills(t, n, victim)
		})
		t.Logf("seed %d: %s, %d × %s killed on %s after %s: whole again %s later", seed, step.name, found, victim, n.name, after.Round(time.Millisecond),
			(time.Since(began) - after).Round(time.Second/10))
		if t.Failed() {
			return
		}
		if found == 0 {
			missed++
		}
	}
	if t.Logf("%d kills, of which %d found no program to end", kills, missed); 2*missed > kills {
		t.Errorf("%d of %d kills found no program", missed, kills)
	}
}

// numberOf is that of an environment variable.
func numberOf(t *testing.T, name string, or int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return or
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// kills ends a program of a node, as soon as it runs; the programs of an operating system start again. It returns how many it found: a plugin runs briefly.
func (s *realSite) kills(t *testing.T, n *realNode, victim string) (found int) {
	t.Helper()
	switch victim {
	case "containerd":
		n.containerd.kill()
		s.startContainerd(n)
		return 1
	case "kubelet":
		n.kubelet.kill()
		s.startRealKubelet(n)
		return 1
	}
	for end := time.Now().Add(patient); found == 0 && time.Now().Before(end); time.Sleep(time.Millisecond) {
		all, err := netns.Processes(n.netns, victim)
		if err != nil {
			t.Fatal(err)
		}
		for _, pid := range all {
			if syscall.Kill(pid, syscall.SIGKILL) == nil {
				found++
			}
		}
	}
	return found
}

// removed waits until all nodes are as before the install. The node of an agent that was killed while it cleaned needs deploy/remove, as install.md says.
func (s *realSite) removed(t *testing.T) {
	t.Helper()
	s.kubectl(nil, "wait", "--for=delete", "namespace/"+system, "--timeout=300s")
	clean := func() (err error) {
		for _, n := range s.real {
			if err == nil {
				err = same(s.before[n.name], n.answers(t), false)
			}
		}
		return err
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Second) {
		if clean() == nil {
			return
		}
		if time.Now().After(end) {
			break
		}
	}
	t.Log("deploy/remove cleans the rest")
	s.clean(t)
	s.kubectl(nil, "-n", "contiv-remove", "rollout", "status", "daemonset/contiv-remove", "--timeout=300s")
	s.kubectl(nil, "delete", "-k", s.path("clean"), "--wait")
	s.asBefore(t, false)
}
