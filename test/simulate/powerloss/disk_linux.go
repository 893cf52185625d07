package powerloss

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
)

// Loss says which writes are missing after a loss of power.
type Loss int

// The losses. The content that an fsync has covered is never missing.
const (
	Nothing Loss = iota // everything arrived
	All                 // nothing arrived that no fsync has covered
	Content             // all names arrived, and no content
	Names               // all content arrived, and no names
	Some                // random sectors, lengths and names arrived
)

// sector is what a disk writes as a whole.
const sector = 512

// file is a file or a folder.
type file struct {
	folder bool
	synced []byte // what an fsync has covered
	now    []byte
	later  []Op // writes and truncations since then
}

// naming gives a folder's names another meaning; nil: there is no such file any more.
type naming map[string]*file

// Disk is what a process has written, and what of it is certain to survive.
type Disk struct {
	names  map[string]*file    // by path
	synced map[string]*file    // the names that an fsync of their folder has covered
	later  map[string][]naming // what happened since then, by folder
}

// NewDisk returns an empty folder after these operations.
func NewDisk(ops []Op) (*Disk, error) {
	d := &Disk{names: map[string]*file{".": {folder: true}}, synced: map[string]*file{".": {folder: true}}, later: map[string][]naming{}}
	for i, o := range ops {
		if err := d.apply(o); err != nil {
			return nil, fmt.Errorf("operation %d: %s: %w", i, o, err)
		}
	}
	return d, nil
}

func (d *Disk) apply(o Op) error {
	f := d.names[o.Path]
	switch o.Kind {
	case Say:
		return nil
	case Create, Folder:
		d.rename(naming{o.Path: {folder: o.Kind == Folder}})
		return nil
	}
	if f == nil {
		return fs.ErrNotExist
	}
	switch o.Kind {
	case Write, Truncate:
		f.now, f.later = o.change(f.now), append(f.later, o)
	case Rename:
		d.rename(naming{o.To: f, o.Path: nil})
	case Link:
		d.rename(naming{o.To: f})
	case Remove:
		d.rename(naming{o.Path: nil})
	case Sync:
		if f.folder {
			d.syncNames(o.Path)
		} else {
			f.synced, f.later = bytes.Clone(f.now), nil
		}
	}
	return nil
}

// change returns a content after a write or a truncation.
func (o Op) change(content []byte) []byte {
	size := int(o.At) // of a truncation
	if o.Kind == Write {
		size = max(len(content), int(o.At)+len(o.Data))
	}
	out := make([]byte, size)
	copy(out, content)
	copy(out[min(int(o.At), size):], o.Data)
	return out
}

// rename changes names of one folder at once.
func (d *Disk) rename(n naming) {
	for path := range n {
		folder := filepath.Dir(path)
		d.later[folder] = append(d.later[folder], n)
		break
	}
	n.apply(d.names)
}

func (n naming) apply(names map[string]*file) {
	for path, f := range n {
		if names[path] = f; f == nil {
			delete(names, path)
		}
	}
}

func (d *Disk) syncNames(folder string) {
	for _, n := range d.later[folder] {
		n.apply(d.synced)
	}
	delete(d.later, folder)
}

// Restore writes what survives a loss of power into an empty folder.
func (d *Disk) Restore(dir string, loss Loss, rng *rand.Rand) error {
	names := maps.Clone(d.synced)
	for _, folder := range slices.Sorted(maps.Keys(d.later)) {
		list := d.later[folder]
		switch loss {
		case All, Names:
			list = nil
		case Some: // a journal keeps the order of a folder's names
			list = list[:rng.IntN(len(list)+1)]
		}
		for _, n := range list {
			n.apply(names)
		}
	}
	var errs []error
	for _, path := range slices.Sorted(maps.Keys(names)) { // a folder before its content
		f, at := names[path], filepath.Join(dir, path)
		if _, err := os.Stat(filepath.Dir(at)); err != nil {
			continue // its folder has no name
		}
		if f.folder {
			errs = append(errs, os.MkdirAll(at, 0o700))
		} else {
			errs = append(errs, os.WriteFile(at, f.surviving(loss, rng), 0o600))
		}
	}
	return errors.Join(errs...)
}

// surviving is the content of a file after a loss of power.
func (f *file) surviving(loss Loss, rng *rand.Rand) []byte {
	switch loss {
	case Nothing, Names:
		return f.now
	case All, Content:
		return f.synced
	}
	out := bytes.Clone(f.synced)
	for _, o := range f.later {
		if o.Kind == Truncate {
			if rng.IntN(2) == 0 {
				out = o.change(out)
			}
			continue
		}
		for from := 0; from < len(o.Data); {
			to := min(len(o.Data), (int(o.At)+from)/sector*sector+sector-int(o.At))
			if rng.IntN(2) == 0 {
				out = Op{Kind: Write, At: o.At + int64(from), Data: o.Data[from:to]}.change(out)
			}
			from = to
		}
	}
	if len(out) < len(f.now) && rng.IntN(2) == 0 { // the length arrives before the content
		out = append(out, make([]byte, len(f.now)-len(out))...)
	}
	return out
}
