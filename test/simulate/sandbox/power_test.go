package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing/synctest"
	"time"

	"github.com/contiv-agent/contiv-agent/atomicfile"
	"github.com/contiv-agent/contiv-agent/test/simulate/powerloss"
)

// losePower ends VPP, agent and kernel of a node at once, and what no fsync has covered. The sandboxes stay, as if the runtime made them again before the agent starts.
func (h *host) losePower(a action, rng *rand.Rand) error {
	h.asked++
	left := filepath.Join(os.Getenv(powerloss.AskIn), fmt.Sprintf("%d-%d-%s-%d", []int{0, 1, 2, 3, 4, 4}[a.n%6], rng.Uint64(), h.name, h.asked))
	return h.endAgent(a.d, func() (state, spool map[string][]byte, err error) {
		if err := os.Mkdir(left, 0o700); err != nil { // returns when it is full
			return nil, nil, err
		}
		at, err := filepath.Rel(os.Getenv(powerloss.DiskIn), h.dir)
		if err != nil {
			return nil, nil, err
		}
		h.kernel.end()
		state, errState := readFiles(filepath.Join(left, at, "state"))
		spool, errSpool := readFiles(filepath.Join(left, at, "spool"))
		return state, spool, errors.Join(errState, errSpool, os.RemoveAll(left))
	})
}

// syncFiles lets a loss of power keep all files and names below a folder, and its own name and that of its parent. Meanwhile others may remove files there.
func syncFiles(dir string) error {
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err == nil {
			err = atomicfile.SyncFolder(path) // a file as well
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	parent := filepath.Dir(dir)
	return errors.Join(err, atomicfile.SyncFolder(parent), atomicfile.SyncFolder(filepath.Dir(parent)))
}

// drawLosses draws up to two losses of power in a round, by a separate generator, so that the other actions keep their moments.
func (w *world) drawLosses(round int, list []action) (out []action) {
	if os.Getenv(powerloss.AskIn) == "" {
		return nil
	}
	rng := rand.New(rand.NewPCG(w.seed, 41+uint64(round))) //nolint:gosec // small
	for range rng.IntN(3) {
		a := action{time.Duration(rng.IntN(int(window))), losePower, rng.IntN(pods), time.Duration(100+rng.IntN(15000)) * time.Millisecond, rng.IntN(1 << 20)}
		if rng.IntN(3) > 0 {
			a.at = list[rng.IntN(len(list))].at + time.Duration(rng.IntN(400))*time.Millisecond
		}
		out = append(out, a)
	}
	return out
}

// filesOf is the folder of a seed's files; otherwise where no system call is followed.
func filesOf(seed uint64, otherwise string) string {
	if disk := os.Getenv(powerloss.DiskIn); disk != "" {
		return filepath.Join(disk, fmt.Sprint(seed))
	}
	return otherwise
}

// actPower begins a loss of power.
func (w *world) actPower(h *host, a action, rng *rand.Rand) {
	synctest.Wait()
	if err := h.losePower(a, rng); err != nil {
		h.failf("%w", err)
	}
	w.faulting.Go(func() { h.killVPP(min(a.d, time.Second), h.forget) })
}
