package service

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/renderer"
)

// born gives a service an age: a smaller number is older.
func born(seconds int64, uid string) func(*model.Service) {
	return func(s *model.Service) { s.Created, s.UID = time.Unix(seconds, 0).UTC(), uid }
}

func withBalancer(ips ...string) func(*model.Service) {
	return func(s *model.Service) {
		s.Type = model.LoadBalancer
		for _, a := range addrs(ips...) {
			s.LoadBalancerIPs = append(s.LoadBalancerIPs, model.LoadBalancerIP{Addr: a})
		}
	}
}

// clusterOf returns a service with several modifications.
func clusterOf(name, ip string, changes ...func(*model.Service)) *model.Service {
	return cluster(name, ip, func(s *model.Service) {
		for _, change := range changes {
			change(s)
		}
	})
}

// openEverywhere allows external IPs everywhere, so that owners alone decide.
func openEverywhere(p *Processor) {
	p.cfg.ExternalIPCIDRs = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
}

// apiServer is an endpoint of the API server beyond the cluster.
func apiServer(ip string) *model.EndpointSlice {
	s := slice("kubernetes", ep(ip))
	s.ID.Name, s.Service = "kubernetes", apiService
	return s
}

// servedOf returns the addresses of a service that renderers serve.
func servedOf(r *recorder, name string) string {
	svc := r.services[model.ServiceID{Namespace: "default", Name: name}]
	return svc.ClusterIPs.String() + svc.ExternalIPs.String() + conflictsOf(r, name)
}

// An owner's address is no other service's external IP, whatever the names, ages and order of arrival.
func TestOwnersKeepTheirAddresses(t *testing.T) {
	nodes := node(1, "192.168.16.1")
	located := func(p *Processor) {
		p.Located(&event.Located{Uplink: "eth0", UplinkIPs: []netip.Prefix{netip.MustParsePrefix("192.168.17.1/24")}})
	}
	victim := clusterOf("victim", "10.96.0.2", born(100, "v"))
	for _, tc := range []struct {
		name, ip, why string
		owner         model.Object
	}{
		{"node", "192.168.16.1", "it is the address of a node", nodes},
		{"uplink", "192.168.17.1", "it is the address of a node", nil},
		{"API server", "198.51.100.1", "it is the address of the API server", apiServer("198.51.100.1")},
		{"configured API server", "198.51.100.2", "it is the address of the API server", nil},
		{"cluster IP", "10.96.0.2", "it is the cluster IP of Service default/victim", victim},
		{"pod", "10.1.2.9", "it is the address of Pod default/prey", pod("prey", "10.1.2.9")},
	} {
		for _, how := range []string{"external IP", "load-balancer IP"} {
			thief := clusterOf("aaa", "10.96.0.66", born(1, "a"), withExternal(tc.ip))
			if how == "load-balancer IP" {
				thief = clusterOf("aaa", "10.96.0.66", born(1, "a"), withBalancer(tc.ip))
			}
			objects := []model.Object{thief}
			if tc.owner != nil {
				objects = append(objects, tc.owner)
			}
			for _, reversed := range []bool{false, true} {
				p, r := newTest(t)
				openEverywhere(p)
				p.cfg.APIServers, p.owners.apiDirty = addrs("198.51.100.2"), true
				if reversed {
					slices.Reverse(objects)
				}
				for _, obj := range objects {
					apply(p, obj)
					_ = p.Flush()
				}
				located(p)
				_ = p.Flush()
				if got := servedOf(r, "aaa"); got != "[10.96.0.66][][]" {
					t.Errorf("%s as %s, reversed %t: served %s", tc.name, how, reversed, got)
				}
				want := model.Note{Ref: thief.Ref(), Refused: true, Reason: how + " " + tc.ip + " is not served: " + tc.why}
				if !slices.Contains(p.Notes(), want) {
					t.Errorf("%s as %s: no note %q: %q", tc.name, how, want.Reason, reasons(p.Notes()))
				}
				if tc.owner == nil {
					continue
				}
				remove(p, tc.owner)
				_ = p.Flush()
				if got := servedOf(r, "aaa"); got != "[10.96.0.66]["+tc.ip+"][]" {
					t.Errorf("%s as %s: the owner is gone, served %s", tc.name, how, got)
				}
			}
		}
	}
}

