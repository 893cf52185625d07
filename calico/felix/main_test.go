package felix

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/event"
	pb "github.com/contiv-agent/contiv-agent/proto/felix"
)

// envDriver makes this test binary a dataplane driver of the named kind; envRecord is the folder in which it records
// messages.
const (
	envDriver = "CONTIV_TEST_DRIVER"
	envRecord = "CONTIV_TEST_RECORD"
)

func TestMain(m *testing.M) {
	if kind := os.Getenv(envDriver); kind != "" {
		os.Exit(beDriver(kind))
	}
	os.Exit(m.Run())
}

// beDriver is the driver's main.
func beDriver(kind string) int {
	d := &testDriver{in: os.NewFile(3, "from"), out: NewWriter(os.NewFile(4, "to"))}
	fmt.Println("a driver that", kind)
	switch kind {
	case "follows":
		return d.follow(-1)
	case "crashes": // while it receives messages
		return d.follow(4)
	case "exits":
		return 7
	case "overhears the end": // ignores the end of its pipe, and needs a signal
		d.follow(-1)
		hangForever()
	case "never reads":
		signal.Ignore(syscall.SIGTERM)
		d.say(&pb.FromDataplane{Payload: &pb.FromDataplane_ProcessStatusUpdate{ProcessStatusUpdate: &pb.ProcessStatusUpdate{IsoTimestamp: "now"}}})
		hangForever()
	case "talks nonsense": // sends garbage and continues
		_, _ = os.NewFile(4, "to").Write([]byte{3, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff})
		d.say(&pb.FromDataplane{}) // of no kind
		return d.follow(-1)
	case "lies": // sends a false length
		_, _ = os.NewFile(4, "to").Write([]byte{0, 0, 0, 0, 0, 0, 0, 1})
		return d.follow(-1)
	case "leaves somebody behind":
		cmd := exec.Command("sleep", "1000")
		cmd.Stdout, cmd.ExtraFiles = os.Stdout, []*os.File{os.NewFile(3, "from"), os.NewFile(4, "to")}
		if err := cmd.Start(); err != nil {
			return 1
		}
		d.record(fmt.Sprintln(cmd.Process.Pid))
		return 0
	case "decodes": // with this package's session
		debug.SetGCPercent(300) // as the agent does until its first sync
		inSync := &pb.FromDataplane{Payload: &pb.FromDataplane_DataplaneInSync{DataplaneInSync: &pb.DataplaneInSync{}}}
		d.say(inSync) // started
		_ = NewDriver(Config{In: d.in, Out: discard{}}).Run(context.Background(), func(ev event.Event) {
			if s, ok := ev.(*event.SyncStatus); ok && s.Status == event.InSync {
				d.say(inSync)
			}
		})
		return 0
	case "decodes by protobuf": // the same messages, which it keeps as well, without this package's decoder
		debug.SetGCPercent(300)
		widen(d.in)
		in := NewReader(d.in, 0)
		for batch := []*pb.ToDataplane{}; ; {
			m := &pb.ToDataplane{}
			if err := in.Read(m); err != nil {
				return 0
			}
			if batch = append(batch, m); m.GetInSync() != nil || m.GetConfigUpdate() != nil {
				d.say(&pb.FromDataplane{Payload: &pb.FromDataplane_DataplaneInSync{DataplaneInSync: &pb.DataplaneInSync{}}})
			}
		}
	case "discards":
		in := NewReader(os.NewFile(3, "from"), 0)
		for {
			payload, err := in.Next()
			if err != nil {
				return 0
			}
			if len(payload) < 8 { // in_sync with its number, or an empty configuration
				d.say(&pb.FromDataplane{Payload: &pb.FromDataplane_DataplaneInSync{DataplaneInSync: &pb.DataplaneInSync{}}})
			}
		}
	}
	return 64
}

type testDriver struct {
	in  *os.File
	out *Writer
}

// hangForever does nothing until a signal ends the process. Without cgo the runtime ends a process of which every goroutine waits for ever, but not one that sleeps.
func hangForever() {
	for {
		time.Sleep(time.Hour)
	}
}

func (d *testDriver) say(m *pb.FromDataplane) { _ = d.out.Write(m) }

func (d *testDriver) record(text string) {
	f, err := os.OpenFile(os.Getenv(envRecord), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, _ = f.WriteString(text)
		_ = f.Close()
	}
}

// follow records all messages, each life in a separate file, and reports endpoints as up. It ends after most messages.
func (d *testDriver) follow(most int) int {
	f, err := os.Create(fmt.Sprintf("%s.%d", os.Getenv(envRecord), os.Getpid()))
	if err != nil {
		return 1
	}
	defer f.Close()
	in, out := NewReader(d.in, 0), NewWriter(f)
	for n := 0; n != most; n++ {
		m := &pb.ToDataplane{}
		if err := in.Read(m); errors.Is(err, io.EOF) {
			return 0
		} else if err != nil || out.Write(m) != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		switch p := m.Payload.(type) {
		case *pb.ToDataplane_WorkloadEndpointUpdate:
			d.say(update(workloadOf(p.WorkloadEndpointUpdate.Id), EndpointState{Health: Up}))
		case *pb.ToDataplane_WorkloadEndpointRemove:
			d.say(removal(workloadOf(p.WorkloadEndpointRemove.Id)))
		case *pb.ToDataplane_HostEndpointUpdate:
			d.say(update(EndpointID{Endpoint: p.HostEndpointUpdate.Id.EndpointId}, EndpointState{Health: Error}))
		}
		d.say(&pb.FromDataplane{Payload: &pb.FromDataplane_ProcessStatusUpdate{ProcessStatusUpdate: &pb.ProcessStatusUpdate{
			IsoTimestamp: "now", Uptime: float64(n + 1), // the number of received messages
		}}})
	}
	fmt.Fprintln(os.Stderr, strings.Repeat("enough ", 2000))
	return 3
}
