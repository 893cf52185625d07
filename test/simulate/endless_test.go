package simulate

import (
	"fmt"
	"os"
	"runtime/pprof"
	"time"
)

// mostWork is how much of a processor a seed may use. It uses 1 to 10 s; what it starts at one moment of virtual time and never waits for would let no time pass.
const mostWork = 5 * time.Minute

// guardWork ends the process if a schedule uses more of a processor than mostWork: then agents or servers work without end, and no other law will be evaluated.
func guardWork(s Schedule) (stop func()) {
	ended, began := make(chan struct{}), processorTime()
	go func() {
		look := time.NewTicker(time.Second)
		defer look.Stop()
		for {
			select {
			case <-ended:
				return
			case <-look.C:
			}
			if used := processorTime() - began; used > mostWork {
				fmt.Printf("seed %d has used %s of a processor, and does not end: something works without a pause\n%sagain: %s\n", s.Seed, used.Round(time.Second), s, s.Replay())
				_ = pprof.Lookup("goroutine").WriteTo(os.Stdout, 1)
				os.Exit(1)
			}
		}
	}()
	return func() { close(ended) }
}
