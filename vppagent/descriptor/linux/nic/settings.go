package nic

import (
	"errors"
	"io/fs"
	"os"
	"strings"
)

const sysctl = "/proc/sys/net/"

// readSettings returns a link's settings; "" for one that the kernel does not have.
func readSettings(link string) (s settings, err error) {
	for name, value := range s.files(link) {
		b, failed := os.ReadFile(sysctl + name)
		if failed != nil && !errors.Is(failed, fs.ErrNotExist) {
			err = errors.Join(err, failed)
		}
		*value = strings.TrimSpace(string(b))
	}
	return s, err
}

func (s settings) write(link string) (err error) {
	for name, value := range s.files(link) {
		if *value == "" {
			continue
		}
		if failed := os.WriteFile(sysctl+name, []byte(*value), 0); failed != nil && !errors.Is(failed, fs.ErrNotExist) {
			err = errors.Join(err, failed)
		}
	}
	return err
}