// The victim of such an attempt keeps all its frontends, even at the same port.
func TestVictimOfAThiefIsServed(t *testing.T) {
	for _, reversed := range []bool{false, true} {
		p, r := newTest(t)
		openEverywhere(p)
		objects := []model.Object{
			clusterOf("aaa", "10.96.0.66", born(1, "a"), withExternal("10.96.0.2")),
			clusterOf("victim", "10.96.0.2", born(100, "v")),
		}
		if reversed {
			slices.Reverse(objects)
		}
		apply(p, objects...)
		_ = p.Flush()
		if got := servedOf(r, "victim"); got != "[10.96.0.2][][]" {
			t.Errorf("reversed %t: victim is served at %s", reversed, got)
		}
	}
}

// The API server's own Service is served at its addresses, and a cluster IP at a node's address is not.
func TestOwnersAmongThemselves(t *testing.T) {
	p, r := newTest(t)
	openEverywhere(p)
	p.cfg.APIServers, p.owners.apiDirty = addrs("10.96.0.1"), true // as KUBERNETES_SERVICE_HOST has it
	apply(p, node(1, "192.168.16.1"), cluster("kubernetes", "10.96.0.1"), cluster("b", "192.168.16.1"), cluster("c", "10.96.0.3", withExternal("10.96.0.1")))
	_ = p.Flush()
	if got := servedOf(r, "kubernetes") + servedOf(r, "b") + servedOf(r, "c"); got != "[10.96.0.1][][]"+"[][][]"+"[10.96.0.3][][]" {
		t.Errorf("served %s", got)
	}
}

// Services that another proxy serves own their cluster IPs, and nothing else.
func TestOtherProxysServiceKeepsItsClusterIP(t *testing.T) {
	p, r := newTest(t)
	openEverywhere(p)
	theirs := clusterOf("theirs", "10.96.0.2", born(1, "t"), withExternal("203.0.113.7"), withNodePort(30080), func(s *model.Service) { s.ProxyName = "x" })
	apply(p, theirs, clusterOf("b", "10.96.0.3", born(2, "b"), withExternal("10.96.0.2", "203.0.113.7"), withNodePort(30080)))
	_ = p.Flush()
	if got := servedOf(r, "b"); got != "[10.96.0.3][203.0.113.7][]" {
		t.Errorf("served %s", got)
	}
}

