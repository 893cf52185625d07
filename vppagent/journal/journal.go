// Package journal turns objects without a tag in VPP into lines of a file, and the file back into objects: it is the agent's memory of what it
// made.
//
// Invariant: an object that was saved before its request is found again after any end of the process.
package journal

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"iter"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"

	"github.com/contiv-agent/contiv-agent/atomicfile"
)

// Journal records in a file the objects that are ours and have no tag in VPP. The file has a header, and lines with a checksum
// each; the last line of a key counts:
//
//	contiv-agent journal 1
//	+ 89abcdef config/vpp/v2/route/vrf/0/dst/10.1.2.0/24/gw/192.168.16.2 {…}	the request to make it follows
//	= 456789ab config/vpp/v2/route/vrf/0/dst/10.1.2.0/24/gw/192.168.16.2		VPP has it
//	? cdef0123 config/vpp/v2/route/vrf/0/dst/10.1.2.0/24/gw/192.168.16.2		the request to remove it follows
//	- 01234567 config/vpp/v2/route/vrf/0/dst/10.1.2.0/24/gw/192.168.16.2		VPP has it no more
//
// Each transaction appends lines; when most lines are outdated, the file is rewritten and renamed.
type Journal struct {
	Path    string    // "": no journal
	Again   time.Time // when to Save again, after an error; zero: there was none
	live    map[string]entry
	pending []string // lines not yet appended
	lines   int      // in the file
	broken  bool     // the file has to be rewritten
}

// Entries yields the key and the line of each recorded object, in no particular order.
func (j *Journal) Entries() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for key, e := range j.live {
			if !yield(key, e.text) {
				return
			}
		}
	}
}

// Empty reports that no object is recorded, as without a file.
func (j *Journal) Empty() bool { return len(j.live) == 0 }

// Drop forgets an object without a line in the file.
func (j *Journal) Drop(key string) { delete(j.live, key) }

// entry is the record of a key.
type entry struct {
	text  string
	state any  // the state that text encodes; nil: not known
	made  bool // VPP has it, in this state or an earlier one
}

const header = "contiv-agent journal 1"

// Begun reports that an object is recorded, and not that VPP has it: the agent may have ended before the request that makes it, or after the one that
// removes it.
func (j *Journal) Begun(key string) bool {
	e, recorded := j.live[key]
	return recorded && !e.made
}

// Confirm is Set of an object that VPP has.
func (j *Journal) Confirm(key string, d *descriptor.Descriptor, have any, ours bool) {
	j.Set(key, d, have, ours)
	if j.markMade(key, true) {
		j.pending = append(j.pending, journalLine('=', key))
	}
}

// Doubt records that a request follows that removes an object.
func (j *Journal) Doubt(key string) {
	if j.markMade(key, false) {
		j.pending = append(j.pending, journalLine('?', key))
	}
}

// markMade sets whether VPP has a recorded object, and reports whether that is news.
func (j *Journal) markMade(key string, made bool) bool {
	e, recorded := j.live[key]
	if !recorded || e.made == made {
		return false
	}
	e.made = made
	j.live[key] = e
	return true
}

// Set records an object that VPP is asked to make, or with ours false that it is not ours. Save writes it.
func (j *Journal) Set(key string, d *descriptor.Descriptor, have any, ours bool) {
	if j.Path == "" {
		return
	}
	if !ours {
		if _, ok := j.live[key]; ok {
			delete(j.live, key)
			j.pending = append(j.pending, journalLine('-', key))
		}
		return
	}
	was := j.live[key]
	if was.state == have { // recorded before the request, and again after its success
		return
	}
	m := d.Message(have)
	text := kv.Format(key, m)
	if was.text != "" && was.text != text {
		if _, err := d.Compile(key, m); err != nil {
			return // half of a value, as after a refusal: it could not be parsed again, so the record keeps the whole value
		}
	}
	if j.live[key] = (entry{text, have, was.made}); was.text == text {
		return
	}
	j.pending = append(j.pending, journalLine('+', text))
}

func journalLine(op byte, text string) string {
	return fmt.Sprintf("%c %08x %s\n", op, crc32.ChecksumIEEE([]byte(string(op)+text)), text)
}

func parseJournalLine(line string) (op byte, text string, ok bool) {
	if len(line) < 12 || line[1] != ' ' || line[10] != ' ' {
		return 0, "", false
	}
	op, text = line[0], line[11:]
	return op, text, journalLine(op, text) == line+"\n"
}

// Load reads the file. It skips lines that it cannot trust and reports them in the error; a torn last line is normal.
func (j *Journal) Load() error {
	j.live = map[string]entry{}
	data, err := os.ReadFile(j.Path)
	if errors.Is(err, fs.ErrNotExist) {
		j.broken = true // the file does not exist yet
		return nil
	}
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	scanner := bufio.NewScanner(bytes.NewReader(data))
	scanner.Buffer(nil, 16<<20)
	if !scanner.Scan() || scanner.Text() != header {
		j.broken = true
		return fmt.Errorf("journal %s: unknown version %.40q, ignored", j.Path, scanner.Text())
	}
	var bad int
	for scanner.Scan() {
		op, text, ok := parseJournalLine(scanner.Text())
		switch {
		case !ok:
			bad++
		case op == '+':
			key, _, err := kv.ParseLine(text)
			if err != nil {
				bad++
				continue
			}
			j.live[key] = entry{text: text, made: j.live[key].made}
		case op == '=', op == '?':
			j.markMade(text, op == '=')
		case op == '-':
			delete(j.live, text)
		}
		j.lines++
	}
	if scanner.Err() != nil { // a line is too long; the rest is not read
		bad++
	}
	if bad > 0 || !bytes.HasSuffix(data, []byte("\n")) {
		j.broken = true
		return fmt.Errorf("journal %s: %d lines damaged, left out", j.Path, bad)
	}
	return nil
}

// saveAgain is how long after a failed Save the next one is due.
const saveAgain = time.Minute

// Due reports whether a Save that failed is to be repeated.
func (j *Journal) Due(now time.Time) bool { return !j.Again.IsZero() && !j.Again.After(now) }

// Save writes pending changes to the file.
func (j *Journal) Save(now time.Time) error {
	j.Again = time.Time{}
	err := j.save()
	if err != nil {
		j.Again = now.Add(saveAgain)
	}
	return err
}

func (j *Journal) save() error {
	if j.Path == "" || len(j.pending) == 0 && !j.broken {
		return nil
	}
	if j.broken || j.lines+len(j.pending) > 3*len(j.live)+1000 {
		return j.rewrite()
	}
	f, err := os.OpenFile(j.Path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	_, err = f.WriteString(strings.Join(j.pending, ""))
	if err = errors.Join(err, f.Close()); err != nil {
		j.broken = true
		return fmt.Errorf("journal: %w", err)
	}
	j.lines += len(j.pending)
	j.pending = nil
	return nil
}

func (j *Journal) rewrite() error {
	lines := make([]string, 0, 2*len(j.live))
	for _, key := range slices.Sorted(maps.Keys(j.live)) {
		e := j.live[key]
		if lines = append(lines, journalLine('+', e.text)); e.made {
			lines = append(lines, journalLine('=', key))
		}
	}
	if err := atomicfile.Write(j.Path, []byte(header+"\n"+strings.Join(lines, "")), 0o600); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	j.lines, j.pending, j.broken = len(lines), nil, false
	return nil
}
