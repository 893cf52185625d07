package main

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/prototext"

	"github.com/contiv-agent/contiv-agent/agent/control"
	"github.com/contiv-agent/contiv-agent/calico/felix"
	"github.com/contiv-agent/contiv-agent/cmd/driver"
	"github.com/contiv-agent/contiv-agent/cmd/exit"
	"github.com/contiv-agent/contiv-agent/cmd/show"
	pb "github.com/contiv-agent/contiv-agent/proto/felix"
	"github.com/contiv-agent/contiv-agent/sim"
)

const oneEndpoint = `
config_update { config { key: "FelixHostname" value: "node-1" } }

active_policy_update { id { tier: "default" name: "prod/knp.default.web" } policy { inbound_rules { action: "allow" protocol { number: 6 } dst_ports { first: 80 last: 80 } } } }

active_profile_update { id { name: "kns.prod" } profile { inbound_rules { action: "allow" } outbound_rules { action: "allow" } } }

workload_endpoint_update {
  id { orchestrator_id: "k8s" workload_id: "prod/web-0" endpoint_id: "eth0" }
  endpoint { state: "active" name: "cali1" profile_ids: "kns.prod" ipv4_nets: "10.1.1.2/32" tiers { name: "default" ingress_policies: "prod/knp.default.web" } }
}

in_sync { }
`

// felixRun is a driver process under a Felix that has not sent a message yet.
type felixRun struct {
	t      *testing.T
	cmd    *exec.Cmd
	to     *os.File
	from   *os.File
	stderr bytes.Buffer
	seq    uint64
}

// startDriver starts the program as Felix does: by name, no arguments, two pipes.
func startDriver(t *testing.T, program string, env ...string) *felixRun {
	t.Helper()
	in, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	from, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	f := &felixRun{t: t, cmd: exec.Command(program), to: to, from: from}
	f.cmd.Env = append(os.Environ(), env...)
	f.cmd.ExtraFiles, f.cmd.Stderr = []*os.File{in, out}, &f.stderr
	if err := f.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(in.Close(), out.Close()); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *felixRun) say(text string) {
	f.t.Helper()
	w := felix.NewWriter(f.to)
	for paragraph := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		m := &pb.ToDataplane{}
		if err := prototext.Unmarshal([]byte(paragraph), m); err != nil {
			f.t.Fatal(err)
		}
		m.SequenceNumber = f.seq
		f.seq++
		if err := w.Write(m); err != nil {
			f.t.Fatalf("%v; log:\n%s", err, f.stderr.String())
		}
	}
}

// expectStatus waits for a status of the endpoint.
func (f *felixRun) expectStatus(want string) {
	f.t.Helper()
	if err := f.from.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		f.t.Fatal(err)
	}
	r := felix.NewReader(f.from, 0)
	for {
		m := &pb.FromDataplane{}
		if err := r.Read(m); err != nil {
			f.t.Fatalf("no status %q: %v; log:\n%s", want, err, f.stderr.String())
		}
		if m.GetWorkloadEndpointStatusUpdate().GetStatus().GetStatus() == want {
			return
		}
	}
}

// wait waits for the end of the process and returns its exit code.
func (f *felixRun) wait() int {
	f.t.Helper()
	_ = f.to.Close()
	_ = f.from.Close()
	err := f.cmd.Wait()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		f.t.Fatal(err)
	}
	return f.cmd.ProcessState.ExitCode()
}

// driverProgram returns this program under the name that Felix starts, and a VPP that outlives the driver.
func driverProgram(t *testing.T) (program string, v *sim.VPP, env []string) {
	t.Helper()
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program = filepath.Join(dir, driver.Program)
	if err := os.Symlink(self, program); err != nil {
		t.Fatal(err)
	}
	v = sim.New(sim.Config{PuntLocal: true})
	t.Cleanup(v.Close)
	v.AddInterface(sim.Interface{Name: "tap0", Tag: "cali1"})
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", filepath.Join(dir, "vpp"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- v.Serve(ctx, l) }()
	t.Cleanup(func() { cancel(); <-served })
	return program, v, []string{
		driver.EnvSocket + "=" + filepath.Join(dir, "vpp"), driver.EnvStatus + "=" + filepath.Join(dir, "status"), driver.EnvListen + "=none", "NODE_NAME=node-1",
	}
}

