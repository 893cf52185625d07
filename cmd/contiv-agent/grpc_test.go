package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/plugins/extconfig"
	"github.com/contiv-agent/contiv-agent/proto/contiv/rpc"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/l3"
	"github.com/contiv-agent/contiv-agent/test/pace"
)

// process is an agent in a separate process, with a client.
type process struct {
	cmd  *exec.Cmd
	conn *grpc.ClientConn
	log  *strings.Builder
}

func startProcess(t *testing.T, dir string) *process {
	t.Helper()
	socket := filepath.Join(dir, "grpc.sock")
	p := &process{log: &strings.Builder{}}
	p.cmd = exec.Command("contiv-agent", "run", "--sim", "--manifests", filepath.Join(dir, "objects.yaml"), "--node", "node-1", "--listen", "",
		"--status-socket", "", "--grpc-socket", socket, "--grpc-db", filepath.Join(dir, "grpc.db"))
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	often := grpc.ConnectParams{ // long enough that a connection can be made
		Backoff: backoff.Config{BaseDelay: 5 * time.Millisecond, Multiplier: 1.2, MaxDelay: 50 * time.Millisecond}, MinConnectTimeout: 5 * time.Second,
	}
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithConnectParams(often))
	if err != nil {
		t.Fatal(err)
	}
	p.conn = conn
	t.Cleanup(p.kill)
	return p
}

// kill is kill -9.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
	_ = p.conn.Close()
}

func (p *process) call(method string, req *rpc.DataRequest, opts ...grpc.CallOption) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return p.conn.Invoke(ctx, method, req, &rpc.PutResponse{}, opts...)
}

// TestKilledWhilePutting kills the agent at random moments of a stream of requests. The file has all acknowledged requests,
// no refused one, and the unfinished request either whole or not at all.
func TestKilledWhilePutting(t *testing.T) {
	rounds := pace.Fewer(30, 10)
	dir := t.TempDir()
	file := filepath.Join(dir, "grpc.db")
	node := "apiVersion: v1\nkind: Node\nmetadata: {name: node-1}\nspec: {podCIDR: 10.1.1.0/24, podCIDRs: [10.1.1.0/24]}\nstatus: {addresses: [{type: InternalIP, address: 192.168.16.1}]}\n"
	if err := os.WriteFile(filepath.Join(dir, "objects.yaml"), []byte(node), 0o600); err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	acknowledged := kv.Values{}
	requests := 0
	for round := range rounds {
		p := startProcess(t, dir)
		if err := p.call("/rpc.DataChangeService/Put", &rpc.DataRequest{}, grpc.WaitForReady(true)); err != nil {
			t.Fatalf("round %d: %v\n%s", round, err, p.log)
		}
		underWay := acknowledged
		for last := 1 + random.IntN(20); ; last-- { // killed during or soon after the last one
			requests++
			if last == 0 {
				time.AfterFunc(time.Duration(random.IntN(3_000))*time.Microsecond, func() { _ = p.cmd.Process.Kill() })
			}
			method, req, next := randomRequest(random, acknowledged, uint32(requests))
			underWay = next
			err := p.call(method, req)
			if status.Code(err) == codes.Unavailable {
				break // killed
			}
			if bad := len(req.StaticRoutes) > 0 && req.StaticRoutes[0].NextHopAddr == "nonsense"; bad != (err != nil) {
				t.Fatalf("%s: %v: %v", method, req, err)
			}
			acknowledged = next
		}
		p.kill()
		got := stored(t, file)
		if cmp.Equal(got, underWay, protocmp.Transform()) {
			acknowledged = underWay
		}
		if diff := cmp.Diff(acknowledged, got, protocmp.Transform()); diff != "" {
			t.Fatalf("round %d: neither before nor after the request under way (-acknowledged +file):\n%s", round, diff)
		}
	}
	t.Logf("%d requests, %d values in the end", requests, len(acknowledged))
	if requests < 2*rounds {
		t.Errorf("only %d requests in %d rounds: killed before anything could happen", requests, rounds)
	}
}

// randomRequest changes two routes, and returns the desired state after it.
func randomRequest(random *rand.Rand, have kv.Values, seq uint32) (method string, req *rpc.DataRequest, next kv.Values) {
	req, next = &rpc.DataRequest{}, kv.Values{}
	for key, m := range have {
		next[key] = m
	}
	del := random.IntN(3) == 0
	at := random.IntN(10)
	for i := range 2 {
		r := &l3.Route{Type: l3.Route_DROP, DstNetwork: fmt.Sprintf("192.0.2.%d/32", (at+i)%10), Weight: seq%200 + 1}
		if del {
			delete(next, kv.Key(r))
		} else {
			next.Put(proto.CloneOf(r))
		}
		req.StaticRoutes = append(req.StaticRoutes, r)
	}
	switch {
	case del:
		return "/rpc.DataChangeService/Del", req, next
	case random.IntN(4) == 0: // can never work: only this value is not kept
		bad := &l3.Route{DstNetwork: "198.51.100.0/24", NextHopAddr: "nonsense"}
		req.StaticRoutes = append([]*l3.Route{bad}, req.StaticRoutes...)
	}
	return "/rpc.DataChangeService/Put", req, next
}

func stored(t *testing.T, file string) kv.Values {
	t.Helper()
	store, err := extconfig.OpenStore(file)
	if err != nil {
		t.Fatal(err)
	}
	wants, unread, err := store.Load()
	if err != nil || len(unread) > 0 {
		t.Fatal(err, unread)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	if wants[""] == nil {
		return kv.Values{}
	}
	return wants[""]
}
