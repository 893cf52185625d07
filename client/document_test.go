package client

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/nat"
)

func TestReadDocuments(t *testing.T) {
	const file = `# what we want
key: config/vpp/v2/interfaces/loop1
value: {type: SOFTWARE_LOOPBACK, name: loop1, ip_addresses: [10.0.0.1/24]}
merge: once
labels: {app: x}
---
# nothing
---
model: vpp.interfaces
value:
  name: loop2
  ipAddresses:
  - 10.0.0.2/24
---
model: vpp.nat.nat44-global
---
model: vpp.interfaces
name: loop3
--- 
vppConfig:
  interfaces: [{name: loop4}]
  dnat44s: [{label: a/b}]
  nat44_global: {forwarding: true}
linuxConfig: {}
`
	want := []string{
		`config/vpp/v2/interfaces/loop1 {"name":"loop1","type":"SOFTWARE_LOOPBACK","ipAddresses":["10.0.0.1/24"]} once map[app:x] f: document 1 (line 1)`,
		`config/vpp/v2/interfaces/loop2 {"name":"loop2","ipAddresses":["10.0.0.2/24"]}  map[] f: document 2 (line 9)`,
		`config/vpp/nat/v2/nat44-global -  map[] f: document 3 (line 15)`,
		`config/vpp/v2/interfaces/loop3 -  map[] f: document 4 (line 17)`,
		`config/vpp/v2/interfaces/loop4 {"name":"loop4"}  map[] f: document 5 (line 20)`,
		`config/vpp/nat/v2/dnat44/a/b {"label":"a/b"}  map[] f: document 5 (line 20)`,
	}
	docs, err := ReadDocuments("f", []byte(strings.Replace(file, "  nat44_global: {forwarding: true}\n", "", 1)))
	var got []string
	for _, d := range docs {
		got = append(got, fmt.Sprintf("%s %s %v %s", kv.Format(d.Key, d.Message), d.Merge, fmt.Sprint(d.Labels), d.Where))
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if _, err := ReadDocuments("f", []byte(file)); err == nil || err.Error() != "f: document 5 (line 20): config/vpp/nat/v2/nat44-global is in f: document 3 (line 15) already" {
		t.Errorf("twice: %v", err)
	}
	for text, want := range map[string]string{
		"key: config/vpp/v2/interfaces/a\nvalue: {name: a, mtuu: 1}":          `f: document 1 (line 1): value: unknown field "mtuu"`,
		"key: config/vpp/v2/interfaces/a\nvalue: {name: a, mtu: high}":        `f: document 1 (line 1): value: invalid value for uint32 field mtu: "high"`,
		"key: config/vpp/v2/interfaces/a\nvalue: {name: b}":                   `value: its key is "config/vpp/v2/interfaces/b", not "config/vpp/v2/interfaces/a"`,
		"key: config/vpp/v2/interface/a":                                      `key "config/vpp/v2/interface/a": no model`,
		"model: vpp.interface\nname: a":                                       `model "vpp.interface": is unknown: must be one of `,
		"model: vpp.interfaces":                                               "name: is missing: a model without a value needs it",
		"model: vpp.interfaces\nkey: x":                                       "key: must not be given together with model and name",
		"value: {}":                                                           "must have a key or a model",
		"kind: Service":                                                       `unknown field "kind"`,
		"- a":                                                                 "must be a mapping",
		"a: b: c":                                                             "mapping values are not allowed",
		"model: vpp.interfaces\nmodel: vpp.interfaces":                        `"model" already set`,
		"key: config/vpp/v2/interfaces/a\nvalue: {name: a}\nmerge: no":        "merge: must be a string, is a bool",
		"key: config/vpp/v2/interfaces/a\nvalue: {name: a}\nmerge: twice":     `merge "twice"`,
		"key: config/vpp/v2/interfaces/a\nvalue: {name: a}\nmerge: replace=x": `no field "x"`,
		"vppConfig: {interface: []}":                                          `unknown field "interface"`,
		"vppConfig: {interfaces: [{name: a}, {}]}":                            "interfaces[1]: ",
		"---\n---\nmodel: 1":                                                  "f: document 1 (line 3): ",
	} {
		_, err := ReadDocuments("f", []byte(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q:\n%v, want\n%s", text, err, want)
		}
	}
}

func FuzzReadDocuments(f *testing.F) {
	f.Add([]byte("key: config/vpp/v2/interfaces/a\nvalue: {name: a, mtu: 1}\n---\nvppConfig: {dnat44s: [{label: x}]}\n"))
	f.Add([]byte("model: vpp.interfaces\nname: a\nmerge: replace=tap.version once\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		docs, err := ReadDocuments("f", data)
		if err != nil {
			return
		}
		var items []Item
		for _, d := range docs {
			if d.Message == nil {
				continue
			}
			if err := kv.Check(d.Key, d.Message); err != nil {
				t.Fatal(err)
			}
			items = append(items, Item{Key: d.Key, Message: d.Message, Labels: d.Labels})
		}
		text, err := WriteDocuments(items)
		if err != nil {
			t.Fatal(err)
		}
		again, err := ReadDocuments("f", text)
		if err != nil || len(again) != len(items) {
			t.Fatalf("%s\n%v", text, err)
		}
		for i := range again {
			if diff := cmp.Diff(items[i].Message, again[i].Message, protocmp.Transform()); diff != "" {
				t.Fatalf("%s\n%s", text, diff)
			}
		}
	})
}

func TestWriteDocuments(t *testing.T) {
	items := []Item{
		{Key: kv.InterfaceKey("a"), Message: loop("a"), Labels: map[string]string{"x": "y"}, State: event.Configured},
		{Key: kv.DNat44Key("b"), Message: &nat.DNat44{Label: "b", StMappings: []*nat.DNat44_StaticMapping{{ExternalIp: "10.0.0.1"}}}},
	}
	got, err := WriteDocuments(items)
	want := "key: config/vpp/v2/interfaces/a\nlabels:\n  x: \"y\"\nvalue:\n  name: a\n---\nkey: config/vpp/nat/v2/dnat44/b\nvalue:\n  label: b\n  st_mappings:\n  - external_ip: 10.0.0.1\n"
	if diff := cmp.Diff(want, string(got)); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}
