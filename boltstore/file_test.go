package boltstore

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/bbolt"
)

var things = Schema{Buckets: []string{"things/v2"}, Succeeds: map[string]string{"things/v1": "things/v2"}}

// filled returns a closed file with n records of group g, and its content.
func filled(t testing.TB, n int) (path string, content []byte) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "x.db")
	f, err := Open(path, things)
	if err != nil || f.Remark() != "" || f.Lost() {
		t.Fatal(err, f.Remark())
	}
	err = f.Update(func(tx *Tx) error {
		for i := range n {
			if err := tx.Put("things/v2", "g", fmt.Sprint("key", i), fmt.Append(nil, "value", i)); err != nil {
				return err
			}
		}
		return nil
	})
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	content, err = os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return path, content
}

// read returns all records as lines.
func read(t testing.TB, f *File) string {
	t.Helper()
	var out strings.Builder
	if err := f.Each("things/v2", func(group, key string, value []byte) error {
		fmt.Fprintf(&out, "%s/%s=%s\n", group, key, value)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestUpdateIsAllOrNothing(t *testing.T) {
	path, _ := filled(t, 2)
	f, err := Open(path, things)
	if err != nil {
		t.Fatal(err)
	}
	stop := errors.New("stop")
	err = f.Update(func(tx *Tx) error {
		return errors.Join(tx.Put("things/v2", "g", "key0", nil), tx.Delete("things/v2", "g", "key1"), stop)
	})
	if got := read(t, f); !errors.Is(err, stop) || got != "g/key0=value0\ng/key1=value1\n" {
		t.Errorf("%v, %q", err, got)
	}
	if err := f.Update(func(tx *Tx) error { return tx.Put("other", "g", "k", nil) }); err == nil {
		t.Error("a bucket that the schema does not have took a record")
	}
	err = f.Update(func(tx *Tx) error {
		return errors.Join(tx.Delete("things/v2", "g", "key0"), tx.Delete("things/v2", "g", "key1"), tx.Delete("things/v2", "none", "k"))
	})
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	_ = db.View(func(tx *bbolt.Tx) error {
		if tx.Bucket([]byte("things/v2")).Bucket([]byte("g")) != nil {
			t.Error("an empty group is left in the file")
		}
		return nil
	})
}

// A file that cannot be written is read; changes are refused.
func TestUnwritableFileIsRead(t *testing.T) {
	path, _ := filled(t, 3)
	f := unwritable(path, things, os.ErrPermission)
	if got := read(t, f); strings.Count(got, "\n") != 3 || f.Lost() {
		t.Errorf("%q, lost %v", got, f.Lost())
	}
	if err := f.Update(func(*Tx) error { return nil }); !errors.Is(err, os.ErrPermission) || !strings.Contains(f.Remark(), "cannot be written") {
		t.Errorf("%v, remark %q", err, f.Remark())
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// One process has the file at a time.
func TestFileIsLocked(t *testing.T) {
	path, _ := filled(t, 1)
	f, err := Open(path, things)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unused(path); err == nil {
		t.Error("an open file counts as unused")
	}
}

// Arbitrary bytes, or a valid file with arbitrary changes, are opened or set aside. Each record that remains was written, and a file that
// lost some says so.
func FuzzOpen(f *testing.F) {
	_, whole := filled(f, 3)
	f.Add([]byte(nil), uint32(0), byte(0))
	for page := range 4 {
		for _, offset := range []int{0, 8, 10, 12, 16, 20, 32, 60} {
			f.Add([]byte(nil), uint32(page*os.Getpagesize()+offset), byte(1))
		}
	}
	f.Add([]byte("garbage"), uint32(0), byte(0))
	f.Fuzz(func(t *testing.T, content []byte, at uint32, change byte) {
		own := len(content) == 0
		if own {
			content = bytes.Clone(whole)
			content[int(at)%len(content)] ^= change
		}
		path := filepath.Join(t.TempDir(), "x.db")
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := Open(path, things)
		if err != nil {
			t.Fatal(err)
		}
		got := read(t, file)
		for line := range strings.Lines(got) {
			if own && !strings.Contains("g/key0=value0\ng/key1=value1\ng/key2=value2\n", line) {
				t.Fatalf("%q was never written", line)
			}
		}
		if own && strings.Count(got, "\n") < 3 && !file.Lost() {
			t.Fatalf("records are missing, without a report: %q", got)
		}
		err = file.Update(func(tx *Tx) error { return tx.Put("things/v2", "g", "new", []byte("1")) })
		if err := errors.Join(err, file.Close()); err != nil {
			t.Fatal(err)
		}
	})
}
