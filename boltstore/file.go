// Package boltstore keeps records in a Bolt file: bucket, group and key → value, with a checksum before each value. It opens a file
// whatever was done to it.
//
// Invariant: no content of a file ends the process, and each record that is read is one that was written.
package boltstore

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/bbolt"
)

// Schema lists the buckets of a file.
type Schema struct {
	// Buckets have a bucket for each group of records. Names carry the version of their records: "clients/v2".
	Buckets []string
	// Succeeds maps buckets of an earlier version, whose records have no checksums, to those that replace them. Open migrates their
	// records.
	Succeeds map[string]string
}

// File is an open file. It is safe for concurrent use.
type File struct {
	schema Schema
	db     *bbolt.DB // nil: the file can be neither read nor written
	remark string    // problem with the file; "": none
	lost   bool

	mu     sync.Mutex
	total  total // of the records in the file
	broken error // why nothing can be written; nil: the file is writable
}

// lockPatience is how long Open waits until another process closes the file.
const lockPatience = 5 * time.Second

// Remark returns the problem with the file as text for users; "": none.
func (f *File) Remark() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.broken != nil {
		return f.broken.Error()
	}
	return f.remark
}

// Lost reports whether the file was damaged when it was opened, so that records may be missing.
func (f *File) Lost() bool { return f.lost }

// Each calls do for every record of a bucket, in the order of groups and keys.
func (f *File) Each(bucket string, do func(group, key string, value []byte) error) error {
	if f.db == nil {
		return nil
	}
	return guarded(func() error {
		return f.db.View(func(tx *bbolt.Tx) error {
			err := eachRecord(tx, bucket, func(r record) error {
				value, ok := unframe(r)
				if !ok {
					return fmt.Errorf("%q: %w: its checksum is wrong", r.key, errDamaged)
				}
				return do(string(r.group), string(r.key), value)
			})
			for old, now := range f.schema.Succeeds { // it exists only if migrate could not write
				if now == bucket {
					err = errors.Join(err, eachRecord(tx, old, func(r record) error { return do(string(r.group), string(r.key), r.framed) }))
				}
			}
			return err
		})
	})
}

// Update makes changes, all of them or nothing. It returns when they are on disk.
func (f *File) Update(change func(*Tx) error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.broken != nil {
		return f.broken
	}
	var after total
	err := guarded(func() error {
		return f.db.Update(func(tx *bbolt.Tx) error {
			t := &Tx{tx: tx, total: f.total, shrunk: map[[2]string]bool{}}
			if err := change(t); err != nil {
				return err
			}
			after = t.total
			return errors.Join(t.removeEmpty(), t.total.put(tx))
		})
	})
	if err == nil {
		f.total = after
	}
	if errors.Is(err, errDamaged) {
		f.broken = fmt.Errorf("store: %w; the next start sets it aside", err) // bbolt may still hold its lock
	}
	return err
}

// Close waits for writes in progress.
func (f *File) Close() error {
	if f.db == nil {
		return nil
	}
	return guarded(f.db.Close)
}

// Tx is the changes of one Update.
type Tx struct {
	tx     *bbolt.Tx
	total  total
	shrunk map[[2]string]bool // bucket and group that lost a record
}

// Put writes a record. Groups and keys are not empty.
func (t *Tx) Put(bucket, group, key string, value []byte) error {
	top := t.tx.Bucket([]byte(bucket))
	if top == nil {
		return fmt.Errorf("the schema has no bucket %q", bucket)
	}
	b, err := top.CreateBucketIfNotExists([]byte(group))
	if err != nil {
		return err
	}
	framed := frame([]byte(bucket), []byte(group), []byte(key), value)
	t.total.subtract(b.Get([]byte(key)))
	t.total.add(framed)
	return b.Put([]byte(key), framed)
}

// Delete removes a record, if it exists.
func (t *Tx) Delete(bucket, group, key string) error {
	top := t.tx.Bucket([]byte(bucket))
	if top == nil {
		return fmt.Errorf("the schema has no bucket %q", bucket)
	}
	b := top.Bucket([]byte(group))
	if b == nil {
		return nil
	}
	t.shrunk[[2]string{bucket, group}] = true
	t.total.subtract(b.Get([]byte(key)))
	return b.Delete([]byte(key))
}

// removeEmpty removes groups without records.
func (t *Tx) removeEmpty() error {
	for at := range t.shrunk {
		top, group := t.tx.Bucket([]byte(at[0])), []byte(at[1])
		if first, _ := top.Bucket(group).Cursor().First(); first != nil {
			continue
		}
		if err := top.DeleteBucket(bytes.Clone(group)); err != nil {
			return err
		}
	}
	return nil
}
