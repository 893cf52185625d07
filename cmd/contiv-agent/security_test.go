package main

import (
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// SECURITY.md lists every flag that opens a listener, with its default.
func TestSecurityPageHasTheListeners(t *testing.T) {
	page, err := os.ReadFile("../../SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	for _, m := range regexp.MustCompile("(?m)^\\| `(run|fanout) --([a-z-]+)` \\| `([^`]*)`").FindAllStringSubmatch(string(page), -1) {
		said = append(said, m[1]+" --"+m[2]+" "+m[3])
	}
	var have []string
	listens := regexp.MustCompile(`^(listen|metrics|.*-listen|.*-bind-address|health-check-addresses|grpc-socket|status-socket|flows-collector)$`)
	for _, cmd := range []*cobra.Command{newRun(), newFanout()} {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if listens.MatchString(f.Name) {
				have = append(have, cmd.Name()+" --"+f.Name+" "+f.DefValue)
			}
		})
	}
	slices.Sort(said)
	slices.Sort(have)
	if !slices.Equal(said, have) {
		t.Errorf("SECURITY.md has\n%s\nthe flags are\n%s", strings.Join(said, "\n"), strings.Join(have, "\n"))
	}
	for _, limit := range []string{"max-connections 10000", "hello-within 10s", "write-within 2m0s"} {
		name, want, _ := strings.Cut(limit, " ")
		if got := newFanout().Flags().Lookup(name).DefValue; got != want {
			t.Errorf("fanout --%s is %s, the page has %s", name, got, want)
		}
	}
}

// This test lists every call in the program that listens, with its row of SECURITY.md.
func TestEveryListenerIsKnown(t *testing.T) {
	page, err := os.ReadFile("../../SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string][]string{
		"agent/agent.go":                   {"`run --listen`", "`run --status-socket`", "`felix-driver`, `listen`", "`felix-driver`, `statusSocket`"},
		"agent/config/pods.go":             {"`run --status-socket`"},
		"agent/cleanup/cleanup.go":         {"`run --status-socket`"}, // occupied while cleanup runs
		"agent/flows/hubble/server.go":     {"`run --hubble-listen`"},
		"cmd/ui/ui.go":                     {"`ui --ui-listen`", "`run --ui-listen`"},
		"agent/kubeproxy/health.go":        {"`run --healthz-bind-address`"},
		"plugins/service/health/server.go": {"`run --health-check-addresses`"},
		"plugins/extconfig/grpc/server.go": {"`run --grpc-listen`", "`run --grpc-socket`"},
		"cmd/contiv-agent/fanout.go":       {"`fanout --listen`", "`fanout --metrics`"},
		"cmd/contiv-agent/sim.go":          {"`sim --socket`"},
		"cmd/embedded/embedded.go":         nil, // in a folder of the agent's user, for its child process
		"httpserver/unix.go":               nil, // called by others
		"connectivity/probe/icmp.go":       nil, // echo replies, no port
		"connectivity/probe/server.go":     {"`connectivity serve --ports`"},
		"sim/hostif/memif.go":              {"`sim --memif-sockets`"},
		"sim/vpp.go":                       nil, // for tests
		"vpp/flowprobe/collector.go":       {"`run --flows-collector`"},
	}
	listens := regexp.MustCompile(`\.Listen(TCP|Unix|Packet|UDP|IP|AndServe|AndServeTLS)?\(|httpserver\.Unix\(`)
	found := map[string]bool{}
	root := os.DirFS("../..")
	err = fs.WalkDir(root, ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains([]string{"interop", "tools", "test", "testdata", "bin", ".git"}, d.Name()):
			return fs.SkipDir
		case !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := fs.ReadFile(root, path)
		for line := range strings.Lines(string(text)) {
			code, _, _ := strings.Cut(line, "//")
			code = strings.ReplaceAll(code, "adapter.Listen(", "") // it listens to Services, not on a socket
			found[path] = found[path] || listens.MatchString(code)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for path, is := range found {
		if _, known := rows[path]; is && !known {
			t.Errorf("%s listens: which row of SECURITY.md is it?", path)
		}
	}
	for path, want := range rows {
		if !found[path] {
			t.Errorf("%s does not listen any more", path)
		}
		for _, row := range want {
			if !strings.Contains(string(page), "\n| "+row) {
				t.Errorf("%s: SECURITY.md has no row %s", path, row)
			}
		}
	}
}
