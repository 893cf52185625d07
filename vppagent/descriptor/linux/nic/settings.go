package nic

import (
	"errors"
	"io/fs"
	"os"
	"strings"
)

// HostSettings is the folder of the kernel's settings in containers whose own /proc/sys is read-only: a mount of the node's /proc/sys/net. Its files, too, are
// those of the network namespace of the process that opens them.
const HostSettings = "/host/proc/sys/net"

// sysctl returns the folder of the kernel's settings.
func sysctl() string {
	if _, err := os.Stat(HostSettings); err == nil {
		return HostSettings + "/"
	}
	return "/proc/sys/net/"
}

// readSettings returns a link's settings; "" for one that the kernel does not have.
func readSettings(link string) (s settings, err error) {
	for _, f := range s.files(link) {
		b, failed := os.ReadFile(sysctl() + f.file)
		if failed != nil && !errors.Is(failed, fs.ErrNotExist) {
			err = errors.Join(err, failed)
		}
		*f.value = strings.TrimSpace(string(b))
	}
	return s, err
}

func (s settings) write(link string) (err error) {
	for _, f := range s.files(link) {
		if *f.value == "" {
			continue
		}
		if failed := os.WriteFile(sysctl()+f.file, []byte(*f.value), 0); failed != nil && !errors.Is(failed, fs.ErrNotExist) {
			err = errors.Join(err, failed)
		}
	}
	return err
}