// Drivers end by SIGTERM, by the end of the pipe, and killed: only the first writes to VPP, and none keeps a file or socket.
func TestFelixDriverProcesses(t *testing.T) {
	program, v, env := driverProgram(t)
	cycles := 3
	if more, err := strconv.Atoi(os.Getenv("CONTIV_CASES")); err == nil {
		cycles = more
	}
	dump := ""
	for i := range cycles {
		f := startDriver(t, program, env...)
		f.say(oneEndpoint)
		f.expectStatus("up")
		want := 0
		switch i % 3 {
		case 0:
			if err := f.cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
		case 1:
			want = -1
			if err := f.cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
		if code := f.wait(); code != want {
			t.Fatalf("cycle %d: exit code %d, want %d; log:\n%s", i, code, want, f.stderr.String())
		}
		if i == 0 {
			dump = v.Dump()
			v.ClearLog()
		}
		if n := v.Writes(); n != 0 || v.Dump() != dump || !strings.Contains(dump, "acl-list tap0") {
			t.Fatalf("cycle %d: %d writes; VPP (-before +after)\n%s", i, n, cmp.Diff(dump, v.Dump()))
		}
	}
}

// The status command works under Felix, and the error of a malformed frame names its place.
func TestFelixDriverStatusAndGarbage(t *testing.T) {
	program, _, env := driverProgram(t)
	f := startDriver(t, program, env...)
	f.say(oneEndpoint)
	f.expectStatus("up")
	_, socket, _ := strings.Cut(env[1], "=")
	st, err := control.FetchStatus(t.Context(), socket, false)
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	show.Status(&text, st, true, true)
	for _, want := range []string{
		"felix       in-sync                 5 messages, the last with number 4, policy names as in v3.31; 1 of 1 endpoints up",
		"endpoint    prod/web-0 eth0         up", "policy      NetworkPolicy prod/web  CONFIGURED",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("status without %q:\n%s", want, text.String())
		}
	}
	if _, err := f.to.Write(bytes.Repeat([]byte{0xff}, 8)); err != nil {
		t.Fatal(err)
	}
	if code := f.wait(); code != exit.Failed || !strings.Contains(f.stderr.String(), "frame 5 at byte") {
		t.Errorf("exit code %d; log:\n%s", code, f.stderr.String())
	}
}

// A driver that starts while its predecessor still runs waits for it to end.
func TestFelixDriverSucceedsAnother(t *testing.T) {
	program, _, env := driverProgram(t)
	first := startDriver(t, program, env...)
	first.say(oneEndpoint)
	first.expectStatus("up")
	second := startDriver(t, program, env...)
	second.say(oneEndpoint)
	if err := first.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := first.wait(); code != exit.OK {
		t.Errorf("the first: exit code %d; log:\n%s", code, first.stderr.String())
	}
	second.expectStatus("up")
	if code := second.wait(); code != exit.OK {
		t.Errorf("the second: exit code %d; log:\n%s", code, second.stderr.String())
	}
}

// The embedded VPP gets an interface for each endpoint.
func TestFelixDriverWithEmbeddedVPP(t *testing.T) {
	program, _, env := driverProgram(t)
	f := startDriver(t, program, append(env, driver.EnvSim+"=1")...)
	f.say(strings.Replace(oneEndpoint, "in_sync { }", `host_metadata_update { hostname: "node-1" ipv4_addr: "192.168.16.1" }

in_sync { }`, 1))
	f.expectStatus("up")
	if code := f.wait(); code != exit.OK {
		t.Errorf("exit code %d; log:\n%s", code, f.stderr.String())
	}
}
