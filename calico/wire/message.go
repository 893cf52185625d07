package wire

import (
	"fmt"
	"time"
)

// Port is the default port of servers.
const Port = 5473

// Snappy is the only compression; "" is none.
const Snappy = "snappy"

// SyncerType is the name of a set of keys.
type SyncerType string

// The sets of keys of Calico 3.31: for Felix, for BIRD's confd, for the allocator of tunnel addresses, and for the reporter
// of node status.
const (
	Felix      SyncerType = "felix"
	BGP        SyncerType = "bgp"
	TunnelIP   SyncerType = "tunnel-ip-allocation"
	NodeStatus SyncerType = "node-status"
)

// SyncerTypes returns all sets of keys, in a fixed order.
func SyncerTypes() []SyncerType { return []SyncerType{Felix, BGP, TunnelIP, NodeStatus} }

// Message is one of the types below, by value.
type Message interface{ kind() kind }

// ClientHello is the first message of a client.
type ClientHello struct {
	Hostname, Info, Version string
	// SyncerType is the requested set of keys; "" is Felix (clients before 3.3).
	SyncerType SyncerType
	// SupportsDecoderRestart allows DecoderRestart, and with it compression.
	SupportsDecoderRestart         bool
	SupportedCompressionAlgorithms []string
	// ClientConnID is any number that identifies this connection in the client's log.
	ClientConnID uint64
	// SupportsModernPolicyKeys means that the client reads /calico/v1/policy/<kind>/<namespace>/<name>, as 3.32 writes it.
	SupportsModernPolicyKeys bool
}

// OwnInfo is the Info of this program's hellos: these clients also read OwnKeys. The field is free text; Calico's clients
// write their build date.
const OwnInfo = "contiv-agent"

// OwnKeys begins keys that Calico does not know. Calico's clients do not receive them, since they would log an error for
// each.
const OwnKeys = "/contiv/"

// Own reports whether the client is one of this program.
func (h *ClientHello) Own() bool { return h.Info == OwnInfo }

// ServerHello answers ClientHello.
type ServerHello struct {
	Version string
	// SyncerType is the client's; it is "" from servers that know Felix only.
	SyncerType SyncerType
	// SupportsNodeResourceUpdates is true for every server since 3.6; clients disconnect if it is false.
	SupportsNodeResourceUpdates bool
	// ServerConnID identifies this connection in the server's log.
	ServerConnID uint64
}

// DecoderRestart is the last message of a stream. The next stream has this compression and begins after an ACK.
type DecoderRestart struct {
	// Message is the reason, for humans.
	Message string
	// CompressionAlgorithm is Snappy or "".
	CompressionAlgorithm string
}

// ACK answers DecoderRestart.
type ACK struct{}

// SyncStatus reports how complete the keys are that were sent so far.
type SyncStatus struct{ SyncStatus Status }

// Status is how complete a set of keys is.
type Status uint8

// The statuses, in the order of progress.
const (
	WaitForDatastore Status = iota
	ResyncInProgress
	InSync
)

// String returns the name that Calico logs.
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

// Ping asks for a Pong with the same timestamp.
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
	// Revision is the datastore's revision in any form; numbers are written in decimal. "" is none.
	Revision string
	// V3ResourceVersion is the resource version of a Calico resource. Value omits it, so that equal values are equal bytes.
	V3ResourceVersion string
	TTL               time.Duration
	UpdateType        UpdateType
}

// Deleted reports whether the change is a delete.
func (kv *KV) Deleted() bool { return len(kv.Value) == 0 }

// UpdateType is what a KV does to its key.
type UpdateType uint8

// Types of updates.
const (
	Unknown UpdateType = iota
	New
	Updated
	Deleted
)

// String returns one lower-case word.
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

// Batch is what a source sends at once: changes of one set of keys, and how complete the set is after them. A source needs
// no other interface: whatever can call a func(Batch) can feed a server.
type Batch struct {
	Syncer SyncerType
	// Modern means that policies have the keys of 3.32; a source may send both forms, as two sets.
	Modern bool
	// Status is the source's status after KVs. A source that has lost its own source and still holds its keys stays InSync.
	Status Status
	// KVs are in order; a key may occur twice. UpdateType is ignored. Values belong to the receiver and must not be
	// modified.
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

// frozen begins all messages' names: it is the former path of their types.
const frozen = "github.com/projectcalico/typha/pkg/syncproto."

// name returns the name of a kind of message without the frozen prefix.
func (k kind) name() string {
	return [...]string{
		"MsgClientHello", "MsgServerHello", "MsgDecoderRestart", "MsgACK", "MsgSyncStatus", "MsgPing", "MsgPong", "MsgKVs",
	}[k]
}
