package connectivity

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv-agent/contiv-agent/connectivity/probe"
)

// sample has a check of each state, and text that XML must escape.
func sample() *Report {
	return &Report{Results: []Result{
		{Group: GroupPods, Check: "a", State: OK, Found: "1 path"},
		{Group: GroupDNS, Check: "b", State: Skipped, Found: `none "found"`},
		{Group: GroupHosts, Check: "c <d>", State: Failed, Found: "2 of 3 paths", Failures: []Failure{{From: "x", To: "y", Symptom: probe.Cut, Reason: "<lost> & gone\x1b"}, {From: "z", Reason: "down"}}, Causes: []string{"the \"cause\"\nand more"}},
	}}
}

// XML has all results, and any text in it.
func TestJUnit(t *testing.T) {
	var b strings.Builder
	if err := sample().WriteJUnit(&b); err != nil {
		t.Fatal(err)
	}
	var suite struct {
		Tests    int `xml:"tests,attr"`
		Failures int `xml:"failures,attr"`
		Skipped  int `xml:"skipped,attr"`
		Cases    []struct {
			Class   string `xml:"classname,attr"`
			Name    string `xml:"name,attr"`
			Failure *struct {
				Message string `xml:"message,attr"`
				Text    string `xml:",chardata"`
			} `xml:"failure"`
			Skipped *struct {
				Message string `xml:"message,attr"`
			} `xml:"skipped"`
		} `xml:"testcase"`
	}
	if err := xml.Unmarshal([]byte(b.String()), &suite); err != nil {
		t.Fatalf("%v\n%s", err, b.String())
	}
	if suite.Tests != 3 || suite.Failures != 1 || suite.Skipped != 1 || len(suite.Cases) != 3 {
		t.Errorf("%+v", suite)
	}
	if c := suite.Cases[1]; c.Class != "connectivity.dns" || c.Skipped == nil || c.Skipped.Message != `none "found"` {
		t.Errorf("%+v", c)
	}
	c := suite.Cases[2]
	if c.Name != "c <d>" || c.Failure == nil || c.Failure.Message != "the \"cause\"\nand more" || c.Failure.Text != "x → y: <lost> & gone\ufffd\nz: down\nthe \"cause\"\nand more" {
		t.Errorf("%+v %+v", c, c.Failure)
	}
}

func TestJSON(t *testing.T) {
	var b strings.Builder
	if err := sample().WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	var got Report
	if err := json.Unmarshal([]byte(b.String()), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(sample(), &got); diff != "" {
		t.Error(diff)
	}
}

// The text names some failures and counts the others.
func TestTextIsShort(t *testing.T) {
	r := Result{Group: GroupPods, Check: "many", State: Failed}
	for i := range 20 {
		r.Failures = append(r.Failures, Failure{From: fmt.Sprint("pod ", i), Reason: "silent"})
		r.Causes = append(r.Causes, fmt.Sprint("cause ", i))
	}
	var b strings.Builder
	r.WriteText(&b)
	if got := b.String(); strings.Count(got, "\n") != 15 || !strings.Contains(got, "and 14 more\n") || !strings.Contains(got, "and 14 more causes\n") {
		t.Error(got)
	}
}

// Names of pods are short enough for a label, and differ.
func TestPodNames(t *testing.T) {
	a, b := strings.Repeat("a", 100)+"1", strings.Repeat("a", 100)+"2"
	if podName(rolePod, "node-1") != "pod-node-1" || len(podName(rolePeer, a)) > 63 || podName(rolePeer, a) == podName(rolePeer, b) {
		t.Errorf("%q %q", podName(rolePeer, a), podName(rolePeer, b))
	}
}
