package main

import (
	"net"
	"path/filepath"
	"testing"

	"github.com/contiv-agent/contiv-agent/cmd/exit"
	"github.com/contiv-agent/contiv-agent/sim"
)

// TestDoctorExitCodes checks the exit codes that scripts rely on.
func TestDoctorExitCodes(t *testing.T) {
	v := sim.New(sim.Config{})
	defer v.Close()
	dir := t.TempDir()
	socket := filepath.Join(dir, "api.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = v.Serve(t.Context(), l) }() // ends with the test
	for _, tc := range []struct {
		args []string
		code int
	}{
		{[]string{"--stats-socket", ""}, exit.OK},
		{[]string{"--stats-socket", "", "-o", "json"}, exit.OK},
		{nil, exit.OK}, // the simulated VPP has no stats socket
		{[]string{"-o", "json", "--host-interface", "tap9"}, exit.Differs},
		{[]string{"--stats-socket", "", "--host-address", ""}, exit.OK},
		{[]string{"--stats-socket", "", "--host-address", "169.254.1.2"}, exit.Differs}, // VPP has no route to it
		{[]string{"--stats-socket", "", "--host-address", "169.254.1.2", "--service-renderer", "cnat"}, exit.OK},
		{[]string{"--stats-socket", "", "--host-interface", "tap9"}, exit.Differs},
		{[]string{"--host-address", "tap9"}, exit.Wrong},
		{[]string{"-o", "xml"}, exit.Wrong},
		{[]string{"--service-renderer", "ebpf"}, exit.Wrong},
		{[]string{"argument"}, exit.Wrong},
		{[]string{"--vpp-socket", filepath.Join(dir, "none.sock")}, exit.Failed},
	} {
		if code := execute(t.Context(), newRoot(), append([]string{"doctor", "--vpp-socket", socket}, tc.args...)); code != tc.code {
			t.Errorf("%v: exit code %d, want %d", tc.args, code, tc.code)
		}
	}
}
