package realvpp

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	aclapi "go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/acl_types"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/agent/config"
	"github.com/contiv-agent/contiv-agent/agent/control"
	"github.com/contiv-agent/contiv-agent/agent/live"
	"github.com/contiv-agent/contiv-agent/cmd/exit"
	"github.com/contiv-agent/contiv-agent/cmd/query"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/sim/packet"
	"github.com/contiv-agent/contiv-agent/source/manifest"
	"github.com/contiv-agent/contiv-agent/vpp"
)

// liveLab is a VPP with one pod that sends, and its agent's socket.
type liveLab struct {
	*lab
	door, socket, dir string
	port              uint16
}

// TestVPPTraceLive: the path of a real packet through VPP is the predicted one: to a Service, out of the cluster, denied by a rule, and denied by no rule.
// When VPP's lists are changed without the agent, the difference is marked. Afterwards the tracer is off, also if the client disconnects; a trace of another
// program is left alone, and one of an ended agent is ended.
func TestVPPTraceLive(t *testing.T) {
	lab, web, dir := labWithWeb(t, realVPP(t, "it has no packet tracer"), flowObjects)
	l := &liveLab{lab, cni.PodInterface(web.ID), filepath.Join(t.TempDir(), "agent.sock"), dir, 2000}
	first := l.leaveTrace(t)
	a := runAgent(t, agent.Config{
		NodeName: "node-1", VPP: vpp.Config{Socket: l.lab.socket(), MaxBackoff: 100 * time.Millisecond}, Override: cni.Located(),
		Sources: map[string]agent.Source{manifest.Name: manifest.New(manifest.Config{Paths: []string{dir}})},
		Listen:  config.Listeners{Status: l.socket},
	})
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		st, err := a.Status(t.Context())
		if err == nil && st.InSync && l.traceState() != first {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("no first sync, or the trace of an ended agent goes on: %+v, %v, %s", st, err, l.traceState())
		}
	}
	for _, c := range []struct {
		to, toAddr string
		code       int
		want       []string
	}{
		{"default/out:80", "10.96.0.10:80", exit.OK, []string{"permits: allowed by NetworkPolicy default/web egress rule 1", "nat44: now TCP 10.1.1.2:", "-> 10.3.0.1:80", "to uplink"}},
		{"10.3.0.1:53", "10.3.0.1:53", exit.OK, []string{"permits: allowed by NetworkPolicy default/web egress rule 1", "nat44: now TCP 192.168.16.1:", "to uplink"}},
		{"10.3.7.1:53", "10.3.7.1:53", exit.OK, []string{"denies: denied by AdminNetworkPolicy guard egress rule 2"}},
		{"10.5.0.1:53", "10.5.0.1:53", exit.OK, []string{"denies: denied: NetworkPolicy default/web isolates default/web for egress and no rule allows it"}},
	} {
		text, code := l.trace(t, c.to, c.toAddr)
		if code != c.code {
			t.Errorf("%s: exit code %d\n%s", c.to, code, text)
		}
		for _, want := range c.want {
			if strings.Count(text, want) < 2 { // on both sides
				t.Errorf("%s: no %q on both sides\n%s", c.to, want, text)
			}
		}
		if strings.Contains(text, "!=") {
			t.Errorf("%s: a difference is marked\n%s", c.to, text)
		}
		t.Log(text)
	}
	l.refuses(t)
	l.changeLists(t)
	text, code := l.trace(t, "10.3.7.1:53", "10.3.7.1:53")
	if code != exit.Differs || !strings.Contains(text, "!=") || !strings.Contains(text, "the agent sent other lists") {
		t.Errorf("VPP's lists are changed: exit code %d\n%s", code, text)
	}
	t.Log(text)
}

// traceState returns what VPP shows of its tracer.
func (l *liveLab) traceState() string {
	return l.cli("show classify filter") + l.cli("show trace max 1")
}

// leaveTrace leaves the trace of an ended agent.
func (l *liveLab) leaveTrace(t *testing.T) string {
	t.Helper()
	l.cli("classify filter trace buckets 16 mask l3 ip4 src match l3 ip4 src 10.1.1.2")
	l.cli("trace add af-packet-input 5 filter")
	if l.traceState() == "" || !strings.Contains(l.traceState(), "first table 0") {
		t.Fatal(l.traceState())
	}
	return l.traceState()
}

