package powerloss

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// FollowTest runs a test of the calling test binary in a process that is followed. CONTIV_SEED and CONTIV_SEEDS of the process are CONTIV_POWER_SEED and CONTIV_POWER_SEEDS, or 1 and
// seeds; env are its other variables. In the process itself FollowTest skips the test that calls it.
func FollowTest(t *testing.T, name string, seeds int, env ...string) {
	t.Helper()
	if os.Getenv(AskIn) != "" {
		t.Skip("this is the process")
	}
	base := ""
	if _, err := os.Stat("/dev/shm"); err == nil {
		base = "/dev/shm"
	}
	dir, err := os.MkdirTemp(base, "power-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	disk, asks := filepath.Join(dir, "disk"), filepath.Join(dir, "asks")
	if err := errors.Join(os.Mkdir(disk, 0o700), os.Mkdir(asks, 0o700)); err != nil {
		t.Fatal(err)
	}
	env = append(env, "GOMAXPROCS=1", "GODEBUG=asyncpreemptoff=1", "TMPDIR="+dir, DiskIn+"="+disk, AskIn+"="+asks, "CONTIV_LOG="+os.Getenv("CONTIV_LOG"),
		"CONTIV_SEED="+cmp.Or(os.Getenv("CONTIV_POWER_SEED"), "1"), "CONTIV_SEEDS="+cmp.Or(os.Getenv("CONTIV_POWER_SEEDS"), strconv.Itoa(seeds)))
	if err := Follow(disk, asks, []string{os.Args[0], "-test.run=^" + name + "$", "-test.count=1", "-test.v"}, env); err != nil {
		t.Error(err)
	}
}
