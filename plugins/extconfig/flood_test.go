package extconfig

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/interfaces"
)

// many is the number of keys that a client wants here; CONTIV_KEYS overrides it (make wide: 200,000).
func many(t *testing.T) int {
	t.Helper()
	n := 20_000
	if s := os.Getenv("CONTIV_KEYS"); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

func heap() int {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// An enormous value is a value like any other: it is stored whole, survives a restart, and is removed when it is deleted. Other
// clients are not affected.
func TestEnormousValue(t *testing.T) {
	file := filepath.Join(t.TempDir(), "db")
	n := newNode(t)
	k, stop := n.keeper(t, file)
	if _, err := k.Apply(t.Context(), Request{Client: "other", Items: ifs("a=1")}); err != nil {
		t.Fatal(err)
	}
	before := heap()
	huge := &interfaces.Interface{Name: "huge", Mtu: 7}
	for i := range 500_000 { // 10 MB
		huge.IpAddresses = append(huge.IpAddresses, fmt.Sprintf("10.%03d.%03d.%03d/32", i>>16, i>>8&255, i&255))
	}
	size := proto.Size(huge)
	if _, err := k.Apply(t.Context(), Request{Items: []proto.Message{huge}}); err != nil || n.config() != "a=1 huge=7" {
		t.Fatalf("%v, VPP has %q", err, n.config())
	}
	stop()
	k, stop = n.keeper(t, file)
	if _, err := k.Apply(t.Context(), Request{Client: "other", Items: ifs("a=2")}); err != nil || n.config() != "a=2 huge=7" {
		t.Fatalf("beside it: %v, VPP has %q", err, n.config())
	}
	if wants, _, err := k.Wants(t.Context(), ""); err != nil || !proto.Equal(wants[kv.InterfaceKey("huge")], huge) {
		t.Errorf("after the restart it is another one: %v", err)
	}
	if _, err := k.Apply(t.Context(), Request{Op: Delete, Items: ifs("huge")}); err != nil || n.config() != "a=2" {
		t.Fatalf("delete: %v, VPP has %q", err, n.config())
	}
	if left := heap() - before; left > size/2 {
		t.Errorf("%d bytes are left of %d", left, size)
	}
	stop()
}

// Long keys and long lists of errors are cut in error texts, and a refused request changes nothing.
func TestErrorsOfBadInputAreShort(t *testing.T) {
	n := newNode(t)
	k, _ := n.keeper(t, "")
	if _, err := k.Apply(t.Context(), Request{Items: ifs("a=1")}); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("ü", 5<<20)
	var nameless, twice []proto.Message
	for range many(t) {
		nameless = append(nameless, &interfaces.Interface{})
		twice = append(twice, &interfaces.Interface{Name: "b"})
	}
	for _, c := range []struct {
		name string
		req  Request
		want string
	}{
		{"a name of 10 MB", Request{Items: []proto.Message{&interfaces.Interface{Name: long}}}, "a key of 10485"},
		{"deleting it", Request{Op: Delete, Items: []proto.Message{&interfaces.Interface{Name: long}}}, "a key of 10485"},
		{"a key of 10 MB", Request{Gone: []string{long}}, "a key of 10485"},
		{"a key of 10 MB that has a model", Request{Gone: []string{kv.InterfaceKey(long)}}, "a key of 10485"},
		{"no names", Request{Items: nameless}, "more"},
		{"always the same", Request{Items: twice}, "twice in one request"},
		{"out of its place", Request{Items: ifs("../../nat/v2/nat44-global=1")}, "key does not belong to the value"},
		{"resync with some of it", Request{Op: Resync, Items: append(ifs("c=1"), nameless...)}, "no model"},
	} {
		began := time.Now()
		_, err := k.Apply(t.Context(), c.req)
		var invalid *InvalidError
		if !errors.As(err, &invalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %.200v", c.name, err)
			continue
		}
		if text := err.Error(); len(text) > 32<<10 {
			t.Errorf("%s: an error of %d bytes", c.name, len(text))
		}
		for _, st := range invalid.Items[:min(len(invalid.Items), 10)] {
			if len(st.Key)+len(st.Err) > 4096 {
				t.Errorf("%s: a status of %d bytes", c.name, len(st.Key)+len(st.Err))
			}
		}
		if n.config() != "a=1" {
			t.Fatalf("%s: VPP has %q", c.name, n.config())
		}
		t.Logf("%s: refused after %s", c.name, time.Since(began).Round(time.Millisecond))
	}
}

// TestManyKeys: each key costs a bounded amount of memory, most of which is free again after deletion. Another client's request does
// not become slower.
func TestManyKeys(t *testing.T) {
	count := many(t)
	n := newNode(t)
	file := filepath.Join(t.TempDir(), "db")
	k, stop := n.keeper(t, file)
	if _, err := k.Apply(t.Context(), Request{Client: "other", Items: ifs("a=1")}); err != nil {
		t.Fatal(err)
	}
	before := heap()
	all := make([]proto.Message, 0, count)
	for i := range count {
		all = append(all, &interfaces.Interface{Name: fmt.Sprintf("i%d", i), Mtu: pending}) // the VPP of these tests configures none of them
	}
	began := time.Now()
	if _, err := k.Apply(t.Context(), Request{Op: Resync, Items: all}); err != nil {
		t.Fatal(err)
	}
	took := time.Since(began)
	clear(all)
	each := (heap() - before) / count
	if each > 2500 {
		t.Errorf("%d bytes for each key", each)
	}
	began = time.Now()
	if _, err := k.Apply(t.Context(), Request{Client: "other", Items: ifs("a=2")}); err != nil || n.config() != "a=2" {
		t.Errorf("another client: %v, VPP has %q", err, n.config())
	}
	t.Logf("%d keys: %s, %d bytes each; another's after that: %s", count, took.Round(time.Millisecond), each, time.Since(began).Round(time.Microsecond))
	stop()
	k, stop = n.keeper(t, file)
	wants, _, err := k.Wants(t.Context(), "")
	if err != nil || len(wants) != count {
		t.Errorf("%d keys after the restart, %v", len(wants), err)
	}
	if _, err := k.Apply(t.Context(), Request{Op: Resync}); err != nil {
		t.Fatal(err)
	}
	if left := (heap() - before) / count; left > 600 { // maps do not shrink
		t.Errorf("%d bytes are left for each key", left)
	}
	stop()
}
