package simulate

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/contiv-agent/contiv-agent/atomicfile"
	"github.com/contiv-agent/contiv-agent/test/simulate/powerloss"
)

// isFollowed reports whether system calls of the process are followed: then a disk loses what no fsync has covered.
func isFollowed() bool { return os.Getenv(powerloss.AskIn) != "" }

// leave ends what the agent acknowledges, and asks what the disk has. journal: also of the journal.
func (p *powerLoss) leave(journal bool) {
	n := p.node
	if l := n.present(); l != nil {
		l.dead.Store(true) // what it writes from now on is neither on the disk nor acknowledged
	}
	if err := n.disk.ask([]int{0, 1, 2, 3, 4, 4}[p.N%6], p.rng.Uint64(), journal); err != nil {
		p.run.failf("%s: %w", n.name, err)
	}
}

// ask asks what a loss of power leaves of the store and of the journal.
func (d *disk) ask(loss int, seed uint64, journal bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	at, err := os.MkdirTemp(os.Getenv(powerloss.AskIn), fmt.Sprintf("%d-%d-", loss, seed)) // returns when it is full
	if err != nil {
		return err
	}
	d.left = map[string][]byte{}
	paths := []string{d.store()}
	if journal {
		paths = append(paths, d.journal())
	}
	var errs []error
	for _, path := range paths {
		rel, err := filepath.Rel(os.Getenv(powerloss.DiskIn), path)
		if err == nil {
			d.left[path], err = content(filepath.Join(at, rel))
		}
		errs = append(errs, err)
	}
	return errors.Join(append(errs, os.RemoveAll(at))...)
}

// returnLeft gives the next agent the files that a loss of power has left. A file without content does not exist.
func (d *disk) returnLeft() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var errs []error
	for path, b := range d.left {
		if len(b) == 0 {
			errs = append(errs, os.RemoveAll(path), atomicfile.SyncFolder(filepath.Dir(path)))
			continue
		}
		errs = append(errs, os.WriteFile(path, b, 0o600), atomicfile.SyncFolder(path), atomicfile.SyncFolder(filepath.Dir(path)))
	}
	return errors.Join(errs...)
}