// Without --external-ip-cidrs, the ranges of nodes, pods and cluster IPs are closed; with it, everything except its ranges.
// Load-balancer IPs, which only controllers write, are exempt from both.
func TestRangesOfExternalIPs(t *testing.T) {
	all := []string{"10.1.1.99", "10.1.2.99", "10.96.0.99", "172.30.0.9", "192.168.16.99", "203.0.113.7"}
	setup := func(closed ...netip.Prefix) (*Processor, *recorder) {
		p, r := newTest(t)
		p.cfg.ExternalIPCIDRs, p.cfg.ServiceCIDRs = closed, []netip.Prefix{netip.MustParsePrefix("172.30.0.0/16")}
		apply(p, cluster("a", "10.96.0.1", withExternal(all...)), cluster("b", "10.96.0.2", withBalancer(all[:5]...)))
		_ = p.Flush()
		apply(p, node(1), node(2), &model.ServiceCIDR{Name: "k", CIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12")}})
		_ = p.Flush()
		p.Located(&event.Located{Uplink: "eth0", UplinkIPs: []netip.Prefix{netip.MustParsePrefix("192.168.16.1/24")}})
		_ = p.Flush()
		return p, r
	}
	p, r := setup()
	if got := servedOf(r, "a") + servedOf(r, "b"); got != "[10.96.0.1][203.0.113.7][][10.96.0.2][10.1.1.99 10.1.2.99 10.96.0.99 172.30.0.9 192.168.16.99][]" {
		t.Errorf("served by default: %s", got)
	}
	var got []string
	for _, n := range p.Notes() {
		if _, why, found := strings.Cut(n.Reason, "external IP "); found && n.Refused {
			got = append(got, why)
		}
	}
	want := []string{
		"10.1.1.99 is not served: it is in 10.1.1.0/24, a range of pods",
		"10.1.2.99 is not served: it is in 10.1.2.0/24, a range of pods",
		"10.96.0.99 is not served: it is in 10.96.0.0/12, a range of cluster IPs",
		"172.30.0.9 is not served: it is in 172.30.0.0/16, a range of cluster IPs",
		"192.168.16.99 is not served: it is in 192.168.16.0/24, a range of nodes",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("notes -want +got\n%s", diff)
	}
	remove(p, node(2))
	_ = p.Flush()
	if got := servedOf(r, "a"); !strings.Contains(got, "10.1.2.99") {
		t.Errorf("10.1.2.0/24 is no node's any more, served %s", got)
	}
	p, r = setup(netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("10.1.1.0/24"))
	if got := servedOf(r, "a"); got != "[10.96.0.1][10.1.1.99 10.96.0.99][]" {
		t.Errorf("served in two ranges: %s", got)
	}
	if got := fmt.Sprint(reasons(p.Notes())); !strings.Contains(got, "external IP 203.0.113.7 is not served: it is outside the ranges of --external-ip-cidrs") {
		t.Errorf("notes %s", got)
	}
}

// An external IP in a closed range does not prevent another service from having it as its load-balancer address.
func TestClosedClaimIsNone(t *testing.T) {
	p, r := newTest(t)
	p.cfg.ExternalIPCIDRs = []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}
	apply(p, clusterOf("a", "10.96.0.1", born(1, "a"), withExternal("203.0.113.7")), clusterOf("b", "10.96.0.2", born(2, "b"), withBalancer("203.0.113.7")))
	_ = p.Flush()
	if got := servedOf(r, "a") + servedOf(r, "b"); got != "[10.96.0.1][][][10.96.0.2][203.0.113.7][]" {
		t.Errorf("served %s", got)
	}
}

// Between Services the older claim wins: by creationTimestamp, then UID, then name; one without a timestamp is the youngest.
func TestOlderClaimWins(t *testing.T) {
	for _, tc := range []struct {
		name          string
		first, second func(*model.Service) // the first wins, named zulu; the second is alpha
	}{
		{"by timestamp", born(1, "z"), born(2, "a")},
		{"by UID", born(1, "a"), born(1, "z")},
		{"known before unknown", born(1, "z"), func(*model.Service) {}},
	} {
		for _, claim := range []func(*model.Service){withExternal("203.0.113.7"), withBalancer("203.0.113.7"), withNodePort(30080)} {
			for _, reversed := range []bool{false, true} {
				p, r := newTest(t)
				objects := []model.Object{clusterOf("zulu", "10.96.0.1", tc.first, claim), clusterOf("alpha", "10.96.0.2", tc.second, claim)}
				if reversed {
					slices.Reverse(objects)
				}
				for _, obj := range objects {
					apply(p, obj)
					_ = p.Flush()
				}
				if zulu, alpha := conflictsOf(r, "zulu"), conflictsOf(r, "alpha"); zulu != "[]" || !strings.Contains(alpha, "of zulu") {
					t.Errorf("%s, reversed %t: zulu lost %s, alpha %s", tc.name, reversed, zulu, alpha)
				}
			}
		}
	}
}

// A Service that is deleted and created again within one flush has its new age.
func TestAgeOfARecreatedService(t *testing.T) {
	p, r := newTest(t)
	old := func(seconds int64) model.Object {
		return clusterOf("b", "10.96.0.2", born(seconds, "b"), withExternal("203.0.113.7"))
	}
	apply(p, old(1), clusterOf("a", "10.96.0.1", born(2, "a"), withExternal("203.0.113.7")))
	_ = p.Flush()
	if got := conflictsOf(r, "a") + conflictsOf(r, "b"); got != "[203.0.113.7:80/TCP of b][]" {
		t.Errorf("conflicts %s", got)
	}
	apply(p, old(3))
	_ = p.Flush()
	if got := conflictsOf(r, "a") + conflictsOf(r, "b"); got != "[][203.0.113.7:80/TCP of a]" {
		t.Errorf("conflicts after b was created again: %s", got)
	}
}

// For any objects that tenants write, and in any order, an owner's address is served only for the owner, and an owner loses nothing. The check
// is a literal implementation of the order, over all objects.
func TestOwnersAddressIsServedForTheOwnerOnly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := &recorder{services: map[model.ServiceID]*renderer.ContivService{}}
		p := New(Config{NodeName: "node-1"}, r)
		if rapid.Bool().Draw(t, "open") {
			openEverywhere(p)
		}
		objects := map[model.Ref]model.Object{}
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			obj := drawHostile(t)
			if _, has := objects[obj.Ref()]; has && rapid.Bool().Draw(t, "remove") {
				delete(objects, obj.Ref())
				remove(p, obj)
			} else {
				objects[obj.Ref()] = obj
				apply(p, obj)
			}
			if rapid.Bool().Draw(t, "flush") {
				_ = p.Flush()
			}
		}
		_ = p.Flush()
		checkOwners(t, objects, r)
	})
}

