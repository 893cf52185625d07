package recorder_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/recorder"
)

// An archive has whole files, and says what it leaves out. A file that grows meanwhile is as long as it was.
func TestArchive(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{"00000001.journal": "aaaa\n", "00000002.journal": "bb\n", "00000003.journal": "c\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r, err := recorder.New(recorder.Config{Dir: dir, Node: "node-1"})
	if err != nil {
		t.Fatal(err)
	}
	for most, want := range map[int64][]string{
		100: {"00000001.journal: aaaa\n", "00000002.journal: bb\n", "00000003.journal: c\n"},
		5:   {"left-out.txt: 1 older files with 5 bytes are not in this archive: the limit is 5 bytes\n", "00000002.journal: bb\n", "00000003.journal: c\n"},
	} {
		var out bytes.Buffer
		if err := r.Archive()(&out, most); err != nil {
			t.Fatal(err)
		}
		var got []string
		for in := tar.NewReader(&out); ; {
			h, err := in.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(in)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, h.Name+": "+string(text))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%d bytes: %q, want %q", most, got, want)
		}
	}
	grown := func(p []byte) (int, error) { // between the list of files and the copy of the last one
		if strings.HasPrefix(string(p), "00000003.journal") {
			return len(p), os.WriteFile(filepath.Join(dir, "00000003.journal"), []byte("c\nlonger\n"), 0o600)
		}
		return len(p), nil
	}
	if err := r.Archive()(writer(grown), 100); err != nil {
		t.Error(err)
	}
	var none *recorder.Recorder
	if none.Archive() != nil {
		t.Error("an agent without a recorder has an archive")
	}
}

// writer is a function as an io.Writer.
type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }
