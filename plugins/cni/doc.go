// Package cni turns the calls of the CNI plugin into calls of a Network, and the node's readiness into its network configuration list.
//
// Invariant: calls for one container are carried out one after the other, and a DEL wins over every ADD that began before it.
package cni

import (
	"context"

	"github.com/contiv-agent/contiv-agent/plugins/cni/protocol"
)

// Network connects pods. Errors are *protocol.Error, or get the code 999. It is safe for concurrent use; no two calls for one container
// are in progress at a time.
//
// A call whose context ends returns soon. An Add that fails may leave parts: the server
// calls Delete after it.
type Network interface {
	// Add connects a sandbox. It returns when VPP has acknowledged interface, addresses, routes and policy lists, and not before. For an
	// attachment that exists, it returns its result again. An Add whose addresses (r.IPs) another attachment still has fails with the code
	// 11.
	Add(ctx context.Context, r protocol.Request) (*protocol.Result, error)
	// Delete removes everything of an attachment. It returns nil if that has happened, or if it will happen in spite of a restart of the
	// agent and before any other attachment gets its addresses. An unknown attachment is a success. r.Netns may be empty; of a DEL that was
	// recorded while no agent ran, only the attachment may be known.
	Delete(ctx context.Context, r protocol.Request) error
	// Check returns an error if the attachment does not have what its Add returned. previous may be nil.
	Check(ctx context.Context, r protocol.Request, previous *protocol.Result) error
	// Status returns why no Add can be served, with the code 50, or why existing pods have limited connectivity, with the code 51. It
	// returns at once.
	Status(ctx context.Context) error
	// Collect removes everything that belongs to none of the valid attachments.
	Collect(ctx context.Context, valid []protocol.Attachment) error
}
