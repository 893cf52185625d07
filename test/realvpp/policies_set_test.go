package realvpp

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/interface_types"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/source/manifest"
)

// A set of addresses and those who let it in.
const (
	setMembers = 10_000
	setPods    = 100
	setJoins   = 11
	// setShare is which part of rewriting the list a change may cost.
	setShare = 6
)

// fromClients lets the set in.
const fromClients = `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web, namespace: default}
spec:
  podSelector: {matchLabels: {app: web}}
  ingress: [{from: [{podSelector: {matchLabels: {app: client}}}], ports: [{port: 80}]}]
`

// TestVPPSetMember adds addresses to a set of 10,000 that 100 local pods allow, and reports the cost for a real VPP compared with
// writing the list anew: messages, rules times the interfaces they are attached to, and time.
func TestVPPSetMember(t *testing.T) {
	m := newSetCase(t, theVPP(t))
	before := m.costs()
	var took, again []time.Duration
	var sent, bytes, applied int
	for n := range setJoins {
		pod := podAt(fmt.Sprintf("joins-%d", n), "node-2", fmt.Sprintf("10.2.200.%d", n+1))
		pod.Labels = map[string]string{"app": "client"}
		began := time.Now()
		m.feed(pod)
		took = append(took, time.Since(began))
		log := m.side.tap.take()
		if len(log) == 0 {
			t.Fatal("somebody joined and nothing was written")
		}
		sent += len(log)
		for _, msg := range log {
			bytes += msg.(interface{ Size() int }).Size()
			applied += before.applied(msg)
		}
		again = append(again, m.repeat(log))
	}
	whole := m.rewrite(before)
	slices.Sort(took)
	slices.Sort(again)
	list := before.longest() * setPods
	t.Logf("one address joins %d that %d pods allow, as %d lists of %d rules in all: %.1f messages, %d bytes, %d rules x attachments; %s with the agent, %s in VPP",
		setMembers, setPods, before.lists(), before.longest(), float64(sent)/setJoins, bytes/setJoins, applied/setJoins, took[setJoins/2], again[setJoins/2])
	t.Logf("the list anew, as one: 1 message, %d bytes, %d rules x attachments; %s in VPP", whole.bytes, list, whole.took)
	t.Logf("ratios: bytes 1/%d, rules x attachments 1/%d, time 1/%.1f", whole.bytes/max(bytes/setJoins, 1), list/max(applied/setJoins, 1), whole.took.Seconds()/again[setJoins/2].Seconds())
	if applied/setJoins*setShare > list || bytes/setJoins*setShare > whole.bytes {
		t.Errorf("more than 1/%d of the list is written", setShare)
	}
}

// setCase is an agent on a real VPP whose pods are loopbacks.
type setCase struct {
	t    *testing.T
	lab  *lab
	side *side
}

func newSetCase(t *testing.T, path string) *setCase {
	l, err := openLab(path)
	if l != nil {
		t.Cleanup(l.close)
	}
	if err != nil {
		t.Fatal(err)
	}
	l.hollow = true
	dial := func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", l.socket())
	}
	m := &setCase{t: t, lab: l, side: &side{name: "vpp", cni: cni.New(l, "node-1"), tap: &tap{dial: dial}}}
	w := &twin{node: "node-1", lab: l}
	if err := w.startAgent(m.side); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.side.agent.Close)
	far := nodeAt(2)
	far.PodCIDRs = []netip.Prefix{netip.MustParsePrefix("10.2.0.0/16")}
	objects := []model.Object{nodeAt(1), far}
	for n := range setPods {
		pod := podAt(fmt.Sprintf("web-%d", n), "node-1", fmt.Sprintf("10.1.1.%d", n+2))
		pod.Labels = map[string]string{"app": "web"}
		objects = append(objects, pod)
	}
	for n := range setMembers {
		pod := podAt(fmt.Sprintf("client-%d", n), "node-2", fmt.Sprintf("10.2.%d.%d", n/200, n%200+1))
		pod.Labels = map[string]string{"app": "client"}
		objects = append(objects, pod)
	}
	file := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(file, []byte(fromClients), 0o600); err != nil {
		t.Fatal(err)
	}
	changes, err := manifest.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	m.feedAll(append(puts(objects), changes...))
	m.side.tap.take()
	return m
}

func (m *setCase) feed(objects ...model.Object) { m.feedAll(puts(objects)) }

