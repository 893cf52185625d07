package interop

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	calicotls "github.com/projectcalico/calico/crypto/pkg/tls"
	calicoclient "github.com/projectcalico/calico/goldmane/pkg/client"
	calicogoldmane "github.com/projectcalico/calico/goldmane/pkg/goldmane"
	"github.com/projectcalico/calico/goldmane/pkg/server"
	"github.com/projectcalico/calico/goldmane/pkg/storage"
	"github.com/projectcalico/calico/goldmane/proto"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/agent/config"
	agentflows "github.com/contiv-agent/contiv-agent/agent/flows"
	"github.com/contiv-agent/contiv-agent/agent/flows/goldmane"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/sim/cni"
	"github.com/contiv-agent/contiv-agent/sim/packet"
	"github.com/contiv-agent/contiv-agent/source/manifest"
	"github.com/contiv-agent/contiv-agent/test/logbuffer"
	"github.com/contiv-agent/contiv-agent/vpp"
)

// stockGoldmane is Calico's Goldmane, with its three services and mutual TLS.
type stockGoldmane struct {
	grpc *grpc.Server
	done chan struct{}
	gold *calicogoldmane.Goldmane
	addr string
}

func startGoldmane(t *testing.T, addr, cert, key, ca string) *stockGoldmane {
	t.Helper()
	tlsConfig, err := calicotls.NewMutualTLSConfig(cert, key, ca)
	if err != nil {
		t.Fatal(err)
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	g := &stockGoldmane{grpc: grpc.NewServer(grpc.Creds(credentials.NewTLS(tlsConfig))), done: make(chan struct{}), gold: calicogoldmane.NewGoldmane(), addr: l.Addr().String()}
	collector := server.NewFlowCollector(g.gold)
	collector.RegisterWith(g.grpc)
	<-g.gold.Run(storage.GetStartTime(15))
	server.NewFlowsServer(g.gold).RegisterWith(g.grpc)
	server.NewStatisticsServer(g.gold).RegisterWith(g.grpc)
	go func() { defer close(g.done); _ = g.grpc.Serve(l) }()
	return g
}

func (g *stockGoldmane) stop() {
	g.grpc.Stop()
	<-g.done
	g.gold.Stop()
}

const goldmaneObjects = `
apiVersion: v1
kind: Node
metadata: {name: node-1}
spec: {podCIDR: 10.1.1.0/24, podCIDRs: [10.1.1.0/24]}
status: {addresses: [{type: InternalIP, address: 192.168.16.1}]}
---
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: default, labels: {app: web}}
spec: {nodeName: node-1, containers: [{name: c, image: i}]}
status: {podIP: 10.1.1.2, podIPs: [{ip: 10.1.1.2}], phase: Running}
---
apiVersion: v1
kind: Pod
metadata: {name: client-7d9f8b6c5-x2x4z, namespace: default, labels: {app: client, pod-template-hash: 7d9f8b6c5}}
spec: {nodeName: node-1, containers: [{name: c, image: i}]}
status: {podIP: 10.1.1.3, podIPs: [{ip: 10.1.1.3}], phase: Running}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec: {clusterIP: 10.96.0.10, clusterIPs: [10.96.0.10], ports: [{port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: default, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{port: 8080, name: "", protocol: TCP}]
endpoints: [{addresses: [10.1.1.2], nodeName: node-1}]
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web, namespace: default}
spec:
  podSelector: {}
  policyTypes: [Ingress, Egress]
  ingress: [{from: [{ipBlock: {cidr: 10.2.0.0/16, except: [10.2.9.0/24]}}], ports: [{port: 80}]}, {from: [{ipBlock: {cidr: 10.1.1.0/24}}]}]
  egress: [{to: [{ipBlock: {cidr: 10.3.0.0/16}}]}, {to: [{podSelector: {}}]}]
---
apiVersion: policy.networking.k8s.io/v1alpha1
kind: AdminNetworkPolicy
metadata: {name: guard}
spec:
  priority: 5
  subject: {namespaces: {}}
  egress: [{action: Deny, to: [{networks: [10.3.7.0/24]}]}]
`

// startPushing runs an agent that pushes the flows of a simulated VPP. Their time is a minute ago, so that their windows have ended.
func startPushing(t *testing.T, to goldmane.Config) (*sim.VPP, *logbuffer.Buffer) {
	t.Helper()
	v, log, dir := sim.New(sim.Config{PuntLocal: true}), &logbuffer.Buffer{}, t.TempDir()
	t.Cleanup(v.Close)
	if err := os.WriteFile(filepath.Join(dir, "objects.yaml"), []byte(goldmaneObjects), 0o600); err != nil {
		t.Fatal(err)
	}
	to.Logger = slog.New(slog.NewTextHandler(log, nil))
	if err := to.Validate(); err != nil {
		t.Fatal(err)
	}
	watcher := agentflows.New(agentflows.Config{
		Node: "node-1", Every: 100 * time.Millisecond, Folder: "/tmp", Name: fmt.Sprintf("goldmane%d", time.Now().UnixNano()), Logger: to.Logger,
		Now:    func() time.Time { return time.Now().Add(-time.Minute) },
		Beside: []func(context.Context, *agentflows.Watcher, agentflows.Loop) error{goldmane.New(to).Run},
	})
	a, err := agent.New(agent.Config{
		NodeName: "node-1", VPP: vpp.Config{Dial: v.Dial}, Override: cni.Located(),
		Sources: map[string]agent.Source{manifest.Name: cni.New(v, "node-1").Before(manifest.New(manifest.Config{Paths: []string{dir}}), func(err error) { panic(err) })},
		Process: config.Process{Logger: to.Logger, Flows: watcher},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the agent: %v", err)
		}
	})
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) { // until a dropped packet is seen
		if st, err := a.Status(t.Context()); err == nil && st.InSync {
			v.Send("pod-default/web", packet.NewUDP(netip.MustParseAddrPort("10.1.1.2:9"), netip.MustParseAddrPort("203.0.113.9:9")))
		}
		if answer, err := watcher.Ask(t.Context(), 0, nil); err == nil && len(answer.Flows) > 0 && answer.Flows[0].Decision.Trigger != "" {
			return v, log
		}
		if time.Now().After(deadline) {
			t.Fatalf("no flows; log:\n%s", log)
		}
	}
}

