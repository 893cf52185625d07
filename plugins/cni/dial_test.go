package cni_test

import (
	"context"
	"net"
)

// dialer returns the dial function of a client of a unix socket.
func dialer(socket string) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}
}
