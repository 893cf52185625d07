package grpc

import (
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
)

// patience is how long a connection may do nothing: there are few, and a client that is gone or silent must not hold one.
type patience struct {
	hello  time.Duration // until the client has said hello, with TLS if that is asked for
	idle   time.Duration // without a call; a call that watches is one
	ping   time.Duration // without a byte until the server asks whether the client is there
	answer time.Duration // to that
}

// standard is for servers; clients connect again by themselves.
var standard = patience{hello: 10 * time.Second, idle: 5 * time.Minute, ping: time.Minute, answer: 20 * time.Second}

func (p patience) options() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ConnectionTimeout(p.hello),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: p.idle, Time: p.ping, Timeout: p.answer}),
	}
}
