package whatif

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
)

func changeOf(o model.Object) event.Change { return event.Change{Ref: o.Ref(), Object: o} }

func addr(text string) []netip.Addr { return []netip.Addr{netip.MustParseAddr(text)} }

// A value that the cluster has assigned stays if a manifest leaves it out; the value of a manifest replaces it.
func TestOverlayKeepsAssigned(t *testing.T) {
	web, db := model.PodID{Namespace: "prod", Name: "web"}, model.ServiceID{Namespace: "prod", Name: "db"}
	port := model.ServicePort{Port: 80, Protocol: model.TCP}
	node := port
	node.NodePort = 30080
	for name, c := range map[string]struct{ present, given, want model.Object }{
		"a pod without status": {
			&model.Pod{ID: web, NodeName: "n1", IPs: addr("10.1.1.2"), Labels: map[string]string{"a": "b"}},
			&model.Pod{ID: web, Labels: map[string]string{"a": "c"}},
			&model.Pod{ID: web, NodeName: "n1", IPs: addr("10.1.1.2"), Labels: map[string]string{"a": "c"}},
		},
		"a pod with status": {
			&model.Pod{ID: web, NodeName: "n1", IPs: addr("10.1.1.2")},
			&model.Pod{ID: web, NodeName: "n2", IPs: addr("10.1.2.2")},
			&model.Pod{ID: web, NodeName: "n2", IPs: addr("10.1.2.2")},
		},
		"a Service without addresses": {
			&model.Service{ID: db, UID: "u", ClusterIPs: addr("10.96.0.10"), Ports: []model.ServicePort{node}},
			&model.Service{ID: db, Ports: []model.ServicePort{port, {Port: 81, Protocol: model.TCP}}},
			&model.Service{ID: db, UID: "u", ClusterIPs: addr("10.96.0.10"), Ports: []model.ServicePort{node, {Port: 81, Protocol: model.TCP}}},
		},
		"a Service that becomes headless": {
			&model.Service{ID: db, ClusterIPs: addr("10.96.0.10")}, &model.Service{ID: db, Headless: true}, &model.Service{ID: db, Headless: true},
		},
		"a Node without status": {
			&model.Node{Name: "n1", InternalIPs: addr("192.168.16.1"), PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.1.1.0/24")}},
			&model.Node{Name: "n1", Zone: "z"},
			&model.Node{Name: "n1", Zone: "z", InternalIPs: addr("192.168.16.1"), PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.1.1.0/24")}},
		},
	} {
		present := []event.Change{changeOf(c.present)}
		got := Overlay(present, []event.Change{changeOf(c.given)})
		if len(got) != 1 {
			t.Fatalf("%s: %v", name, got)
		}
		if diff := cmp.Diff(c.want, got[0].Object, cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
		if present[0].Object != c.present {
			t.Errorf("%s: the present objects are changed", name)
		}
	}
}

// New objects are added, and one that is not understood replaces nothing.
func TestOverlayAddsAndRefuses(t *testing.T) {
	a, b := changeOf(&model.Pod{ID: model.PodID{Namespace: "prod", Name: "a"}}), changeOf(&model.Pod{ID: model.PodID{Namespace: "prod", Name: "b"}})
	refused := event.Change{Ref: a.Ref, Err: errors.New("spec: wrong")}
	got := Overlay([]event.Change{a}, []event.Change{refused, b})
	if len(got) != 2 || got[0].Object != a.Object || got[0].Err == nil || got[1].Object != b.Object {
		t.Errorf("%+v", got)
	}
}
