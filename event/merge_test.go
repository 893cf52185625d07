package event

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/acl"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/interfaces"
)

func TestMergeInto(t *testing.T) {
	theirs := func() *interfaces.Interface {
		return &interfaces.Interface{
			Name: "tap1", Enabled: true, Mtu: 1500, IpAddresses: []string{"10.0.0.1/24", "10.0.0.2/24"},
			Link:    &interfaces.Interface_Tap{Tap: &interfaces.TapLink{Version: 2, RxRingSize: 512}},
			RxModes: []*interfaces.Interface_RxMode{{Queue: 1}, {Queue: 2}},
		}
	}
	ours := &interfaces.Interface{
		Name: "tap1", IpAddresses: []string{"10.0.0.2/24", "10.0.0.3/24"}, Link: &interfaces.Interface_Tap{Tap: &interfaces.TapLink{HostIfName: "x"}},
		RxModes: []*interfaces.Interface_RxMode{{Queue: 2}, {Queue: 3}},
	}
	before := proto.CloneOf(ours)
	for text, change := range map[string]func(want *interfaces.Interface){
		"": func(*interfaces.Interface) {},
		"replace": func(want *interfaces.Interface) {
			proto.Reset(want)
			proto.Merge(want, ours)
		},
		"replace=mtu": func(want *interfaces.Interface) { want.Mtu = 0 },
		"replace=ip_addresses,tap.rx_ring_size": func(want *interfaces.Interface) {
			want.IpAddresses = ours.IpAddresses
			want.GetTap().RxRingSize = 0
		},
		"replace=tap":            func(want *interfaces.Interface) { want.Link = ours.Link },
		"replace=memif.id,rdma":  func(*interfaces.Interface) {},
		"replace=unnumbered":     func(*interfaces.Interface) {},
		"replace=enabled":        func(want *interfaces.Interface) { want.Enabled = false },
		"once":                   func(want *interfaces.Interface) { want.IpAddresses, want.RxModes = once(want) },
		"replace=rx_modes once":  func(want *interfaces.Interface) { want.IpAddresses, _ = once(want); want.RxModes = ours.RxModes },
		"replace=mtu replace=ip": nil,
	} {
		m, err := ParseMerge(text)
		if err != nil {
			t.Fatal(err)
		}
		if change == nil {
			if err := m.Check(ours.ProtoReflect().Descriptor()); err == nil || !strings.Contains(err.Error(), `no field "ip"`) {
				t.Errorf("%q: %v", text, err)
			}
			continue
		}
		if err := m.Check(ours.ProtoReflect().Descriptor()); err != nil {
			t.Errorf("%q: %v", text, err)
		}
		want, got := theirs(), theirs()
		proto.Merge(want, ours)
		change(want)
		if m.Into(got, ours); cmp.Diff(want, got, protocmp.Transform()) != "" {
			t.Errorf("%q (-want +got):\n%s", text, cmp.Diff(want, got, protocmp.Transform()))
		}
		got.RxModes[len(got.RxModes)-1].Queue = 99
		if !proto.Equal(before, ours) {
			t.Fatalf("%q: shares with or changed the source", text)
		}
	}
}

// once removes the second of each list's four elements, which the third repeats.
func once(m *interfaces.Interface) ([]string, []*interfaces.Interface_RxMode) {
	return append(m.IpAddresses[:2:2], m.IpAddresses[3]), append(m.RxModes[:2:2], m.RxModes[3])
}

func TestMergeOnceInNestedLists(t *testing.T) {
	list := &acl.ACL{Name: "a", Interfaces: &acl.ACL_Interfaces{Ingress: []string{"x", "x"}}}
	dst := &acl.ACL{}
	m := Merge{Once: true}
	m.Into(dst, list)
	if len(dst.Interfaces.Ingress) != 2 {
		t.Errorf("into an empty value: %v: duplicates within one source must stay", dst)
	}
	if m.Into(dst, list); len(dst.Interfaces.Ingress) != 2 {
		t.Errorf("again: %v", dst)
	}
}

func TestMergeText(t *testing.T) {
	for _, m := range []Merge{{}, {Once: true}, {Replace: []string{All}}, {Replace: []string{"a", "b.c"}, Once: true}} {
		got, err := ParseMerge(m.String())
		if err != nil || !cmp.Equal(m, got) || m.Zero() != (m.String() == "") {
			t.Errorf("%q: %+v, %v", m, got, err)
		}
	}
	for _, text := range []string{"unset", "replacement", "once=1", "replace mtu"} {
		if m, err := ParseMerge(text); err == nil {
			t.Errorf("%q: %+v", text, m)
		}
	}
	iface := (&interfaces.Interface{}).ProtoReflect().Descriptor()
	for _, path := range []string{"", "Mtu", "mtu.x", "ip_addresses.x", "rx_modes.queue", "tap.", ".tap", "tap.nothing"} {
		if err := (Merge{Replace: []string{path}}).Check(iface); err == nil {
			t.Errorf("path %q: no error", path)
		}
	}
}
