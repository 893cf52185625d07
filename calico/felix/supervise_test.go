package felix

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv-agent/contiv-agent/calc/mirror"
	pb "github.com/contiv-agent/contiv-agent/proto/felix"
	"github.com/contiv-agent/contiv-agent/test/logbuffer"
)

// supervised is a driver of some kind under a supervisor.
type supervised struct {
	*Supervisor
	t      *testing.T
	record string
	log    *logbuffer.Buffer
	stop   func()
}

func supervise(t *testing.T, kind string) *supervised {
	t.Helper()
	s := &supervised{t: t, record: filepath.Join(t.TempDir(), "record"), log: &logbuffer.Buffer{}}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	grace := time.Minute
	if kind == "never reads" || kind == "overhears the end" {
		grace = 50 * time.Millisecond
	}
	s.Supervisor = NewSupervisor(SupervisorConfig{
		Path: self, Env: []string{envDriver + "=" + kind, envRecord + "=" + s.record, "GORACE=atexit_sleep_ms=0"}, Parameters: map[string]string{"FelixHostname": "n1"},
		Grace: grace, MinPause: time.Millisecond, MaxPause: 10 * time.Millisecond,
		Logger: slog.New(slog.NewTextHandler(s.log, nil)),
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	s.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("run: %v", err)
		}
	})
	t.Cleanup(s.stop)
	return s
}

// wait waits until done accepts the status.
func (s *supervised) wait(what string, done func(*SupervisorStatus) bool) {
	s.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !done(s.Status()); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatalf("waited in vain until %s: %+v\n%s", what, s.Status(), s.log)
		}
	}
}

// heard waits until the driver has received everything passed on.
func (s *supervised) heard() {
	s.t.Helper()
	if err := s.WaitDelivered(s.t.Context()); err != nil { // the status may be an earlier one
		s.t.Fatal(err)
	}
	s.wait("it received everything", upToDate)
}

// upToDate reports whether the driver had received everything when the status was taken.
func upToDate(st *SupervisorStatus) bool {
	return st.InSync && st.Behind == 0 && st.PID != 0 && st.Uptime == float64(st.Sequence)
}

// sendAll sends what a calculation sent, and returns the state that a driver then has.
func (s *supervised) sendAll(list int) *mirror.Mirror {
	direct := mirror.New()
	for _, flush := range flushes(s.t, list) {
		direct.Apply(flush, false)
		for _, m := range flush {
			s.OnUpdate(m)
		}
		s.Apply()
	}
	return direct
}

// lives returns what each life of the driver received.
func (s *supervised) lives() (out []*mirror.Mirror) {
	s.t.Helper()
	files, err := filepath.Glob(s.record + ".*")
	if err != nil {
		s.t.Fatal(err)
	}
	for _, name := range files {
		content, err := os.ReadFile(name)
		if err != nil {
			s.t.Fatal(err)
		}
		m, r := mirror.New(), NewReader(bytes.NewReader(content), 0)
		for seq := uint64(0); ; seq++ {
			msg := &pb.ToDataplane{}
			if r.Read(msg) != nil {
				break
			}
			if msg.SequenceNumber != seq {
				s.t.Errorf("message %d has number %d", seq, msg.SequenceNumber)
			}
			if seq == 0 && msg.GetConfigUpdate().GetConfig()["FelixHostname"] != "n1" {
				s.t.Errorf("the first message is %v, want the configuration with the node's name", msg)
			}
			m.Apply([]*pb.ToDataplane{msg}, true)
		}
		m.Check(s.t, filepath.Base(name))
		out = append(out, m)
	}
	return out
}

func withHostname(dump []string) []string {
	for i, line := range dump {
		if strings.HasPrefix(line, "Config ") {
			dump[i] = "Config"
		}
	}
	return dump
}

func TestSupervisedDriverFollows(t *testing.T) {
	s := supervise(t, "follows")
	direct := s.sendAll(4)
	s.heard()
	s.wait("it said that it lives", func(st *SupervisorStatus) bool { return st.Alive == "now" })
	workloads := 0
	for key := range direct.Things {
		if strings.HasPrefix(key, "WorkloadEndpoint ") {
			workloads++
		}
	}
	s.wait("endpoints are as it says", func(st *SupervisorStatus) bool {
		up := 0
		for _, health := range st.Endpoints {
			if health == Up {
				up++
			}
		}
		return up == workloads && len(st.Endpoints) >= workloads
	})
	s.stop()
	if lives := s.lives(); len(lives) != 1 || lives[0].InSyncs != 1 {
		t.Errorf("%d lives", len(lives))
	} else if diff := cmp.Diff(withHostname(direct.Dump()), withHostname(lives[0].Dump())); diff != "" {
		t.Errorf("(-wanted +heard):\n%s", diff)
	}
	if st := s.Status(); st.Starts != 1 || st.PID != 0 || !strings.Contains(st.Trouble, "exit status 0") {
		t.Errorf("%+v: want one start, and an end in order", st)
	}
	if !strings.Contains(s.log.String(), "a driver that follows") {
		t.Errorf("log lacks what the driver printed:\n%s", s.log)
	}
}

