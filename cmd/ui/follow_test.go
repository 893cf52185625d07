package ui

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	agentflows "github.com/contiv-agent/contiv-agent/agent/flows"
	"github.com/contiv-agent/contiv-agent/cmd/kubectl"
	"github.com/contiv-agent/contiv-agent/flows"
	"github.com/contiv-agent/contiv-agent/ui/watch"
)

// streaming is a kubectl whose agents' flows are lines of the files that $FLOWS names, one file after the other. A command that follows prints the first file
// that exists, waits until the next one exists, and ends when its input ends, or with a file "stop". Each command that reads all flows is noted.
const streaming = `#!/bin/sh
case "$*" in
*"get pods"*) echo '{"items":[{"metadata":{"name":"vswitch-a"},"spec":{"nodeName":"node-1"},"status":{"phase":"Running"}}]}';;
*"--follow --answers --until-input-ends")
	echo "$*" >> "$FLOWS/streams"
	[ -e "$FLOWS/old" ] && { echo "unknown flag: --answers" >&2; exit 2; }
	exec 3<&0
	(cat <&3; kill $$) > /dev/null 2>&1 &
	for n in 1 2 3; do
		while ! [ -e "$FLOWS/$n" ]; do sleep 0.02; [ -e "$FLOWS/stop" ] && { echo "no agent answers" >&2; exit 1; }; done
		cat "$FLOWS/$n"
	done
	while :; do sleep 0.02; [ -e "$FLOWS/stop" ] && exit 0; done;;
*"flows --output=json") echo "$*" >> "$FLOWS/reads"; echo '{"node":"node-1","flows":[{"number":7,"port":80}],"next":7}';;
*) echo "unexpected: $*" >&2; exit 2;;
esac
`

// clustered is a cluster whose only node has flows as the test writes them.
type clustered struct {
	*cluster
	t   *testing.T
	dir string
}

