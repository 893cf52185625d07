package adversary

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// fix is what keeps packets of one kind away. Without it the adversary must find them.
type fix struct {
	name  string
	class Class  // that must be found; others are only counted
	edits []edit // that take the fix out
	plain bool   // it is found sooner without extra packets and packets between messages
}

// edit replaces text that is in a file once.
type edit struct{ file, old, now string }

var (
	lawOfSessions = edit{"renderer/acl/law/law.go", "func (l Law) answers(proto uint8) (out []bothPorts) {\n", "func (l Law) answers(proto uint8) (out []bothPorts) {\n\tif true {\n\t\treturn nil\n\t}\n"}
	hostLink      = edit{"test/adversary/game.go", "\tc.Seed, c.Agent.Services.Renderer.Choice = ", "\tc.Agent.Policies.TrustNodeAddresses = true\n\tc.Seed, c.Agent.Services.Renderer.Choice = "}
	closedFirst   = edit{"vppagent/plan.go", "\tshut := p.shut()\n", "\tvar shut [][]Step\n"}
	unknownDenied = edit{"test/adversary/game.go", "\tc.Seed, c.Agent.Services.Renderer.Choice = ", "\tc.Agent.Policies.AllowUnknown = true\n\tc.Seed, c.Agent.Services.Renderer.Choice = "}
	sourceCheck   = edit{"renderer/acl/source/source.go", "if g.mode == Off || len(i.Addrs) == 0 {", "if true || len(i.Addrs) == 0 {"}
	// Pods' interfaces have both roles, as others have, and are outside alone first: packets arrive in between.
	bothRoles   = edit{"vppagent/descriptor/nat/interface.go", "\tif !ok || !enabled || !global.forwarding {\n", "\tif true || !ok || !enabled || !global.forwarding {\n"}
	insideFirst = edit{"vppagent/descriptor/nat/arrange/arrange.go", "\treturn append(add, del...)\n}\n", "\tif len(add) == 2 {\n\t\tadd[0], add[1] = add[1], add[0]\n\t}\n\treturn append(add, del...)\n}\n"}
	atOnce      = edit{
		"vppagent/descriptor/nat/interface.go", "\t\tops[i].Call.Joined = i < len(steps)-1\n\t\tops[i].Call.AtOnce = i == 0 && len(steps) > 1\n", "",
	}
	closedSCTP = edit{"renderer/acl/lists/nosctp.go", "\tif otherOpen {\n", "\tif true || otherOpen {\n"}
	hiddenSCTP = edit{"renderer/acl/list.go", "r.static(!p.Spec.Egress, table.AskPeers(p.Uses))", "r.static(!p.Spec.Egress, false)"}
	uplinks    = edit{"renderer/acl/source/outside.go", "\t\tnow = g.ownPrefixes()\n", "\t\tnow = nil\n"}
	hosts      = edit{"renderer/acl/host/host.go", "\tat := g.hostsAt()\n", "\tat := map[string]string{}\n"}
)

// fixes are in the order of the table in the package doc.
var fixes = []fix{
	{"answers make no sessions", Revoked, []edit{lawOfSessions}, false},
	{"the node's traffic has an address that NAT gives to nobody", Hidden, []edit{hostLink}, true},
	{"no forwarding under half a NAT", Lost, []edit{closedFirst, unknownDenied, bothRoles, insideFirst, atOnce}, false},
	{"interfaces are closed before anything else", Open, []edit{closedFirst}, false},
	{"pods send from their own addresses", Forged, []edit{sourceCheck}, false},
	{"SCTP that nothing tracks is denied", SCTP, []edit{closedSCTP}, false},
	{"SCTP that nat44 hides is denied", SCTP, []edit{hiddenSCTP}, false},
	{"host endpoints are enforced", Open, []edit{hosts}, false},
	{"no packet from outside has an address of this node", Forged, []edit{uplinks}, false},
}

// overlay writes the files of a fix as they are without it, and returns what go test -overlay reads.
func (f *fix) overlay(t *testing.T, root string) string {
	t.Helper()
	files := map[string]string{}
	for _, e := range f.edits {
		text, edited := files[e.file]
		if !edited {
			b, err := os.ReadFile(filepath.Join(root, e.file))
			if err != nil {
				t.Fatal(err)
			}
			text = string(b)
		}
		if strings.Count(text, e.old) != 1 {
			t.Fatalf("%s: %q is not in it once: the fix %q is elsewhere now", e.file, e.old, f.name)
		}
		files[e.file] = strings.Replace(text, e.old, e.now, 1)
	}
	dir := t.TempDir()
	replace := map[string]string{}
	for file, text := range files {
		path := filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		replace[filepath.Join(root, file)] = path
	}
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

var (
	foundLine = regexp.MustCompile(`seed (\d+): ([^:]+): (.*)`)
	countLine = regexp.MustCompile(`: (\d+) sequences,`)
	tookLine  = regexp.MustCompile(`_test.go:\d+: in (\S+)`)
)

// TestFixesAreNeeded takes out one fix after the other and lets the adversary play until it finds something. It builds the agent each
// time, so that it runs only where CONTIV_FIXES says so; what the edits replace is looked for in any case.
func TestFixesAreNeeded(t *testing.T) {
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range fixes {
		t.Run(strings.ReplaceAll(f.name, " ", "-"), func(t *testing.T) {
			overlay := f.overlay(t, root)
			if os.Getenv("CONTIV_FIXES") == "" {
				return
			}
			cmd := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "-overlay", overlay, "-count=1", "-v", "-timeout=20m", "-run", "^TestAdversary$", "./test/adversary")
			cmd.Dir, cmd.Env = root, append(os.Environ(), "CONTIV_CASES=20000", "CONTIV_SHRINK=no", "CONTIV_ONLY="+string(f.class))
			if f.plain {
				cmd.Env = append(cmd.Env, "CONTIV_EXTRAS=no", "CONTIV_BETWEEN=no")
			}
			out, err := cmd.CombinedOutput()
			found, counts, took := foundLine.FindSubmatch(out), countLine.FindSubmatch(out), tookLine.FindSubmatch(out)
			if err == nil || found == nil || counts == nil || took == nil {
				t.Fatalf("nothing was found: %v\n%s", err, out[max(0, len(out)-2000):])
			}
			t.Logf("seed %s, after %s sequences, %s: %s: %s", found[1], counts[1], took[1], found[2], found[3])
		})
	}
}