// WaitDelivered waits for messages passed on before the call, and no longer than its context.
func TestWaitDelivered(t *testing.T) {
	s := supervise(t, "follows")
	direct := s.sendAll(5)
	if err := s.WaitDelivered(t.Context()); err != nil {
		t.Fatal(err)
	}
	if st := s.Status(); !st.InSync || st.Behind > 0 {
		t.Errorf("%+v", st)
	}
	s.stop()
	if lives := s.lives(); len(lives) != 1 {
		t.Errorf("%d lives", len(lives))
	} else if diff := cmp.Diff(withHostname(direct.Dump()), withHostname(lives[0].Dump())); diff != "" {
		t.Errorf("(-wanted +heard):\n%s", diff)
	}
	if err := s.WaitDelivered(t.Context()); err == nil {
		t.Error("no error without a driver")
	}
	deaf := supervise(t, "never reads")
	deaf.OnUpdate(setUpdate("s", strings.Repeat("x", 1<<20)))
	deaf.OnUpdate(inSync(0))
	deaf.Apply()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := deaf.WaitDelivered(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("one that does not read: %v", err)
	}
	if st := deaf.Status(); st.Behind == 0 {
		t.Errorf("a driver that does not read received everything: %+v", st)
	}
}

// A driver that ends while it receives messages is restarted, and receives everything again.
func TestSupervisedDriverCrashes(t *testing.T) {
	s := supervise(t, "crashes")
	s.sendAll(4)
	s.wait("it was started often", func(st *SupervisorStatus) bool { return st.Starts > 5 })
	s.stop()
	if lives := s.lives(); len(lives) < 5 {
		t.Errorf("%d lives", len(lives))
	}
	if !strings.Contains(s.log.String(), "exit status 3") || strings.Contains(s.log.String(), strings.Repeat("enough ", 1000)) {
		t.Errorf("log lacks the exit status, or has a line without end")
	}
}

func TestSupervisedDriverIsKilled(t *testing.T) {
	s := supervise(t, "follows")
	direct := s.sendAll(7)
	for range 3 {
		s.heard()
		pid := s.Status().PID
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		s.wait("it is another one", func(st *SupervisorStatus) bool { return upToDate(st) && st.PID != pid })
	}
	s.stop()
	lives := s.lives()
	if len(lives) != 4 {
		t.Errorf("%d lives", len(lives))
	}
	for i, m := range lives {
		if diff := cmp.Diff(withHostname(direct.Dump()), withHostname(m.Dump())); diff != "" {
			t.Errorf("life %d (-wanted +heard):\n%s", i, diff)
		}
	}
}

// The supervisor does not wait for a driver that does not read, nor keep more than the desired state for it. Stopping it
// takes SIGKILL.
func TestSupervisedDriverNeverReads(t *testing.T) {
	s := supervise(t, "never reads")
	s.OnUpdate(inSync(0))
	for i := range 20_000 {
		s.OnUpdate(setUpdate(fmt.Sprint("s:", i%50), strings.Repeat("x", 1000)+strconv.Itoa(i)))
		s.Apply()
	}
	s.wait("it is behind", func(st *SupervisorStatus) bool { return st.Alive == "now" && st.Behind > 0 })
	if st := s.Status(); st.Behind > 2*50+2 { // half of them in the pipe
		t.Errorf("behind by %d: want at most what there is", st.Behind)
	}
	pid := s.Status().PID
	s.stop()
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("process %d: %v, want none", pid, err)
	}
	if st := s.Status(); !strings.Contains(st.Trouble, "killed") {
		t.Errorf("it ended with %q", st.Trouble)
	}
}

// A driver that does not end with its pipe gets SIGTERM.
func TestSupervisedDriverIgnoringPipeEndGetsSIGTERM(t *testing.T) {
	s := supervise(t, "overhears the end")
	s.sendAll(3)
	s.heard()
	s.stop()
	if st := s.Status(); !strings.Contains(st.Trouble, "signal: terminated") {
		t.Errorf("it ended with %q", st.Trouble)
	}
}

