package contivagent

import (
	"maps"
	"slices"
	"testing"

	"github.com/contiv-agent/contiv-agent/test/shape"
)

// Caps on packages and types. Those above a cap are listed with today's number, which may only shrink: a number that the tree has
// left behind by more than a twentieth must be lowered here.
const (
	maxPackage = 2500 // lines of a package, without tests and generated code
	maxFields  = 15   // of a struct
	maxMethods = 30   // of a type
	maxBare    = 5    // packages that define a function of one bare lower-case name
)

// largePackages, by folder.
var largePackages = map[string]int{
	"sim":         7282,
	"vppagent":    5100,
	"vpp":         4708,
	"sim/nat44ed": 3903,
}

// largeStructs, by folder and name.
var largeStructs = map[string]int{
	"calico/datastore.Rule":                      45,
	"sim/nat44ed.Engine":                         34,
	"plugins/controller.Controller":              29,
	"vppagent.value":                             29,
	"agent/status.Status":                        28,
	"plugins/service.Processor":                  26,
	"vppagent.Agent":                             25,
	"plugins/policy.Processor":                   24,
	"sim.iface":                                  23,
	"sim/nat44ed.session":                        21,
	"calico/fanout.conn":                         20,
	"plugins/policy.stream":                      20,
	"sim.state":                                  20,
	"vpp.session":                                20,
	"agent.parts":                                19,
	"calico/fanout.Config":                       19,
	"model.Service":                              19,
	"renderer/dataplane.Node":                    18,
	"calc.policies":                              17,
	"calico/datastore.WorkloadEndpoint":          17,
	"calico/datastore/encode.v3BGPPeer":          17,
	"calico/typha.Config":                        17,
	"renderer.ContivService":                     17,
	"calico/datastore/encode.v3BGPConfiguration": 16,
	"calico/fanout.metrics":                      16,
	"sim.VPP":                                    16,
	"sim/nat44ed.work":                           16,
	"source/kube/report.Reporter":                16,
}

// largeTypes are types with many methods, by folder and name.
var largeTypes = map[string]int{
	"renderer/acl.Renderer":             32,
	"sim.VPP":                           156,
	"sim/nat44ed.Engine":                136,
	"vppagent.Agent":                    88,
	"test/oracle/policy/generate.World": 71,
	"sim/cnat.Engine":                   68,
	"source/convert.problems":           34,
	"plugins/policy.Processor":          61,
	"sim/acl.Engine":                    58,
	"trace.Cluster":                     55,
	"plugins/service.Processor":         52,
	"plugins/controller.Controller":     46,
	"test/oracle/policy.Cluster":        44,
	"sim/nat44ed.work":                  42,
	"calico/datastore.reader":           35,
	"vpp.session":                       35,
	"test/adversary.Law":                34,
	"sim.table":                         32,
}

// bareNames are names of functions and methods that say no more than a verb or a noun, and how many packages define them.
var bareNames = map[string]int{
	"compare": 8, // orders two values of one type, as the exported Compare of other types
}

// hold compares what the tree has with a cap and its exceptions.
func hold(t *testing.T, what string, have map[string]int, most int, exceptions map[string]int) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(have)) {
		n, listed := have[name], exceptions[name]
		switch {
		case n > max(most, listed):
			t.Errorf("%s has %d %s, at most %d", name, n, what, max(most, listed))
		case listed > 0 && n <= most:
			t.Errorf("%s has %d %s: it is no exception any more, take it from the list", name, n, what)
		case listed > 0 && n < listed-listed/20:
			t.Errorf("%s has %d %s: lower its number %d in the list", name, n, what, listed)
		}
	}
	for name := range exceptions {
		if have[name] == 0 {
			t.Errorf("%s is in the list of exceptions and not in the tree", name)
		}
	}
}

// maxWiring is the number of lines of the package agent, which only composes other rooms. It may only shrink.
const maxWiring = 754

func TestPackagesAndTypesOnlyShrink(t *testing.T) {
	f := shape.Measure(tree(t))
	if n := f.Packages["agent"]; n > maxWiring || n < maxWiring-maxWiring/20 {
		t.Errorf("agent has %d lines, and the cap is %d: move what is no wiring to a room below agent, or lower the cap", n, maxWiring)
	}
	hold(t, "lines", f.Packages, maxPackage, largePackages)
	hold(t, "fields", f.Fields, maxFields, largeStructs)
	hold(t, "methods", f.Methods, maxMethods, largeTypes)
}

// A name that many packages define cannot be followed by grep.
func TestNamesSayWhatTheyActOn(t *testing.T) {
	have := map[string]int{}
	for name, dirs := range shape.Measure(tree(t)).Names {
		have[name] = len(dirs)
	}
	hold(t, "packages that define it", have, maxBare, bareNames)
}
