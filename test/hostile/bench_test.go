package hostile

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/budget"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
)

// scattered is the largest Service that the default limits admit, its endpoints in three slices and in no order. Moved is the last number of the
// address of one of them.
func scattered(moved byte) []event.Change {
	list := service(128, 2048, func(*model.Service) {})
	whole := list[1].Object.(*model.EndpointSlice)
	whole.Endpoints[7].Addr = netip.AddrFrom4([4]byte{10, 10, 0, moved})
	rand.New(rand.NewPCG(1, 0)).Shuffle(len(whole.Endpoints), func(i, j int) {
		whole.Endpoints[i], whole.Endpoints[j] = whole.Endpoints[j], whole.Endpoints[i]
	})
	list = list[:1]
	for i := range 3 {
		part := *whole
		part.ID.Name = fmt.Sprint("sized-", i)
		part.Endpoints = whole.Endpoints[i*2048/3 : (i+1)*2048/3]
		list = append(list, putChange(&part))
	}
	return list
}

// BenchmarkLargestService is the time of one turn in which one of 262,144 backends changes, VPP included.
func BenchmarkLargestService(b *testing.B) {
	n := newNodeOn(b, budget.Defaults().Within(memory), "25.10-release")
	n.feed(scattered(0))
	b.ReportAllocs()
	began, i := processorTime(b), 0
	for b.Loop() {
		i++
		n.feed(scattered(byte(i))[1:])
	}
	b.ReportMetric(float64((processorTime(b)-began).Microseconds())/1000/float64(i), "cpu-ms/op")
	if why := n.verdicts(); why != "" {
		b.Error(why)
	}
}

// processorTime is that of this process, on all cores.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
