package grpc

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/proto/contiv/rpc"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/nat"
)

// empties is a request with that many empty DNat44, three bytes each.
func empties(n int) []byte {
	f := (&rpc.DataRequest{}).ProtoReflect().Descriptor().Fields().ByJSONName("DNATs")
	return []byte(strings.Repeat(string(protowire.AppendVarint(protowire.AppendTag(nil, f.Number(), protowire.BytesType), 0)), n))
}

// A request of very many small messages is refused before it is decoded, and the error names the limit. So is a request that is too
// long.
func TestManyMessagesAreRefusedUndecoded(t *testing.T) {
	n := start(t, Config{TCP: "127.0.0.1:0"})
	conn := dial(t, n.addr(t, 0), insecure.NewCredentials())
	send := func(req []byte) error {
		var answer []byte
		ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
		defer cancel()
		return conn.Invoke(ctx, put, &req, &answer, grpc.ForceCodec(raw{}))
	}
	long := empties(MaxRequest/3 - 10)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := send(long)
	runtime.ReadMemStats(&after)
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), fmt.Sprintf("more than %d messages", MaxMessages)) {
		t.Errorf("16 MiB of empty items: %v", err)
	}
	if got := after.Mallocs - before.Mallocs; got > MaxMessages/4 {
		t.Errorf("16 MiB of empty items: %d allocations", got)
	}
	if err := send(empties(MaxRequest/3 + 10)); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), fmt.Sprint(MaxRequest)) {
		t.Errorf("more than 16 MiB: %v", err)
	}
	if err := call(t, conn, put, loops("good")); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// The count equals the number of decoded messages.
func TestMessagesAreCounted(t *testing.T) {
	req := &rpc.DataRequest{}
	for range 10 {
		d := &nat.DNat44{Label: "x"}
		for range 5 {
			d.StMappings = append(d.StMappings, &nat.DNat44_StaticMapping{LocalIps: []*nat.DNat44_StaticMapping_LocalIP{{}, {}}})
		}
		req.DNATs = append(req.DNATs, d)
	}
	text, err := proto.Marshal(req)
	if err != nil {
		t.Fatal(err)
	}
	d := req.ProtoReflect().Descriptor()
	if got := messages(d, text, 1000); got != 1+10*(1+5*3) {
		t.Errorf("%d messages", got)
	}
	if got := messages(d, text, 50); got != 51 {
		t.Errorf("%d messages, at most 50 are counted", got)
	}
	for i := range text {
		messages(d, text[:i], 1000) // and nothing panics
	}
}

// Calls beyond the limit are refused at once, the others are answered, and after they have ended there is room again.
func TestCallsAreLimited(t *testing.T) {
	n := start(t, Config{TCP: "127.0.0.1:0"})
	var open []grpc.ClientStream
	conn, other := dial(t, n.addr(t, 0), insecure.NewCredentials()), dial(t, n.addr(t, 0), insecure.NewCredentials())
	for range MaxCalls {
		st, err := other.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, streams[2], grpc.ForceCodec(raw{}))
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, st)
	}
	until(t, func() bool { return n.server.calls.answered.Load() == MaxCalls }) // or "late" could come before one of them
	refused := func(err error) bool {
		return status.Code(err) == codes.ResourceExhausted && strings.Contains(err.Error(), fmt.Sprintf("%d calls are under way", MaxCalls))
	}
	until(t, func() bool { return refused(call(t, conn, put, loops("late"))) })
	for _, st := range open {
		_ = st.CloseSend()
		var answer []byte
		for st.RecvMsg(&answer) == nil {
		}
	}
	until(t, func() bool { return call(t, conn, put, loops("late")) == nil })
}

func until(t *testing.T, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it does not come to that")
		}
	}
}

// Many long requests at once wait for each other; the server does not decode all of them together.
func TestLongRequestsWait(t *testing.T) {
	c := newCalls()
	text := empties(200_000)
	var wg sync.WaitGroup
	most, now := 0, 0
	var mu sync.Mutex
	for range 10 {
		wg.Go(func() {
			done, err := c.readRequest(t.Context(), func(v any) error { v.(*undecoded).data = text; return nil }, &rpc.DataRequest{}, MaxMessages, true)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			now++
			most = max(most, now)
			mu.Unlock()
			runtime.Gosched()
			mu.Lock()
			now--
			mu.Unlock()
			done()
		})
	}
	wg.Wait()
	if most > MaxDecoded/200_000 {
		t.Errorf("%d at once", most)
	}
	hold, err := c.readRequest(t.Context(), func(v any) error { v.(*undecoded).data = empties(399_000); return nil }, &rpc.DataRequest{}, MaxMessages, true)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.readRequest(t.Context(), func(v any) error { v.(*undecoded).data = text; return nil }, &rpc.DataRequest{}, MaxMessages, false); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("another portion: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.readRequest(ctx, func(v any) error { v.(*undecoded).data = text; return nil }, &rpc.DataRequest{}, MaxMessages, true); status.Code(err) != codes.Canceled {
		t.Errorf("a client that has gone: %v", err)
	}
	hold()
}

// SECURITY.md names the limits as they are.
func TestSecurityPageNamesTheLimits(t *testing.T) {
	page, err := os.ReadFile("../../../SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	thousands := func(n int) string { return fmt.Sprintf("%d,%03d", n/1000, n%1000) }
	want := fmt.Sprintf("%d calls of a connection and %d of all clients at a time, %d that watch; a request has %d MiB and %s messages of protobuf, "+
		"all that are decoded at a time %s, changes in portions %d MiB together", maxStreams, MaxCalls, MaxWatchers, MaxRequest>>20, thousands(MaxMessages),
		thousands(MaxDecoded), MaxStream>>20)
	if !strings.Contains(strings.Join(strings.Fields(string(page)), " "), want) {
		t.Errorf("SECURITY.md does not say %q", want)
	}
}
