package agent

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/agent/cleanup"
	"github.com/contiv-agent/contiv-agent/agent/config"
	"github.com/contiv-agent/contiv-agent/agent/control"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/vpp"
)

// TestNoAgentStartsDuringACleanup: cleanup occupies the agent's socket, and answers with the reason.
func TestNoAgentStartsDuringACleanup(t *testing.T) {
	v := sim.New(sim.Config{})
	defer v.Close()
	socket := filepath.Join(t.TempDir(), "a.sock")
	c, err := cleanup.New(t.Context(), cleanup.Config{Dial: v.Dial, StatusSocket: socket})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := control.FetchStatus(t.Context(), socket, false); err == nil || !strings.Contains(err.Error(), "a cleanup is running") {
		t.Errorf("status: %v", err)
	}
	a, err := New(Config{NodeName: "node-1", VPP: vpp.Config{Dial: v.Dial}, Listen: config.Listeners{Status: socket}, Sources: map[string]Source{"fed": Fed{}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "another agent listens there") {
		t.Errorf("an agent: %v", err)
	}
	c.Close()
	if _, err := os.Stat(socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is still there: %v", err)
	}
}

// TestCleanupOfTheNode: cleanup removes the agent's files from the node, and a dry run names them.
func TestCleanupOfTheNode(t *testing.T) {
	v := sim.New(sim.Config{})
	defer v.Close()
	list := filepath.Join(t.TempDir(), "10-contiv.conflist")
	if err := os.WriteFile(list, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := cleanup.New(t.Context(), cleanup.Config{Dial: v.Dial, Files: []string{list, list + "-none"}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, want := range [][]string{{list}, nil} {
		plan, err := c.Plan(t.Context())
		if err != nil || !slices.Equal(plan.Files, want) || plan.Empty() != (want == nil) || strings.Contains(plan.String(), "delete file "+list+"\n") != (want != nil) {
			t.Errorf("%v, %v; want %v", plan, err, want)
		}
		report, err := c.Clean(t.Context())
		if err != nil || !slices.Equal(report.Files, want) {
			t.Errorf("%+v, %v; want %v", report, err, want)
		}
		if _, err := os.Stat(list); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the list: %v", err)
		}
	}
}
