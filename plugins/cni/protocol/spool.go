package protocol

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/contiv-agent/contiv-agent/atomicfile"
)

// Spool is the folder with the DELs that found no agent: the plugin records them, and the agent carries them out when it starts. Each
// attachment has at most one record. A record is complete or absent, whenever its writer is killed.
type Spool struct {
	Dir string
}

const (
	maxRecords   = 4096     // a node has a few hundred pods
	maxRecord    = 64 << 10 // bytes of a record
	recordSuffix = ".json"
	staleWriting = time.Hour // age after which an unfinished file has no writer any more
)

// Path returns the file of an attachment's record.
func (s Spool) Path(a Attachment) string {
	sum := sha256.Sum256([]byte(a.String()))
	return filepath.Join(s.Dir, hex.EncodeToString(sum[:])+recordSuffix)
}

// Record writes a DEL. It returns when the record is on disk.
func (s Spool) Record(r Request) error {
	if err := r.Validate(); err != nil {
		return err
	}
	if err := atomicfile.MakeFolder(s.Dir, 0o700); err != nil {
		return fmt.Errorf("record of DEL: %w", err)
	}
	entries, err := os.ReadDir(s.Dir)
	if err != nil {
		return fmt.Errorf("record of DEL: %w", err)
	}
	if len(entries) >= maxRecords {
		return fmt.Errorf("record of DEL: %s has %d files already", s.Dir, len(entries))
	}
	text, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("record of DEL: %w", err)
	}
	if err := atomicfile.Write(s.Path(r.Attachment), text, 0o600); err != nil {
		return fmt.Errorf("record of DEL: %w", err)
	}
	return nil
}

// Has reports whether an attachment has a record.
func (s Spool) Has(a Attachment) bool {
	_, err := os.Lstat(s.Path(a))
	return err == nil
}

// Remove removes the record of an attachment, if it has one.
func (s Spool) Remove(a Attachment) error {
	if err := os.Remove(s.Path(a)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("record of DEL: %w", err)
	}
	return nil
}

// Read returns all records. It renames a record that it cannot read to FILE.damaged, and returns an error for it; the other records are
// valid. It removes what killed writers left an hour before now.
func (s Spool) Read(now time.Time) ([]Request, error) {
	entries, err := os.ReadDir(s.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("records of DELs: %w", err)
	}
	var out []Request
	var all error
	for _, e := range entries {
		path := filepath.Join(s.Dir, e.Name())
		if strings.HasPrefix(e.Name(), ".") {
			if info, err := e.Info(); err == nil && now.Sub(info.ModTime()) > staleWriting {
				all = errors.Join(all, os.Remove(path))
			}
			continue
		}
		if !strings.HasSuffix(e.Name(), recordSuffix) {
			continue
		}
		r, err := s.read(path)
		switch {
		case err == nil:
			out = append(out, r)
		case !errors.Is(err, fs.ErrNotExist): // a plugin that found the agent removes its record again
			all = errors.Join(all, err, os.Rename(path, path+".damaged"))
		}
	}
	return out, all
}

func (s Spool) read(path string) (Request, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return Request{}, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxRecord {
		return Request{}, fmt.Errorf("%s is no record of a DEL", path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return Request{}, err
	}
	r, err := parseRecord(text)
	if err == nil && s.Path(r.Attachment) != path {
		err = errors.New("the record belongs to another file")
	}
	if err != nil {
		return Request{}, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

// parseRecord decodes a record.
func parseRecord(text []byte) (r Request, err error) {
	if err := json.Unmarshal(text, &r); err != nil {
		return Request{}, err
	}
	return r, r.Validate()
}
