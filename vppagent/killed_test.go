package vppagent_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/proto/contiv/vpp/cnat"
	contivl3 "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/l3"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/interfaces"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

// cutAfter ends the connection after n more writes of VPP, and copies the journal at that moment. done restores the connection,
// and reports whether it was cut.
func (l *lab) cutAfter(n int, journal string) (done func() bool) {
	writes := 0
	l.sim.After(func(sim.Record) {
		if writes++; writes != n {
			return
		}
		data, err := os.ReadFile(l.cfg.Journal)
		if err == nil {
			err = os.WriteFile(journal, data, 0o600)
		}
		if err != nil {
			l.t.Errorf("journal: %v", err)
		}
		l.sim.Fail(func(string) (int32, bool) { return 0, true })
	})
	return func() bool {
		l.sim.After(nil)
		l.sim.Fail(nil)
		l.reconnect()
		return writes >= n
	}
}

// TestKilledAnywhere takes values that VPP shows in part only from one state to the next, ends the agent or the connection after
// some of the writes, and then wants a third state: VPP ends as if the third state had been the only one.
func TestKilledAnywhere(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		dir, err := os.MkdirTemp("", "journal")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		tt := &rapidTB{TB: t, r: r}
		defer tt.done()
		l := newLab(tt, vppagent.Config{Journal: filepath.Join(dir, "journal")})
		pods(l)
		l.want = hidden(r)
		l.resync()
		copied := filepath.Join(dir, "copied")
		done := l.cutAfter(rapid.IntRange(1, 9).Draw(r, "writes"), copied)
		l.want = hidden(r)
		l.resync()
		if done() && rapid.Bool().Draw(r, "restart") {
			l.cfg.Journal = copied
			l.restartAgent()
		}
		l.want = hidden(r)
		l.resync()
		if got, want := canonical(l.sim.Dump()), canonical(fresh(tt, l.want)); got != want {
			r.Fatalf("got:\n%s\nwant:\n%s\nwrites:\n%s", got, want, strings.Join(l.writes(), "\n"))
		}
		l.writes()
		l.resync()
		l.quiet("resync")
	})
}

// hidden draws values that need the journal because VPP shows them in part only.
func hidden(r *rapid.T) kv.Values {
	v := kv.Values{}
	flip := func(label string) bool { return rapid.Bool().Draw(r, label) }
	upto := func(n int, label string) int { return rapid.IntRange(0, n).Draw(r, label) }
	if flip("interface") {
		v.Put(&cnat.Interface{Name: "tap1", Ipv6: true, Pod: flip("pod")})
	}
	if flip("policy") {
		p := &cnat.SnatPolicy{Kind: cnat.SnatPolicy_Kind(upto(2, "kind")), Ipv6Address: fmt.Sprintf("2001:db8::%d", 1+upto(1, "source"))}
		if p.Kind != cnat.SnatPolicy_ALL && flip("excluded") {
			p.ExcludedPrefixes = []string{fmt.Sprintf("2001:db8:%d::/48", upto(1, "prefix"))}
		}
		v.Put(p)
	}
	if flip("translation") {
		m := translation("2001:db8:96::10", 80, fmt.Sprintf("2001:db8:1::%d", 1+upto(1, "endpoint")))
		m.AllocatePort, m.NoReturnSession = flip("ports"), flip("no return")
		if flip("hash") {
			m.FlowHash = []cnat.FlowHashField{cnat.FlowHashField_SRC_ADDRESS}
		}
		v.Put(m)
	}
	return v
}

// TestKilledWhileTakingOver: a foreign object that the agent changed is ours, even if the agent ended before the reply.
func TestKilledWhileTakingOver(t *testing.T) {
	dir := t.TempDir()
	l := newLab(t, vppagent.Config{})
	l.allConfigured(l.put(&contivl3.RejectRoute{DstNetwork: "10.96.0.1/32"}))
	l.cfg.Journal = filepath.Join(dir, "journal")
	l.restartAgent()
	copied := filepath.Join(dir, "copied")
	done := l.cutAfter(1, copied)
	l.want = kv.Values{}
	l.want.Put(&contivl3.RejectRoute{DstNetwork: "10.96.0.1/32", Action: contivl3.RejectRoute_PROHIBIT})
	l.resync()
	if !done() {
		t.Fatal("it was not changed")
	}
	l.cfg.Journal = copied
	l.restartAgent()
	l.want = kv.Values{}
	l.put(&contivl3.RejectRoute{DstNetwork: "10.96.0.2/32"})
	l.resync()
	if d := l.sim.Dump(); strings.Contains(d, "10.96.0.1/32") {
		t.Errorf("it stays:\n%s", d)
	}
}

// TestKilledBeforeTheTag: an interface that VPP made, and that has no tag because the agent ended, belongs to the next agent, which removes it or
// tags it.
func TestKilledBeforeTheTag(t *testing.T) {
	host := func(name string) *interfaces.Interface {
		return &interfaces.Interface{Name: "pod", Type: interfaces.Interface_AF_PACKET, Enabled: true, Link: &interfaces.Interface_Afpacket{Afpacket: &interfaces.AfpacketLink{HostIfName: name}}}
	}
	for _, wanted := range []bool{false, true} {
		t.Run(fmt.Sprintf("wanted %v", wanted), func(t *testing.T) {
			dir := t.TempDir()
			l := newLab(t, vppagent.Config{Journal: filepath.Join(dir, "journal")})
			before := l.sim.Dump()
			copied := filepath.Join(dir, "copied")
			done := l.cutAfter(1, copied)
			l.want = kv.Values{}
			l.want.Put(host("veth1"))
			l.resync()
			if dump := l.sim.Dump(); !done() || !strings.Contains(dump, "host-veth1") || strings.Contains(dump, "ca1:i:pod") {
				t.Fatalf("it is not cut before the tag:\n%s", dump)
			}
			l.cfg.Journal = copied
			l.restartAgent()
			l.txn(event.Downstream, nil) // the agent looks before it knows what is wanted
			if !wanted {
				l.want = kv.Values{}
			}
			l.allConfigured(l.resync())
			if dump := l.sim.Dump(); wanted && !strings.Contains(dump, "ca1:i:pod") || !wanted && dump != before {
				t.Errorf("after the next agent's start:\n%s", dump)
			}
			l.del(kv.InterfaceKey("pod"))
			if dump := l.sim.Dump(); dump != before {
				t.Errorf("after the removal:\n%s", dump)
			}
		})
	}
}
