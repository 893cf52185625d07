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

// Unix listens on a unix socket that only its owner may open; it creates the folder if needed. It replaces a socket that
// nothing listens on. A socket that another process listens on is an error that wraps syscall.EADDRINUSE.
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

// vacate removes an abandoned socket at path, and creates its folder if needed.
func vacate(ctx context.Context, path string) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	switch {
	case err == nil:
		return errors.Join(fmt.Errorf("%s: another agent listens there: %w", path, syscall.EADDRINUSE), conn.Close())
	case errors.Is(err, syscall.ECONNREFUSED):
		if fi, err := os.Lstat(path); err != nil || fi.Mode().Type() != fs.ModeSocket { // a regular file also refuses connections
			return errors.Join(fmt.Errorf("%s is not a unix socket, and is not replaced", path), err)
		}
		return os.Remove(path)
	case errors.Is(err, fs.ErrNotExist):
		return os.MkdirAll(filepath.Dir(path), 0o755)
	default:
		return err
	}
}
