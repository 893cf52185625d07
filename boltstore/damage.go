package boltstore

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

	"github.com/contiv-agent/contiv-agent/atomicfile"
)

// errDamaged means that the file, or a record in it, is not what a File wrote.
var errDamaged = errors.New("damaged")

// maxAside is how many damaged files are kept beside the present one; the oldest are removed first.
const maxAside = 3

// record is an entry of the file with its checksum. It belongs to the bucket of a group, in the bucket all of the schema.
type record struct{ all, group, key, framed []byte }

// Open opens the file, or creates it and its folder. One process has the file at a time: Open fails while another has it. It renames a
// damaged file to PATH.damaged-TIME, and puts a new one with the records whose checksums are right in its place. A file that cannot be written is
// read, and every Update fails. A file that cannot be read either counts as empty. Remark returns the problem.
func Open(path string, schema Schema) (*File, error) {
	if err := atomicfile.MakeFolder(filepath.Dir(path), 0o700); err != nil {
		return unwritable(path, schema, err), nil
	}
	db, kept, err := openWhole(path, schema)
	switch {
	case err == nil:
		return &File{schema: schema, db: db, total: readTotal(db)}, nil
	case errors.Is(err, bolterrors.ErrTimeout):
		return nil, fmt.Errorf("store %s: another process has it open: %w", path, err)
	case !errors.Is(err, errDamaged):
		return unwritable(path, schema, err), nil
	}
	f := &File{schema: schema, lost: true}
	aside, replaceErr := replaceFile(path, schema, kept, time.Now())
	if replaceErr != nil {
		f.broken = fmt.Errorf("store %s: %w; it stays, because a new one cannot take its place: %w", path, err, replaceErr)
		return f, nil
	}
	var openErr error
	if f.db, _, openErr = openWhole(path, schema); openErr != nil {
		f.broken = fmt.Errorf("store %s: %w; it is set aside as %s, and the new one cannot be opened: %w", path, err, aside, openErr)
		return f, nil
	}
	f.total = readTotal(f.db)
	f.remark = fmt.Sprintf("store %s: %s: it is set aside as %s; %d records of it are whole and kept", path, err, aside, len(kept))
	return f, nil
}

// unwritable returns a file that can at most be read.
func unwritable(path string, schema Schema, why error) *File {
	s := &File{schema: schema, broken: fmt.Errorf("store %s: cannot be written: %w", path, why)}
	content, err := os.ReadFile(path)
	if err == nil {
		_, err = verify(content, schema)
	}
	if err != nil || len(content) == 0 {
		s.broken = errors.Join(s.broken, err)
		s.lost = err != nil && !errors.Is(err, fs.ErrNotExist)
		return s
	}
	var db *bbolt.DB
	err = guarded(func() (err error) {
		db, err = bbolt.Open(path, 0o600, &bbolt.Options{Timeout: lockPatience, ReadOnly: true})
		return err
	})
	if err != nil {
		s.lost = true
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
func openWhole(path string, schema Schema) (db *bbolt.DB, kept []record, err error) {
	content, err := os.ReadFile(path)
	created := errors.Is(err, fs.ErrNotExist)
	if err != nil && !created {
		return nil, nil, err
	}
	if kept, err = verify(content, schema); err != nil {
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
	if err = guarded(func() error { return db.Update(schema.migrate) }); err != nil {
		_ = guarded(db.Close) // none of its content is used any more
		return nil, kept, err
	}
	if created { // bbolt syncs the file, and not its name
		if err := atomicfile.SyncFolder(filepath.Dir(path)); err != nil {
			return nil, nil, errors.Join(err, guarded(db.Close))
		}
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
	return top.ForEachBucket(func(group []byte) error {
		return top.Bucket(group).ForEach(func(key, framed []byte) error {
			return f(record{[]byte(all), bytes.Clone(group), bytes.Clone(key), bytes.Clone(framed)})
		})
	})
}

// migrate creates the buckets, adds checksums to the records of a file without them, and the total to a file without it.
func (s Schema) migrate(tx *bbolt.Tx) error {
	for _, name := range s.Buckets {
		if _, err := tx.CreateBucketIfNotExists([]byte(name)); err != nil {
			return err
		}
	}
	for from, to := range s.Succeeds {
		if tx.Bucket([]byte(from)) == nil {
			continue
		}
		var list []record
		if err := eachRecord(tx, from, func(r record) error {
			r.all = []byte(to)
			r.framed = frame(r.all, r.group, r.key, r.framed)
			list = append(list, r)
			return nil
		}); err != nil {
			return err
		}
		if err := errors.Join(restore(tx, list), tx.DeleteBucket([]byte(from))); err != nil {
			return err
		}
	}
	if tx.Bucket([]byte(totals)) != nil {
		return nil
	}
	return s.putTotal(tx)
}

// restore writes records unchanged.
func restore(tx *bbolt.Tx, list []record) error {
	for _, r := range list {
		top := tx.Bucket(r.all)
		if top == nil {
			continue // a bucket of a later version
		}
		bucket, err := top.CreateBucketIfNotExists(r.group)
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

// sum covers the value and its place, so that a value under another key or group has a wrong checksum, too.
func sum(all, group, key, value []byte) uint32 {
	return crc32.Checksum(bytes.Join([][]byte{all, group, key, value}, []byte{0}), castagnoli)
}

// frame puts the checksum before a value: four bytes, big-endian.
func frame(all, group, key, value []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, sum(all, group, key, value)), value...)
}

// unframe returns the value of a record, if its checksum is right.
func unframe(r record) (value []byte, ok bool) {
	if len(r.framed) < 4 {
		return nil, false
	}
	value = r.framed[4:]
	return value, binary.BigEndian.Uint32(r.framed) == sum(r.all, r.group, r.key, value)
}

// replaceFile puts a new file with these records in place of a damaged one, which it gives the name aside. It removes the oldest damaged files beyond maxAside.
// Whenever the process or the power ends, one of the two files is at path.
func replaceFile(path string, schema Schema, kept []record, now time.Time) (aside string, err error) {
	next := path + ".new"
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	db, _, err := openWhole(next, schema)
	if err != nil {
		return "", err
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		if err := restore(tx, kept); err != nil {
			return err
		}
		return schema.putTotal(tx)
	})
	aside = path + ".damaged-" + now.UTC().Format("20060102T150405.000000000Z")
	if err = errors.Join(err, db.Close()); err == nil {
		err = os.Link(path, aside)
	}
	if err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		return "", errors.Join(err, os.Remove(next))
	}
	dropOld(path)
	return aside, atomicfile.SyncFolder(filepath.Dir(path))
}

// dropOld removes the oldest damaged files beyond maxAside. Errors do not matter: the present one is set aside.
func dropOld(path string) {
	dir, base := filepath.Split(path)
	entries, err := os.ReadDir(filepath.Clean(dir + "."))
	if err != nil {
		return
	}
	var old []string
	for _, e := range entries {
		if len(e.Name()) > len(base) && e.Name()[:len(base)] == base && bytes.HasPrefix([]byte(e.Name()[len(base):]), []byte(".damaged-")) {
			old = append(old, filepath.Join(dir, e.Name()))
		}
	}
	slices.Sort(old)
	for _, path := range old[:max(0, len(old)-maxAside)] {
		_ = os.Remove(path)
	}
}