func (m *setCase) feedAll(changes []event.Change) {
	m.t.Helper()
	if err := m.side.cni.Apply(changes); err != nil || m.lab.err != nil {
		m.t.Fatal(err, m.lab.err)
	}
	update := &event.Update{Source: source, Changes: changes}
	if err := m.side.agent.Feed(context.Background(), update, &event.SyncStatus{Source: source, Status: event.InSync}); err != nil {
		m.t.Fatal(err, m.lab.alive())
	}
	for _, v := range m.side.agent.Status().Unwell {
		m.t.Fatalf("%s %s %s", v.Key, v.State, v.Error)
	}
}

// setCosts is what VPP has: the rules of ACLs, how often they are attached, and the lists of interfaces.
type setCosts struct {
	acls     map[uint32]*acl.ACLDetails
	attached map[uint32]int
	at       map[interface_types.InterfaceIndex][]uint32
}

func (m *setCase) costs() setCosts {
	m.t.Helper()
	c := setCosts{map[uint32]*acl.ACLDetails{}, map[uint32]int{}, map[interface_types.InterfaceIndex][]uint32{}}
	for _, msg := range []api.Message{
		&acl.ACLDump{ACLIndex: ^uint32(0)}, &acl.ACLInterfaceListDump{SwIfIndex: ^interface_types.InterfaceIndex(0)},
	} {
		details, err := m.lab.dump(msg)
		if err != nil {
			m.t.Fatal(err)
		}
		for _, d := range details {
			switch d := d.(type) {
			case *acl.ACLDetails:
				c.acls[d.ACLIndex] = d
			case *acl.ACLInterfaceListDetails:
				for _, i := range d.Acls {
					c.attached[i]++
				}
				c.at[d.SwIfIndex] = d.Acls[d.NInput:]
			}
		}
	}
	return c
}

// applied is how many rules VPP puts into its tables because of a message.
func (c setCosts) applied(msg api.Message) int {
	switch msg := msg.(type) {
	case *acl.ACLAddReplace:
		return len(msg.R) * c.attached[msg.ACLIndex]
	case *acl.ACLInterfaceSetACLList:
		return c.rules(msg.Acls)
	}
	return 0
}

func (c setCosts) rules(list []uint32) (n int) {
	for _, i := range list {
		if d := c.acls[i]; d != nil {
			n += len(d.R)
		}
	}
	return n
}

// longest is how many rules the longest list of an interface's output has; lists is how many ACLs it is.
func (c setCosts) longest() (n int) {
	for _, list := range c.at {
		n = max(n, c.rules(list))
	}
	return n
}

func (c setCosts) lists() (n int) {
	for _, list := range c.at {
		if c.rules(list) == c.longest() {
			n = len(list)
		}
	}
	return n
}

// repeat sends changes in place once more and returns how long VPP took.
func (m *setCase) repeat(log []api.Message) time.Duration {
	m.t.Helper()
	for _, msg := range log {
		if r, ok := msg.(*acl.ACLAddReplace); !ok || r.ACLIndex == ^uint32(0) {
			m.t.Fatalf("an address that joins is more than a change in place: %s", msg.GetMessageName())
		}
	}
	began := time.Now()
	if _, err := m.lab.do(log...); err != nil {
		m.t.Fatal(err)
	}
	return time.Since(began)
}

type rewriting struct {
	bytes int
	took  time.Duration
}

// rewrite puts all rules of a list into one ACL, at as many interfaces, and writes it once more.
func (m *setCase) rewrite(c setCosts) rewriting {
	m.t.Helper()
	msg := &acl.ACLAddReplace{ACLIndex: ^uint32(0), Tag: "as one"}
	for _, list := range c.at {
		if c.rules(list) != c.longest() {
			continue
		}
		for _, i := range list {
			msg.R = append(msg.R, c.acls[i].R...)
		}
		break
	}
	msg.Count = uint32(len(msg.R))
	do := func(msgs ...api.Message) []api.Message {
		m.t.Helper()
		replies, err := m.lab.do(msgs...)
		if err != nil {
			m.t.Fatal(err)
		}
		var out []api.Message
		for _, r := range replies {
			out = append(out, r.Msg)
		}
		return out
	}
	m.side.agent.Close() // it would wonder
	msg.ACLIndex = do(msg)[0].(*acl.ACLAddReplaceReply).ACLIndex
	for at, list := range c.at {
		if c.rules(list) == c.longest() {
			do(&acl.ACLInterfaceSetACLList{SwIfIndex: at, Count: 1, Acls: []uint32{msg.ACLIndex}})
		}
	}
	var took []time.Duration
	for range 3 {
		began := time.Now()
		do(msg)
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	return rewriting{msg.Size(), took[1]}
}
