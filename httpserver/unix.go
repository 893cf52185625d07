package httpserver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
)

// Unix listens on a unix socket that only its owner may use; its folder is made if need be. A socket that nobody answers at is
// left over and replaced; one that somebody answers at is an error that wraps syscall.EADDRINUSE.
func Unix(ctx context.Context, path string) (net.Listener, error) {
	if err := vacate(ctx, path); err != nil {
		return nil, err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// vacate makes room for a socket at path.
func vacate(ctx context.Context, path string) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	switch {
	case err == nil:
		return errors.Join(fmt.Errorf("%s: another agent answers there: %w", path, syscall.EADDRINUSE), conn.Close())
	case errors.Is(err, syscall.ECONNREFUSED):
		if fi, err := os.Lstat(path); err != nil || fi.Mode().Type() != fs.ModeSocket { // a file refuses connections, too
			return errors.Join(fmt.Errorf("%s is no unix socket: it is not replaced", path), err)
		}
		return os.Remove(path)
	case errors.Is(err, fs.ErrNotExist):
		return os.MkdirAll(filepath.Dir(path), 0o755)
	default:
		return err
	}
}