// trace traces a packet of the pod, and returns text and exit code. The pod sends from unused ports meanwhile.
func (l *liveLab) trace(t *testing.T, to, addr string) (string, int) {
	t.Helper()
	off := l.traceState()
	var out bytes.Buffer
	root := &cobra.Command{SilenceErrors: true, SilenceUsage: true}
	root.AddCommand(query.NewTrace())
	root.SetArgs([]string{"trace", "--live", "--status-socket", l.socket, "--manifests", l.dir, "--duration", "30s", "default/web", to})
	root.SetOut(&out)
	root.SetErr(&out)
	done := make(chan error, 1)
	go func() { done <- root.ExecuteContext(context.Background()) }()
	var err error
	for sends := true; sends; {
		select {
		case err = <-done:
			sends = false
		case <-time.After(50 * time.Millisecond):
			l.port++
			k := packet.NewTCP(netip.AddrPortFrom(netip.MustParseAddr("10.1.1.2"), l.port), netip.MustParseAddrPort(addr)).Opening()
			if _, err := l.send(l.door, k); err != nil {
				t.Fatal(err)
			}
		}
	}
	if on := l.traceState(); on != off {
		t.Errorf("%s: VPP's tracer after the trace: %s\nbefore: %s", to, on, off)
	}
	return exitOf(&out, err)
}

// exitOf returns the output of a command with its error, and its exit code.
func exitOf(out *bytes.Buffer, err error) (string, int) {
	if err == nil {
		return out.String(), exit.OK
	}
	if e, ok := errors.AsType[*exit.Error](err); ok {
		return out.String() + err.Error(), e.Code
	}
	return out.String() + err.Error(), exit.Failed
}

// refuses checks what is not traced: a trace of another program stays, a client that disconnects ends its trace, and without packets there is no path.
func (l *liveLab) refuses(t *testing.T) {
	t.Helper()
	off := l.traceState()
	q := live.Question{To: "10.3.0.1:53", Time: time.Minute}
	q.From.Namespace, q.From.Name = "default", "web"
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { _, err := control.FetchTrace(ctx, l.socket, q); done <- err }()
	for end := time.Now().Add(patience); l.traceState() == off; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("no trace begins")
		}
	}
	if _, err := control.FetchTrace(t.Context(), l.socket, q); err == nil || !strings.Contains(err.Error(), "traces packets already") {
		t.Errorf("a second trace: %v", err)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	for end := time.Now().Add(patience); l.traceState() != off; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the tracer is on without a client: %s", l.traceState())
		}
	}
	q.Time = 300 * time.Millisecond
	if _, err := control.FetchTrace(t.Context(), l.socket, q); err == nil || !strings.Contains(err.Error(), live.ErrNone.Error()) {
		t.Errorf("without packets: %v", err)
	}
	l.cli("classify filter trace mask l3 ip4 src match l3 ip4 src 10.1.1.2")
	foreign := l.traceState()
	if _, err := control.FetchTrace(t.Context(), l.socket, q); err == nil || !strings.Contains(err.Error(), "another program") || l.traceState() != foreign {
		t.Errorf("a trace of another program: %v, %s", err, l.traceState())
	}
	l.cli("classify filter trace del")
	if l.traceState() != off {
		t.Error(l.traceState())
	}
}

// changeLists takes the rules that deny out of the lists of the pod's packets.
func (l *liveLab) changeLists(t *testing.T) {
	t.Helper()
	details, err := l.dump(&aclapi.ACLInterfaceListDump{SwIfIndex: l.index[l.door]})
	if err != nil || len(details) != 1 {
		t.Fatal(details, err)
	}
	m := details[0].(*aclapi.ACLInterfaceListDetails)
	for _, index := range m.Acls[:m.NInput] {
		dumped, err := l.dump(&aclapi.ACLDump{ACLIndex: index})
		if err != nil || len(dumped) != 1 {
			t.Fatal(dumped, err)
		}
		list := dumped[0].(*aclapi.ACLDetails)
		var kept []acl_types.ACLRule
		for _, r := range list.R {
			if r.IsPermit != acl_types.ACL_ACTION_API_DENY {
				kept = append(kept, r)
			}
		}
		if len(kept) == len(list.R) {
			continue
		}
		if _, err := l.do(&aclapi.ACLAddReplace{ACLIndex: index, Tag: list.Tag, R: kept}); err != nil {
			t.Fatal(err)
		}
	}
}
