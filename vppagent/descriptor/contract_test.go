package descriptor_test

import (
	"reflect"
	"testing"

	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

// TestContractIsSmall bounds the number of fields that a reader of a descriptor must know and an engine must serve.
func TestContractIsSmall(t *testing.T) {
	for of, most := range map[reflect.Type]int{
		reflect.TypeFor[descriptor.Descriptor](): 14, reflect.TypeFor[descriptor.Lifecycle](): 5, reflect.TypeFor[descriptor.Retrieval](): 6,
		reflect.TypeFor[descriptor.Replace](): 5, reflect.TypeFor[descriptor.Stands](): 6, reflect.TypeFor[descriptor.Dependency](): 6,
	} {
		if n := of.NumField(); n > most {
			t.Errorf("%s has %d fields, at most %d: express the new one by a derived value, a dependency or a claim", of.Name(), n, most)
		}
	}
}
