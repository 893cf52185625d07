package fanout

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/contiv-agent/contiv-agent/calico/wire"
)

// contents returns a snapshot's keys and values, and checks its invariants.
func contents(t interface {
	Helper()
	Errorf(string, ...any)
}, s snapshot, limit int,
) map[string]string {
	t.Helper()
	out, last, bytes := map[string]string{}, "", 0
	for _, seg := range s.segments {
		if len(seg.entries) == 0 {
			t.Errorf("an empty segment")
		}
		size := 0
		for _, e := range seg.entries {
			if e.key <= last {
				t.Errorf("%q after %q", e.key, last)
			}
			last, out[e.key] = e.key, e.value
			size += len(e.element)
		}
		if size != seg.bytes {
			t.Errorf("segment of %d bytes says %d", size, seg.bytes)
		}
		if len(seg.entries) > segmentEntries || len(seg.entries) > 1 && size > limit {
			t.Errorf("segment of %d entries, %d bytes", len(seg.entries), size)
		}
		bytes += size
	}
	if len(out) != s.keys || bytes != s.bytes {
		t.Errorf("%d keys of %d bytes, says %d and %d", len(out), bytes, s.keys, s.bytes)
	}
	return out
}

// TestTable compares the table with a map, and every frozen copy with the map at that time.
func TestTable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const limit = 2000
		table := table{maxBytes: limit}
		model := map[string]string{}
		type kept struct {
			snapshot
			want map[string]string
		}
		var frozen []kept
		sizes := []int{1, 20, 300, limit - 20, limit + 20}
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			key := fmt.Sprint("/", rapid.IntRange(0, 80).Draw(t, "key"))
			switch rapid.IntRange(0, 10).Draw(t, "step") {
			case 10:
				table.pack()
			case 0:
				frozen = append(frozen, kept{table.freeze(), maps.Clone(model)})
			case 1, 2, 3:
				_, known := model[key]
				if table.removeKey(key) != known {
					t.Fatalf("remove %q: known is %v", key, known)
				}
				delete(model, key)
			default:
				model[key] = strings.Repeat("x", rapid.SampledFrom(sizes).Draw(t, "size"))
				table.putEntry(newEntry(kv(key, model[key])))
			}
			if e := table.getEntry(key); (e != nil) != (model[key] != "") || e != nil && e.value != model[key] {
				t.Fatalf("get %q: %v", key, e)
			}
		}
		for i, f := range append(frozen, kept{table.freeze(), model}) {
			if got := contents(t, f.snapshot, limit); !maps.Equal(got, f.want) {
				t.Fatalf("copy %d: keys %v, want %v", i, slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(f.want)))
			}
		}
	})
}

// TestSegmentsAreFull: keys that arrive in order fill segments, many small entries make many segments, and deletes do not
// leave many small ones.
func TestSegmentsAreFull(t *testing.T) {
	var table table
	const n = 20_000
	for i := range n {
		table.putEntry(newEntry(kv(fmt.Sprintf("/%05d", i), strings.Repeat("x", 400))))
	}
	if got, least := len(table.segments), table.bytes/segmentBytes; got > least+1 {
		t.Errorf("%d segments for %d bytes", got, table.bytes)
	}
	for i := range n {
		if i%500 != 0 {
			table.removeKey(fmt.Sprintf("/%05d", i))
		}
	}
	if got := len(table.segments); got > 2 {
		t.Errorf("%d segments for %d keys", got, table.keys)
	}
}

// TestPackFillsSegments: after pack segments are full, even if keys arrived in random order.
func TestPackFillsSegments(t *testing.T) {
	var table table
	for i := range 20_000 {
		table.putEntry(newEntry(kv(fmt.Sprintf("/%05d", i*7919%20_000), strings.Repeat("x", 400))))
	}
	before := len(table.segments)
	table.pack()
	if got, least := len(table.segments), table.bytes/segmentBytes; got > least+1 || got >= before {
		t.Errorf("%d segments for %d bytes, before %d", got, table.bytes, before)
	}
}

// TestEntriesContainKeyAndValue: an entry's key and value are found in its element whatever their lengths.
func TestEntriesContainKeyAndValue(t *testing.T) {
	for _, k := range []int{1, 63, 127, 128, 255, 256, 70_000} {
		for _, v := range []int{1, 127, 128, 255, 256, 65_535, 65_536, 1 << 17} {
			key, value := strings.Repeat("k", k), strings.Repeat("v", v)
			e := newEntry(wire.KV{Key: key, Value: []byte(value), Revision: "r", V3ResourceVersion: "3", TTL: 5})
			if e.key != key || e.value != value {
				t.Fatalf("key of %d and value of %d bytes: found %d and %d", k, v, len(e.key), len(e.value))
			}
		}
	}
}

func TestPrefixed(t *testing.T) {
	var table table
	for i := range 3000 {
		table.putEntry(newEntry(kv(fmt.Sprintf("/n/%04d", i), strings.Repeat("x", 1000))))
	}
	table.putEntry(newEntry(kv("/a", "x")))
	table.putEntry(newEntry(kv("/o", "x")))
	for prefix, want := range map[string]int{"/n/": 3000, "/n/1": 1000, "/n/29": 100, "/": 3002, "/a": 1, "/o": 1, "/z": 0, "": 3002, "/A": 0} {
		got := 0
		table.freeze().prefixed(prefix, func(e *entry) {
			got++
			if !strings.HasPrefix(e.key, prefix) {
				t.Errorf("%q has no prefix %q", e.key, prefix)
			}
		})
		if got != want {
			t.Errorf("%q: %d keys, want %d", prefix, got, want)
		}
	}
	if diff := cmp.Diff(3, func() int { return countReady(slices3(), "kube-system/fan-out") }()); diff != "" {
		t.Errorf("ready servers (-want +got):\n%s", diff)
	}
}

// slices3 returns EndpointSlices with three ready servers of one Service.
func slices3() snapshot {
	var table table
	const prefix = "/calico/resources/v3/projectcalico.org/kubernetesendpointslices/"
	for key, value := range map[string]string{
		"kube-system/fan-out-x": `{"metadata":{"labels":{"kubernetes.io/service-name":"fan-out"}},"endpoints":[
			{"addresses":["10.0.0.1"],"conditions":{"ready":true}},{"addresses":["10.0.0.2"]},{"addresses":["10.0.0.3"],"conditions":{"ready":false}}]}`,
		"kube-system/fan-out-y":       `{"metadata":{"labels":{"kubernetes.io/service-name":"fan-out"}},"endpoints":[{"addresses":["10.0.0.1"]},{"addresses":["10.0.0.4"]}]}`,
		"kube-system/fan-out-other-z": `{"metadata":{"labels":{"kubernetes.io/service-name":"fan-out-other"}},"endpoints":[{"addresses":["10.0.0.9"]}]}`,
		"kube-systems/fan-out-x":      `{"metadata":{"labels":{"kubernetes.io/service-name":"fan-out"}},"endpoints":[{"addresses":["10.0.0.8"]}]}`,
		"kube-system/fan-out-bad":     `{`,
	} {
		table.putEntry(newEntry(kv(prefix+key, value)))
	}
	return table.freeze()
}
