package felix_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/contiv-agent/contiv-agent/calico/recorded"
	"github.com/contiv-agent/contiv-agent/proto/felix"
)

var update = flag.Bool("update", false, "rewrite testdata/fields.txt; only additions are right")

// TestFieldsStay compares all names, numbers and types with testdata/fields.txt, which was checked against the
// descriptors of Calico v3.31.0: everything but its PolicySync service, which is no part of the driver's protocol.
func TestFieldsStay(t *testing.T) {
	var b strings.Builder
	for _, file := range []protoreflect.FileDescriptor{
		felix.File_felix_felix_proto, felix.File_felix_policy_proto, felix.File_felix_endpoint_proto,
		felix.File_felix_route_proto, felix.File_felix_node_proto,
	} {
		describeEnums(&b, file.Enums())
		describe(&b, file.Messages())
	}
	const golden = "testdata/fields.txt"
	if *update {
		if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), b.String()); diff != "" {
		t.Errorf("names or numbers changed (-golden +now):\n%s", diff)
	}
}

func describe(b *strings.Builder, messages protoreflect.MessageDescriptors) {
	for i := range messages.Len() {
		m := messages.Get(i)
		if m.IsMapEntry() {
			continue
		}
		fmt.Fprintln(b, m.FullName())
		for j := range m.Fields().Len() {
			f := m.Fields().Get(j)
			fmt.Fprintf(b, "  %d %s %s %s%s%s\n", f.Number(), f.Name(), f.Cardinality(), f.Kind(), typeName(f), oneof(f))
		}
		describeEnums(b, m.Enums())
		describe(b, m.Messages())
	}
}

func describeEnums(b *strings.Builder, enums protoreflect.EnumDescriptors) {
	for i := range enums.Len() {
		e := enums.Get(i)
		fmt.Fprintln(b, e.FullName())
		for j := range e.Values().Len() {
			fmt.Fprintf(b, "  %d %s\n", e.Values().Get(j).Number(), e.Values().Get(j).Name())
		}
	}
}

func typeName(f protoreflect.FieldDescriptor) string {
	switch {
	case f.IsMap():
		return fmt.Sprintf(" map<%s,%s>", f.MapKey().Kind(), f.MapValue().Kind())
	case f.Message() != nil:
		return " " + string(f.Message().FullName())
	case f.Enum() != nil:
		return " " + string(f.Enum().FullName())
	}
	return ""
}

func oneof(f protoreflect.FieldDescriptor) string {
	if o := f.ContainingOneof(); o != nil {
		return " in " + string(o.Name())
	}
	return ""
}

// TestSequenceZeroIsNotOnTheWire: the first message of a stream has no field 15, and a reader must not need it.
func TestSequenceZeroIsNotOnTheWire(t *testing.T) {
	got, err := proto.Marshal(&felix.ToDataplane{Payload: &felix.ToDataplane_InSync{InSync: &felix.InSync{}}})
	if err != nil {
		t.Fatal(err)
	}
	want := protowire.AppendTag(nil, 1, protowire.BytesType)
	want = protowire.AppendBytes(want, nil)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	got, err = proto.Marshal(&felix.ToDataplane{SequenceNumber: 7})
	if err != nil {
		t.Fatal(err)
	}
	want = protowire.AppendVarint(protowire.AppendTag(nil, 15, protowire.VarintType), 7)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestRouteTypesAreASum: a sum of route types is no declared value, and survives encoding nevertheless.
func TestRouteTypesAreASum(t *testing.T) {
	sum := felix.RouteType_LOCAL_WORKLOAD | felix.RouteType_LOCAL_TUNNEL
	wire, err := proto.Marshal(&felix.RouteUpdate{Dst: "10.0.0.1/32", Types: sum})
	if err != nil {
		t.Fatal(err)
	}
	var back felix.RouteUpdate
	if err := proto.Unmarshal(wire, &back); err != nil {
		t.Fatal(err)
	}
	if back.GetTypes() != sum {
		t.Errorf("got %v, want %v", back.GetTypes(), sum)
	}
}

// TestRealMessages reads what the calculation graph of Felix v3.31.0 emitted, and writes it again.
func TestRealMessages(t *testing.T) {
	n := 0
	for _, list := range recorded.Lists() {
		for _, step := range list.Steps {
			for _, text := range step.Messages {
				var m felix.ToDataplane
				if err := protojson.Unmarshal(text, &m); err != nil {
					t.Fatalf("%s, %s: %v in %s", list.Name, step.State, err, text)
				}
				again, err := protojson.Marshal(&m)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(decode(t, text), decode(t, again)); diff != "" {
					t.Errorf("%s, %s (-read +written):\n%s", list.Name, step.State, diff)
				}
				n++
			}
		}
	}
	if n < 500 {
		t.Errorf("only %d messages in the data", n)
	}
}

func decode(t *testing.T, text []byte) any {
	t.Helper()
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	return v
}
