package grpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// Silent clients, before and after their last call, do not keep their connections.
func TestIdleConnectionsAreClosed(t *testing.T) {
	server, err := New(Config{TCP: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	server.patience = patience{hello: 50 * time.Millisecond, idle: 100 * time.Millisecond, ping: time.Minute, answer: time.Minute}
	gs := server.server(true)
	defer gs.Stop()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = gs.Serve(l) }() // ends with Stop
	silent, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	_ = silent.SetReadDeadline(time.Now().Add(30 * time.Second))
	if _, err := io.Copy(io.Discard, silent); err != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a client that says nothing: %v, want that it is closed", err)
	}
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for range 2 { // it reconnects for its next call
		if _, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{}); err != nil {
			t.Fatal(err)
		}
		for st := conn.GetState(); st != connectivity.Idle; st = conn.GetState() {
			if !conn.WaitForStateChange(ctx, st) {
				t.Fatalf("a client that asks nothing: still %s", st)
			}
		}
	}
}

// SECURITY.md names the times correctly, and servers use them.
func TestSecurityPageNamesTheTimes(t *testing.T) {
	page, err := os.ReadFile("../../../SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("A client has %.0f s to say hello; a connection without a call is closed after %.0f min, one whose client does not answer a ping after %.0f s",
		standard.hello.Seconds(), standard.idle.Minutes(), (standard.ping + standard.answer).Seconds())
	if !strings.Contains(strings.Join(strings.Fields(string(page)), " "), want) {
		t.Errorf("SECURITY.md does not say %q", want)
	}
	if s, err := New(Config{TCP: "127.0.0.1:0"}); err != nil || s.patience != standard {
		t.Errorf("%+v %v", s, err)
	}
}
