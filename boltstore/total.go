package boltstore

import (
	"bytes"
	"encoding/binary"

	"go.etcd.io/bbolt"
)

// total is the number of all records with the sum of their checksums. The file has it as a record, so that records cannot disappear
// without a trace.
type total struct {
	count uint64
	sum   uint64
}

// totals is the bucket, group and key of the total. It is the first name in the file: a page that lost its last elements still has it, or
// lacks the schema's buckets as well.
const totals = "\x00total"

// add counts a record; nil: none.
func (t *total) add(framed []byte) {
	if len(framed) >= 4 {
		t.count++
		t.sum += uint64(binary.BigEndian.Uint32(framed))
	}
}

// subtract removes a record; nil: none. The sum wraps around as that of add does.
func (t *total) subtract(framed []byte) {
	if len(framed) >= 4 {
		t.count--
		t.sum -= uint64(binary.BigEndian.Uint32(framed))
	}
}

// put writes the total.
func (t *total) put(tx *bbolt.Tx) error {
	top, err := tx.CreateBucketIfNotExists([]byte(totals))
	if err != nil {
		return err
	}
	b, err := top.CreateBucketIfNotExists([]byte(totals))
	if err != nil {
		return err
	}
	value := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, t.count), t.sum)
	return b.Put([]byte(totals), frame([]byte(totals), []byte(totals), []byte(totals), value))
}

// parseTotal returns the total of a record whose checksum is right.
func parseTotal(framed []byte) *total {
	if len(framed) != 4+16 {
		return &total{count: 1 << 63} // no file has so many records: it is damaged
	}
	return &total{count: binary.BigEndian.Uint64(framed[4:]), sum: binary.BigEndian.Uint64(framed[12:])}
}

// putTotal writes the total of the records in the file.
func (s Schema) putTotal(tx *bbolt.Tx) error {
	var t total
	for _, name := range s.Buckets {
		if err := eachRecord(tx, name, func(r record) error {
			t.add(r.framed)
			return nil
		}); err != nil {
			return err
		}
	}
	return t.put(tx)
}

// readTotal returns the total of an open file, which has one.
func readTotal(db *bbolt.DB) (t total) {
	_ = db.View(func(tx *bbolt.Tx) error {
		if top := tx.Bucket([]byte(totals)); top != nil {
			if b := top.Bucket([]byte(totals)); b != nil {
				t = *parseTotal(bytes.Clone(b.Get([]byte(totals))))
			}
		}
		return nil
	})
	return t
}
