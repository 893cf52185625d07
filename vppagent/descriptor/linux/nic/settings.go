package nic

import (
	"errors"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/linux"
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

// ethtool executes a command with one value, in the namespace of the agent.
func ethtool(link string, command, data uint32) (uint32, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	return linux.Ethtool(fd, link, command, data)
}
