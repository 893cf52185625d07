package record_test

import (
	"errors"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/testing/protocmp"
	"pgregory.net/rapid"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/interfaces"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/ipsec"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/l3"
	"github.com/contiv-agent/contiv-agent/recorder/record"
)

// objects has one object of each type of the model.
func objects() []model.Object {
	return []model.Object{
		&model.Service{}, &model.EndpointSlice{}, &model.Pod{}, &model.Node{}, &model.Namespace{}, &model.ServiceCIDR{}, &model.ServiceAccount{},
		&model.Policy{}, &model.Tier{}, &model.Profile{}, &model.NetworkSet{}, &model.HostEndpoint{},
	}
}

// fill sets every field of a value at random: lists and maps may be nil, empty or longer.
func fill(t *rapid.T, v reflect.Value) {
	switch x := v.Addr().Interface().(type) {
	case *netip.Addr:
		*x = rapid.SampledFrom([]netip.Addr{{}, netip.MustParseAddr("10.1.2.3"), netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fe80::1%eth0")}).Draw(t, "addr")
		return
	case *netip.Prefix:
		*x = rapid.SampledFrom([]netip.Prefix{{}, netip.MustParsePrefix("10.1.2.3/8"), netip.MustParsePrefix("::/0")}).Draw(t, "prefix")
		return
	case *time.Time:
		*x = rapid.SampledFrom([]time.Time{{}, time.Date(2026, 11, 27, 7, 15, 0, 5, time.UTC)}).Draw(t, "time")
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(rapid.Bool().Draw(t, "bool"))
	case reflect.String:
		v.SetString(rapid.String().Draw(t, "string"))
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(int64(rapid.Int8().Draw(t, "int")))
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(rapid.Byte().Draw(t, "uint")))
	case reflect.Float64:
		v.SetFloat(rapid.Float64Range(-1e300, 1e300).Draw(t, "float"))
	case reflect.Struct:
		for i := range v.NumField() {
			fill(t, v.Field(i))
		}
	case reflect.Pointer:
		if rapid.Bool().Draw(t, "set") {
			v.Set(reflect.New(v.Type().Elem()))
			fill(t, v.Elem())
		}
	case reflect.Slice:
		if n := rapid.IntRange(-1, 2).Draw(t, "length"); n >= 0 {
			v.Set(reflect.MakeSlice(v.Type(), n, n))
			for i := range n {
				fill(t, v.Index(i))
			}
		}
	case reflect.Map:
		if n := rapid.IntRange(-1, 2).Draw(t, "entries"); n >= 0 {
			v.Set(reflect.MakeMap(v.Type()))
			for range n {
				key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
				fill(t, key)
				fill(t, value)
				v.SetMapIndex(key, value)
			}
		}
	default:
		t.Fatalf("a field of kind %s: the test does not know it, and JSON may not", v.Kind())
	}
}

// readBack returns the only line of an event, as a reader gets it.
func readBack(t interface {
	Helper()
	Fatalf(string, ...any)
}, ev event.Event,
) record.Entry {
	t.Helper()
	lines := record.Lines(ev)
	if len(lines) != 1 {
		t.Fatalf("%d lines, want 1", len(lines))
	}
	lines[0].Number, lines[0].At = 7, time.Date(2026, 11, 27, 7, 15, 2, 500, time.UTC)
	text := lines[0].AppendTo(nil)
	if strings.Count(string(text), "\n") != 1 || text[len(text)-1] != '\n' {
		t.Fatalf("not one line: %q", text)
	}
	l, err := record.ParseLine(text[:len(text)-1])
	if err != nil || !cmp.Equal(l, lines[0]) {
		t.Fatalf("parsed %+v, %v; want %+v", l, err, lines[0])
	}
	e, err := record.Decode(&l)
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return e
}

// TestObjectsAreReadAsWritten covers every field of every type of the model.
func TestObjectsAreReadAsWritten(t *testing.T) {
	for _, empty := range objects() {
		name := reflect.TypeOf(empty).Elem().Name()
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				obj := reflect.New(reflect.TypeOf(empty).Elem())
				fill(t, obj.Elem())
				o := obj.Interface().(model.Object)
				want := event.Change{Ref: o.Ref(), Object: o, Origin: "a:1", UID: "u"}
				got := readBack(t, &event.Update{Source: "kube", Changes: []event.Change{want}}).Event.(*event.Update)
				if got.Source != "kube" || !reflect.DeepEqual(got.Changes[0], want) {
					t.Fatalf("read\n%#v\nwant\n%#v", got.Changes[0].Object, o)
				}
			})
		})
	}
}

