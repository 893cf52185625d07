// Package cnitest turns calls of a CNI server into the parts of a modelled node: a Network for tests that fails, hangs and dies at any
// step.
//
// Invariant: parts survive the death of the agent that made them, as those in kernel, VPP and files do. A dead agent changes nothing.
package cnitest

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/contiv-agent/contiv-agent/plugins/cni/protocol"
	"github.com/contiv-agent/contiv-agent/plugins/ipam"
)

// The parts of an attachment, in the order in which an Add makes them. A Delete removes them in the reverse order.
const (
	Intent    = "intent"    // the agent's file has the attachment
	Address   = "address"   // allocated
	Veth      = "veth"      // in the sandbox; the kernel removes it with the sandbox
	Interface = "interface" // in VPP
	Lists     = "lists"     // policy lists of the interface
	Route     = "route"     // to the pod: packets reach it from now on
)

// Parts returns them in order.
func Parts() []string { return []string{Intent, Address, Veth, Interface, Lists, Route} }

// ErrDead is the error of every call of an agent that has died.
var ErrDead = errors.New("this agent is dead")

// World is a node: what exists beside the agent's process.
type World struct {
	// Before is called before each step of a call, without a lock: "add veth", "delete route". An error fails the step. nil: nothing fails.
	Before func(ctx context.Context, step string, a protocol.Attachment) error
	// Deaf makes calls ignore the end of their contexts.
	Deaf bool

	mu        sync.Mutex
	sandboxes map[string]bool
	parts     map[protocol.Attachment][]string
	delegated map[netip.Addr]protocol.Attachment // addresses of other IPAM plugins
	open      int                                // times that a route existed without lists
	pool      *ipam.Pool
	file      string
	cidrs     []netip.Prefix
	alive     *Network
	unready   error
}

// NewWorld returns a node without pods, whose agents keep addresses in a file.
func NewWorld(file string, cidrs ...netip.Prefix) *World {
	return &World{
		sandboxes: map[string]bool{}, parts: map[protocol.Attachment][]string{}, delegated: map[netip.Addr]protocol.Attachment{},
		file: file, cidrs: cidrs,
	}
}

// AddSandbox makes a network namespace.
func (w *World) AddSandbox(path string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sandboxes[path] = true
}

// RemoveSandbox removes a network namespace. The kernel removes the interfaces in it.
func (w *World) RemoveSandbox(path string, a protocol.Attachment) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.sandboxes, path)
	w.removePart(a, Veth)
}

// SetUnready sets the answer of Status.
func (w *World) SetUnready(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unready = err
}

// Left returns a line for each attachment that has parts or addresses, in order.
func (w *World) Left() (out []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for a, parts := range w.parts {
		out = append(out, fmt.Sprint(a, " ", parts))
	}
	for _, a := range w.pool.Attachments() {
		if len(w.parts[a]) == 0 {
			out = append(out, fmt.Sprint(a, " ", w.pool.Leases(a)))
		}
	}
	slices.Sort(out)
	return out
}

// Complete reports whether an attachment has all parts.
func (w *World) Complete(a protocol.Attachment) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.parts[a]) == len(Parts())
}

// Open returns how often a pod could be reached without its lists.
func (w *World) Open() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.open
}

// Start returns the Network of a new agent. The earlier agent is dead from now on. As a real one, the new agent first removes the
// attachments whose Add has not ended.
func (w *World) Start(now time.Time) (*Network, error) {
	w.Kill()
	w.mu.Lock()
	defer w.mu.Unlock()
	pool, err := ipam.Open(now, ipam.Config{File: w.file})
	if err != nil {
		return nil, err
	}
	if err := pool.SetCIDRs(w.cidrs); err != nil {
		return nil, err
	}
	w.pool = pool
	pool.Forget(pool.Waiting()...)
	n := &Network{world: w}
	w.alive = n
	for a, parts := range w.parts {
		if len(parts) < len(Parts()) && !slices.Equal(parts, without(Parts(), Veth)) {
			if err := n.removeAll(now, a); err != nil {
				return nil, err
			}
		}
	}
	return n, nil
}

// Kill ends the agent at once.
func (w *World) Kill() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.alive != nil {
		w.alive = nil
		_ = w.pool.Close()
	}
}

func (w *World) addPart(a protocol.Attachment, part string) {
	if slices.Contains(w.parts[a], part) {
		return
	}
	if part == Route && !slices.Contains(w.parts[a], Lists) {
		w.open++
	}
	w.parts[a] = append(w.parts[a], part)
}

func (w *World) removePart(a protocol.Attachment, part string) {
	w.parts[a] = without(w.parts[a], part)
	if part == Lists && slices.Contains(w.parts[a], Route) {
		w.open++
	}
	if len(w.parts[a]) == 0 {
		delete(w.parts, a)
	}
}

func without(list []string, part string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(p string) bool { return p == part })
}