// Settings from the calculation override those of the supervisor.
func TestSupervisorCompletesTheConfiguration(t *testing.T) {
	k := &keeper{cfg: SupervisorConfig{Parameters: map[string]string{"FelixHostname": "n1", "LogSeverity": "debug"}}}
	said := &pb.ConfigUpdate{Config: map[string]string{"LogSeverity": "info", "X": "y"}, Message: "m"}
	got := k.configured(&pb.ToDataplane{Payload: &pb.ToDataplane_ConfigUpdate{ConfigUpdate: said}}).GetConfigUpdate()
	want := map[string]string{"FelixHostname": "n1", "LogSeverity": "info", "X": "y"}
	if diff := cmp.Diff(want, got.GetConfig()); diff != "" || got.GetMessage() != "m" || len(said.Config) != 2 {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if m := inSync(1); k.configured(m) != m {
		t.Error("another message is another one afterwards")
	}
}

// Pauses double up to the longest; a driver that was steady is restarted at once.
func TestSupervisorBacksOff(t *testing.T) {
	now := time.Unix(1000, 0)
	cfg := SupervisorConfig{MinPause: time.Second, MaxPause: 5 * time.Second, Steady: time.Minute, Now: func() time.Time { return now }}
	cfg.defaults()
	k := &keeper{cfg: cfg, pause: time.NewTimer(time.Hour), next: cfg.MinPause, ledger: newLedger(), publish: func(*SupervisorStatus) {}}
	defer k.pause.Stop()
	var pauses []time.Duration
	crash := func(synced, lived time.Duration) {
		k.synced = time.Time{}
		if synced >= 0 {
			k.synced = now.Add(synced)
		}
		now = now.Add(lived)
		k.ended(errExited)
		pauses = append(pauses, k.now.Pause)
	}
	for range 5 {
		crash(-1, 0)
	}
	crash(time.Second, 30*time.Second) // not long enough
	crash(time.Second, 90*time.Second)
	crash(-1, 90*time.Second) // never in sync, so its run time does not count
	crash(-1, 0)
	want := []time.Duration{1, 2, 4, 5, 5, 5, 0, 1, 2}
	for i := range want {
		want[i] *= time.Second
	}
	if diff := cmp.Diff(want, pauses); diff != "" {
		t.Errorf("pauses (-want +got):\n%s", diff)
	}
}

func TestSupervisedDriverTalksNonsense(t *testing.T) {
	s := supervise(t, "talks nonsense")
	s.sendAll(4)
	s.heard()
	s.wait("what it said was understood", func(st *SupervisorStatus) bool { return st.Alive == "now" && st.Unknown == 2 })
	if st := s.Status(); st.Starts != 1 {
		t.Errorf("started %d times", st.Starts)
	}
}

func TestSupervisedDriverLies(t *testing.T) {
	s := supervise(t, "lies")
	s.sendAll(4)
	s.wait("it was started often", func(st *SupervisorStatus) bool { return st.Starts > 3 })
	if st := s.Status(); !strings.Contains(st.Trouble, ErrOversized.Error()) {
		t.Errorf("trouble %q", st.Trouble)
	}
}

// Processes that a driver started are killed with it, even if they hold its pipes and output open.
func TestSupervisedDriverChildrenAreKilled(t *testing.T) {
	s := supervise(t, "leaves somebody behind")
	s.wait("it was started often", func(st *SupervisorStatus) bool { return st.Starts > 2 })
	s.stop()
	content, err := os.ReadFile(s.record)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range strings.Fields(string(content)) {
		pid, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		if dead(pid) {
			continue
		}
		t.Errorf("process %d lives", pid)
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// dead reports whether a process has ended, reaped or not.
func dead(pid int) bool {
	for range 1000 {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return true
		}
		time.Sleep(time.Millisecond)
	}
	return false
}

func TestSupervisedDriverIsNotThere(t *testing.T) {
	s := NewSupervisor(SupervisorConfig{Path: filepath.Join(t.TempDir(), "none"), MinPause: time.Millisecond, MaxPause: time.Millisecond})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	x := &supervised{Supervisor: s, t: t, log: &logbuffer.Buffer{}}
	x.wait("it is said", func(st *SupervisorStatus) bool { return strings.Contains(st.Trouble, "no such file") })
	s.OnUpdate(inSync(0))
	s.Apply()
	cancel()
	<-ended
	s.OnUpdate(inSync(0))
	s.Apply() // no reader, and no blocking
}

// TestSupervisorLeavesNothing starts and stops drivers of all kinds, CONTIV_CASES of them, and counts leaked goroutines,
// files and processes.
func TestSupervisorLeavesNothing(t *testing.T) {
	cycles := 12
	if n, err := strconv.Atoi(os.Getenv("CONTIV_CASES")); err == nil {
		cycles = n
	}
	kinds := []string{"follows", "follows", "exits", "talks nonsense", "lies", "crashes"}
	one := func(i int) {
		s := supervise(t, kinds[i%len(kinds)])
		if i%3 > 0 {
			s.sendAll(i)
		}
		if i%3 > 1 {
			s.wait("it was started", func(st *SupervisorStatus) bool { return st.Starts > 0 })
		}
		s.stop()
		if pid := s.Status().PID; pid != 0 {
			t.Errorf("cycle %d: process %d is left", i, pid)
		}
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // a collection would close leaked files
	one(2)                                           // opens what is opened once and stays
	goroutines, files, processes := left(t)
	for i := range cycles {
		one(i)
	}
	for range 1000 {
		if g, f, p := left(t); g <= goroutines && f <= files && p <= processes {
			return
		}
		time.Sleep(time.Millisecond)
	}
	g, f, p := left(t)
	t.Errorf("after %d cycles: goroutines %d → %d, descriptors %d → %d, processes %d → %d", cycles, goroutines, g, files, f, processes, p)
}

// left counts goroutines, open files and children of this process.
func left(t *testing.T) (goroutines, files, processes int) {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	tasks, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range tasks {
		children, _ := os.ReadFile(name)
		processes += len(strings.Fields(string(children)))
	}
	return runtime.NumGoroutine(), len(fds), processes
}
