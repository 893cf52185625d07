package cni

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/contiv-agent/contiv-agent/plugins/cni/protocol"

	"github.com/contiv-agent/contiv-agent/atomicfile"
)

// The names of the agent's files in the runtime's folders.
const (
	ListName    = "10-contiv.conflist"
	ProgramName = "contiv-cni"
)

// ListConfig is the content of the network configuration list.
type ListConfig struct {
	Network       string            // name of the network; "": contiv
	Socket, Spool string            // of the plugin; "": its defaults
	MTU           int               // 0: the agent's
	IPAM          json.RawMessage   // section of another IPAM plugin; nil: the agent's addresses
	Chain         []json.RawMessage // plugins behind contiv-cni
}

// Encode returns the list. Runtimes up to CNI 1.0 read cniVersion; later ones choose from cniVersions, and use GC and STATUS.
func (c ListConfig) Encode() ([]byte, error) {
	type own struct {
		Type         string          `json:"type"`
		Capabilities map[string]bool `json:"capabilities"`
		Socket       string          `json:"socket,omitempty"`
		Spool        string          `json:"spool,omitempty"`
		MTU          int             `json:"mtu,omitempty"`
		IPAM         json.RawMessage `json:"ipam,omitempty"`
	}
	first, err := json.Marshal(own{
		ProgramName, map[string]bool{"portMappings": true, "bandwidth": true, "io.kubernetes.cri.pod-annotations": true}, c.Socket, c.Spool, c.MTU, c.IPAM,
	})
	if err != nil {
		return nil, fmt.Errorf("network configuration list: %w", err)
	}
	name := c.Network
	if name == "" {
		name = "contiv"
	}
	out, err := json.MarshalIndent(struct {
		CNIVersion  string            `json:"cniVersion"`
		CNIVersions []string          `json:"cniVersions"`
		Name        string            `json:"name"`
		Plugins     []json.RawMessage `json:"plugins"`
	}{"1.0.0", []string{"0.4.0", "1.0.0", "1.1.0"}, name, append([]json.RawMessage{first}, c.Chain...)}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("network configuration list: %w", err)
	}
	return append(out, '\n'), nil
}

// Publisher writes the network configuration list when the node can serve pods, and withdraws it when the node cannot. It has no clock.
type Publisher struct {
	Path    string        // "/etc/cni/net.d/10-contiv.conflist"
	Content []byte        // of ListConfig.Encode
	Quiet   time.Duration // how long the node cannot serve before the list is withdrawn; 0: DefaultWithdraw

	failing bool
	since   time.Time
}

// DefaultWithdraw is the Quiet of a Publisher without one. It is longer than a restart of VPP: without the list, a runtime cannot delete
// pods either. A runtime that calls STATUS sees the reason at once.
const DefaultWithdraw = 30 * time.Second

// Change is what Update did to the file.
type Change int

// The changes.
const (
	Unchanged Change = iota
	Written
	Withdrawn
)

// String returns the change as a word.
func (c Change) String() string { return [...]string{"unchanged", "written", "withdrawn"}[c] }

// publishEvery is the period in which Run reads the state of the node.
const publishEvery = time.Second

// Run keeps the file in line with the state of the node until ctx ends. It leaves the file then: see Remove. status is Network.Status.
func (p *Publisher) Run(ctx context.Context, status func(context.Context) error, log *slog.Logger) {
	tick := time.NewTicker(publishEvery)
	defer tick.Stop()
	said := ""
	for {
		why := status(ctx)
		if ctx.Err() != nil {
			return // the node serves again when the agent's successor runs
		}
		change, err := p.Update(time.Now(), why)
		if now := fmt.Sprint(change, why, err); now != said && (change != Unchanged || err != nil) {
			log.Log(ctx, levelOf(errors.Join(why, err)), "network configuration list", "path", p.Path, "change", change.String(), "reason", why, "err", err)
			said = now
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func levelOf(err error) slog.Level {
	if err != nil {
		return slog.LevelWarn
	}
	return slog.LevelInfo
}

// Update brings the file in line with the node's state: why says why the node cannot serve; nil: it can. The caller calls it at each
// change of the state and every few seconds. A list that another program changed or removed is written again. Limited connectivity neither
// writes nor withdraws the list: a node without a path to the others should get no pods, but must be able to delete those it has.
func (p *Publisher) Update(now time.Time, why error) (Change, error) {
	if why == nil {
		p.failing = false
		return p.write()
	}
	if e := (*protocol.Error)(nil); errors.As(why, &e) && e.Code == protocol.CodeLimited {
		p.failing = false
		return Unchanged, nil
	}
	if !p.failing {
		p.failing, p.since = true, now
	}
	quiet := p.Quiet
	if quiet == 0 {
		quiet = DefaultWithdraw
	}
	if now.Sub(p.since) < quiet {
		return Unchanged, nil
	}
	return p.Remove()
}

func (p *Publisher) write() (Change, error) {
	if have, err := os.ReadFile(p.Path); err == nil && bytes.Equal(have, p.Content) {
		return Unchanged, nil
	}
	err := os.MkdirAll(filepath.Dir(p.Path), 0o755)
	if err == nil {
		err = atomicfile.Write(p.Path, p.Content, 0o644)
	}
	if err != nil {
		return Unchanged, fmt.Errorf("network configuration list: %w", err)
	}
	return Written, nil
}

// Remove withdraws the list: for good when the agent is removed from the node. An agent that only ends leaves the list where it is, because
// its successor serves the calls.
func (p *Publisher) Remove() (Change, error) {
	err := os.Remove(p.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Unchanged, nil
	case err != nil:
		return Unchanged, fmt.Errorf("network configuration list: %w", err)
	}
	if err := atomicfile.SyncFolder(filepath.Dir(p.Path)); err != nil {
		return Withdrawn, fmt.Errorf("network configuration list: %w", err)
	}
	return Withdrawn, nil
}

// Rivals returns the files that a runtime reads instead of the list, because their names come first.
func (p *Publisher) Rivals() ([]string, error) {
	dir, own := filepath.Split(p.Path)
	entries, err := os.ReadDir(filepath.Clean(dir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("network configuration list: %w", err)
	}
	var out []string
	for _, e := range entries {
		if e.Name() < own && !e.IsDir() && slices.Contains([]string{".conf", ".conflist", ".json"}, filepath.Ext(e.Name())) {
			out = append(out, filepath.Join(dir, e.Name()))
		}
	}
	return out, nil
}

// InstallPlugin copies the plugin's program into the folder of CNI plugins (/opt/cni/bin), if the file there differs. Calls in progress
// continue with the old program.
func InstallPlugin(program, dir string) (Change, error) {
	content, err := os.ReadFile(program)
	if err != nil {
		return Unchanged, fmt.Errorf("CNI plugin: %w", err)
	}
	path := filepath.Join(dir, ProgramName)
	if have, err := os.ReadFile(path); err == nil && bytes.Equal(have, content) {
		if info, err := os.Stat(path); err == nil && info.Mode().Perm() == 0o755 {
			return Unchanged, nil
		}
	}
	err = os.MkdirAll(dir, 0o755)
	if err == nil {
		err = atomicfile.Write(path, content, 0o755)
	}
	if err != nil {
		return Unchanged, fmt.Errorf("CNI plugin: %w", err)
	}
	return Written, nil
}
