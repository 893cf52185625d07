package simulate

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/contiv-agent/contiv-agent/test/pace"
	"github.com/contiv-agent/contiv-agent/test/simulate/powerloss"
)

// powerKinds are the kinds of faults beside which nodes lose power in a followed process.
const powerKinds = LosePower + "," + LosePower + "," + External + "," + External + "," + KillAgent + "," + CutVPP

// TestLossesOfPower runs some seeds in a process whose system calls are followed: its nodes lose power, and with it what no fsync has covered. CONTIV_POWER_SEED and
// CONTIV_POWER_SEEDS choose others.
func TestLossesOfPower(t *testing.T) {
	if isFollowed() {
		t.Skip("this is the process")
	}
	dir, err := os.MkdirTemp(memory(), "simulate-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	disk, asks := filepath.Join(dir, "disk"), filepath.Join(dir, "asks")
	for _, folder := range []string{disk, asks} {
		if err := os.Mkdir(folder, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	setting := func(name, otherwise string) string {
		if text := os.Getenv(name); text != "" {
			return text
		}
		return otherwise
	}
	env := []string{
		"GOMAXPROCS=1", "GODEBUG=asyncpreemptoff=1", "TMPDIR=" + dir, diskIn + "=" + disk, askIn + "=" + asks, "CONTIV_LOG=" + os.Getenv("CONTIV_LOG"), "CONTIV_KINDS=" + string(powerKinds),
		"CONTIV_SEED=" + setting("CONTIV_POWER_SEED", "1"), "CONTIV_SEEDS=" + setting("CONTIV_POWER_SEEDS", fmt.Sprint(pace.Fewer(3, 3))),
	}
	if err := powerloss.Follow(disk, asks, []string{os.Args[0], "-test.run=^TestSimulate$", "-test.count=1", "-test.v"}, env); err != nil {
		t.Error(err)
	}
}
