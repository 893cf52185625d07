package felix

import (
	"context"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	pb "github.com/contiv-agent/contiv-agent/proto/felix"
)

// BenchmarkSupervisor sends a set of 100,000 members and 10,000 policies to a driver process, until that reports that it has read in_sync.
//
// Each driver has its own comparison, measured in turn. A driver that discards the messages shows what the supervisor adds to encoding the same
// messages into a pipe that io.Discard reads. This package's driver shows what its decoder costs: the comparison is a driver that decodes the
// messages by protobuf. Encoding alone is no measure of it: both drivers keep 34 MB of messages, and the pages of a new process for them take as
// long as decoding.
func BenchmarkSupervisor(b *testing.B) {
	messages := append(large(), inSync(0))
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	to := func(driver string) func() time.Duration {
		return func() time.Duration { return toDriver(b, self, driver, messages) }
	}
	bare := func() time.Duration {
		runtime.GC() // no measurement pays for earlier garbage
		start := time.Now()
		piped(b, messages, discarded)
		return time.Since(start)
	}
	b.Run("driver=discards", func(b *testing.B) { inTurn(b, to("discards"), bare, "bare") })
	b.Run("driver=decodes", func(b *testing.B) { inTurn(b, to("decodes"), to("decodes by protobuf"), "protobuf") })
}

// inTurn measures a driver and its comparison in turn, and reports medians.
func inTurn(b *testing.B, driver, other func() time.Duration, name string) {
	var ours, theirs []time.Duration
	for b.Loop() {
		theirs = append(theirs, other())
		ours = append(ours, driver())
	}
	slices.Sort(ours)
	slices.Sort(theirs)
	mid := len(ours) / 2
	b.ReportMetric(float64(ours[mid].Microseconds())/1e3, "driver-ms")
	b.ReportMetric(float64(theirs[mid].Microseconds())/1e3, name+"-ms")
	b.ReportMetric(float64(ours[mid])/float64(theirs[mid]), "ratio")
}

// toDriver sends messages to a driver that already runs, and returns the time until it reports in_sync.
func toDriver(b *testing.B, self, driver string, messages []*pb.ToDataplane) time.Duration {
	heard := make(chan struct{}, 1)
	s := NewSupervisor(SupervisorConfig{Path: self, Env: []string{envDriver + "=" + driver}, OnMessage: func(*pb.FromDataplane) {
		heard <- struct{}{}
	}})
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	<-heard // it runs, and has the configuration
	runtime.GC()
	start := time.Now()
	for _, m := range messages {
		s.OnUpdate(m)
	}
	s.Apply()
	<-heard
	took := time.Since(start)
	cancel()
	<-ended
	return took
}
