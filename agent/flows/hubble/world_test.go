package hubble

import (
	"context"
	"net/netip"
	"sync"
	"time"

	agentflows "github.com/contiv-agent/contiv-agent/agent/flows"
	"github.com/contiv-agent/contiv-agent/flows"
)

var began = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)

func addr(text string) netip.Addr { return netip.MustParseAddr(text) }

func pod(namespace, name, address, at string) flows.Peer {
	return flows.Peer{Kind: flows.Pod, Namespace: namespace, Name: name, Workload: name[:3], Node: at, Address: addr(address), Labels: map[string]string{"app": name[:3], "app.kubernetes.io/name": "x"}}
}

var (
	client  = pod("prod", "cli-0", "10.1.1.2", "node-1")
	web     = pod("shop", "web-0", "10.1.2.3", "node-2")
	front   = flows.Peer{Kind: flows.Service, Namespace: "shop", Name: "front", Address: addr("10.96.0.1")}
	outside = flows.Peer{Kind: flows.Outside, Address: addr("192.0.2.7")}
	self    = flows.Peer{Kind: flows.Node, Name: "node-1", Address: addr("10.0.0.1")}
	other   = flows.Peer{Kind: flows.Node, Name: "node-2", Address: addr("10.0.0.2")}
)

// sample are flows of all kinds.
func sample() []flows.Flow {
	base := flows.Flow{First: began, Last: began, Node: "node-1", Protocol: "TCP", SourcePort: 40000, Port: 80, Verdict: flows.Allowed, SeenBy: "test", Counts: flows.Counts{Connections: 1}}
	with := func(change func(f *flows.Flow)) flows.Flow {
		f := base
		change(&f)
		return f
	}
	out := []flows.Flow{
		with(func(f *flows.Flow) {
			f.Source, f.Destination, f.Direction = client, front, "egress"
			f.Decision = flows.Decision{Text: "allowed by NetworkPolicy prod/out egress rule 2", Policy: "NetworkPolicy prod/out", Rule: "egress rule 2", Tier: "default"}
		}),
		with(func(f *flows.Flow) {
			f.Source, f.Destination, f.Direction, f.Verdict = outside, client, "ingress", flows.Dropped
			f.Decision = flows.Decision{Text: "denied by AdminNetworkPolicy guard ingress rule 1", Policy: "AdminNetworkPolicy guard", Rule: "ingress rule 1"}
			f.Counts = flows.Counts{Packets: 2, Bytes: 80}
		}),
		with(func(f *flows.Flow) {
			f.Source, f.Destination, f.Port = client, web, 8080
			f.Translation = &flows.Translation{Dialled: netip.MustParseAddrPort("10.96.0.1:80"), Source: netip.MustParseAddrPort("10.1.1.254:7"), Service: "shop/front"}
		}),
		with(func(f *flows.Flow) {
			f.Source, f.Destination, f.Verdict, f.Protocol, f.SourcePort, f.Port = self, client, flows.Dropped, "ICMP", 0, 0
			f.Decision.Text = "ip4-input: bad checksum"
		}),
		with(func(f *flows.Flow) {
			f.Source, f.Destination, f.Protocol, f.Port, f.Direction = other, client, "UDP", 53, "ingress"
		}),
		with(func(f *flows.Flow) {
			f.Source, f.Destination, f.Protocol = flows.Peer{Kind: flows.Outside, Address: addr("fd00::7")}, flows.Peer{Kind: flows.Outside, Address: addr("fd00::8")}, "SCTP"
		}),
	}
	for i := range out {
		out[i].Number, out[i].Last = uint64(i+1), began.Add(time.Duration(i)*time.Second)
	}
	return out
}

// memory is a Source with the flows that a test adds.
type memory struct {
	mu     sync.Mutex
	store  *flows.Store
	missed uint64
	// of VPP's connections at the latest read
	present, read uint64
	changed       chan struct{} // closed at the next change
}

func newMemory(limit int, all ...flows.Flow) *memory {
	m := &memory{store: flows.NewStore(limit), changed: make(chan struct{})}
	m.add(0, all...)
	return m
}

func (m *memory) add(missed uint64, all ...flows.Flow) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, f := range all {
		m.store.Add(f)
	}
	m.missed += missed
	close(m.changed)
	m.changed = make(chan struct{})
}

func (m *memory) All(_ context.Context, after uint64) (*agentflows.Answer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return &agentflows.Answer{
		Node: "node-1", Flows: m.store.Select(after, nil, agentflows.MostFlows), Next: m.store.Number(), Lost: m.store.Lost(after),
		Sources: []agentflows.Source{{Name: "test", Missed: m.missed, Present: m.present, Read: m.read}},
	}, nil
}

func (m *memory) Follow(ctx context.Context, after uint64) (*agentflows.Answer, error) {
	for {
		m.mu.Lock()
		changed, number := m.changed, m.store.Number()
		m.mu.Unlock()
		if number > after {
			return m.All(ctx, after)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-changed:
		}
	}
}
