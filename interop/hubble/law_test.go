package hubble

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	agentflows "github.com/contiv-agent/contiv-agent/agent/flows"
	"github.com/contiv-agent/contiv-agent/agent/flows/hubble"
	"github.com/contiv-agent/contiv-agent/flows"
	"github.com/contiv-agent/contiv-agent/proto/hubble/flow"
	"github.com/contiv-agent/contiv-agent/proto/hubble/observer"
	"github.com/contiv-agent/contiv-agent/proto/hubble/peer"
	"github.com/contiv-agent/contiv-agent/proto/hubble/relay"
)

var (
	seed  = flag.Uint64("seed", 1, "seed of random flows and filters")
	cases = flag.Int("cases", 1000, "number of random requests")
)

// TestSchema: each message, field, value and method that the product restates is Cilium's, with the same name, number and type.
func TestSchema(t *testing.T) {
	text, err := run(t, "", "filters", "schema")
	if err != nil {
		t.Fatal(err)
	}
	theirs := map[string]bool{}
	for line := range strings.Lines(text) {
		theirs[strings.TrimSpace(line)] = true
	}
	n := 0
	hold := func(words ...any) {
		n++
		if line := strings.TrimSpace(fmt.Sprintln(words...)); !theirs[line] {
			t.Errorf("Cilium has no %s", line)
		}
	}
	enums := func(list protoreflect.EnumDescriptors) {
		for i := range list.Len() {
			for j := range list.Get(i).Values().Len() {
				v := list.Get(i).Values().Get(j)
				hold("value", list.Get(i).FullName(), v.Number(), v.Name())
			}
		}
	}
	var messages func(list protoreflect.MessageDescriptors)
	messages = func(list protoreflect.MessageDescriptors) {
		for i := range list.Len() {
			m := list.Get(i)
			hold("message", m.FullName())
			for j := range m.Fields().Len() {
				f := m.Fields().Get(j)
				kind, oneof := f.Kind().String(), ""
				switch {
				case f.Message() != nil:
					kind = string(f.Message().FullName())
				case f.Enum() != nil:
					kind = string(f.Enum().FullName())
				}
				if o := f.ContainingOneof(); o != nil {
					oneof = string(o.Name())
				}
				hold("field", f.FullName(), f.Number(), f.Cardinality(), kind, oneof)
			}
			enums(m.Enums())
			messages(m.Messages())
		}
	}
	for _, file := range []protoreflect.FileDescriptor{
		flow.File_hubble_flow_flow_proto, observer.File_hubble_observer_observer_proto, peer.File_hubble_peer_peer_proto, relay.File_hubble_relay_relay_proto,
	} {
		for i := range file.Services().Len() {
			for j := range file.Services().Get(i).Methods().Len() {
				m := file.Services().Get(i).Methods().Get(j)
				hold("method", m.FullName(), m.Input().FullName(), m.Output().FullName(), m.IsStreamingClient(), m.IsStreamingServer())
			}
		}
		enums(file.Enums())
		messages(file.Messages())
	}
	if n < 200 {
		t.Errorf("only %d names were compared", n)
	}
	// Every filter has a name here, so that the agent can refuse those that it cannot evaluate by their names.
	for line := range theirs {
		words := strings.Fields(line)
		if name := protoreflect.Name(strings.TrimPrefix(words[1], "flow.FlowFilter.")); words[0] == "field" && !strings.Contains(string(name), ".") &&
			(&flow.FlowFilter{}).ProtoReflect().Descriptor().Fields().ByName(name) == nil {
			t.Errorf("the filter %s is not restated", name)
		}
	}
}

// fixed is a Source with flows that do not change.
type fixed []flows.Flow

func (f fixed) All(context.Context, uint64) (*agentflows.Answer, error) {
	return &agentflows.Answer{Flows: f, Next: uint64(len(f))}, nil
}

