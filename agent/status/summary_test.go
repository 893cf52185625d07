package status

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv-agent/contiv-agent/agent/attachment"
	"github.com/contiv-agent/contiv-agent/agent/nattable"
)

// ill has, for each field of Status, a status that is healthy except for that field; nil: the field has no influence on
// health, for the given reason.
var ill = map[string]struct {
	status *Status
	why    string
}{
	"Node":     {nil, "a name"},
	"InSync":   {nil, "a transaction may be under way; Ready says what matters"},
	"Waiting":  {nil, "is shown if Ready is false"},
	"Awaited":  {nil, "Waiting as fields"},
	"Ready":    {&Status{Waiting: "a change is overdue"}, ""},
	"Healthy":  {nil, "follows from Problems"},
	"Summary":  {nil, "follows from Problems"},
	"Problems": {nil, "follows from the rest"},
	"VPP":      {&Status{VPP: VPP{Error: "refused"}}, ""},
	"Sources":  {&Status{Sources: []Source{{Name: "kube", Status: "resync"}}}, ""},
	"Settings": {nil, "configuration"},
	"Felix":    {&Status{Felix: &attachment.FelixStatus{State: "waiting for in_sync"}}, ""},
	"Driver":   {&Status{Driver: &attachment.DriverStatus{Path: "d"}}, ""},
	"NAT":      {&Status{NAT: &nattable.Status{Problem: "nearly full"}}, ""},
	"Ifs":      {nil, "what is missing is a note on the Pod"},
	"Services": {&Status{Services: []Service{{Name: "a/b", State: Partial, Reasons: []string{"why"}}}}, ""},
	"Policies": {&Status{Policies: []Policy{{Object: "NetworkPolicy a/b", State: Refused}}}, ""},
	"Refused":  {&Status{Refused: []Refusal{{Object: "Pod a/b", Error: "no"}}}, ""},
	"Notes":    {&Status{Notes: []Note{{Object: "Pod a/b", Reason: "isolated", State: Partial}}}, ""},
	"Values":   {nil, "a count"},
	"Mappings": {nil, "a count"},
	"Unwell":   {&Status{Unwell: []Value{{Key: "k", State: "RETRYING"}}}, ""},
	"Foreign":  {nil, "what others made is theirs"},
	"Spoofed":  {nil, "packets that a source check dropped: it does what it is for"},
	"Drift":    {&Status{Drift: []Drift{{Key: "k", Repaired: true, Contest: "another program changes it"}}}, ""},
	"History":  {nil, "the past"},
	"Busy":     {&Status{Busy: "the event loop has been busy for 3s"}, ""},
	"Last":     {&Status{Last: &Transaction{Error: "VPP is away"}}, ""},
}

// The summary must evaluate a new field of Status, or the table must list it as one without influence on health.
func TestSummaryLooksAtEveryField(t *testing.T) {
	for f := range reflect.TypeFor[Status]().Fields() {
		one, known := ill[f.Name]
		switch {
		case !f.IsExported():
			continue
		case !known:
			t.Errorf("Status.%s: does the summary look at it?", f.Name)
			continue
		case one.status == nil:
			if one.why == "" {
				t.Errorf("Status.%s: why does the summary not look at it?", f.Name)
			}
			continue
		}
		st := *one.status
		st.Ready = f.Name != "Ready"
		if f.Name != "VPP" {
			st.VPP.Connected = true
		}
		if st.summarize(); st.Healthy || len(st.Problems) != 1 || !strings.HasPrefix(st.Summary, "1 ") {
			t.Errorf("Status.%s: healthy %t, %q, %v", f.Name, st.Healthy, st.Summary, st.Problems)
		}
	}
	for _, more := range []Status{
		{Sources: []Source{{Name: "kube", Status: "in-sync", Error: "the API server is away"}}},
		{Felix: &attachment.FelixStatus{State: "in-sync", Endpoints: []attachment.Endpoint{{Name: "w", Status: "down"}}}},
		{Driver: &attachment.DriverStatus{PID: 1, InSync: true, Behind: 3}},
		{Driver: &attachment.DriverStatus{PID: 1, InSync: true, Endpoints: []attachment.Endpoint{{Name: "w", Status: "error"}}}},
		{Services: []Service{{Name: "a/b", State: "A STATE NOBODY KNOWS"}}},
		{Drift: []Drift{{Key: "k", Error: "VPP finds no mapping"}}},
	} {
		more.Ready, more.VPP.Connected = true, true
		if more.summarize(); more.Healthy || len(more.Problems) != 1 {
			t.Errorf("%+v", more)
		}
	}
	fine := Status{
		Ready: true, VPP: VPP{Connected: true}, Sources: []Source{{Status: "in-sync"}}, Services: []Service{{State: "CONFIGURED"}, {State: Skipped}},
		Policies: []Policy{{State: Idle}}, Notes: []Note{{Reason: "a remark"}}, Drift: []Drift{{Key: "k", Repaired: true}}, Last: &Transaction{},
	}
	if fine.summarize(); !fine.Healthy || fine.Summary != "" {
		t.Errorf("nothing is wrong: %+v", fine)
	}
}

