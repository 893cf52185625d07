package driver

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Install copies this program into a folder as contiv-agent, with a link named contiv-felix-driver: into a container of
// Felix, from an image without a shell or cp. A program that starts meanwhile is the old one or the new one, never a partial
// copy.
func Install(dir string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	program := filepath.Join(dir, "contiv-agent")
	if err := replace(program, func(beside string) error { return copyProgram(self, beside) }); err != nil {
		return fmt.Errorf("install %s: %w", program, err)
	}
	link := filepath.Join(dir, Program)
	if err := replace(link, func(beside string) error { return os.Symlink(filepath.Base(program), beside) }); err != nil {
		return fmt.Errorf("install %s: %w", link, err)
	}
	return nil
}

// replace creates a file beside its final path and then renames it.
func replace(path string, create func(beside string) error) error {
	beside := fmt.Sprintf("%s.%d", path, os.Getpid())
	if err := os.RemoveAll(beside); err != nil { // left over from a run that was killed
		return err
	}
	err := create(beside)
	if err == nil {
		err = os.Rename(beside, path)
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(beside))
	}
	return nil
}

func copyProgram(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// Program is the name under which Felix starts this program: Felix passes no arguments.
const Program = "contiv-felix-driver"