func follows(t *testing.T) *clustered {
	t.Helper()
	dir := t.TempDir()
	program := filepath.Join(dir, "kubectl")
	if err := os.WriteFile(program, []byte(streaming), 0o700); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	t.Setenv("KUBECTL", program)
	t.Setenv("FLOWS", dir)
	agents := &kubectl.Agents{Namespace: "n", Selector: "s", Container: "c", Program: "contiv-agent"}
	c := &clustered{&cluster{agents: agents, now: time.Now, follow: newFollowed(agents, time.Now)}, t, dir}
	t.Cleanup(c.follow.stop)
	if _, err := c.Nodes(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

// write makes a file that appears with its whole text.
func (c *clustered) write(name, text string) {
	c.t.Helper()
	tmp := filepath.Join(c.dir, "tmp")
	if err := os.WriteFile(tmp, []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
	if err := os.Rename(tmp, filepath.Join(c.dir, name)); err != nil {
		c.t.Fatal(err)
	}
}

func (c *clustered) count(name string) int {
	text, _ := os.ReadFile(filepath.Join(c.dir, name)) // it may not exist yet
	return strings.Count(string(text), "\n")
}

// flows returns the ports of the flows that changed after a number, when there are some, and the next number.
func (c *clustered) flows(after uint64) (ports []uint16, next uint64) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	for ; ; time.Sleep(10 * time.Millisecond) {
		a, err := c.Flows(ctx, "node-1", after)
		if err != nil {
			c.t.Fatal(err)
		}
		for i := range a.Flows {
			ports = append(ports, a.Flows[i].Port)
		}
		if after = a.Next; len(ports) > 0 {
			return ports, a.Next
		}
	}
}

// A page reads the flows of a node once, and then only what changes. An agent that begins to count again is read completely again.
func TestFlowsOfANodeAreFollowed(t *testing.T) {
	c := follows(t)
	c.write("1", `{"node":"node-1","flows":[{"number":7,"port":80,"last":"2026-01-01T00:00:01Z"},{"number":8,"port":81,"last":"2026-01-01T00:00:02Z"}],"next":8,"sources":[{"name":"capture","seen":2}]}`+"\n")
	if ports, next := c.flows(0); fmt.Sprint(ports) != "[80 81]" || next != 8 {
		t.Fatal(ports, next)
	}
	a, err := c.Flows(t.Context(), "node-1", 8)
	if err != nil || len(a.Flows) != 0 || a.Next != 8 || len(a.Sources) != 1 {
		t.Errorf("without a change: %+v, %v", a, err)
	}
	c.write("2", `{"node":"node-1","flows":[{"number":9,"port":82,"last":"2026-01-01T00:00:03Z"}],"next":9}`+"\n")
	if ports, next := c.flows(8); fmt.Sprint(ports) != "[82]" || next != 9 {
		t.Error(ports, next)
	}
	if n, all := c.count("streams"), c.count("reads"); n != 1 || all != 0 {
		t.Errorf("%d streams, %d reads of everything", n, all)
	}
	// The agent is restarted. Its reader sees a smaller number, and asks for everything.
	c.write("3", `{"node":"node-1","flows":[{"number":1,"port":83,"last":"2026-01-01T00:00:04Z"}],"next":1}`+"\n")
	if ports, next := c.flows(9); fmt.Sprint(ports) != "[83]" || next != 1 {
		t.Error(ports, next)
	}
	if ports, _ := c.flows(0); len(ports) < 2 || !slices.Equal(ports, []uint16{80, 81, 82, 83}[:min(4, len(ports))]) { // the new command has printed all, or the beginning
		t.Error(ports)
	}
	if n := c.count("streams"); n != 2 {
		t.Errorf("%d streams", n)
	}
}

// The flows of a node that cannot be followed are read in each round, and it is followed again after a pause.
func TestFlowsThatEndAreRead(t *testing.T) {
	c := follows(t)
	c.write("old", "")
	now := time.Now()
	c.now = func() time.Time { return now }
	c.follow.now = c.now
	for range 3 {
		if ports, _ := c.flows(0); fmt.Sprint(ports) != "[80]" {
			t.Error(ports)
		}
	}
	if n, all := c.count("streams"), c.count("reads"); n != 1 || all != 3 {
		t.Errorf("%d streams, %d reads of everything", n, all)
	}
	if err := os.Remove(filepath.Join(c.dir, "old")); err != nil {
		t.Fatal(err)
	}
	now = now.Add(followAgain.Min)
	c.write("1", `{"node":"node-1","flows":[{"number":8,"port":81}],"next":8}`+"\n")
	if ports, _ := c.flows(7); fmt.Sprint(ports) != "[81]" || c.count("reads") != 3 {
		t.Error(ports, c.count("reads"))
	}
	c.write("stop", "")
	c.follow.running.Wait()
	if ports, _ := c.flows(8); fmt.Sprint(ports) != "[80]" || c.count("reads") != 4 {
		t.Error(ports, c.count("reads"))
	}
}

// A follower keeps the latest change of each flow, and at most as many flows as an agent.
func TestFollowerIsBounded(t *testing.T) {
	f := &follower{unread: time.NewTimer(time.Hour), began: make(chan struct{}), kept: map[any]*flows.Flow{}}
	answer := func(first, last uint64) *agentflows.Answer {
		a := &agentflows.Answer{Next: last}
		for n := first; n <= last; n++ {
			a.Flows = append(a.Flows, flows.Flow{Number: n, Port: uint16(n), Last: time.Unix(int64(n), 0)}) //nolint:gosec // small
		}
		return a
	}
	f.take(answer(1, agentflows.MostFlows+10))
	a := f.changed(0)
	if len(a.Flows) != agentflows.MostFlows || a.Forgotten != 10 || a.Flows[0].Number != 11 {
		t.Fatalf("%d flows from %d, %d forgotten", len(a.Flows), a.Flows[0].Number, a.Forgotten)
	}
	if again := f.changed(a.Next); len(again.Flows) != 0 || again.Forgotten != 10 {
		t.Errorf("%d flows, %d forgotten", len(again.Flows), again.Forgotten)
	}
	f.take(answer(5, 5))
	f.take(answer(5, 6))
	if next := f.changed(a.Next); len(next.Flows) != 2 || next.Next != 6 {
		t.Errorf("%d flows, then after %d", len(next.Flows), next.Next)
	}
	if f.changed(5) != nil {
		t.Error("a reader that asks for what it has got is answered from what is left")
	}
	if f.noteLast(); f.changed(6) != nil {
		t.Error("flows that have ended are answered")
	}
}

// A page that nobody reads follows nothing.
func TestFollowersEndWithThePage(t *testing.T) {
	c := follows(t)
	c.write("1", `{"node":"node-1","flows":[{"number":7,"port":80}],"next":7}`+"\n")
	c.flows(0)
	c.follow.mu.Lock()
	c.follow.nodes["node-1"].unread.Reset(0) // its time is over
	c.follow.mu.Unlock()
	c.follow.running.Wait()
	if len(c.follow.nodes) != 0 || len(c.follow.again) != 0 {
		t.Errorf("followers %v, pauses %v", c.follow.nodes, c.follow.again)
	}
	var source watch.Source = c
	if a, err := source.Flows(t.Context(), "node-1", 7); err != nil || a.Next != 7 || c.count("streams") != 2 {
		t.Errorf("%+v, %v, %d streams", a, err, c.count("streams"))
	}
}
