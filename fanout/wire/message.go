package wire

import (
	"fmt"
	"time"
)

// Port is where servers listen unless told otherwise.
const Port = 5473

// Snappy is the one name of a compression there is; "" is none.
const Snappy = "snappy"

// SyncerType says which set of keys a client follows.
type SyncerType string

// The sets of keys of Calico 3.31: what Felix needs, what BIRD's confd needs, what allocates tunnel addresses, and what
// reports on nodes.
const (
	Felix      SyncerType = "felix"
	BGP        SyncerType = "bgp"
	TunnelIP   SyncerType = "tunnel-ip-allocation"
	NodeStatus SyncerType = "node-status"
)

// SyncerTypes returns all sets of keys, in a fixed order.
func SyncerTypes() []SyncerType { return []SyncerType{Felix, BGP, TunnelIP, NodeStatus} }

// Message is what travels between client and server: one of the types below, by value.
type Message interface{ kind() kind }

// ClientHello is the first message of a client.
type ClientHello struct {
	Hostname, Info, Version string
	// SyncerType is the set of keys wanted; "" is Felix (clients before 3.3).
	SyncerType SyncerType
	// SupportsDecoderRestart allows DecoderRestart, and with it compression.
	SupportsDecoderRestart         bool
	SupportedCompressionAlgorithms []string
	// ClientConnID is any number that names this connection in the client's log.
	ClientConnID uint64
	// SupportsModernPolicyKeys says that the client reads /calico/v1/policy/<kind>/<namespace>/<name>, as 3.32 writes it.
	SupportsModernPolicyKeys bool
}

// OwnInfo is what the hellos of our own clients have as Info: they read OwnKeys, too. The field is free text; Calico's clients
// write when they were built.
const OwnInfo = "contiv-agent"

// OwnKeys begins keys that Calico does not know. Its clients would log an error for each, so they are not told them.
const OwnKeys = "/contiv/"

// Own tells whether a client is one of ours.
func (h *ClientHello) Own() bool { return h.Info == OwnInfo }

// ServerHello answers ClientHello.
type ServerHello struct {
	Version string
	// SyncerType is the client's; "" comes from servers that know Felix only.
	SyncerType SyncerType
	// SupportsNodeResourceUpdates is true of every server since 3.6; clients leave where it is false.
	SupportsNodeResourceUpdates bool
	// ServerConnID names this connection in the server's log.
	ServerConnID uint64
}

// DecoderRestart is the last message of a stream: the next one is compressed like this, and begins after an ACK.
type DecoderRestart struct {
	// Message says why, for people.
	Message string
	// CompressionAlgorithm is Snappy or "".
	CompressionAlgorithm string
}

// ACK answers DecoderRestart.
type ACK struct{}

// SyncStatus tells how complete the keys are that were sent so far.
type SyncStatus struct{ SyncStatus Status }

// Status is how complete keys are.
type Status uint8

// The statuses, in the order in which they are passed through.
const (
	WaitForDatastore Status = iota
	ResyncInProgress
	InSync
)

// String is the name Calico logs.
func (s Status) String() string {
	switch s {
	case WaitForDatastore:
		return "wait-for-ready"
	case ResyncInProgress:
		return "resync"
	case InSync:
		return "in-sync"
	}
	return fmt.Sprintf("status-%d", uint8(s))
}

// Ping is to be answered by a Pong with the same timestamp.
type Ping struct{ Timestamp time.Time }

// Pong answers Ping. Felix leaves PongTimestamp zero.
type Pong struct{ PingTimestamp, PongTimestamp time.Time }

// KVs are changes of keys, in order.
type KVs struct{ KVs []KV }

// KV is one change of a key.
type KV struct {
	Key string
	// Value is nil or empty for a delete.
	Value []byte
	// Revision is the datastore's, in whatever form it had; numbers are written in decimals. "" is none.
	Revision string
	// V3ResourceVersion is the resource version of a Calico resource, which is left out of its Value, so that equal values
	// are equal bytes.
	V3ResourceVersion string
	TTL               time.Duration
	UpdateType        UpdateType
}

// Deleted tells whether the change is a delete.
func (kv *KV) Deleted() bool { return len(kv.Value) == 0 }

// UpdateType says what a KV does to its key.
type UpdateType uint8

// The types of updates.
const (
	Unknown UpdateType = iota
	New
	Updated
	Deleted
)

// String is one lower-case word.
func (u UpdateType) String() string {
	switch u {
	case New:
		return "new"
	case Updated:
		return "updated"
	case Deleted:
		return "deleted"
	}
	return "unknown"
}

// Batch is what a source of keys tells at once: changes of one set of keys, and how complete the set is after them.
// Sources are told apart from servers by it: whatever can call a func(Batch) can feed one.
type Batch struct {
	Syncer SyncerType
	// Modern says that policies have the keys of 3.32; a source may tell both forms, as two sets.
	Modern bool
	// Status is the source's after KVs. A source that has lost its own source and still holds what it had stays InSync.
	Status Status
	// KVs are in order; a key may come twice. UpdateType is ignored. Values belong to the receiver and are never written to.
	KVs []KV
}

// kind numbers the types of messages.
type kind int

const (
	kindClientHello kind = iota
	kindServerHello
	kindDecoderRestart
	kindACK
	kindSyncStatus
	kindPing
	kindPong
	kindKVs
	kinds int = iota
)

func (ClientHello) kind() kind    { return kindClientHello }
func (ServerHello) kind() kind    { return kindServerHello }
func (DecoderRestart) kind() kind { return kindDecoderRestart }
func (ACK) kind() kind            { return kindACK }
func (SyncStatus) kind() kind     { return kindSyncStatus }
func (Ping) kind() kind           { return kindPing }
func (Pong) kind() kind           { return kindPong }
func (KVs) kind() kind            { return kindKVs }

// frozen is what all messages' names begin with: the path their types once had.
const frozen = "github.com/projectcalico/typha/pkg/syncproto."

// name is the name of a kind of message after the frozen beginning.
func (k kind) name() string {
	return [...]string{
		"MsgClientHello", "MsgServerHello", "MsgDecoderRestart", "MsgACK", "MsgSyncStatus", "MsgPing", "MsgPong", "MsgKVs",
	}[k]
}
