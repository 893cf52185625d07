// Package wire turns the messages between a fan-out server (ours, or Calico's Typha) and its clients (our agents, or
// Calico's Felix, BIRD's and others) into bytes and back.
//
// Invariant: what Encoder writes, encoding/gob reads into types registered under the frozen names, and the other way
// round; no input, however long or wrong, makes a Decoder use more memory than a few times its limit.
//
// # The conversation
//
//	client                                         server, TCP or mutual TLS, port 5473
//	  ClientHello ─────────────────────────────▶   within 10 s of the connection
//	  ◀───────────────────────────── ServerHello   echoes the syncer type; a client refuses another one
//	  ◀────────────────────────── DecoderRestart   only if the hello allows it; names the compression to come
//	  ACK ─────────────────────────────────────▶   the old stream is drained, a new decoder is ready
//	  ◀──── KVs × n, DecoderRestart (a stream of its own: the same bytes for every client)
//	  ACK ─────────────────────────────────────▶
//	  ◀──── SyncStatus, KVs, Ping … (a third stream, until the end)
//	  Pong ────────────────────────────────────▶   for every Ping; this direction is never compressed nor restarted
//
// A client without SupportsDecoderRestart, or without a compression that the server knows, gets ServerHello, KVs,
// SyncStatus, Ping … as one plain stream.
//
// Whoever hears InSync has been told every key there is. Keys that a client has never been told, or has been told as
// deleted, do not exist. A KV without a value is a delete, and may come for a key the client never heard of.
//
// # The formats
//
// A message is a gob of Envelope{Message any}: the length, the envelope's type number, the frozen name of the message's
// type, its number, its length, its fields. Types are defined by frames of their own before their first use, once in each
// stream; gob tells fields by their names, so the numbers are ours to choose and are the same in every stream we write.
// Apart from the definitions a frame therefore means the same in every stream: one KVs can be encoded and compressed
// once and be sent to thousands of clients. AppendDefinitions, AppendMessage, AppendKV and AppendKVs give these parts.
//
// encoding/gob itself is not used here. Its registry of names is one per process, so that no program could hold this
// package and Calico's; its streams are bound to a connection; and its decoder trusts lengths up to a gigabyte.
//
// Keys are paths as Calico writes them to etcd ("/calico/v1/policy/…"), values are JSON or, for a few, bare text; to this
// package both are opaque. Compression is snappy's framing format, chunks of at most 64 KiB.
//
// # Rules for upgrading
//
//   - The names under which messages travel never change, whatever becomes of Go's own names.
//   - A field may be added to any message: who does not know it ignores it, who misses it sees zero. Zero must mean what
//     was before the field.
//   - A field is never given another meaning or type, nor its name to another field.
//   - A new message is sent only to a peer whose hello says that it knows it: gob ends the connection at a name it does not
//     know. The hello gets a Supports… field for it.
//   - Nothing of a new format is sent before the other side has acknowledged that it has drained the old one.
//   - Keys and values have their own rules, those of the data model: unknown keys are skipped by the client and said so.
//     Where a key itself changed (names of policies since 3.32) the hello says which form the client understands
//     (SupportsModernPolicyKeys), and a server keeps both forms or says no.
//   - Keys that Calico does not know begin with /contiv/, and are told only to a client whose hello has Info "contiv-agent".
package wire
