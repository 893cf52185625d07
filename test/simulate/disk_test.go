package simulate

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"
)

// disk has the files of a node's agents, and their faults.
type disk struct {
	dir    string
	full   atomic.Int32              // faults in which the store cannot be written
	atSave atomic.Pointer[powerLoss] // happens while the store is written next
	shadow []byte                    // the store at the start of the present agent
	left   map[string][]byte         // what a loss of power leaves, by path; only in a process that is followed

	mu      sync.Mutex
	hidden  int         // faults in which the journal cannot be written
	unsaved atomic.Bool // the journal could not be written in this round
}

const journalFolder = "journal"

func (d *disk) store() string   { return filepath.Join(d.dir, "grpc.db") }
func (d *disk) journal() string { return filepath.Join(d.dir, journalFolder, "journal") }
func (d *disk) aside() string   { return filepath.Join(d.dir, "aside") }

// hideJournal puts a file in the place of the journal's folder: every write fails.
func (d *disk) hideJournal() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.unsaved.Store(true)
	if d.hidden++; d.hidden > 1 {
		return nil
	}
	folder := filepath.Dir(d.journal())
	return errors.Join(os.Rename(folder, d.aside()), os.WriteFile(folder, nil, 0o600))
}

func (d *disk) showJournal() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.hidden--; d.hidden > 0 {
		return nil
	}
	folder := filepath.Dir(d.journal())
	return errors.Join(os.Remove(folder), os.Rename(d.aside(), folder))
}

func (d *disk) isHidden() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.hidden > 0
}

// keepShadow remembers the store.
func (d *disk) keepShadow() error {
	var err error
	d.shadow, err = content(d.store())
	return err
}

// content is the content of a file; none if it does not exist.
func content(path string) ([]byte, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return b, err
}

// powerLoss ends VPP and agent at once. The bytes that were written after the last fsync may be lost.
type powerLoss struct {
	run  *run
	node *node
	Action
	rng *rand.Rand
}

// during saves to the store, and loses power before the agent learns of it. bbolt writes pages, waits for the disk, and then writes the page that
// says where to begin. Power is lost before that wait, so that any of the pages' sectors may have arrived; or after everything.
func (p *powerLoss) during(save func() error) error {
	path := p.node.disk.store()
	before, err := content(path)
	if err != nil {
		return err
	}
	saved := save()
	if isFollowed() {
		go p.happen(nil)
		return errors.Join(errKilled, saved)
	}
	after, err := content(path)
	if err != nil {
		return err
	}
	left := after
	if p.rng.IntN(4) > 0 {
		left = tear(before, after, 2*os.Getpagesize(), p.rng)
	}
	go p.happen(left)
	return errors.Join(errKilled, saved)
}

// happen loses power; store is what the disk has of the store, nil: everything. In one of three cases the disk has lied about the store: some
// sectors that it confirmed since the start of the agent are lost.
func (p *powerLoss) happen(store []byte) {
	n := p.node
	n.mu.Lock()
	bare := n.bare
	n.mu.Unlock()
	if isFollowed() {
		p.leave(!bare)
	}
	lies := !isFollowed() && store == nil && p.rng.IntN(3) == 0
	tearing := rand.New(rand.NewPCG(p.run.Seed, uint64(p.ID)+1<<32))
	n.link.setFault(func(*link) {
		n.killAgent(p.For, func() error {
			if isFollowed() {
				return n.disk.returnLeft()
			}
			if store != nil {
				return errors.Join(os.WriteFile(n.disk.store(), store, 0o600), n.disk.tearJournal(!bare, tearing))
			}
			if lies {
				n.clients.forget()
				now, err := content(n.disk.store())
				if err != nil {
					return err
				}
				return errors.Join(os.WriteFile(n.disk.store(), tear(n.disk.shadow, now, 0, tearing), 0o600), n.disk.tearJournal(!bare, tearing))
			}
			return n.disk.tearJournal(!bare, tearing)
		})
	})
	if bare { // VPP is being restored from an earlier end, so that it keeps what the journal lists
		return
	}
	if err := n.killVPP(min(p.For, time.Second), false, p.rng); err != nil {
		p.run.failf("%w", err)
	}
}

// sector is what a disk writes as a whole.
const sector = 512

// tear returns a file of which only some sectors were written, none of them before from.
func tear(before, after []byte, from int, rng *rand.Rand) []byte {
	out := make([]byte, max(len(before), len(after)))
	copy(out, before)
	for at := from; at < len(after); at += sector {
		if rng.IntN(2) == 0 {
			copy(out[at:], after[at:min(at+sector, len(after))])
		}
	}
	return out
}

// tearJournal removes the end of the journal, or replaces it by zeros. Lines are appended without fsync: VPP has lost the objects as well.
func (d *disk) tearJournal(tears bool, rng *rand.Rand) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !tears || d.hidden > 0 {
		return nil
	}
	b, err := content(d.journal())
	if err != nil || len(b) == 0 {
		return err
	}
	keep := rng.IntN(len(b) + 1)
	if rng.IntN(2) == 0 {
		clear(b[keep:])
		keep = len(b)
	}
	return os.WriteFile(d.journal(), b[:keep], 0o600)
}
