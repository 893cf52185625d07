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

// BenchmarkLargeSet is the time of one turn in which members of a set of 10,000 are replaced by others, VPP included.
func BenchmarkLargeSet(b *testing.B) {
	for _, egress := range []bool{false, true} {
		for _, replaced := range []int{1, 64} {
			b.Run(fmt.Sprintf("egress=%v/replaced=%d", egress, replaced), func(b *testing.B) {
				n := newNodeOn(b, budget.Defaults().Within(memory), "25.10-release")
				n.feed(largeSet(10000, egress))
				b.ReportAllocs()
				began, i := processorTime(b), 0
				for b.Loop() {
					var changes []event.Change
					for j := range replaced {
						k := (i*replaced + j) * 149 % 10000 // everywhere in the set
						if i*replaced/10000%2 == 0 {
							changes = append(changes, gone(k), member(10000+k))
						} else {
							changes = append(changes, gone(10000+k), member(k))
						}
					}
					n.feed(changes)
					i++
				}
				b.ReportMetric(float64((processorTime(b)-began).Microseconds())/1000/float64(i), "cpu-ms/op")
				if why := n.verdicts(); why != "" {
					b.Error(why)
				}
			})
		}
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
