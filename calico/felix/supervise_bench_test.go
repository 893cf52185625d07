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

// BenchmarkSupervisor sends a set of 100,000 members and 10,000 policies to a driver process, until that reports that it
// has read in_sync. In comparison it encodes the same messages into a pipe that io.Discard reads.
func BenchmarkSupervisor(b *testing.B) {
	for _, driver := range []string{"discards", "decodes"} { // another program's, and this package's
		b.Run("driver="+driver, func(b *testing.B) { benchmarkSupervisor(b, driver) })
	}
}

func benchmarkSupervisor(b *testing.B, driver string) {
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	messages := append(large(), inSync(0))
	var ours, bare []time.Duration
	for b.Loop() {
		runtime.GC() // neither measurement pays for earlier garbage
		start := time.Now()
		piped(b, messages, discarded)
		bare = append(bare, time.Since(start))

		heard := make(chan struct{}, 1)
		s := NewSupervisor(SupervisorConfig{Path: self, Env: []string{envDriver + "=" + driver}, OnMessage: func(m *pb.FromDataplane) {
			heard <- struct{}{}
		}})
		ctx, cancel := context.WithCancel(b.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		<-heard // it runs, and has the configuration
		runtime.GC()
		start = time.Now()
		for _, m := range messages {
			s.OnUpdate(m)
		}
		s.Apply()
		<-heard
		ours = append(ours, time.Since(start))
		cancel()
		<-ended
	}
	slices.Sort(ours)
	slices.Sort(bare)
	mid := len(ours) / 2
	b.ReportMetric(float64(ours[mid].Microseconds())/1e3, "driver-ms")
	b.ReportMetric(float64(bare[mid].Microseconds())/1e3, "bare-ms")
	b.ReportMetric(float64(ours[mid])/float64(bare[mid]), "ratio")
}
