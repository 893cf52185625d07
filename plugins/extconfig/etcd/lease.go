package etcd

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// renewals are how many renewals a lease has in its time, if etcd answers them soon. The time of an answer counts: otherwise an etcd that answers slowly would get too few.
const renewals = 3

// renewPause is between the end of a stream of renewals and the next one.
const renewPause = 500 * time.Millisecond

// renewLease renews a lease that began with a time to live. It returns when ctx ends, when etcd says that the lease has ended, and when etcd has renewed it for the
// last time so long ago that it may have ended. The first renewal is at once: etcd ends a connection that has pings and no stream. The KeepAlive of clientv3 does the
// same, but it wakes three times a second for it.
func (c *client) renewLease(ctx context.Context, id clientv3.LeaseID, began time.Time, ttl time.Duration) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	over := time.AfterFunc(time.Until(began.Add(ttl)), cancel)
	defer over.Stop()
	renewed := func(at time.Time, ttl time.Duration) { over.Reset(time.Until(at.Add(ttl))) }
	for !errors.Is(c.renewByStream(ctx, id, renewed), errLeaseLost) {
		select {
		case <-ctx.Done():
			return
		case <-time.After(renewPause):
		}
	}
}

// renewByStream renews a lease by one stream until it ends. It calls renewed with the moment of each request that etcd has answered, and the time to live from then
// on. A stream for all renewals instead of one for each: with a password, etcd's client logs in for each stream, and etcd checks passwords slowly.
func (c *client) renewByStream(ctx context.Context, id clientv3.LeaseID, renewed func(at time.Time, ttl time.Duration)) error {
	ctx, cancel := context.WithCancel(ctx) // ends the stream
	defer cancel()
	stream, err := etcdserverpb.NewLeaseClient(c.etcd.ActiveConnection()).LeaseKeepAlive(ctx)
	if err != nil {
		return err
	}
	answers := make(chan *etcdserverpb.LeaseKeepAliveResponse) // closed when the stream has ended
	go func() {
		defer close(answers)
		for answer, err := stream.Recv(); err == nil; answer, err = stream.Recv() {
			answers <- answer
		}
	}()
	defer func() {
		cancel()
		for range answers { // until Recv has failed
		}
	}()
	for {
		asked := time.Now()
		if err := stream.Send(&etcdserverpb.LeaseKeepAliveRequest{ID: int64(id)}); err != nil {
			return err
		}
		answer := <-answers
		switch {
		case answer == nil:
			return errLost
		case answer.TTL <= 0:
			return errLeaseLost
		}
		ttl := time.Duration(answer.TTL) * time.Second
		renewed(asked, ttl)
		select {
		case <-answers: // the end of the stream, with the connection: the next one needs a stream, too
			return errLost
		case <-time.After(time.Until(asked.Add(ttl / renewals))): // at once, if the answer took longer
		}
	}
}
