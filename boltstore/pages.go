package boltstore

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"os"
)

// boltFile reads the pages of a Bolt file without trusting them. bbolt itself follows any page reference, even in circles and beyond
// the file. Layout: go.etcd.io/bbolt v1.5, internal/common/page.go, meta.go and bucket.go; little-endian, as on every machine we
// build for.
type boltFile struct {
	schema Schema
	data   []byte
	page   uint64 // size of a page
	high   uint64 // first unused page
	seen   map[uint64]bool
	tops   map[string]bool // top buckets
	kept   []record
	total  *total // as the file has it; nil: it has none
	fault  error  // first error found
}

const (
	boltMagic     = 0xED0CDAED
	pageHeader    = 16 // id u64, flags u16, count u16, overflow u32
	metaSize      = 64
	branchPage    = 0x01
	leafPage      = 0x02
	freelistPage  = 0x10
	bucketElement = 0x01 // flag of a leaf's element: its value is a bucket
	bucketHeader  = 16   // root u64, sequence u64
	elementSize   = 16   // of a branch: pos u32, ksize u32, page u64; of a leaf: flags u32, pos u32, ksize u32, vsize u32
	noFreelist    = 1<<64 - 1
	maxDepth      = 64 // of nested pages; an undamaged file has a handful
)

var le = binary.LittleEndian

// verify returns the records of a file whose checksums are right. It returns an error if any part of the file differs from what
// bbolt and Store write; nil: bbolt can read it safely. An empty file is valid.
func verify(data []byte, schema Schema) ([]record, error) {
	if len(data) == 0 {
		return nil, nil
	}
	f := &boltFile{schema: schema, data: data, seen: map[uint64]bool{0: true, 1: true}, tops: map[string]bool{}}
	meta := f.meta()
	if meta == nil {
		return nil, fmt.Errorf("%w: no valid meta page", errDamaged)
	}
	f.high = le.Uint64(meta[40:])
	f.tree(le.Uint64(meta[16:]), nil, 0)
	if free := le.Uint64(meta[32:]); free != noFreelist {
		f.freelist(free)
	} else {
		f.wrong("no list of free pages") // bbolt writes one, unless its options say otherwise
	}
	if le.Uint64(meta[48:]) > lastEmpty {
		f.complete()
	}
	return f.kept, f.fault
}

// lastEmpty is the number of the last transaction of a file that bbolt has created and nobody has written.
const lastEmpty = 1

// complete checks that no record is missing: bbolt's pages have no checksums, so that a page with a wrong number of elements looks whole.
func (f *boltFile) complete() {
	for _, name := range f.schema.Buckets {
		found := f.tops[name]
		for old, now := range f.schema.Succeeds {
			found = found || now == name && f.tops[old]
		}
		if !found {
			f.wrong("the bucket %q is missing", name)
		}
	}
	var have total
	for _, r := range f.kept {
		have.add(r.framed)
	}
	switch {
	case f.total == nil && f.tops[totals]:
		f.wrong("its number of records is missing")
	case f.total != nil && have != *f.total: // a file of an earlier version has no total
		f.wrong("it has %d records, or others than the %d that were written", have.count, f.total.count)
	}
}

func (f *boltFile) wrong(format string, args ...any) {
	if f.fault == nil {
		f.fault = fmt.Errorf("%w: "+format, append([]any{errDamaged}, args...)...)
	}
}

// meta returns the younger of the valid meta pages, as bbolt chooses; nil: none is valid.
func (f *boltFile) meta() (best []byte) {
	for _, at := range []int{0, os.Getpagesize()} {
		if at+pageHeader+metaSize > len(f.data) {
			continue
		}
		m := f.data[at+pageHeader : at+pageHeader+metaSize]
		h := fnv.New64a()
		_, _ = h.Write(m[:56]) // never fails
		if le.Uint32(m) != boltMagic || le.Uint32(m[4:]) != 2 || le.Uint64(m[56:]) != h.Sum64() || int(le.Uint32(m[8:])) != os.Getpagesize() {
			f.wrong("a page that says where to begin")
			continue
		}
		if best == nil || le.Uint64(m[48:]) > le.Uint64(best[48:]) {
			best = m
		}
	}
	f.page = uint64(os.Getpagesize())
	return best
}

