package lossguard

import (
	"fmt"
	"maps"
	"strconv"

	"github.com/contiv-agent/contiv-agent/boltstore"
)

// counts is the bucket of the file: source → class → number.
const counts = "counts/v2"

// record remembers how many objects each source had. The zero value has no file.
type record struct {
	file  *boltstore.File
	known map[string]tally // by source, as in the file
}

// openFile reads the file; "": there is none.
func (r *record) openFile(path string) error {
	r.known = map[string]tally{}
	if path == "" {
		return nil
	}
	file, err := boltstore.Open(path, boltstore.Schema{Buckets: []string{counts}})
	if err != nil {
		return fmt.Errorf("record of objects: %w", err)
	}
	r.file = file
	return file.Each(counts, func(source, class string, value []byte) error {
		n, err := strconv.Atoi(string(value))
		if err != nil {
			return fmt.Errorf("record of objects: %s of %s: %w", class, source, err)
		}
		if r.known[source] == nil {
			r.known[source] = tally{}
		}
		r.known[source][class] = n
		return nil
	})
}

// lacks returns what a source has too little of, compared with the file; "": nothing. The file does not know groups, so that a tenth of all endpoints
// is enough, as a tenth of a group is otherwise.
func (r *record) lacks(source string, have tally, l *Limits) string {
	lost := tally{}
	for class, n := range r.known[source] {
		if n > have[class] && !(isCopies(class) && 100*have[class] >= copiesEnough*n) {
			lost[class] = n - have[class]
		}
	}
	return excess(lost, r.known[source], l)
}

// save writes what a source has, if it changed.
func (r *record) save(source string, have tally) error {
	if r.file == nil || maps.Equal(r.known[source], have) {
		return nil
	}
	was := r.known[source]
	err := r.file.Update(func(tx *boltstore.Tx) error {
		for class := range was {
			if err := tx.Delete(counts, source, class); err != nil {
				return err
			}
		}
		for class, n := range have {
			if err := tx.Put(counts, source, class, []byte(strconv.Itoa(n))); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("record of objects: %w", err)
	}
	r.known[source] = maps.Clone(have)
	return nil
}

// closeFile closes the file.
func (r *record) closeFile() error {
	if r.file == nil {
		return nil
	}
	return r.file.Close()
}
