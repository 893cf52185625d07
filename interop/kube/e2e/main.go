// Command e2e is Kubernetes' end-to-end tests of sig-network, with the suite's own set-up and the common tests, but without those of other groups: the same program as
// Kubernetes' e2e.test, smaller. It is a separate module, as it needs Kubernetes' own versions.
//
// Invariant: no test is changed.
package main

import (
	"flag"
	"testing"

	"k8s.io/kubernetes/test/e2e"
	_ "k8s.io/kubernetes/test/e2e/feature" // the names of features
	"k8s.io/kubernetes/test/e2e/framework"
	"k8s.io/kubernetes/test/e2e/framework/config"
	_ "k8s.io/kubernetes/test/e2e/framework/debug/init"   // what a failed test prints of its namespace
	_ "k8s.io/kubernetes/test/e2e/framework/metrics/init" // likewise
	_ "k8s.io/kubernetes/test/e2e/framework/node/init"    // likewise
	_ "k8s.io/kubernetes/test/e2e/network"                // the tests
	_ "k8s.io/kubernetes/test/utils/format"               // likewise
)

func main() {
	testing.Init()
	config.CopyFlags(config.Flags, flag.CommandLine)
	framework.RegisterCommonFlags(flag.CommandLine)
	framework.RegisterClusterFlags(flag.CommandLine)
	flag.Parse()
	framework.AfterReadingAllFlags(&framework.TestContext)
	all := func(_, _ string) (bool, error) { return true, nil }
	testing.Main(all, []testing.InternalTest{{Name: "TestE2E", F: e2e.RunE2ETests}}, nil, nil)
}