// open returns a page with its overflow pages; nil if the page is outside of the file, unused, or already visited.
func (f *boltFile) open(id uint64, flags uint16) []byte {
	if id >= f.high || id >= uint64(len(f.data))/f.page {
		f.wrong("page %d is not in the file", id)
		return nil
	}
	p := f.data[id*f.page:]
	over := uint64(le.Uint32(p[12:]))
	switch {
	case le.Uint64(p) != id || le.Uint16(p[8:])&^flags != 0 || le.Uint16(p[8:]) == 0 || (over+1)*f.page > uint64(len(p)) || id+over >= f.high:
		f.wrong("page %d is not what it should be", id)
		return nil
	}
	for i := id; i <= id+over; i++ {
		if f.seen[i] {
			f.wrong("page %d is used twice", i)
			return nil
		}
		f.seen[i] = true
	}
	return p[:(over+1)*f.page]
}

// tree reads the pages below a root; path holds the names of the enclosing buckets.
func (f *boltFile) tree(id uint64, path [][]byte, depth int) {
	p := f.open(id, branchPage|leafPage)
	if p == nil || depth > maxDepth {
		f.wrong("pages are too deep")
		return
	}
	if le.Uint16(p[8:]) == leafPage {
		f.leaf(p, path, depth)
		return
	}
	for i := range int(le.Uint16(p[10:])) {
		at := pageHeader + i*elementSize
		if at+elementSize > len(p) || !inside(p, at, le.Uint32(p[at:]), uint64(le.Uint32(p[at+4:]))) {
			f.wrong("page %d has elements outside", id)
			return
		}
		f.tree(le.Uint64(p[at+8:]), path, depth+1)
	}
}

// inside reports whether size bytes from pos behind an element lie in the page.
func inside(p []byte, at int, pos uint32, size uint64) bool {
	return uint64(at)+uint64(pos)+size <= uint64(len(p))
}

func (f *boltFile) leaf(p []byte, path [][]byte, depth int) {
	for i := range int(le.Uint16(p[10:])) {
		at := pageHeader + i*elementSize
		if at+elementSize > len(p) {
			f.wrong("a page has elements outside")
			return
		}
		pos, ksize, vsize := le.Uint32(p[at+4:]), uint64(le.Uint32(p[at+8:])), uint64(le.Uint32(p[at+12:]))
		if !inside(p, at, pos, ksize+vsize) {
			f.wrong("a page has elements outside")
			return
		}
		key := p[uint64(at)+uint64(pos):][:ksize:ksize]
		value := p[uint64(at)+uint64(pos)+ksize:][:vsize:vsize]
		switch {
		case le.Uint32(p[at:])&bucketElement != 0:
			if len(path) == 0 {
				f.tops[string(key)] = true
			}
			f.bucket(value, append(path[:len(path):len(path)], key), depth)
		case len(path) == 2:
			f.record(record{bytes.Clone(path[0]), bytes.Clone(path[1]), bytes.Clone(key), bytes.Clone(value)})
		default:
			f.wrong("a value where there should be a bucket")
		}
	}
}

func (f *boltFile) bucket(value []byte, path [][]byte, depth int) {
	if len(value) < bucketHeader || len(path) > 2 {
		f.wrong("a bucket where there should be a value")
		return
	}
	if root := le.Uint64(value); root != 0 {
		f.tree(root, path, depth+1)
		return
	}
	inline := value[bucketHeader:] // small buckets have their page behind the header
	if len(inline) < pageHeader || le.Uint16(inline[8:]) != leafPage {
		f.wrong("a bucket without a page")
		return
	}
	f.leaf(inline, path, depth+1)
}

func (f *boltFile) record(r record) {
	if now, old := f.schema.Succeeds[string(r.all)]; old { // a record from before checksums, unless the bucket's name is damaged
		r.all = []byte(now)
		if _, ok := unframe(r); ok {
			f.wrong("a bucket of version 1 has a record of version 2, %q", r.key)
			f.kept = append(f.kept, r)
		}
		return
	}
	if _, ok := unframe(r); !ok {
		f.wrong("the checksum of %q is wrong", r.key)
		return
	}
	if string(r.all) == totals {
		f.total = parseTotal(r.framed)
		return
	}
	f.kept = append(f.kept, r)
}

// freelist checks that no page is both free and used, because bbolt would write over it.
func (f *boltFile) freelist(id uint64) {
	p := f.open(id, freelistPage)
	if p == nil {
		return
	}
	count, at := uint64(le.Uint16(p[10:])), uint64(pageHeader)
	if count == 0xFFFF { // the true number is the first entry
		count, at = le.Uint64(p[at:]), at+8
	}
	if count > (uint64(len(p))-at)/8 {
		f.wrong("the list of free pages is longer than its page")
		return
	}
	for i := range count {
		if free := le.Uint64(p[at+8*i:]); free >= f.high || f.seen[free] {
			f.wrong("page %d is free and used", free)
			return
		}
	}
}
