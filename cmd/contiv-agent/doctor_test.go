package main

import (
	"net"
	"path/filepath"
	"testing"

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
		{[]string{"--stats-socket", ""}, exitOK},
		{[]string{"--stats-socket", "", "-o", "json"}, exitOK},
		{nil, exitDiffers},
		{[]string{"-o", "json"}, exitDiffers},
		{[]string{"--stats-socket", "", "--host-address", ""}, exitOK},
		{[]string{"--stats-socket", "", "--host-address", "169.254.1.2"}, exitDiffers}, // VPP has no route to it
		{[]string{"--stats-socket", "", "--host-address", "169.254.1.2", "--service-renderer", "cnat"}, exitOK},
		{[]string{"--stats-socket", "", "--host-interface", "tap9"}, exitDiffers},
		{[]string{"--host-address", "tap9"}, exitUsage},
		{[]string{"-o", "xml"}, exitUsage},
		{[]string{"--service-renderer", "ebpf"}, exitUsage},
		{[]string{"argument"}, exitUsage},
		{[]string{"--vpp-socket", filepath.Join(dir, "none.sock")}, exitFailed},
	} {
		if code := run(t.Context(), newRoot(), append([]string{"doctor", "--vpp-socket", socket}, tc.args...)); code != tc.code {
			t.Errorf("%v: exit code %d, want %d", tc.args, code, tc.code)
		}
	}
}
