package fanout

import (
	"strings"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/calico/wire"
	"github.com/contiv-agent/contiv-agent/test/poll"
)

// The node's clock may be set: the times of unanswered pings and of the grace period have monotonic readings. Times in a bubble of synctest have none.
func TestPeriodsDoNotDependOnTheClock(t *testing.T) {
	s, l := serving(t, Config{PingEvery: time.Millisecond})
	s.Publish(batchOf(wire.InSync))
	mute := connected(t, l, hello("mute"))
	mute.mute = true
	ended := make(chan error)
	go func() { ended <- mute.until(func() bool { return false }) }()
	poll.Until(t, "a ping", func() bool {
		list := s.allConns()
		return len(list) == 1 && list[0].pinged.Load() != nil && list[0].grace.Load() != nil
	})
	c := s.allConns()[0]
	for name, at := range map[string]*time.Time{"ping": c.pinged.Load(), "grace": c.grace.Load()} {
		if at == nil || !strings.Contains(at.String(), " m=") {
			t.Errorf("%s: %v", name, at)
		}
	}
	_ = mute.conn.Close()
	<-ended
}
