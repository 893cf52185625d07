package cleanup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/contiv-agent/contiv-agent/agent/owner"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/linux/leftover"
)

// Node is what agents that connect pods make on a node beside VPP. The methods of nil do nothing.
type Node struct {
	// Own is the path of the network namespace with the agent's interfaces; "": the process's.
	Own string
	// Databases are files that a running agent has open. If one is locked, an agent runs.
	Databases []string
	// Recover undoes what a killed agent left of the kernel's switches; nil: nothing.
	Recover func() error
	// Patience is how long a VPP that still listens may take to end; 0: it is not about to end.
	Patience time.Duration
	// Patterns are files and folders that only agents make (filepath.Match). They are removed last, folders with their content.
	Patterns []string
	// Folders are removed by Close if they are empty.
	Folders []string
}

// namespace is Own.
func (n *Node) namespace() string {
	if n == nil {
		return ""
	}
	return n.Own
}

// idle locks the databases, so that no agent starts.
func (c *Cleaner) idle(context.Context) error {
	if c.cfg.Node == nil {
		return nil
	}
	for _, path := range c.cfg.Node.Databases {
		f, err := os.OpenFile(path, os.O_RDWR|syscall.O_NOFOLLOW, 0)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("the agent's state: %w", err)
		}
		c.stop = append(c.stop, func() { _ = f.Close() }) // it was only locked
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
			return fmt.Errorf("%w (%s is locked: %w)", ErrInUse, path, err)
		}
	}
	return nil
}

// ended waits until nobody listens at VPP's socket, up to Patience, and returns notListening's answer.
func (c *Cleaner) ended(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Node.Patience)
	defer cancel()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for {
		why := c.notListening(context.WithoutCancel(ctx))
		if why != nil {
			return why
		}
		select {
		case <-ctx.Done():
			return nil
		case <-again.C:
		}
	}
}

// notListening returns why nobody listens at VPP's socket; nil: a process does.
func (c *Cleaner) notListening(ctx context.Context) error {
	dial := c.cfg.Dial
	if dial == nil {
		dial = func(ctx context.Context) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", c.cfg.Socket)
		}
	}
	conn, err := dial(ctx)
	switch {
	case err == nil:
		_ = conn.Close() // nothing was written
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("no VPP runs (%w)", err)
	}
	return nil
}

// nobody is the VPP that does not run.
type nobody struct{}

// Do answers lists with nothing, and all else with an error.
func (nobody) Do(_ context.Context, calls ...vpp.Call) []vpp.Reply {
	out := make([]vpp.Reply, len(calls))
	for i, c := range calls {
		if !c.Dump {
			out[i].Err = vpp.ErrDisconnected
		}
	}
	return out
}

// files returns the files of the patterns that exist.
func (n *Node) files() (out []string) {
	if n == nil {
		return nil
	}
	for _, p := range n.Patterns {
		found, _ := filepath.Glob(p) // the patterns have no error
		out = append(out, found...)
	}
	return out
}

// kernel returns the objects in the kernel.
func (n *Node) kernel() (out []string, _ error) {
	if n == nil {
		return nil, nil
	}
	k, err := leftover.Open(n.Own)
	if err != nil {
		return nil, err
	}
	defer k.Close()
	all, err := k.Objects()
	for _, o := range all {
		out = append(out, o.String())
	}
	return out, err
}

// cleanKernel removes the objects in the kernel.
func (n *Node) cleanKernel(r *Report) {
	if n == nil {
		return
	}
	failed := func(err error) {
		if err != nil {
			r.Failed = append(r.Failed, err.Error())
		}
	}
	k, err := leftover.Open(n.Own)
	if err != nil {
		failed(err)
		return
	}
	defer k.Close()
	all, err := k.Objects()
	failed(err)
	for _, o := range all {
		if err := o.Remove(); err != nil {
			failed(err)
			continue
		}
		r.Kernel = append(r.Kernel, o.String())
	}
	if n.Recover != nil {
		failed(n.Recover())
	}
}

// cleanFiles removes the agent's files and folders.
func (n *Node) cleanFiles(r *Report) {
	if n == nil || !r.Whole() {
		return // the next cleanup, or agent, needs them
	}
	for _, path := range n.files() {
		if err := os.RemoveAll(path); err != nil {
			r.Failed = append(r.Failed, err.Error())
			continue
		}
		r.Files = append(r.Files, path)
	}
}

// forgetNode removes the agents' locks and empty folders, after Clean has left nothing else.
func (c *Cleaner) forgetNode() {
	if l := owner.All.Lock(c.cfg.Lock, ""); l != nil {
		for _, path := range l.Paths {
			_ = os.Remove(path) // it locks nothing any more
		}
	}
	for _, dir := range c.cfg.Node.Folders {
		_ = os.Remove(dir) // a volume of a container stays, and so does a folder with files of other owners
	}
}