// lines are flows as Goldmane has them, without their times.
func lines(t *testing.T, g *stockGoldmane, cert, key, ca string) []string {
	t.Helper()
	creds, err := calicoclient.ClientCredentials(cert, key, ca)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient(g.addr, grpc.WithTransportCredentials(creds))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	list, err := proto.NewFlowsClient(conn).List(t.Context(), &proto.FlowListRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, r := range list.Flows {
		f, k := r.Flow, r.Flow.Key
		if k.DestPort == 9 { // of startPushing
			continue
		}
		line := fmt.Sprintf("%s %s %s/%s -> %s/%s:%d %s service %s/%s:%d", k.Reporter, k.Action, k.SourceNamespace, k.SourceName, k.DestNamespace, k.DestName, k.DestPort, k.Proto,
			k.DestServiceNamespace, k.DestServiceName, k.DestServicePort)
		for _, p := range k.Policies.EnforcedPolicies {
			text, err := p.ToString() // Calico's check of a hit, too
			if err != nil {
				t.Errorf("%v: %v", p, err)
			}
			line += " " + text
		}
		out = append(out, fmt.Sprintf("%s started %d in %d/%d out %d/%d", line, f.NumConnectionsStarted, f.PacketsIn, f.BytesIn, f.PacketsOut, f.BytesOut))
	}
	slices.Sort(out)
	return out
}

// statistics are packets by policy's rule, as Whisker asks for them.
func statistics(t *testing.T, g *stockGoldmane, cert, key, ca string) map[string][4]int64 {
	t.Helper()
	creds, err := calicoclient.ClientCredentials(cert, key, ca)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient(g.addr, grpc.WithTransportCredentials(creds))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stream, err := proto.NewStatisticsClient(conn).List(t.Context(), &proto.StatisticsRequest{Type: proto.StatisticType_PacketCount, GroupBy: proto.StatisticsGroupBy_PolicyRule})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][4]int64{}
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		sum := func(list []int64) (n int64) {
			for _, v := range list {
				n += v
			}
			return n
		}
		out[fmt.Sprintf("%s %s %s %d", r.Direction, r.Policy.Kind, r.Policy.Name, r.Policy.RuleIndex)] = [4]int64{sum(r.AllowedIn), sum(r.AllowedOut), sum(r.DeniedIn), sum(r.DeniedOut)}
	}
}