func TestOtherEventsAreReadAsWritten(t *testing.T) {
	pod := netip.MustParseAddr("10.1.1.2")
	for name, want := range map[string]event.Event{
		"removed":       &event.Update{Source: "s", Changes: []event.Change{{Ref: model.Ref{Kind: model.KindPod, Namespace: "a", Name: "b"}}}},
		"sync":          &event.SyncStatus{Source: "s", Status: event.InSync, Note: "n"},
		"resync":        &event.SyncStatus{Source: "s", Status: event.ResyncInProgress},
		"located":       &event.Located{Pods: map[netip.Addr]string{pod: "tap0"}, Uplink: "eth0", HostIPs: []netip.Addr{pod}, Names: map[string]string{"a/b": "tap0"}},
		"vpp":           &event.VPPStatus{Connected: true, Version: "25.10", Generation: 3},
		"values":        &event.External{Source: "my etcd", Values: values("10.1.2.0/24")},
		"no value":      &event.External{Source: "etcd", Values: map[string]proto.Message{"config/vpp/v2/route/vrf/0/dst/10.1.2.0/24/gw/192.168.16.2": nil}},
		"merge":         &event.External{Source: "etcd", Values: values("10.1.2.0/24"), Merge: mergeAll(values("10.1.2.0/24"))},
		"all values":    &event.External{Source: "etcd", Resync: true, Values: values("10.1.2.0/24", "10.1.3.0/24")},
		"nothing wants": &event.External{Source: "etcd", Resync: true, Values: map[string]proto.Message{}},
	} {
		e := readBack(t, want)
		if d := cmp.Diff(want, e.Event, protocmp.Transform(), cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
	refused := event.Change{Ref: model.Ref{Kind: model.KindService, Name: "x"}, Err: errors.New("spec: wrong")}
	got := readBack(t, &event.Update{Changes: []event.Change{refused}}).Event.(*event.Update).Changes[0]
	if got.Err == nil || got.Err.Error() != "spec: wrong" || got.Object != nil {
		t.Errorf("refused: %+v", got)
	}
	if n := len(record.Lines(&event.Tick{})); n != 0 {
		t.Errorf("a tick has %d lines", n)
	}
}

func values(networks ...string) map[string]proto.Message {
	out := kv.Values{}
	for _, n := range networks {
		out.Put(&l3.Route{DstNetwork: n, NextHopAddr: "192.168.16.2"})
	}
	return out
}

func mergeAll(values map[string]proto.Message) map[string]event.Merge {
	out := map[string]event.Merge{}
	for key := range values {
		out[key] = event.Merge{Once: true}
	}
	return out
}

// TestRefusedValuesAreNotRecorded: the agent refuses the whole event, so no part of it may be played.
func TestRefusedValuesAreNotRecorded(t *testing.T) {
	bad := values("10.1.2.0/24")
	bad["config/vpp/v2/route/other"] = &l3.Route{DstNetwork: "10.1.9.0/24"}
	e := readBack(t, &event.External{Source: "etcd", Values: bad})
	if e.Gap == nil || !strings.Contains(e.Gap.Error, "etcd was refused") {
		t.Errorf("%+v", e)
	}
}

func TestSecretsAreNotRecorded(t *testing.T) {
	const password = "hunter2"
	all := kv.Values{}
	all.Put(&ipsec.SecurityAssociation{Index: 1, Spi: 9, CryptoKey: password, IntegKey: password})
	all.Put(&interfaces.Interface{Name: "m", Link: &interfaces.Interface_Memif{Memif: &interfaces.MemifLink{Id: 4, Secret: password}}})
	all.Put(&interfaces.Interface{Name: "w", Link: &interfaces.Interface_Wireguard{Wireguard: &interfaces.WireguardLink{PrivateKey: password, Port: 5}}})
	before := proto.Clone(all[all.Keys()[0]])
	e := readBack(t, &event.External{Source: "etcd", Resync: true, Values: all})
	if strings.Contains(string(e.Body), password) {
		t.Errorf("recorded: %s", e.Body)
	}
	if len(e.Lacking) != 3 || !strings.Contains(string(e.Body), `spi\":9`) || !strings.Contains(string(e.Body), `id\":4`) {
		t.Errorf("lacks %q: %s", e.Lacking, e.Body)
	}
	if !proto.Equal(before, all[all.Keys()[0]]) {
		t.Error("the agent's own value is changed")
	}
}

// TestNoOtherFieldIsASecret finds fields of new models that may hold a secret.
func TestNoOtherFieldIsASecret(t *testing.T) {
	known := map[string]bool{
		"secret": true, "local_crypto_key": true, "remote_crypto_key": true, "local_integ_key": true, "remote_integ_key": true, "private_key": true,
		"crypto_key": true, "integ_key": true,
	}
	found := 0
	protoregistry.GlobalTypes.RangeMessages(func(mt protoreflect.MessageType) bool {
		d := mt.Descriptor()
		if !strings.HasPrefix(string(d.FullName()), "ligato.") && !strings.HasPrefix(string(d.FullName()), "contiv.") {
			return true
		}
		for i := range d.Fields().Len() {
			name := string(d.Fields().Get(i).Name())
			for _, word := range []string{"secret", "passw", "private", "_key", "psk", "token"} {
				switch {
				case !strings.Contains(name, word) || name == "public_key":
				case known[name] && !d.Fields().Get(i).IsList():
					found++
				default:
					t.Errorf("%s.%s: may be a secret, and is recorded", d.FullName(), name)
				}
			}
		}
		return true
	})
	if found < 5 {
		t.Errorf("found only %d secrets", found)
	}
}

// TestDamagedLinesAreFound changes one byte, or cuts the line.
func TestDamagedLinesAreFound(t *testing.T) {
	lines := record.Lines(&event.Update{Changes: []event.Change{{Ref: model.Ref{Kind: model.KindNode, Name: "a"}, Object: &model.Node{Name: "a"}}}})
	lines[0].Number = 3
	text := lines[0].AppendTo(nil)
	text = text[:len(text)-1]
	rapid.Check(t, func(t *rapid.T) {
		damaged := append([]byte{}, text...)
		if at := rapid.IntRange(0, len(text)-1).Draw(t, "at"); rapid.Bool().Draw(t, "cut") {
			damaged = damaged[:at]
		} else {
			damaged[at] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		}
		l, err := record.ParseLine(damaged)
		if err == nil && strings.EqualFold(string(damaged), string(text)) {
			return // a digit of the checksum in the other case
		}
		if !errors.Is(err, record.ErrDamaged) {
			t.Fatalf("%q: %+v, %v", damaged, l, err)
		}
	})
}

func TestOutcomeKeepsTheWorst(t *testing.T) {
	ev := &event.Committed{Seq: 4, Cause: "c", Add: 1}
	for range record.MostValues + 5 {
		ev.Statuses = append(ev.Statuses, event.ValueStatus{Key: "good", State: event.Configured})
	}
	ev.Statuses = append(ev.Statuses, event.ValueStatus{Key: "bad", State: event.Failed, Err: "refused"})
	l := record.OutcomeLine(ev, record.SortMessages(map[string]*record.Messages{"b": {Name: "b", Count: 1}, "a": {Name: "a", Count: 2, Failed: 1, Error: "x"}}))
	e, err := record.Decode(&l)
	if err != nil {
		t.Fatal(err)
	}
	o := e.Outcome
	if len(o.Values) != record.MostValues || o.Values[0].Key != "bad" || o.Values[0].Error != "refused" || o.More != 6 || o.Messages[0].Name != "a" || len(o.Messages) != 2 {
		t.Errorf("%d values, first %+v, %d more, messages %v", len(o.Values), o.Values[0], o.More, o.Messages)
	}
}

func FuzzParseLine(f *testing.F) {
	line := record.Line{Number: 1, At: time.Unix(0, 5), Op: record.Put, Key: "a\tb \"c\"", Body: []byte("{}")}
	f.Add(line.AppendTo(nil))
	f.Fuzz(func(t *testing.T, text []byte) {
		l, err := record.ParseLine(text)
		if err != nil {
			return
		}
		again := l.AppendTo(nil)
		if back, err := record.ParseLine(again[:len(again)-1]); err != nil || !cmp.Equal(l, back) {
			t.Errorf("%+v, then %+v, %v", l, back, err)
		}
		_, _ = record.Decode(&l)
	})
}
