package show

import (
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/agent/flows"
	"github.com/contiv-agent/contiv-agent/agent/status"
)

// A status says which part of VPP's connections the flows have.
func TestStatusShowsPartsOfFlows(t *testing.T) {
	var out strings.Builder
	Status(&out, &status.Status{Node: "node-1", VPP: status.VPP{Flows: []flows.Source{{Name: flows.BySessions, Present: 53636, Read: 8}}}}, false, false)
	if want := "sessions  show a part: 8 of 53636 connections in VPP were read (0.015 %)\n"; !strings.Contains(out.String(), want) {
		t.Errorf("%q is missing in\n%s", want, out.String())
	}
}