// sendGoldmanePackets sends packets of each verdict.
func sendGoldmanePackets(v *sim.VPP) {
	const web, client = "pod-default/web", "pod-default/client-7d9f8b6c5-x2x4z"
	for _, s := range []struct{ in, from, to string }{
		{"uplink", "10.2.0.7:1000", "10.1.1.2:80"},
		{"uplink", "10.2.0.7:1001", "10.1.1.2:80"},
		{"uplink", "10.2.9.7:1002", "10.1.1.2:80"},
		{web, "10.1.1.2:1003", "10.3.7.1:53"},
		{web, "10.1.1.2:1004", "198.51.100.7:53"},
		{web, "10.1.1.2:1004", "198.51.100.7:53"},
		{client, "10.1.1.3:1005", "10.96.0.10:80"},
		{web, "10.1.1.2:1006", "10.96.0.10:80"}, // itself
	} {
		v.Send(s.in, packet.NewTCP(netip.MustParseAddrPort(s.from), netip.MustParseAddrPort(s.to)).Opening())
	}
}

// Packets at a simulated VPP are flows at Calico's Goldmane: names, Service, verdict, rule and counts. A Goldmane that is started again has them again.
func TestGoldmane(t *testing.T) {
	authority := newAuthority(t, t.TempDir(), "tigera-ca-private")
	cert, key := authority.issue("goldmane", "", time.Hour)
	clientCert, clientKey := authority.issue("felix", "", time.Hour)
	g := startGoldmane(t, "127.0.0.1:0", cert, key, authority.file)
	stop := sync.OnceFunc(func() { g.stop() })
	defer func() { stop() }()
	v, log := startPushing(t, goldmane.Config{Addr: g.addr, CA: authority.file, Cert: clientCert, Key: clientKey})
	sendGoldmanePackets(v)
	want := []string{
		"Dst Allow -/pvt -> default/web:80 tcp service -/-:0 0|default|default/knp.default.web|allow|0 started 2 in 2/0 out 0/0",
		"Dst Allow -/pvt -> default/web:8080 tcp service -/-:0 0|__PROFILE__|__PROFILE__.__NO_MATCH__|allow|0 started 1 in 0/0 out 0/0",
		"Dst Allow default/client-7d9f8b6c5-* -> default/web:8080 tcp service -/-:0 0|default|default/knp.default.web|allow|1 started 1 in 0/0 out 0/0",
		"Dst Deny -/pvt -> default/web:80 tcp service -/-:0 0|default|default/knp.default.web|deny|-1 started 0 in 1/40 out 0/0",
		"Src Allow default/client-7d9f8b6c5-* -> default/web:8080 tcp service default/web:80 0|default|default/knp.default.web|allow|1 started 1 in 0/0 out 1/40",
		"Src Allow default/web -> default/web:8080 tcp service default/web:80 0|default|default/knp.default.web|allow|1 started 1 in 0/0 out 1/40",
		"Src Deny default/web -> -/pub:53 tcp service -/-:0 0|default|default/knp.default.web|deny|-1 started 0 in 0/0 out 2/80",
		"Src Deny default/web -> -/pvt:53 tcp service -/-:0 0|adminnetworkpolicy|kanp.adminnetworkpolicy.guard|deny|0 started 0 in 0/0 out 1/40",
	}
	got := []string{}
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline) && !slices.Equal(got, want); time.Sleep(200 * time.Millisecond) {
		got = lines(t, g, clientCert, clientKey, authority.file)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("(-want +got):\n%s\nlog:\n%s", diff, log)
	}
	if got := statistics(t, g, clientCert, clientKey, authority.file)["Egress AdminNetworkPolicy guard 0"]; got != [4]int64{0, 0, 0, 1} {
		t.Errorf("packets of the guard's rule, allowed in and out, denied in and out: %v", got)
		t.Log(statistics(t, g, clientCert, clientKey, authority.file))
	}
	stop()
	g = startGoldmane(t, g.addr, cert, key, authority.file)
	stop = sync.OnceFunc(func() { g.stop() })
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		if got = lines(t, g, clientCert, clientKey, authority.file); slices.Equal(got, want) {
			break
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("after a restart of Goldmane (-want +got):\n%s\nlog:\n%s", diff, log)
	}
}
