package felix

import (
	"errors"
	"fmt"
	"io"
	"os"
	"testing"

	"github.com/contiv-agent/contiv-agent/event"
	pb "github.com/contiv-agent/contiv-agent/proto/felix"
)

// large returns a set of 100,000 members and 10,000 policies.
func large() []*pb.ToDataplane {
	set := &pb.IPSetUpdate{Id: "s:large"}
	for i := range 100_000 {
		set.Members = append(set.Members, fmt.Sprintf("10.%d.%d.%d/32", i>>16, i>>8&255, i&255))
	}
	out := []*pb.ToDataplane{{Payload: &pb.ToDataplane_IpsetUpdate{IpsetUpdate: set}}}
	for i := range 10_000 {
		rules := []*pb.Rule{
			{Action: "allow", Protocol: &pb.Protocol{NumberOrName: &pb.Protocol_Name{Name: "tcp"}}, SrcIpSetIds: []string{"s:large"}, DstPorts: []*pb.PortRange{{First: 80, Last: 80}}, RuleId: "3gWHk8cM0jy2MoEo"},
			{Action: "deny", SrcNet: []string{"10.0.0.0/8"}, RuleId: "3gWHk8cM0jy2MoEx"},
		}
		out = append(out, &pb.ToDataplane{SequenceNumber: uint64(i + 1), Payload: &pb.ToDataplane_ActivePolicyUpdate{ActivePolicyUpdate: &pb.ActivePolicyUpdate{
			Id:     &pb.PolicyID{Tier: "default", Name: fmt.Sprintf("ns-%d/knp.default.policy-%d", i%100, i)},
			Policy: &pb.Policy{Namespace: fmt.Sprintf("ns-%d", i%100), InboundRules: rules, OutboundRules: rules[:1], OriginalSelector: "app == 'web'"},
		}}})
	}
	return out
}

// BenchmarkPipe compares a driver that reads a large state from a pipe with a reader that discards the bytes.
func BenchmarkPipe(b *testing.B) {
	messages := large()
	b.Run("discard", func(b *testing.B) {
		for b.Loop() {
			piped(b, messages, discarded)
		}
	})
	b.Run("driver", func(b *testing.B) {
		for b.Loop() {
			n := 0
			piped(b, messages, func(out *os.File) {
				err := NewDriver(Config{In: out, Out: discard{}}).Run(b.Context(), func(ev event.Event) {
					if ev, ok := ev.(*event.Dataplane); ok {
						n += len(ev.Messages)
					}
				})
				if !errors.Is(err, ErrGone) || n != len(messages) {
					b.Errorf("%d messages, %v", n, err)
				}
			})
		}
	})
}

// piped encodes messages into a pipe, and waits until read has read all of it.
func piped(b *testing.B, messages []*pb.ToDataplane, read func(*os.File)) {
	out, in, err := os.Pipe()
	if err != nil {
		b.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); read(out) }()
	w := NewWriter(in)
	for _, m := range messages {
		if err := w.Write(m); err != nil {
			b.Fatal(err)
		}
	}
	if err := in.Close(); err != nil {
		b.Fatal(err)
	}
	<-done
}

// discarded reads a pipe without decoding.
func discarded(out *os.File) { _, _ = io.Copy(io.Discard, out); _ = out.Close() }