func TestSummaryCounts(t *testing.T) {
	st := Status{
		Ready: true, VPP: VPP{Connected: true},
		Services: []Service{{Name: "a/1", State: Partial}, {Name: "a/2", State: "FAILED", Reasons: []string{"x", "y"}}},
		Refused:  []Refusal{{Object: "Service a/1", Error: "no port"}, {Object: "Service a/3", Error: "no port"}},
		Unwell:   []Value{{Key: "k", State: "PENDING", Waiting: []string{"tap1"}}},
	}
	st.summarize()
	want := []Problem{
		{"Service a/2", "FAILED", "x; y"}, {"k", "PENDING", "waiting for tap1"}, {"Service a/3", Refused, "no port"}, {"Service a/1", Partial, ""},
	}
	if diff := cmp.Diff(want, st.Problems); diff != "" || st.Summary != "1 FAILED, 1 PENDING, 1 REFUSED, 1 PARTIAL" {
		t.Errorf("%s (-want +got):\n%s", st.Summary, diff)
	}
}

// The test lists every place in the code that makes a remark, and how the remark reaches the summary. A Note uses its
// Refused; a pure remark does not reach it.
func TestEveryRemarkIsKnown(t *testing.T) {
	known := map[string]string{
		"../../renderer/adapter/service.go":    "Add has refused; Services: refusal",
		"../../renderer/nat44/node.go":         "a remark on the Node: pods keep their addresses outside the cluster",
		"../../renderer/cnat/node.go":          "a remark on the Node: pods keep their addresses outside the cluster",
		"../../renderer/acl/note.go":           "refused; policies and profiles",
		"../../renderer/acl/list.go":           "refused; isolated endpoints",
		"../../renderer/acl/ports.go":          "refused; ports of SCTP beyond the classifier's limits",
		"../../renderer/acl/note/note.go":      "refused; what rules of policies do not do",
		"../../renderer/acl/endpoint/iface.go": "refused; endpoints whose policies are too many rules, for the uplink or for SCTP",
		"../../renderer/acl/host/host.go":      "refused; host endpoints",
		"../../calc/active.go":                 "refused; policies",
		"../../renderer/acl/source/source.go":  "refused; source checks",
		"../../plugins/policy/status.go":       "refused; Pods with wrong annotations, a Node whose traffic is dropped",
		"../../budget/ledger.go":               "policyStatuses; policies that are closed",
		"../../plugins/service/build.go":       "refused says it; Services: refusal",
		"../../plugins/service/status.go":      "refused; Pods without an interface",
		"../../plugins/service/node.go":        "refused says it; the Node",
	}
	found := map[string]bool{}
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains([]string{".git", "interop", "tools", "testdata", "bin"}, d.Name()):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.HasPrefix(path, "../../agent/"):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(text), "model.Note") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, text, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			lit, ok := n.(*ast.CompositeLit)
			if !ok || len(lit.Elts) == 0 {
				return true
			}
			one := lit.Type
			if list, is := one.(*ast.ArrayType); is {
				one = list.Elt
			}
			if sel, is := one.(*ast.SelectorExpr); is && sel.Sel.Name == "Note" {
				found[filepath.ToSlash(path)] = true
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for path := range found {
		if known[path] == "" {
			t.Errorf("%s makes remarks: how do they come into the summary?", path)
		}
	}
	for path := range maps.Keys(known) {
		if !found[path] {
			t.Errorf("%s makes no remarks any more", path)
		}
	}
}
