package fanout

import (
	"context"
	"time"
)

// governEvery is the interval at which limits are checked.
const governEvery = 2 * time.Second

// govern closes connections that exceed a limit, until ctx ends.
func (s *Server) govern(ctx context.Context) {
	ticker := time.NewTicker(governEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			conns := s.allConns()
			s.limits(now, conns)
			s.balance(now, conns)
		}
	}
}

// limits closes the connections of clients that owe a pong too long or are too far behind.
func (s *Server) limits(now time.Time, conns []*conn) {
	behind := map[string]time.Duration{}
	for _, c := range conns {
		if at := c.pinged.Load(); at != nil && now.Sub(*at) > s.cfg.PongWithin {
			c.closeBecause("no pong")
			continue
		}
		crumb := c.reached.Load()
		if crumb == nil {
			continue // before its snapshot: the deadline of the hello applies
		}
		late, size := c.measureLag(now, crumb)
		behind[c.cache.name] = max(behind[c.cache.name], late)
		switch {
		case size > s.cfg.MaxBehindBytes:
			c.closeBecause("too far behind")
		case late > s.cfg.MaxBehind && now.After(c.graceEnds()):
			c.closeBecause("too long behind")
		}
	}
	for of, cache := range s.caches {
		s.m.behind.WithLabelValues(of.String()).Set(behind[cache.name].Seconds())
	}
}

// measureLag returns the age of the oldest change that the client has not received, and the bytes of all such changes.
func (c *conn) measureLag(now time.Time, reached *crumb) (late time.Duration, size int64) {
	if next := reached.next.Load(); next != nil {
		late = now.Sub(next.at)
	}
	return late, c.cache.latest().crumb.offset - reached.offset
}

// graceEnds returns the end of the grace period: Grace after the end of the snapshot, or, while the
// snapshot is being sent, Grace after the start of the connection.
func (c *conn) graceEnds() time.Time {
	if at := c.grace.Load(); at != nil {
		return *at
	}
	return c.born.Add(c.cfg.Grace)
}
