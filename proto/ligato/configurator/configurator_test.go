package configurator

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/contiv-agent/contiv-agent/proto/ligato/generic"
	"github.com/contiv-agent/contiv-agent/proto/ligato/linux"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp"
)

// leftOut are the fields of the original that are not here: of models there are none of.
var leftOut = []string{
	"ligato.configurator.Notification 2", "ligato.linux.Notification 1", "ligato.vpp.Stats 1",
	"ligato.vpp.ConfigData 62", "ligato.vpp.ConfigData 63", "ligato.vpp.ConfigData 80", "ligato.vpp.ConfigData 81", "ligato.vpp.ConfigData 82",
	"ligato.vpp.ConfigData 83", "ligato.vpp.ConfigData 90", "ligato.vpp.ConfigData 91", "ligato.vpp.ConfigData 92", "ligato.vpp.ConfigData 93",
	"ligato.vpp.ConfigData 100",
}

// TestSchema compares names and numbers with those of the original, ligato's vpp-agent v3.
func TestSchema(t *testing.T) {
	data, err := os.ReadFile("testdata/ligato.schema")
	if err != nil {
		t.Fatal(err)
	}
	var want, got []string
	for line := range strings.Lines(string(data)) {
		words := strings.SplitN(strings.TrimSpace(line), " ", 3)
		if !slices.Contains(leftOut, words[0]+" "+words[1]) {
			want = append(want, strings.TrimSpace(line))
		}
	}
	for _, file := range []protoreflect.FileDescriptor{
		File_ligato_configurator_configurator_proto, generic.File_ligato_generic_generic_proto, vpp.File_ligato_vpp_vpp_proto, linux.File_ligato_linux_linux_proto,
	} {
		got = append(got, lines(file.Messages())...)
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-original +here):\n%s", diff)
	}
}

func lines(messages protoreflect.MessageDescriptors) (out []string) {
	for i := range messages.Len() {
		m := messages.Get(i)
		for j := range m.Fields().Len() {
			f := m.Fields().Get(j)
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
			out = append(out, fmt.Sprintf("%s %d %s %s", m.FullName(), f.Number(), f.Name(), kind))
		}
		for j := range m.Enums().Len() {
			for k := range m.Enums().Get(j).Values().Len() {
				v := m.Enums().Get(j).Values().Get(k)
				out = append(out, fmt.Sprintf("%s %d %s", m.Enums().Get(j).FullName(), v.Number(), v.Name()))
			}
		}
		out = append(out, lines(m.Messages())...)
	}
	return out
}

// TestMethods: the names by which clients call.
func TestMethods(t *testing.T) {
	var got []string
	for _, file := range []protoreflect.FileDescriptor{File_ligato_configurator_configurator_proto, generic.File_ligato_generic_generic_proto} {
		for i := range file.Services().Len() {
			for j := range file.Services().Get(i).Methods().Len() {
				m := file.Services().Get(i).Methods().Get(j)
				got = append(got, fmt.Sprintf("%s stream=%v,%v", m.FullName(), m.IsStreamingClient(), m.IsStreamingServer()))
			}
		}
	}
	want := []string{
		"ligato.configurator.ConfiguratorService.Get stream=false,false", "ligato.configurator.ConfiguratorService.Update stream=false,false",
		"ligato.configurator.ConfiguratorService.Delete stream=false,false", "ligato.configurator.ConfiguratorService.Dump stream=false,false",
		"ligato.configurator.ConfiguratorService.Notify stream=false,true",
		"ligato.generic.ManagerService.SetConfig stream=false,false", "ligato.generic.ManagerService.GetConfig stream=false,false",
		"ligato.generic.ManagerService.DumpState stream=false,false", "ligato.generic.ManagerService.Subscribe stream=false,true",
		"ligato.generic.MetaService.KnownModels stream=false,false", "ligato.generic.MetaService.ProtoFileDescriptor stream=false,false",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-original +here):\n%s", diff)
	}
}
