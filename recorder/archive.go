package recorder

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/contiv-agent/contiv-agent/recorder/segment"
)

// LeftOut is the file of an archive that says what is not in it.
const LeftOut = "left-out.txt"

// Archive returns the function that writes the newest files of the journal as a tar archive, oldest first; nil: there is no recorder. The files together
// have at most that many bytes. An archive without older files has a file LeftOut.
func (r *Recorder) Archive() func(w io.Writer, most int64) error {
	if r == nil {
		return nil
	}
	return func(w io.Writer, most int64) error {
		files, older, err := segment.Newest(r.cfg.Dir, most)
		if err != nil {
			return err
		}
		out := tar.NewWriter(w)
		if older.Files > 0 {
			text := fmt.Sprintf("%d older files with %d bytes are not in this archive: the limit is %d bytes\n", older.Files, older.Bytes, most)
			if err := addContent(out, LeftOut, []byte(text)); err != nil {
				return err
			}
		}
		for _, f := range files {
			if err := addFile(out, f); err != nil {
				return err
			}
		}
		return out.Close()
	}
}

func addContent(out *tar.Writer, name string, content []byte) error {
	err := out.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(content))})
	if err == nil {
		_, err = out.Write(content)
	}
	return err
}

// addFile adds a file as long as it was when it was found: the recorder appends to it. The recorder may have removed it.
func addFile(out *tar.Writer, f segment.Found) error {
	in, err := os.Open(f.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer in.Close()
	if err := out.WriteHeader(&tar.Header{Name: filepath.Base(f.Path), Mode: 0o600, Size: f.Bytes}); err != nil {
		return err
	}
	_, err = io.CopyN(out, in, f.Bytes)
	return err
}
