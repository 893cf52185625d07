package flows

import (
	"encoding/json"
	"net/netip"
	"net/url"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func pod(name, address string) Peer {
	return Peer{Kind: Pod, Namespace: "prod", Name: name, Workload: "w-" + name, Address: netip.MustParseAddr(address)}
}

func flow(from, to Peer, port uint16, v Verdict) Flow {
	return Flow{
		Node: "node-1", Source: from, Destination: to, Protocol: "TCP", SourcePort: 40000, Port: port, Verdict: v, Direction: "ingress",
		Decision: Decision{Text: "because"}, Counts: Counts{Connections: 1, Packets: 2, Bytes: 80}, SeenBy: "test",
	}
}

var (
	client  = pod("client", "10.1.1.2")
	web     = pod("web", "10.1.1.3")
	service = Peer{Kind: Service, Namespace: "shop", Name: "db", Address: netip.MustParseAddr("10.96.0.1")}
	world   = Peer{Kind: Outside, Address: netip.MustParseAddr("192.0.2.7")}
)

// Observations of the same ends and decision are one flow; every difference in identity is another flow.
func TestStoreAddsUp(t *testing.T) {
	s := NewStore(100)
	base := flow(client, web, 80, Allowed)
	base.First = time.Unix(1, 0)
	s.Add(base)
	again := base
	again.SourcePort, again.First, again.Last = 40001, time.Unix(2, 0), time.Unix(2, 0)
	s.Add(again)
	want := base
	want.Number, want.SourcePort, want.Last, want.Counts = 2, 40001, time.Unix(2, 0), Counts{2, 4, 160}
	if diff := cmp.Diff([]Flow{want}, s.Select(0, nil, 9), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Fatal(diff)
	}
	for name, change := range map[string]func(*Flow){
		"source":      func(f *Flow) { f.Source = web },
		"destination": func(f *Flow) { f.Destination = service },
		"other pod":   func(f *Flow) { f.Destination.Name = "next" }, // with the same address
		"protocol":    func(f *Flow) { f.Protocol = "UDP" },
		"port":        func(f *Flow) { f.Port = 81 },
		"verdict":     func(f *Flow) { f.Verdict = Dropped },
		"direction":   func(f *Flow) { f.Direction = "egress" },
		"decision":    func(f *Flow) { f.Decision.Text = "another" },
		"staged":      func(f *Flow) { f.Decision.Staged = &Staged{Verdict: Dropped, By: "StagedNetworkPolicy prod/web"} },
		"node":        func(f *Flow) { f.Node = "node-2" },
		"seen by":     func(f *Flow) { f.SeenBy = "another" },
		"translation": func(f *Flow) { f.Translation = &Translation{Dialled: netip.MustParseAddrPort("10.96.0.1:80")} },
	} {
		n := s.Len()
		other := base
		change(&other)
		if other.Identity() == base.Identity() || again.Identity() != base.Identity() {
			t.Errorf("another %s: the identities do not agree with the store", name)
		}
		if s.Add(other); s.Len() != n+1 {
			t.Errorf("another %s is not another flow", name)
		}
	}
}

// A store forgets the flow that has not changed for longest, and counts it.
func TestStoreIsBounded(t *testing.T) {
	s := NewStore(2)
	for _, port := range []uint16{1, 2, 1, 3} {
		s.Add(flow(client, web, port, Allowed))
	}
	var ports []uint16
	for _, f := range s.Select(0, nil, 9) {
		ports = append(ports, f.Port)
	}
	if diff := cmp.Diff([]uint16{1, 3}, ports); diff != "" || s.Len() != 2 || s.Forgotten() != 1 {
		t.Errorf("%s; %d flows, %d forgotten", diff, s.Len(), s.Forgotten())
	}
	s.Add(flow(client, web, 2, Allowed)) // a forgotten flow begins again
	if got := s.Select(0, nil, 1); len(got) != 1 || got[0].Connections != 1 {
		t.Errorf("%+v", got)
	}
}

// A reader learns how many changes it cannot read any more: those up to the latest one of a forgotten flow.
func TestStoreCountsLostChanges(t *testing.T) {
	s := NewStore(2)
	for _, port := range []uint16{1, 1, 2, 3, 4} { // the flows of changes 2 and 3 are forgotten
		s.Add(flow(client, web, port, Allowed))
	}
	for after, want := range map[uint64]uint64{0: 3, 2: 1, 3: 0, 5: 0} {
		if got := s.Lost(after); got != want {
			t.Errorf("%d changes after %d are lost, want %d", got, after, want)
		}
	}
}

// A reader that asks from the number it has seen gets each change once.
func TestSelectContinues(t *testing.T) {
	s := NewStore(10)
	s.Add(flow(client, web, 1, Allowed))
	s.Add(flow(client, web, 2, Allowed))
	at := s.Number()
	if got := s.Select(at, nil, 9); len(got) != 0 {
		t.Errorf("%+v", got)
	}
	s.Add(flow(client, web, 1, Allowed))
	if got := s.Select(at, nil, 9); len(got) != 1 || got[0].Port != 1 || got[0].Connections != 2 {
		t.Errorf("%+v", got)
	}
	if got := s.Select(0, nil, 1); len(got) != 1 || got[0].Port != 1 {
		t.Errorf("not the latest: %+v", got)
	}
}

func TestFilter(t *testing.T) {
	f := flow(client, service, 80, Dropped)
	for _, c := range []struct {
		filter  Filter
		matches bool
	}{
		{Filter{}, true},
		{Filter{Verdict: Dropped}, true},
		{Filter{Verdict: Allowed}, false},
		{Filter{From: "prod"}, true},
		{Filter{From: "pro"}, false},
		{Filter{From: "prod/client"}, true},
		{Filter{From: "prod/w-client"}, true},
		{Filter{From: "prod/web"}, false},
		{Filter{From: "10.1.1.2", To: "shop/db"}, true},
		{Filter{From: "10.1.1.3"}, false},
		{Filter{To: "shop"}, true},
		{Filter{To: "prod"}, false},
	} {
		if c.filter.Matches(&f) != c.matches {
			t.Errorf("%+v: matches %v", c.filter, !c.matches)
		}
	}
	staged := f
	staged.Decision.Staged = &Staged{Verdict: Allowed}
	if all := (&Filter{Staged: Allowed}); !all.Matches(&staged) || all.Matches(&f) || (&Filter{Staged: Dropped}).Matches(&staged) {
		t.Error("staged")
	}
	staged.Decision.Staged.Verdict = Dropped // another rule, the same verdict
	if (&Filter{Staged: Dropped}).Matches(&staged) {
		t.Error("a verdict that stays the same is no change")
	}
	var none *Filter
	if !none.Matches(&f) {
		t.Error("no filter must match all")
	}
	for _, bad := range []Filter{{Verdict: "maybe"}, {Staged: "maybe"}, {From: "/x"}, {To: "x/"}, {To: "a/b/c"}} {
		if bad.Validate() == nil {
			t.Errorf("%+v is valid", bad)
		}
	}
}

// A filter in a request is read as it was written, or refused.
func FuzzFilter(f *testing.F) {
	f.Add("dropped", "prod/web", "10.1.1.2", "")
	f.Add("", "", "", "dropped")
	f.Fuzz(func(t *testing.T, verdict, from, to, staged string) {
		want := Filter{Verdict: Verdict(verdict), From: from, To: to, Staged: Verdict(staged)}
		q, err := url.ParseQuery(want.Query().Encode())
		if err != nil {
			t.Fatal(err)
		}
		got, err := ParseFilter(q)
		if *got != want || (err == nil) != (want.Validate() == nil) {
			t.Errorf("%+v was %+v: %v", got, want, err)
		}
	})
}

func TestText(t *testing.T) {
	f := flow(client, web, 80, Allowed)
	f.Translation = &Translation{Dialled: netip.MustParseAddrPort("10.96.0.1:8080"), Source: netip.MustParseAddrPort("10.1.1.254:7")}
	g := flow(world, Peer{Kind: Node, Name: "node-1"}, 0, Dropped)
	g.Counts, g.Decision, g.Direction = Counts{Packets: 1}, Decision{}, ""
	f.Decision.Staged = &Staged{Verdict: Dropped, By: "StagedNetworkPolicy prod/web", Text: "denied"}
	h := flow(world, service, 80, Dropped)
	for want, flow := range map[string]*Flow{
		"allowed TCP prod/client:40000 -> prod/web:80 (dialled 10.96.0.1:8080, source 10.1.1.254:7) ingress, because (with StagedNetworkPolicy prod/web: dropped, denied); 1 connections, 2 packets, 80 bytes": &f,
		"dropped TCP 192.0.2.7:40000 -> node node-1; 1 packets":                                                  &g,
		"dropped TCP 192.0.2.7:40000 -> service shop/db:80 ingress, because; 1 connections, 2 packets, 80 bytes": &h,
	} {
		if got := flow.String(); got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
}

func TestDecisionsForProgramsNameObjectsAndRules(t *testing.T) {
	for want, d := range map[string]Decision{
		`{"text":"t","policy":"AdminNetworkPolicy guard","tier":"admin","rule":"egress rule 3 (no-telnet)","policyRef":{"kind":"AdminNetworkPolicy","name":"guard"},"ruleRef":{"direction":"egress","number":3,"name":"no-telnet"}}`: {
			Text: "t", Policy: "AdminNetworkPolicy guard", Tier: "admin", Rule: "egress rule 3 (no-telnet)",
		},
		`{"trigger":"NetworkPolicy prod/web","triggerRef":{"kind":"NetworkPolicy","namespace":"prod","name":"web"}}`: {Trigger: "NetworkPolicy prod/web"},
		`{"text":"no policy","profile":"kns.prod"}`: {Text: "no policy", Profile: "kns.prod"},
		`{"staged":{"verdict":"dropped","by":"StagedNetworkPolicy prod/web","text":"t","policy":"NetworkPolicy prod/web","rule":"ingress rule 1","byRef":{"kind":"StagedNetworkPolicy","namespace":"prod","name":"web"},"policyRef":{"kind":"NetworkPolicy","namespace":"prod","name":"web"},"ruleRef":{"direction":"ingress","number":1}}}`: {
			Staged: &Staged{Verdict: Dropped, By: "StagedNetworkPolicy prod/web", Text: "t", Policy: "NetworkPolicy prod/web", Rule: "ingress rule 1"},
		},
	} {
		got, err := json.Marshal(d)
		if err != nil || string(got) != want {
			t.Errorf("%s, %v\nwant\n%s", got, err, want)
		}
		var back Decision
		if err := json.Unmarshal(got, &back); err != nil || !reflect.DeepEqual(back, d) {
			t.Errorf("%s is read as %+v, %v", got, back, err)
		}
	}
}
