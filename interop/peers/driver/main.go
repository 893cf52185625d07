// Command driver is a foreign dataplane driver: it uses only Felix's own protobuf package. It turns messages on descriptor 3
// into protobuf-JSON lines in the file PEER_DRIVER_LOG, and answers on descriptor 4 as a real driver does: the process's
// status every second, and an endpoint's status when the endpoint is added or removed. Invariant: each message is in the
// file before the next is read. It ends when descriptor 3 does.
package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	felix "github.com/projectcalico/calico/felix/proto"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "peer driver:", err)
		os.Exit(1)
	}
}

func run() error {
	out := &writer{to: os.NewFile(4, "to Felix")}
	log, err := os.OpenFile(os.Getenv("PEER_DRIVER_LOG"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	go report(out)
	in := bufio.NewReader(os.NewFile(3, "from Felix"))
	for {
		var m felix.ToDataplane
		switch err := read(in, &m); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		raw, err := protojson.Marshal(&m)
		if err != nil {
			return err
		}
		if _, err := log.Write(append(raw, '\n')); err != nil {
			return err
		}
		if err := answer(out, &m); err != nil {
			return err
		}
	}
}

func read(in io.Reader, m proto.Message) error {
	var length [8]byte
	if _, err := io.ReadFull(in, length[:]); err != nil {
		return err
	}
	raw := make([]byte, binary.LittleEndian.Uint64(length[:]))
	if _, err := io.ReadFull(in, raw); err != nil {
		return fmt.Errorf("a frame of %d bytes: %v", len(raw), err)
	}
	return proto.Unmarshal(raw, m)
}

// report sends the status reports of a real driver.
func report(out *writer) {
	start := time.Now()
	for now := range time.Tick(time.Second) {
		m := &felix.FromDataplane{Payload: &felix.FromDataplane_ProcessStatusUpdate{ProcessStatusUpdate: &felix.ProcessStatusUpdate{
			IsoTimestamp: now.UTC().Format(time.RFC3339), Uptime: now.Sub(start).Seconds(),
		}}}
		if out.send(m) != nil {
			return
		}
	}
}

func answer(out *writer, m *felix.ToDataplane) error {
	up := &felix.EndpointStatus{Status: "up"}
	switch p := m.Payload.(type) {
	case *felix.ToDataplane_WorkloadEndpointUpdate:
		return out.send(&felix.FromDataplane{Payload: &felix.FromDataplane_WorkloadEndpointStatusUpdate{
			WorkloadEndpointStatusUpdate: &felix.WorkloadEndpointStatusUpdate{Id: p.WorkloadEndpointUpdate.Id, Status: up, Endpoint: p.WorkloadEndpointUpdate.Endpoint},
		}})
	case *felix.ToDataplane_WorkloadEndpointRemove:
		return out.send(&felix.FromDataplane{Payload: &felix.FromDataplane_WorkloadEndpointStatusRemove{
			WorkloadEndpointStatusRemove: &felix.WorkloadEndpointStatusRemove{Id: p.WorkloadEndpointRemove.Id},
		}})
	case *felix.ToDataplane_HostEndpointUpdate:
		return out.send(&felix.FromDataplane{Payload: &felix.FromDataplane_HostEndpointStatusUpdate{
			HostEndpointStatusUpdate: &felix.HostEndpointStatusUpdate{Id: p.HostEndpointUpdate.Id, Status: up},
		}})
	case *felix.ToDataplane_HostEndpointRemove:
		return out.send(&felix.FromDataplane{Payload: &felix.FromDataplane_HostEndpointStatusRemove{
			HostEndpointStatusRemove: &felix.HostEndpointStatusRemove{Id: p.HostEndpointRemove.Id},
		}})
	}
	return nil
}

// writer is one end of a pipe for several.
type writer struct {
	mu   sync.Mutex
	to   io.Writer
	sent uint64
}

func (w *writer) send(m *felix.FromDataplane) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	m.SequenceNumber = w.sent
	w.sent++
	raw, err := proto.Marshal(m)
	if err != nil {
		return err
	}
	_, err = w.to.Write(append(binary.LittleEndian.AppendUint64(nil, uint64(len(raw))), raw...))
	return err
}
