package kv_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	_ "github.com/contiv-agent/contiv-agent/proto/ligato/kvscheduler"
)

// TestSchema compares names and numbers of every message and enum with testdata/<package>.schema, one line per field
// (message, number, name, type) or enum value (enum, number, name). ligato's files state the original's facts. A
// changed line breaks values that others have stored; new lines may be added to contiv's files.
func TestSchema(t *testing.T) {
	for _, root := range []string{"ligato", "contiv"} {
		data, err := os.ReadFile("testdata/" + root + ".schema")
		if err != nil {
			t.Fatal(err)
		}
		want := strings.Split(strings.TrimSpace(string(data)), "\n")
		var got []string
		protoregistry.GlobalFiles.RangeFiles(func(f protoreflect.FileDescriptor) bool {
			if strings.HasPrefix(string(f.Package()), root+".") {
				got = append(got, enumLines(f.Enums())...)
				got = append(got, messageLines(f.Messages())...)
			}
			return true
		})
		slices.Sort(got)
		slices.Sort(want)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s differs from its schema (-want +got):\n%s", root, diff)
		}
	}
}

func messageLines(messages protoreflect.MessageDescriptors) (lines []string) {
	for i := range messages.Len() {
		m := messages.Get(i)
		for j := range m.Fields().Len() {
			lines = append(lines, fieldLine(m.Fields().Get(j)))
		}
		lines = append(lines, enumLines(m.Enums())...)
		lines = append(lines, messageLines(m.Messages())...)
	}
	return lines
}

func fieldLine(f protoreflect.FieldDescriptor) string {
	kind := f.Kind().String()
	switch {
	case f.Message() != nil:
		kind = string(f.Message().FullName())
	case f.Enum() != nil:
		kind = string(f.Enum().FullName())
	}
	if f.IsList() {
		kind = "repeated " + kind
	}
	if o := f.ContainingOneof(); o != nil {
		kind += " oneof=" + string(o.Name())
	}
	if f.Options().(*descriptorpb.FieldOptions).GetDeprecated() {
		kind += " deprecated"
	}
	return fmt.Sprintf("%s %d %s %s", f.Parent().FullName(), f.Number(), f.Name(), kind)
}

func enumLines(enums protoreflect.EnumDescriptors) (lines []string) {
	for i := range enums.Len() {
		e := enums.Get(i)
		for j := range e.Values().Len() {
			v := e.Values().Get(j)
			lines = append(lines, fmt.Sprintf("%s %d %s", e.FullName(), v.Number(), v.Name()))
		}
	}
	return lines
}