func drawHostile(t *rapid.T) model.Object {
	name := rapid.SampledFrom(refs).Draw(t, "name")
	switch rapid.IntRange(0, 3).Draw(t, "kind") {
	case 0:
		return node(int(name[0]-'a')+1, "192.168.16."+fmt.Sprint(name[0]-'a'))
	case 1:
		return pod(name, rapid.SampledFrom([]string{"10.1.1.2", "10.1.2.2"}).Draw(t, "ip"))
	}
	all := []string{"203.0.113.7", "192.168.16.0", "192.168.16.1", "10.96.0.1", "10.96.0.2", "10.1.1.2", "10.1.2.2"}
	some := func(what string) []string {
		return rapid.SliceOfNDistinct(rapid.SampledFrom(all), 0, 3, rapid.ID).Draw(t, what)
	}
	return clusterOf(name, "10.96.0."+fmt.Sprint(1+name[0]-'a'), withBalancer(some("balancer")...), withExternal(some("external")...),
		func(s *model.Service) {
			s.Ports[0].Port = rapid.SampledFrom([]uint16{80, 81}).Draw(t, "port")
			s.Created = time.Unix(int64(rapid.IntRange(1, 3).Draw(t, "age")), 0)
		})
}

// checkOwners implements the rules literally.
func checkOwners(t *rapid.T, objects map[model.Ref]model.Object, r *recorder) {
	owned := map[netip.Addr]model.Ref{} // nodes before cluster IPs before pods: here they are distinct
	for ref, obj := range objects {
		switch obj := obj.(type) {
		case *model.Node:
			owned[obj.InternalIPs[0]] = ref
		case *model.Pod:
			owned[obj.IPs[0]] = ref
		case *model.Service:
			owned[obj.ClusterIPs[0]] = ref
		}
	}
	type at struct {
		ip   netip.Addr
		port uint16
	}
	holders := map[at]*model.Service{}
	for id, svc := range r.services {
		spec := objects[model.Ref{Kind: model.KindService, Namespace: id.Namespace, Name: id.Name}].(*model.Service)
		if svc.ClusterIPs.Len() != 1 {
			t.Fatalf("%s lost its cluster IP: %s", id, svc)
		}
		for _, a := range svc.ClusterIPs.Addrs() {
			if by, lost := svc.Conflicts[renderer.Frontend{IP: a, Port: spec.Ports[0].Port, Protocol: renderer.TCP}]; lost {
				t.Fatalf("%s lost its cluster IP to %s", id, by)
			}
		}
		for _, a := range svc.ExternalIPs.Addrs() {
			if by, has := owned[a]; has && by != spec.Ref() {
				t.Fatalf("%s is served at %s, which is the address of %s", id, a, by)
			}
			if _, lost := svc.Conflicts[renderer.Frontend{IP: a, Port: spec.Ports[0].Port, Protocol: renderer.TCP}]; lost {
				continue
			}
			key := at{a, spec.Ports[0].Port}
			if other := holders[key]; other != nil {
				t.Fatalf("%s and %s are both served at %v", id, other.ID, key)
			}
			holders[key] = spec
		}
	}
	for id, svc := range r.services {
		spec := objects[model.Ref{Kind: model.KindService, Namespace: id.Namespace, Name: id.Name}].(*model.Service)
		for f, by := range svc.Conflicts {
			winner := holders[at{f.IP, f.Port}]
			if winner == nil || winner.ID != by {
				t.Fatalf("%s lost %s to %s, which does not serve it", id, f, by)
			}
			if spec.Created.Before(winner.Created) {
				t.Fatalf("%s lost %s to %s, which is younger", id, f, by)
			}
		}
	}
}
