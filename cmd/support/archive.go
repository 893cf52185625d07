package support

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"time"

	"github.com/contiv-agent/contiv-agent/cmd/exit"
	"github.com/contiv-agent/contiv-agent/cmd/terminal"
)

const (
	// folder has all files of an archive.
	folder = "contiv-support/"
	// stdout as a file's name is standard output.
	stdout = "-"
	// answerLimit is how long one answer of an agent may take.
	answerLimit = time.Minute
	// mostFile bounds a file of the archive of a node that is copied into that of a cluster.
	mostFile = 256 << 20
)

// archive is a compressed archive that is being written. It replaces what is secret in each of its files.
type archive struct {
	packed *gzip.Writer
	out    *tar.Writer
}

func newArchive(to io.Writer) *archive {
	packed := gzip.NewWriter(to)
	return &archive{packed, tar.NewWriter(packed)}
}

func (a *archive) closeArchive() error { return errors.Join(a.out.Close(), a.packed.Close()) }

// addText adds a file.
func (a *archive) addText(name string, content []byte) error {
	if isJournal(name) {
		content = redactJournal(content)
	} else {
		content = redact(content)
	}
	if err := a.out.WriteHeader(&tar.Header{Name: folder + name, Mode: 0o600, Size: int64(len(content)), ModTime: time.Now()}); err != nil {
		return err
	}
	_, err := a.out.Write(content)
	return err
}

// An ask writes an answer, and what went wrong. It returns the exit code of a command.
type ask func(ctx context.Context, stdout, stderr io.Writer) (int, error)

// addAnswer adds the file with an answer, and one with what went wrong. The error is of the archive, or ctx has ended.
func (a *archive) addAnswer(ctx context.Context, name string, answer ask) error {
	content, complaint, err := collectAnswer(ctx, answer)
	if err != nil {
		return err
	}
	return a.addBoth(name, content, complaint)
}

func (a *archive) addBoth(name string, content, complaint []byte) error {
	if len(content) > 0 {
		if err := a.addText(name, content); err != nil {
			return err
		}
	}
	if len(complaint) > 0 {
		return a.addText(name+".stderr", complaint)
	}
	return nil
}

// collectAnswer returns an answer, and what went wrong, with the exit code. The error is that of ctx.
func collectAnswer(ctx context.Context, answer ask) (content, complaint []byte, err error) {
	limited, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	var out, errOut bytes.Buffer
	code, err := answer(limited, &out, &errOut)
	if ctx.Err() != nil {
		return nil, nil, ctx.Err()
	}
	if err != nil {
		fmt.Fprintln(&errOut, err)
	}
	if code != exit.OK {
		fmt.Fprintf(&errOut, "exit code %d\n", code)
	}
	return out.Bytes(), errOut.Bytes(), nil
}

// addTar adds the files of a tar archive below a prefix, except those that skip names.
func (a *archive) addTar(prefix string, from io.Reader, skip func(string) bool) error {
	in := tar.NewReader(from)
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(path.Clean("/"+h.Name), "/") // a name cannot lead out of the folder
		name = strings.TrimPrefix(name, folder)
		if h.Typeflag != tar.TypeReg || name == "" || skip(name) {
			continue
		}
		content, err := io.ReadAll(io.LimitReader(in, mostFile))
		if err != nil {
			return err
		}
		if err := a.addText(prefix+name, content); err != nil {
			return err
		}
	}
}

// writeArchive writes an archive to a file, or to standard output. A file of an archive that failed is removed.
func writeArchive(file string, out io.Writer, write func(*archive) error) error {
	if file == stdout && terminal.IsTerminal(out) {
		return exit.Usage(errors.New("standard output is a terminal: give a file with -w, or a pipe"))
	}
	if file == stdout {
		a := newArchive(terminal.Raw(out))
		return errors.Join(write(a), a.closeArchive())
	}
	to, err := os.OpenFile(file, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	a := newArchive(to)
	if err = errors.Join(write(a), a.closeArchive(), to.Close()); err != nil {
		err = errors.Join(err, os.Remove(file))
	}
	return err
}
