package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Limits on etcd's silence and on the size of its messages.
const (
	dialTimeout    = 10 * time.Second // two answers: the connection, and the first request
	requestTimeout = 15 * time.Second
	keepAlive      = 10 * time.Second
	maxReceive     = 16 << 20 // several values that are refused for their length, or a page of valid ones
)

// client is one connection to etcd. It implements reader and writer.
type client struct {
	etcd *clientv3.Client
	root string
}

// dial connects, and returns when a member answers.
func dial(ctx context.Context, cfg *Config) (*client, error) {
	c := clientv3.Config{
		Endpoints: cfg.Endpoints, TLS: cfg.TLS, Context: ctx,
		DialTimeout: dialTimeout, DialKeepAliveTime: keepAlive, DialKeepAliveTimeout: keepAlive, PermitWithoutStream: true,
		MaxCallRecvMsgSize: maxReceive,
		Logger:             zap.NewNop(), // errors report its messages, too
	}
	if c.TLS == nil && cfg.secure() {
		c.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if c.TLS != nil && c.TLS.ServerName != "" { // the client's resolver sets a name per endpoint, which grpc prefers to that of TLS
		c.DialOptions = append(c.DialOptions, grpc.WithAuthority(c.TLS.ServerName))
	}
	if cfg.Dial != nil {
		c.DialOptions = append(c.DialOptions, grpc.WithContextDialer(cfg.Dial))
	}
	etcd, err := connect(ctx, c)
	if err != nil {
		return nil, err
	}
	if cfg.Username != "" { // not earlier: without a member a log-in fails without a reason; and etcd checks passwords slowly
		_ = etcd.Close()
		c.Username, c.Password, c.DialTimeout = cfg.Username, cfg.Password, requestTimeout
		if etcd, err = clientv3.New(c); err != nil {
			return nil, fmt.Errorf("log in as %s: %w", cfg.Username, err)
		}
	}
	return &client{etcd, cfg.root()}, nil
}

// connect returns when a member answers, or the reason why none does. The client's calls would wait and give no reason.
func connect(ctx context.Context, c clientv3.Config) (*clientv3.Client, error) {
	etcd, err := clientv3.New(c)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	err = etcd.ActiveConnection().Invoke(ctx, "/etcdserverpb.Maintenance/Status", &etcdserverpb.StatusRequest{}, &etcdserverpb.StatusResponse{}, grpc.WaitForReady(false))
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		return nil, errors.Join(errors.New(status.Convert(err).Message()), etcd.Close())
	}
	return etcd, nil // any answer means that the member runs
}

// Close ends the connection.
func (c *client) Close() { _ = c.etcd.Close() } // an error here has no remedy

// Page implements reader.
func (c *client) Page(ctx context.Context, from string, limit int64, rev int64) (*page, error) {
	got, err := c.getPage(ctx, from, limit, rev)
	if status.Code(err) == codes.ResourceExhausted {
		if limit > 1 {
			return nil, errPageTooLong
		}
		if got, err = c.getPage(ctx, from, limit, rev, clientv3.WithKeysOnly()); err == nil {
			p := c.page(got)
			for i := range p.pairs {
				p.pairs[i].tooLong = true
			}
			return p, nil
		}
	}
	if err != nil {
		return nil, err
	}
	return c.page(got), nil
}

func (c *client) getPage(ctx context.Context, from string, limit int64, rev int64, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if from == "" {
		from = configPrefix
	}
	end := clientv3.GetPrefixRangeEnd(c.root + configPrefix)
	return c.etcd.Get(ctx, c.root+from, append(opts, clientv3.WithRange(end), clientv3.WithLimit(limit), clientv3.WithRev(rev))...)
}

func (c *client) page(got *clientv3.GetResponse) *page {
	p := &page{more: got.More, rev: got.Header.Revision, pairs: make([]pair, 0, len(got.Kvs))}
	for _, kv := range got.Kvs {
		p.pairs = append(p.pairs, pair{key: string(kv.Key[len(c.root):]), value: kv.Value})
	}
	return p
}

// Watch implements reader. A lost connection is an error even if it is restored, because it may then lead to another etcd.
func (c *client) Watch(ctx context.Context, rev int64, handle func(rev int64, pairs []pair)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	monitored := make(chan struct{})
	go func() { defer close(monitored); cancel(c.lost(ctx)) }()
	defer func() { cancel(nil); <-monitored }()
	responses := c.etcd.Watch(clientv3.WithRequireLeader(ctx), c.root+configPrefix, clientv3.WithPrefix(), clientv3.WithRev(rev+1), clientv3.WithFragment())
	for resp := range responses {
		if err := resp.Err(); err != nil {
			if ctx.Err() != nil {
				break
			}
			return err
		}
		for first := 0; first < len(resp.Events); {
			rev, end := resp.Events[first].Kv.ModRevision, first
			for end < len(resp.Events) && resp.Events[end].Kv.ModRevision == rev {
				end++
			}
			handle(rev, c.events(resp.Events[first:end]))
			first = end
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return errLost
}

func (c *client) events(events []*clientv3.Event) []pair {
	pairs := make([]pair, 0, len(events))
	for _, ev := range events {
		pairs = append(pairs, pair{key: string(ev.Kv.Key[len(c.root):]), value: ev.Kv.Value, deleted: ev.Type == clientv3.EventTypeDelete})
	}
	return pairs
}

// lost returns when no member of the cluster is connected any more.
func (c *client) lost(ctx context.Context) error {
	conn := c.etcd.ActiveConnection()
	for {
		state := conn.GetState()
		if state.String() != "READY" {
			return errLost
		}
		if !conn.WaitForStateChange(ctx, state) {
			return ctx.Err()
		}
	}
}

// Grant implements writer.
func (c *client) Grant(ctx context.Context, ttl time.Duration) (lease int64, lost <-chan struct{}, err error) {
	asked, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	granted, err := c.etcd.Grant(asked, int64(ttl/time.Second))
	if err != nil {
		return 0, nil, err
	}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		c.renewLease(ctx, granted.ID, time.Duration(granted.TTL)*time.Second)
	}()
	return int64(granted.ID), gone, nil
}

// Write implements writer.
func (c *client) Write(ctx context.Context, lease int64, puts []pair, deletes []string) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	ops := make([]clientv3.Op, 0, len(puts)+len(deletes))
	for _, p := range puts {
		ops = append(ops, clientv3.OpPut(c.root+p.key, string(p.value), clientv3.WithLease(clientv3.LeaseID(lease))))
	}
	for _, key := range deletes {
		ops = append(ops, clientv3.OpDelete(c.root+key))
	}
	_, err := c.etcd.Txn(ctx).Then(ops...).Commit()
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return fmt.Errorf("%w: %w", errLeaseLost, err)
	}
	return err
}

// Revoke implements writer.
func (c *client) Revoke(ctx context.Context, lease int64) error {
	_, err := c.etcd.Revoke(ctx, clientv3.LeaseID(lease))
	return err
}
