package etcd

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// renewals are how many renewals of a lease are requested in its time. The next request does not wait for the answer to the one before: otherwise an etcd that
// answers slowly would get too few.
const renewals = 3

// renewPause is between the end of a stream of renewals and the next one.
const renewPause = 500 * time.Millisecond

// renewLease renews a lease with a time to live. It returns when ctx ends, when etcd says that the lease has ended, and when etcd has said nothing about it for the
// time to live. The first renewal is at once: etcd ends a connection that has pings and no stream. The KeepAlive of clientv3 does the same, but it wakes three times a
// second for it.
func (c *client) renewLease(ctx context.Context, id clientv3.LeaseID, ttl time.Duration) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	over := time.AfterFunc(ttl, cancel)
	defer over.Stop()
	for !errors.Is(c.renewByStream(ctx, id, ttl, func() { over.Reset(ttl) }), errLeaseLost) {
		select {
		case <-ctx.Done():
			return
		case <-time.After(renewPause):
		}
	}
}

// renewByStream renews a lease by one stream until it ends, and calls renewed for each answer. A stream for all renewals instead of one for each: with a password,
// etcd's client logs in for each stream, and etcd checks passwords slowly.
func (c *client) renewByStream(ctx context.Context, id clientv3.LeaseID, ttl time.Duration, renewed func()) error {
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
	next := time.NewTicker(ttl / renewals)
	defer next.Stop()
	request := &etcdserverpb.LeaseKeepAliveRequest{ID: int64(id)}
	for err = stream.Send(request); err == nil; {
		select {
		case <-next.C:
			err = stream.Send(request)
		case answer := <-answers:
			switch {
			case answer == nil: // the end of the stream, with the connection: the next one needs a stream, too
				return errLost
			case answer.TTL <= 0:
				return errLeaseLost
			}
			renewed()
		}
	}
	return err
}
