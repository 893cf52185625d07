// Package message turns the bytes of one frame from Felix into messages in the dialect of v3.31, and names what in them is incomplete or unknown.
//
// Invariant: messages of every Felix from v3.28 to v3.32 that mean the same decode to the same messages. Decoding with few allocations gives
// what protobuf gives, or leaves the message to protobuf.
package message
