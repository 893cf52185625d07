package rcu_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.fd.io/govpp/binapi/af_packet"
	"go.fd.io/govpp/binapi/vpe"

	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/rcu"
)

// kernelSwitch is a VPP beside a kernel with the switch; it records the switch at each request.
type kernelSwitch struct {
	t *testing.T
	rcu.Expedite
	seen     []string
	unmarked bool // the switch was on without a mark: a killed agent would leave it so
}

func newKernelSwitch(t *testing.T, value string) *kernelSwitch {
	t.Helper()
	dir := t.TempDir()
	k := &kernelSwitch{t: t, Expedite: rcu.Expedite{Switch: filepath.Join(dir, "rcu_expedited"), Mark: filepath.Join(dir, "mark")}}
	if err := os.WriteFile(k.Switch, []byte(value), 0o600); err != nil {
		t.Fatal(err)
	}
	return k
}

func (k *kernelSwitch) value() string {
	k.t.Helper()
	b, err := os.ReadFile(k.Switch)
	if err != nil {
		k.t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

func (k *kernelSwitch) marked() bool {
	_, err := os.Stat(k.Mark)
	return err == nil
}

func (k *kernelSwitch) Do(_ context.Context, calls ...vpp.Call) []vpp.Reply {
	for range calls {
		k.seen = append(k.seen, k.value())
		k.unmarked = k.unmarked || k.value() == "1" && !k.marked()
	}
	return make([]vpp.Reply, len(calls))
}

// The switch is on while VPP makes or removes an af_packet interface, and at no other time.
func TestExpedite(t *testing.T) {
	for _, tc := range []struct {
		name, was string
		off       bool
		call      vpp.Call
		want      []string
	}{
		{"create", "0\n", false, vpp.Call{Msg: &af_packet.AfPacketCreateV3{}}, []string{"1"}},
		{"delete", "0\n", false, vpp.Call{Msg: &af_packet.AfPacketDelete{}}, []string{"1"}},
		{"other request", "0\n", false, vpp.Call{Msg: &vpe.ShowVersion{}}, []string{"0"}},
		{"not wanted", "0\n", true, vpp.Call{Msg: &af_packet.AfPacketCreateV3{}}, []string{"0"}},
		{"on already", "1\n", false, vpp.Call{Msg: &af_packet.AfPacketCreateV3{}}, []string{"1"}},
	} {
		k := newKernelSwitch(t, tc.was)
		c := &rcu.Caller{VPP: k, Expedite: k.Expedite}
		if tc.off {
			c.Expedite = rcu.Expedite{}
		}
		c.Do(t.Context(), tc.call)
		if after := k.value(); !slices.Equal(k.seen, tc.want) || after != strings.TrimSpace(tc.was) || k.marked() || k.unmarked != (tc.was == "1\n") {
			t.Errorf("%s: %s during the request, without a mark: %t; %s after it, marked: %t", tc.name, k.seen, k.unmarked, after, k.marked())
		}
	}
}

// An agent switches off the switch that a killed agent left on. If another program switched it on, it stays on.
func TestExpediteRecover(t *testing.T) {
	for _, marked := range []bool{true, false} {
		k := newKernelSwitch(t, "1\n")
		want := "1"
		if marked {
			want = "0"
			if err := os.WriteFile(k.Mark, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := k.Recover(); err != nil || k.value() != want || k.marked() {
			t.Errorf("marked: %t: the switch is %s, marked: %t, %v", marked, k.value(), k.marked(), err)
		}
	}
}

type answering struct{}

func (answering) Do(_ context.Context, calls ...vpp.Call) []vpp.Reply {
	return make([]vpp.Reply, len(calls))
}

// A kernel without the switch, or one that this process may not use, is an error, and the agent sends its requests nevertheless.
func TestExpediteWithoutSwitch(t *testing.T) {
	k := newKernelSwitch(t, "0\n")
	if err := os.Remove(k.Switch); err != nil {
		t.Fatal(err)
	}
	if k.Recover() == nil {
		t.Error("a missing switch is no error")
	}
	if r := (&rcu.Caller{VPP: answering{}, Expedite: k.Expedite}).Do(t.Context(), vpp.Call{Msg: &af_packet.AfPacketCreateV3{}}); len(r) != 1 || k.marked() {
		t.Errorf("%d replies, marked: %t", len(r), k.marked())
	}
}

// task writes a thread as the kernel shows it.
func (k *kernelSwitch) task(proc, pid, tid, name, state string, flags int) {
	k.t.Helper()
	dirs := []string{filepath.Join(proc, pid, "task", tid)}
	if pid == tid {
		dirs = append(dirs, filepath.Join(proc, pid))
	}
	for _, dir := range dirs {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			k.t.Fatal(err)
		}
		line := fmt.Sprintf("%s (%s) %s 1 77 77 0 -1 %d 0 0 0\n", tid, name, state, 0x400000|flags)
		if err := os.WriteFile(filepath.Join(dir, "stat"), []byte(line), 0o600); err != nil {
			k.t.Fatal(err)
		}
	}
}

// The switch is on while VPP's process ends, and until its last thread has ended.
func TestHasten(t *testing.T) {
	const exiting = 4
	k := newKernelSwitch(t, "0\n")
	proc := t.TempDir()
	h := rcu.Hastening{Expedite: k.Expedite, Proc: proc}
	look := func(when string, pid uint32, want string) {
		t.Helper()
		if h.Look(pid); k.value() != want || k.marked() != (want == "1") {
			t.Errorf("%s: %s, marked: %t", when, k.value(), k.marked())
		}
	}
	look("no VPP", 0, "0")
	look("not visible", 77, "0")
	k.task(proc, "77", "77", "vpp_main", "S", 0)
	k.task(proc, "77", "78", "vpp_wk_0", "R", 0)
	look("VPP runs", 77, "0")
	k.task(proc, "79", "79", "another (vpp_main) S", "R", exiting)
	look("another process has the number", 79, "0")
	k.task(proc, "77", "77", "vpp_main", "D", exiting)
	look("VPP ends", 77, "1")
	look("VPP still ends", 77, "1")
	k.task(proc, "77", "77", "vpp_main", "Z", exiting)
	k.task(proc, "77", "78", "vpp_wk_0", "D", exiting)
	look("the main thread has ended before the worker", 77, "1")
	k.task(proc, "77", "78", "vpp_wk_0", "Z", exiting)
	look("VPP has ended, and nobody has waited for it", 77, "0")
	look("still", 77, "0")
	k.task(proc, "88", "88", "vpp_main", "D", exiting)
	look("the next VPP ends", 88, "1")
	look("the agent ends", 0, "0")
	look("the agent ends, once more", 0, "0")
}
