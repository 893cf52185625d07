package realvpp

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/agent/control"
)

// fullNode is the number of pods that a kubelet runs by default at most.
const fullNode = 110

// ownPart is the most that the agent may take a processor for when VPP has restarted with so many pods.
const ownPart = 300 * time.Millisecond

// TestVPPPodNetworkCrowd restarts VPP below a node full of pods, and measures the time to the first packet of the last pod; then once more while all pods
// send, and measures it for each pod.
func TestVPPPodNetworkCrowd(t *testing.T) {
	c := openPodCluster(t, theVPP(t))
	n := c.nodes[0]
	if !isSimulated(n.path) {
		n.preload = epollLibrary(t)
		n.kill()
		c.check(n.start())
	}
	c.until("STATUS", func() error { return n.client().Status(t.Context()) })
	begin := time.Now()
	var pods []*podOf
	for i := range fullNode {
		pods = append(pods, c.attach(n, fmt.Sprintf("p%d", i), "web"))
	}
	first, last := pods[0], pods[fullNode-1]
	t.Logf("%d pods attached one after the other in %s", fullNode, time.Since(begin).Round(time.Millisecond))
	c.serve(last.netns, "last", 8080)
	c.serve(n.ns, "node", 9000)
	c.reaches("first to last", first.netns, hostPort(last.addr(false), 8080), "last sees")
	before := c.restartVPP(n)
	begin = time.Now()
	c.inTime(n)
	for {
		if _, err := ask(first.netns, hostPort(last.addr(false), 8080), 100*time.Millisecond); err == nil {
			break
		}
		if time.Since(begin) > patience {
			t.Fatalf("%sno packet arrives", c.tails())
		}
	}
	t.Logf("from VPP's socket to the first connection between two of %d pods: %s", fullNode, time.Since(begin).Round(time.Millisecond))
	c.logRestart(n, before)
	if !isSimulated(n.path) { // it is too slow for connections that pods give up after 100 ms
		c.busy(n, pods)
	}
}

// restartVPP kills VPP and starts it again. It returns the agent's processor time until then.
func (c *podCluster) restartVPP(n *podNode) time.Duration {
	c.t.Helper()
	begin := time.Now()
	n.kill()
	killed := time.Since(begin)
	c.check(n.start())
	c.t.Logf("VPP's process ended after %s, and the next VPP has its socket %s later", killed.Round(time.Millisecond), (time.Since(begin) - killed).Round(time.Millisecond))
	return processorTime(n.agent.Process.Pid)
}

// processorTime is the time that all threads of a process have had a processor.
func processorTime(pid int) (sum time.Duration) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	for _, f := range files {
		b, _ := os.ReadFile(f) // the thread may have ended
		ns, _ := strconv.ParseInt(strings.Fields(string(b) + " 0")[0], 10, 64)
		sum += time.Duration(ns)
	}
	return sum
}

// logRestart logs the last restart's transactions, and what the agent and VPP took a processor for.
func (c *podCluster) logRestart(n *podNode, before time.Duration) {
	c.t.Helper()
	own := processorTime(n.agent.Process.Pid) - before
	of := processorTime(n.cmd.Process.Pid)
	c.t.Logf("processor time since VPP's socket: the agent %s, VPP %s", own.Round(time.Millisecond), of.Round(time.Millisecond))
	most := ownPart
	if isSimulated(n.path) { // its own time says how slow the machine is: the agent takes 1.1 to 1.4 times as long
		most = max(most, 2*of)
	}
	if own > most {
		c.t.Errorf("the agent took a processor for %s, at most %s are wanted", own, most)
	}
	st, err := control.FetchStatus(c.t.Context(), n.status(), true)
	c.check(err)
	for _, txn := range slices.Backward(st.History) {
		if txn.Cause == "connected" && txn.Add > 0 {
			c.t.Logf("the agent's transaction: %d values, %d requests, %s", txn.Add, txn.Writes, txn.Took)
			return
		}
	}
}

// busy restarts VPP while each pod connects to its node again and again.
func (c *podCluster) busy(n *podNode, pods []*podOf) {
	c.t.Helper()
	before := c.restartVPP(n)
	begin := time.Now()
	served := make([]time.Duration, len(pods))
	var all sync.WaitGroup
	for i, p := range pods {
		all.Go(func() { served[i] = p.served(n.addr+":9000", begin) })
	}
	all.Wait()
	slices.Sort(served)
	if served[0] == 0 {
		c.t.Errorf("%s%d of %d pods that send are not served within %s", c.tails(), slices.IndexFunc(served, func(d time.Duration) bool { return d > 0 }), len(pods), patience)
		return
	}
	ms := func(i int) time.Duration { return served[i].Round(time.Millisecond) }
	c.t.Logf("from VPP's socket to the first connection of each of %d pods that send: first %s, half %s, 90 %% %s, last %s", len(pods), ms(0), ms(len(served)/2), ms(len(served)*9/10), ms(len(served)-1))
	c.logRestart(n, before)
}

// served connects until an answer arrives, and returns the time since begin; 0: none arrived.
func (p *podOf) served(to string, begin time.Time) time.Duration {
	for time.Since(begin) < patience {
		limit := 100 * time.Millisecond
		if time.Since(begin) > 5*time.Second { // the machine is too busy for so many connections
			limit = 2 * time.Second
		}
		if line, err := ask(p.netns, to, limit); err == nil && strings.Contains(line, p.addr(false).String()) {
			return time.Since(begin)
		}
	}
	return 0
}
