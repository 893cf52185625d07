package extconfig

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// errDamaged means that the file, or a record in it, is not what a Store wrote.
var errDamaged = errors.New("damaged")

// maxAside is how many damaged files are kept beside the present one; the oldest are removed first.
const maxAside = 3

// record is an entry of the file with its checksum. It belongs to the bucket of a client, in one of the two buckets of all.
type record struct{ all, client, key, framed []byte }

// OpenStore opens the file, or creates it and its folder. One process has the file at a time: OpenStore fails while another has it.
// It renames a damaged file to PATH.damaged-TIME, and creates a new one with the records whose checksums are right. A file that
// cannot be written is read, and every Save fails. A file that cannot be read either counts as empty. Remark returns the problem.
func OpenStore(path string) (*Store, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return unwritable(path, err), nil
	}
	db, kept, err := openWhole(path)
	switch {
	case err == nil:
		return &Store{db: db}, nil
	case errors.Is(err, bolterrors.ErrTimeout):
		return nil, fmt.Errorf("store %s: another process has it open: %w", path, err)
	case !errors.Is(err, errDamaged):
		return unwritable(path, err), nil
	}
	aside, renameErr := setAside(path, time.Now())
	if renameErr != nil {
		return &Store{broken: fmt.Errorf("store %s: %w; it cannot be set aside: %w", path, err, renameErr)}, nil
	}
	fresh, _, openErr := openWhole(path)
	if openErr == nil {
		openErr = fresh.Update(func(tx *bbolt.Tx) error { return restore(tx, kept) })
	}
	if openErr != nil {
		return &Store{db: fresh, broken: fmt.Errorf("store %s: %w; it is set aside as %s, and a new one cannot be created: %w", path, err, aside, openErr)}, nil
	}
	return &Store{db: fresh, remark: fmt.Sprintf(
		"store %s: %s: it is set aside as %s; %d records of it are whole and kept, programs must send all others again", path, err, aside, len(kept),
	)}, nil
}

// unwritable returns a store that can at most be read.
func unwritable(path string, why error) *Store {
	s := &Store{broken: fmt.Errorf("store %s: cannot be written: %w", path, why)}
	content, err := os.ReadFile(path)
	if err == nil {
		_, err = verify(content)
	}
	if err != nil || len(content) == 0 {
		s.broken = errors.Join(s.broken, err)
		return s
	}
	var db *bbolt.DB
	err = guarded(func() (err error) {
		db, err = bbolt.Open(path, 0o600, &bbolt.Options{Timeout: lockPatience, ReadOnly: true})
		return err
	})
	if err != nil {
		return s
	}
	s.db = db
	return s
}

// guarded turns a panic or a memory fault into an error, because bbolt trusts the file that it maps into memory.
func guarded(do func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", errDamaged, p)
		}
	}()
	return do()
}

// openWhole opens the file, creates it if needed, and migrates it to the present form after reading all of it. If the error wraps
// errDamaged, kept holds the valid records.
func openWhole(path string) (db *bbolt.DB, kept []record, err error) {
	content, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	if kept, err = verify(content); err != nil {
		if lockErr := unused(path); lockErr != nil { // another process writes the file, so the read may be incomplete
			return nil, nil, lockErr
		}
		return nil, kept, err
	}
	err = guarded(func() (err error) {
		db, err = bbolt.Open(path, 0o600, &bbolt.Options{Timeout: lockPatience})
		return err
	})
	var errno syscall.Errno
	var pathErr *fs.PathError
	switch {
	case errors.Is(err, bolterrors.ErrTimeout), errors.As(err, &errno), errors.As(err, &pathErr):
		return nil, nil, err
	case err != nil:
		return nil, kept, damagedBy(err)
	}
	if err = guarded(func() error { return db.Update(migrate) }); err != nil {
		_ = guarded(db.Close) // none of its content is used any more
		return nil, kept, err
	}
	return db, nil, nil
}

// unused returns nil if no other process has the file open, by the lock that bbolt takes.
func unused(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB); err != nil {
		return bolterrors.ErrTimeout
	}
	return nil
}

// damagedBy wraps errDamaged if err does not yet.
func damagedBy(err error) error {
	if errors.Is(err, errDamaged) {
		return err
	}
	return fmt.Errorf("%w: %w", errDamaged, err)
}

// eachRecord calls f with copies of all records in one of the buckets of all, if that bucket exists.
func eachRecord(tx *bbolt.Tx, all string, f func(record) error) error {
	top := tx.Bucket([]byte(all))
	if top == nil {
		return nil
	}
	return top.ForEachBucket(func(client []byte) error {
		return top.Bucket(client).ForEach(func(key, framed []byte) error {
			return f(record{[]byte(all), bytes.Clone(client), bytes.Clone(key), bytes.Clone(framed)})
		})
	})
}

// migrate creates the buckets, and adds checksums to the records of a file without them.
func migrate(tx *bbolt.Tx) error {
	for from, to := range succeeds {
		if _, err := tx.CreateBucketIfNotExists([]byte(to)); err != nil {
			return err
		}
		if tx.Bucket([]byte(from)) == nil {
			continue
		}
		var list []record
		if err := eachRecord(tx, from, func(r record) error {
			r.all = []byte(to)
			r.framed = frame(r.all, r.client, r.key, r.framed)
			list = append(list, r)
			return nil
		}); err != nil {
			return err
		}
		if err := errors.Join(restore(tx, list), tx.DeleteBucket([]byte(from))); err != nil {
			return err
		}
	}
	return nil
}

// restore writes records unchanged.
func restore(tx *bbolt.Tx, list []record) error {
	for _, r := range list {
		bucket, err := tx.Bucket(r.all).CreateBucketIfNotExists(r.client)
		if err == nil {
			err = bucket.Put(r.key, r.framed)
		}
		if err != nil {
			return fmt.Errorf("%q: %w", r.key, err)
		}
	}
	return nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sum covers the value and its place, so that a value under another key or client has a wrong checksum, too.
func sum(all, client, key, value []byte) uint32 {
	return crc32.Checksum(bytes.Join([][]byte{all, client, key, value}, []byte{0}), castagnoli)
}

// frame puts the checksum before a value: four bytes, big-endian.
func frame(all, client, key, value []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, sum(all, client, key, value)), value...)
}

// unframe returns the value of a record, if its checksum is right.
func unframe(r record) (value []byte, ok bool) {
	if len(r.framed) < 4 {
		return nil, false
	}
	value = r.framed[4:]
	return value, binary.BigEndian.Uint32(r.framed) == sum(r.all, r.client, r.key, value)
}

// setAside renames a damaged file and removes the oldest damaged files beyond maxAside.
func setAside(path string, now time.Time) (aside string, err error) {
	aside = path + ".damaged-" + now.UTC().Format("20060102T150405.000000000Z")
	if err := os.Rename(path, aside); err != nil {
		return "", err
	}
	dir, base := filepath.Split(path)
	entries, err := os.ReadDir(filepath.Clean(dir + "."))
	if err != nil {
		return aside, nil // the file is set aside; the number of old files matters less
	}
	var old []string
	for _, e := range entries {
		if len(e.Name()) > len(base) && e.Name()[:len(base)] == base && bytes.HasPrefix([]byte(e.Name()[len(base):]), []byte(".damaged-")) {
			old = append(old, filepath.Join(dir, e.Name()))
		}
	}
	slices.Sort(old)
	for _, path := range old[:max(0, len(old)-maxAside)] {
		_ = os.Remove(path) // as above
	}
	return aside, nil
}