func (f fixed) Follow(ctx context.Context, _ uint64) (*agentflows.Answer, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// serve serves a source and returns a connection.
func serve(t *testing.T, source hubble.Source) *grpc.ClientConn {
	t.Helper()
	server, err := hubble.New(hubble.Config{Listen: "unix:" + filepath.Join(t.TempDir(), "hubble.sock"), Node: "node-1"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended, listening := make(chan error, 1), make(chan net.Addr, 1)
	go func() { ended <- server.Run(ctx, source, nil, func(a net.Addr) { listening <- a }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	conn, err := grpc.NewClient("unix:"+(<-listening).String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// getFlows returns the flows of a request.
func getFlows(t *testing.T, conn *grpc.ClientConn, req *observer.GetFlowsRequest) ([]*flow.Flow, error) {
	t.Helper()
	stream, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true}, "/observer.Observer/GetFlows")
	if err == nil {
		err = errors.Join(stream.SendMsg(req), stream.CloseSend())
	}
	if err != nil {
		t.Fatal(err)
	}
	var out []*flow.Flow
	for {
		r := &observer.GetFlowsResponse{}
		if err := stream.RecvMsg(r); errors.Is(err, io.EOF) {
			return out, nil
		} else if err != nil {
			return out, err
		}
		out = append(out, r.GetFlow())
	}
}

// ciliumMatches returns the verdicts of Cilium's filters about each request and all flows, a line each.
func ciliumMatches(t *testing.T, reqs []*observer.GetFlowsRequest, all []*flow.Flow) [][]string {
	t.Helper()
	var in bytes.Buffer
	write := func(m proto.Message) {
		b, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		in.Write(binary.AppendUvarint(nil, uint64(len(b))))
		in.Write(b)
	}
	for _, req := range reqs {
		for _, f := range all {
			write(req)
			write(f)
		}
	}
	text, err := run(t, in.String(), "filters", "match")
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(strings.NewReader(text))
	out := make([][]string, len(reqs))
	for i := range reqs {
		for range all {
			if !lines.Scan() {
				t.Fatal("too few verdicts")
			}
			out[i] = append(out[i], lines.Text())
		}
	}
	return out
}

// TestFilters: for random flows and requests, an agent sends the flows that Cilium's own filters let pass, and refuses what they refuse.
func TestFilters(t *testing.T) {
	rnd := rand.New(rand.NewPCG(*seed, 22))
	var world fixed
	for n := range 60 {
		world = append(world, randomFlow(rnd, n))
	}
	conn := serve(t, world)
	all, err := getFlows(t, conn, &observer.GetFlowsRequest{})
	if err != nil || len(all) != len(world) {
		t.Fatal(len(all), err)
	}
	var reqs []*observer.GetFlowsRequest
	for range *cases {
		req := &observer.GetFlowsRequest{}
		for range rnd.IntN(3) {
			req.Whitelist = append(req.Whitelist, randomFilter(rnd, all))
		}
		for range rnd.IntN(2) {
			req.Blacklist = append(req.Blacklist, randomFilter(rnd, all))
		}
		if rnd.IntN(4) == 0 { // as Hubble UI's page does
			req.Blacklist = append(req.Blacklist, &flow.FlowFilter{SourceFqdn: []string{"*.cluster.local*"}}, &flow.FlowFilter{DestinationFqdn: []string{"*.cluster.local*"}})
		}
		reqs = append(reqs, req)
	}
	verdicts := ciliumMatches(t, reqs, all)
	some, refused, wrong := 0, 0, 0
	for i, req := range reqs {
		got, err := getFlows(t, conn, req)
		if want := verdicts[i][0]; strings.HasPrefix(want, "error") || err != nil {
			refused++
			if !strings.HasPrefix(want, "error") || status.Code(err) != codes.InvalidArgument {
				wrong++
				t.Errorf("%v: %v; Cilium: %s", req, err, want)
			}
			continue
		}
		passed := map[string]bool{}
		for _, f := range got {
			passed[f.GetUuid()] = true
		}
		if len(got) > 0 && len(got) < len(all) {
			some++
		}
		for n, f := range all {
			if want := verdicts[i][n] == "true"; passed[f.GetUuid()] != want {
				wrong++
				t.Errorf("%v: %v passes here: %v", req, f, !want)
				break
			}
		}
		if wrong > 5 {
			t.Fatal("and so on")
		}
	}
	t.Logf("%d requests: %d select some of the flows, %d are refused", len(reqs), some, refused)
	if some < *cases/4 || refused < *cases/100 {
		t.Errorf("of %d requests %d select some flows, and %d are refused: too few", *cases, some, refused)
	}
}

func pick[T any](rnd *rand.Rand, from ...T) T { return from[rnd.IntN(len(from))] }

func randomPeer(rnd *rand.Rand) flows.Peer {
	p := flows.Peer{Kind: pick(rnd, flows.Pod, flows.Pod, flows.Pod, flows.Service, flows.Node, flows.Outside)}
	p.Address = netip.MustParseAddr(pick(rnd, "10.1.1.2", "10.1.1.3", "10.2.0.1", "192.0.2.7", "fd00::2", "fd00:1::3"))
	switch p.Kind {
	case flows.Pod:
		p.Namespace, p.Name, p.Node = pick(rnd, "prod", "default", "pro"), pick(rnd, "web-0", "web", "we", "db-1"), pick(rnd, "node-1", "node-2")
		p.Workload = p.Name[:2]
		p.Labels = map[string]string{}
		for range rnd.IntN(3) {
			p.Labels[pick(rnd, "app", "tier", "app.kubernetes.io/name")] = pick(rnd, "web", "db", "", "a.b-c")
		}
	case flows.Service:
		p.Namespace, p.Name = pick(rnd, "prod", "default"), pick(rnd, "web", "front")
	case flows.Node:
		p.Name = pick(rnd, "node-1", "node-2")
	}
	return p
}

func randomFlow(rnd *rand.Rand, n int) flows.Flow {
	f := flows.Flow{
		Number: uint64(n), Last: time.Unix(int64(n), 0), Node: pick(rnd, "node-1", "node-2", "k8s.node-1"), Source: randomPeer(rnd), Destination: randomPeer(rnd),
		Protocol: pick(rnd, "TCP", "UDP", "SCTP", "ICMP", "ICMPv6", "47"), Verdict: pick(rnd, flows.Allowed, flows.Dropped), Direction: pick(rnd, "", "ingress", "egress"),
		Decision: flows.Decision{Policy: pick(rnd, "", "NetworkPolicy prod/web")},
	}
	if strings.HasSuffix(f.Protocol, "P") && f.Protocol != "ICMP" {
		f.SourcePort, f.Port = pick[uint16](rnd, 40000, 53), pick[uint16](rnd, 80, 53, 8080)
	}
	if rnd.IntN(3) == 0 {
		f.Translation = &flows.Translation{Source: netip.AddrPortFrom(randomPeer(rnd).Address, 7), Service: pick(rnd, "", "prod/web", "default/front")}
	}
	return f
}

// randomFilter returns a filter with one or two fields that an agent evaluates; some values are wrong.
func randomFilter(rnd *rand.Rand, all []*flow.Flow) *flow.FlowFilter {
	f := &flow.FlowFilter{}
	names := func() []string {
		return some(rnd, "prod/", "prod/we", "prod/web", "web", "/web-0", "/", "default/d", "pro/", "a/web/x", "")
	}
	addrs := func() []string {
		return some(rnd, "10.1.1.2", "10.1.0.0/16", "0.0.0.0/0", "fd00::/16", "fd00::2", "192.0.2.7/32", "10.1.1.2", "10.1.1", "10.0.0.0/33")
	}
	labels := func() []string {
		return some(rnd, "app=web", "app", "!app", "k8s:app=web", "app in (web, db)", "app notin (web),tier", "app!=web", "any:app=db", "reserved:world", "!k8s:world",
			"app.kubernetes.io/name=a.b-c", "k8s:app.kubernetes.io/name", "io.kubernetes.pod.namespace=prod", "tier=", "app==web, tier in (db)", "reserved:host", "unspec:app", "app in", "a b", "")
	}
	ports := func() []string { return some(rnd, "80", "53", "40000", "0", "65536", "080") }
	workloads := func() []*flow.Workload {
		return some(rnd, &flow.Workload{Name: "we"}, &flow.Workload{Name: "db"}, &flow.Workload{})
	}
	id := func() []uint32 {
		return some(rnd, 1, 2, 6, all[rnd.IntN(len(all))].GetSource().GetIdentity(), all[rnd.IntN(len(all))].GetDestination().GetIdentity())
	}
	for range 1 + rnd.IntN(2) {
		switch rnd.IntN(26) {
		case 0:
			f.SourceIp = addrs()
		case 1:
			f.DestinationIp = addrs()
		case 2:
			f.SourceIpXlated = addrs()
		case 3:
			f.SourcePod = names()
		case 4:
			f.DestinationPod = names()
		case 5:
			f.SourceService = names()
		case 6:
			f.DestinationService = names()
		case 7, 8:
			f.SourceLabel = labels()
		case 9, 10:
			f.DestinationLabel = labels()
		case 11:
			f.SourcePort = ports()
		case 12:
			f.DestinationPort = ports()
		case 13:
			f.SourceWorkload = workloads()
		case 14:
			f.DestinationWorkload = workloads()
		case 15:
			f.SourceIdentity = id()
		case 16:
			f.DestinationIdentity = id()
		case 17:
			f.SourceClusterName = some(rnd, "default", "other", "")
		case 18:
			f.DestinationClusterName = some(rnd, "default", "other")
		case 19:
			f.Verdict = some(rnd, flow.Verdict_FORWARDED, flow.Verdict_DROPPED, flow.Verdict(7))
		case 20:
			f.EventType = some(rnd, &flow.EventTypeFilter{Type: 1}, &flow.EventTypeFilter{Type: 4}, &flow.EventTypeFilter{Type: 5}, &flow.EventTypeFilter{Type: 4, MatchSubType: true, SubType: 5},
				&flow.EventTypeFilter{MatchSubType: true}, &flow.EventTypeFilter{Type: 1, MatchSubType: true, SubType: 133})
		case 21:
			f.Protocol = some(rnd, "tcp", "UDP", "sctp", "icmp", "icmpv4", "ICMPv6", "xyz")
		case 22:
			f.Reply = some(rnd, true, false)
		case 23:
			f.NodeName = some(rnd, "node-1", "node-*", "*", "default/node-1", "def*/*2", "other/", "/node-1", "default/", "k8s.*", "Node-1", "a/b/c", "node 1", "")
		case 24:
			f.IpVersion = some(rnd, flow.IPVersion_IPv4, flow.IPVersion_IPv6)
			f.TrafficDirection = some(rnd, flow.TrafficDirection_EGRESS, flow.TrafficDirection_INGRESS, flow.TrafficDirection_TRAFFIC_DIRECTION_UNKNOWN)
		case 25:
			f.DropReasonDesc = some(rnd, flow.DropReason_DROP_REASON_UNKNOWN, flow.DropReason_POLICY_DENIED)
			f.Uuid = some(rnd, all[rnd.IntN(len(all))].GetUuid(), "x")
		}
	}
	return f
}

// some returns one or two of the values.
func some[T any](rnd *rand.Rand, from ...T) (out []T) {
	for range 1 + rnd.IntN(2) {
		out = append(out, from[rnd.IntN(len(from))])
	}
	return out
}
