package client

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/interfaces"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/nat"
)

// linesOf are fields in words.
func linesOf(list []Field) (out []string) {
	for _, f := range list {
		out = append(out, f.String())
	}
	return out
}

func TestCompare(t *testing.T) {
	type difference struct {
		Key    string
		Fields []string
		Only   Side
	}
	tap := func(mtu uint32, addrs ...string) *interfaces.Interface {
		return &interfaces.Interface{Name: "a", Mtu: mtu, IpAddresses: addrs, Link: &interfaces.Interface_Tap{Tap: &interfaces.TapLink{Version: 2}}}
	}
	key := kv.InterfaceKey("a")
	agent := []Item{{Key: key, Message: tap(1500, "10.0.0.1/24", "10.0.0.2/24")}, {Key: kv.InterfaceKey("z"), Message: loop("z")}}
	for i, c := range []struct {
		docs       []Document
		everything bool
		want       []difference
	}{
		{docs: []Document{{Key: key, Message: tap(1500, "10.0.0.1/24", "10.0.0.2/24")}}},
		{docs: []Document{{Key: key, Message: tap(0, "10.0.0.1/24", "10.0.0.3/24")}}, want: []difference{
			{Key: key, Fields: []string{`ip_addresses[1]: "10.0.0.2/24", not "10.0.0.3/24"`, "mtu: 1500, not unset"}},
		}},
		{docs: []Document{{Key: key, Message: loop("a")}}, want: []difference{{Key: key, Fields: []string{
			`ip_addresses[0]: "10.0.0.1/24", not unset`, `ip_addresses[1]: "10.0.0.2/24", not unset`, "mtu: 1500, not unset", "tap: {}, not unset", "tap.version: 2, not unset",
		}}}},
		{docs: []Document{{Key: kv.DNat44Key("x"), Message: &nat.DNat44{Label: "x"}}}, everything: true, want: []difference{
			{Key: kv.DNat44Key("x"), Only: File}, {Key: key, Only: Agent}, {Key: kv.InterfaceKey("z"), Only: Agent},
		}},
		{docs: []Document{{Key: key, Message: agent[0].Message}}, everything: true, want: []difference{{Key: kv.InterfaceKey("z"), Only: Agent}}},
		{docs: []Document{{Key: key}, {Key: kv.InterfaceKey("none")}}, want: []difference{{Key: key, Only: Agent}}},
	} {
		var got []difference
		for _, d := range Compare(c.docs, agent, c.everything) {
			got = append(got, difference{d.Key, linesOf(d.Fields), d.Only})
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%d (-want +got):\n%s", i, diff)
		}
	}
	merged := tap(9000, "10.0.0.9/24", "10.0.0.1/24")
	merged.RxModes = []*interfaces.Interface_RxMode{{Queue: 1}}
	for _, c := range []struct {
		shall *interfaces.Interface
		want  []string
	}{
		{tap(9000, "10.0.0.1/24"), nil},
		{tap(0), nil},
		{&interfaces.Interface{Name: "a", RxModes: []*interfaces.Interface_RxMode{{Queue: 1}, {Queue: 2}}}, []string{`rx_modes: lacks {"queue":2}`}},
		{tap(1400, "10.0.0.2/24"), []string{`ip_addresses: lacks "10.0.0.2/24"`, "mtu: 9000, not 1400"}},
		{&interfaces.Interface{Name: "a", Type: interfaces.Interface_TAP}, []string{`type: "UNDEFINED_TYPE", not "TAP"`}},
	} {
		if diff := cmp.Diff(c.want, linesOf(Lacks(merged, c.shall))); diff != "" {
			t.Errorf("%v (-want +got):\n%s", c.shall, diff)
		}
	}
}

// Fields of a difference are values of JSON, not texts of values.
func TestFieldInJSON(t *testing.T) {
	is := &interfaces.Interface{Name: "a", Mtu: 9000, Enabled: true, IpAddresses: []string{"10.0.0.1/24"}}
	shall := &interfaces.Interface{Name: "a", Type: interfaces.Interface_TAP, RxModes: []*interfaces.Interface_RxMode{{Queue: 2}}, IpAddresses: []string{"10.0.0.2/24"}}
	for _, c := range []struct {
		fields []Field
		want   string
	}{
		{fieldsOf(is, shall), `[{"field":"enabled","is":true} {"field":"ip_addresses[0]","is":"10.0.0.1/24","shall":"10.0.0.2/24"} {"field":"mtu","is":9000} ` +
			`{"field":"rx_modes[0]","shall":{}} {"field":"rx_modes[0].queue","shall":2} {"field":"type","shall":"TAP"}]`},
		{Lacks(is, shall), `[{"field":"ip_addresses","shall":"10.0.0.2/24","lacks":true} {"field":"rx_modes","shall":{"queue":2},"lacks":true} ` +
			`{"field":"type","is":"UNDEFINED_TYPE","shall":"TAP"}]`},
	} {
		var texts []string
		for _, f := range c.fields {
			text, err := json.Marshal(f)
			if err != nil {
				t.Fatal(err)
			}
			texts = append(texts, string(text))
		}
		if got := fmt.Sprint(texts); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}
