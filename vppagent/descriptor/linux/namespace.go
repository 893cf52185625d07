package linux

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/contiv-agent/contiv-agent/proto/ligato/linux/namespace"
)

// A namespace is named by the path of its file; "" is the agent's.
const (
	namedNamespaces = "/run/netns/"
	ownNamespace    = "/proc/self/ns/net"
)

func compileNamespace(m *namespace.NetNamespace) (path string, err error) {
	ref := m.GetReference()
	switch t := m.GetType(); t {
	case namespace.NetNamespace_UNDEFINED:
		if ref != "" {
			return "", fmt.Errorf("namespace.type: UNDEFINED, and reference is %q", ref)
		}
		return "", nil
	case namespace.NetNamespace_NSID:
		if ref == "" || strings.ContainsAny(ref, "/\x00") || ref == "." || ref == ".." {
			return "", fmt.Errorf("namespace.reference: %q is no name", ref)
		}
		return namedNamespaces + ref, nil
	case namespace.NetNamespace_PID:
		pid, err := strconv.ParseUint(ref, 10, 31)
		if err != nil || pid == 0 {
			return "", fmt.Errorf("namespace.reference: %q is no process", ref)
		}
		return fmt.Sprintf("/proc/%d/ns/net", pid), nil
	case namespace.NetNamespace_FD:
		if !strings.HasPrefix(ref, "/") {
			return "", fmt.Errorf("namespace.reference: %q is no absolute path", ref)
		}
		return ref, nil
	case namespace.NetNamespace_MICROSERVICE:
		return "", errors.New("namespace.type: MICROSERVICE is not supported: no container runtime is asked")
	default:
		return "", fmt.Errorf("namespace.type: unknown %d", t)
	}
}

func namespaceMessage(path string) *namespace.NetNamespace {
	name, named := strings.CutPrefix(path, namedNamespaces)
	switch {
	case path == "":
		return nil
	case named:
		return &namespace.NetNamespace{Type: namespace.NetNamespace_NSID, Reference: name}
	}
	return &namespace.NetNamespace{Type: namespace.NetNamespace_FD, Reference: path}
}

// handles are open sockets into namespaces, by path.
type handles struct {
	own  string
	open map[string]*handle
}

type handle struct {
	*netlink.Handle
	ns netns.NsHandle
}

// handleOf returns the handle of a namespace. The error is fs.ErrNotExist if the namespace does not exist.
func (h *handles) handleOf(path string) (*handle, error) {
	if o := h.open[path]; o != nil {
		return o, nil
	}
	file := path
	if file == "" {
		file = h.own
	}
	if file == "" {
		file = ownNamespace
	}
	ns, err := netns.GetFromPath(file)
	if err != nil {
		return nil, fmt.Errorf("network namespace %s: %w", file, err)
	}
	if err := isNamespace(int(ns)); err != nil {
		return nil, errors.Join(fmt.Errorf("network namespace %s: %w", file, err), ns.Close())
	}
	nl, err := netlink.NewHandleAt(ns, netlinkRoute)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("network namespace %s: %w", file, err), ns.Close())
	}
	if h.open == nil {
		h.open = map[string]*handle{}
	}
	h.open[path] = &handle{nl, ns}
	return h.open[path], nil
}

// isNamespace returns fs.ErrNotExist for an open file that is no namespace: a runtime removes a namespace before the file that it was mounted on.
func isNamespace(fd int) error {
	var st unix.Statfs_t
	if err := unix.Fstatfs(fd, &st); err != nil {
		return err
	}
	if st.Type != unix.NSFS_MAGIC && st.Type != unix.PROC_SUPER_MAGIC {
		return fmt.Errorf("the file is no network namespace: %w", fs.ErrNotExist)
	}
	return nil
}

// netlinkRoute is NETLINK_ROUTE.
const netlinkRoute = 0

func (h *handles) close() {
	for _, o := range h.open {
		o.Close()
		_ = o.ns.Close() // nothing was written to it
	}
}

// none reports that an object does not exist.
func none(err error) bool {
	_, noLink := errors.AsType[netlink.LinkNotFoundError](err)
	return noLink || errors.Is(err, fs.ErrNotExist)
}
