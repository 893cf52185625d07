package grpc

import (
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
)

// patience is how long a connection may be idle. Connections are few, so an absent or silent client must not hold one.
type patience struct {
	hello  time.Duration // until the client's handshake, with TLS if configured
	idle   time.Duration // without a call; a watching call counts
	ping   time.Duration // without a byte until the server sends a ping
	answer time.Duration // to the ping
}

// standard is for servers; clients reconnect by themselves.
var standard = patience{hello: 10 * time.Second, idle: 5 * time.Minute, ping: time.Minute, answer: 20 * time.Second}

func (p patience) options() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ConnectionTimeout(p.hello),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: p.idle, Time: p.ping, Timeout: p.answer}),
	}
}
