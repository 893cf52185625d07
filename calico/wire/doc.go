// Package wire turns the messages between a fan-out server and its clients into bytes and back. The server is this
// program's or Calico's Typha; clients are this program's agents, Calico's Felix, BIRD's confd and others.
//
// Invariant: encoding/gob, with types registered under the frozen names, reads what Encoder writes, and Decoder reads what
// encoding/gob writes. No input makes a Decoder use more memory than a few times its limit.
//
// # The conversation
//
//	client                                         server, TCP or mutual TLS, port 5473
//	  ClientHello ─────────────────────────────▶   within 10 s of the connection
//	  ◀───────────────────────────── ServerHello   echoes the syncer type; a client refuses another one
//	  ◀────────────────────────── DecoderRestart   only if the hello allows it; names the compression to come
//	  ACK ─────────────────────────────────────▶   the old stream is drained, a new decoder is ready
//	  ◀──── KVs × n, DecoderRestart (a separate stream: the same bytes for every client)
//	  ACK ─────────────────────────────────────▶
//	  ◀──── SyncStatus, KVs, Ping … (a third stream, until the end)
//	  Pong ────────────────────────────────────▶   for every Ping; this direction is never compressed nor restarted
//
// A client without SupportsDecoderRestart, or without a compression that the server knows, gets ServerHello, KVs,
// SyncStatus, Ping … as one plain stream.
//
// A client that received InSync has received every existing key. Keys that it has not received, or received as deleted, do
// not exist. A KV without a value is a delete; a client may receive one for a key it never had.
//
// # The formats
//
// A message is a gob of Envelope{Message any}: the length, the envelope's type number, the frozen name of the message's
// type, its number, its length, its fields. Separate frames define the types before their first use, once in each stream.
// gob identifies fields by name, so this package chooses the numbers, the same in every stream it writes. Apart from the
// definitions a frame therefore means the same in every stream: one KVs can be encoded and compressed once and sent to
// thousands of clients. AppendDefinitions, AppendMessage, AppendKV and AppendKVs write these parts.
//
// This package does not use encoding/gob. Its registry of names is per process, so that no program could use both this
// package and Calico's; its streams are bound to a connection; and its decoder trusts lengths up to a gigabyte.
//
// Keys are paths as Calico writes them to etcd ("/calico/v1/policy/…"), values are JSON or, for a few, bare text; to this
// package both are opaque. Compression is snappy's framing format, chunks of at most 64 KiB.
//
// # Rules for upgrading
//
//   - The names of messages on the wire never change, whatever becomes of Go's own names.
//   - A field may be added to any message: a peer without the field ignores it, and a peer that misses it reads zero. Zero must mean the
//     behaviour before the field.
//   - A field never gets another meaning or type, nor does its name denote another field.
//   - A new message is sent only to a peer whose hello announces it: gob ends the connection at an unknown name. The hello gets a
//     Supports… field for it.
//   - Nothing of a new format is sent before the other side has acknowledged that it has drained the old one.
//   - Keys and values follow the rules of the data model: the client skips unknown keys and reports them. Where a key itself changed (names
//     of policies since 3.32) the hello announces the form that the client understands (SupportsModernPolicyKeys), and a server keeps both
//     forms or refuses.
//   - Keys that Calico does not know begin with /contiv/, and are sent only to a client whose hello has Info "contiv-agent".
package wire
