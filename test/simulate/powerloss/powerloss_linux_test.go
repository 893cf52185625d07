package powerloss

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/test/pace"
)

// Variables of the process that Trace runs.
const (
	workOf = "CONTIV_POWERLOSS"
	workIn = "CONTIV_POWERLOSS_DIR"
)

// acked is what that process writes to standard output after a step.
const acked = "acknowledged\n"

// TestWork is the process that Trace runs.
func TestWork(t *testing.T) {
	s, known := subjects[os.Getenv(workOf)]
	if !known {
		t.Skip("TestPowerLoss runs it")
	}
	if err := s.work(os.Getenv(workIn), func() { _, _ = os.Stdout.WriteString(acked) }); err != nil {
		t.Fatal(err)
	}
}

// memory is a folder in memory, if there is one.
func memory(t *testing.T) string {
	t.Helper()
	base := ""
	if _, err := os.Stat("/dev/shm"); err == nil {
		base = "/dev/shm"
	}
	dir, err := os.MkdirTemp(base, "powerloss-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// traceWork returns what the work of a subject does.
func traceWork(t *testing.T, name, dir string) []Op {
	t.Helper()
	env := []string{workOf + "=" + name, workIn + "=" + dir, "GOMAXPROCS=1", "GODEBUG=asyncpreemptoff=1", "TMPDIR=" + os.TempDir()}
	ops, err := Trace(dir, []string{os.Args[0], "-test.run=^TestWork$", "-test.count=1"}, env)
	if err != nil {
		t.Fatalf("%v, after %d operations", err, len(ops))
	}
	return ops
}

// content has the files and folders below a folder.
func content(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		if out[rel] = "folder"; e.IsDir() {
			return nil
		}
		b, err := os.ReadFile(path)
		out[rel] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// losses are those after each operation.
var losses = []Loss{Nothing, All, Content, Names, Some, Some}

// Power is lost after each operation of each subject, and nothing is missing that was acknowledged. Without a loss the model has what the real folder has.
func TestPowerLoss(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(subjects)) {
		t.Run(name, func(t *testing.T) {
			work := memory(t)
			ops := traceWork(t, name, work)
			whole := restore(t, ops, Nothing, 0)
			want := content(t, work)
			if got := content(t, whole); !maps.Equal(got, want) {
				t.Fatalf("the model differs from the folder after\n%s", texts(ops))
			}
			states := 0
			for n := 1; n <= len(ops); n += pace.Every(5) {
				if ops[n-1].Kind == Say {
					continue
				}
				for i, loss := range losses {
					dir := restore(t, ops[:n], loss, uint64(n*len(losses)+i)) //nolint:gosec // small
					if err := subjects[name].check(dir, acknowledged(ops[:n])); err != nil {
						t.Fatalf("loss %d after operation %d: %v\n%s", loss, n-1, err, texts(ops[:n]))
					}
					states++
					_ = os.RemoveAll(dir)
				}
			}
			t.Logf("%d operations, %d states", len(ops), states)
		})
	}
}

// acknowledged counts the steps that were acknowledged.
func acknowledged(ops []Op) (n int) {
	for _, o := range ops {
		if o.Kind == Say {
			n += bytes.Count(o.Data, []byte(acked))
		}
	}
	return n
}

// restore returns a folder after operations and a loss.
func restore(t *testing.T, ops []Op, loss Loss, seed uint64) string {
	t.Helper()
	d, err := NewDisk(ops)
	if err != nil {
		t.Fatalf("%v\n%s", err, texts(ops))
	}
	dir := memory(t)
	if err := d.Restore(dir, loss, rand.New(rand.NewPCG(seed, 1))); err != nil {
		t.Fatal(err)
	}
	return dir
}

// texts has a line for each of the last operations.
func texts(ops []Op) string {
	var b strings.Builder
	for i, o := range ops {
		if i >= len(ops)-40 {
			fmt.Fprintf(&b, "%4d %s\n", i, o)
		}
	}
	return b.String()
}
