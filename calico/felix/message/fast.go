package message

import (
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	pb "github.com/contiv-agent/contiv-agent/proto/felix"
)

// Numbers of the ToDataplane fields that are read here.
const (
	fieldIPSetUpdate = 2
	fieldIPSetDelta  = 3
	fieldPolicy      = 7
	fieldSequence    = 15
)

// reader decodes the frequent messages, sets and policies, without a separate string for each text: a set may have a
// million members.
type reader struct {
	protocols map[string]*pb.Protocol // decoded protocols, by their encoded bytes: there are few, and they are immutable
	shelves   shelves                 // of the policy being decoded
}

// readMessage returns nil for messages of other kinds, and for messages with unexpected or rare content. The caller then decodes
// with protobuf.
func (r *reader) readMessage(payload []byte) *pb.ToDataplane {
	var body []byte
	var kind protowire.Number
	var sequence uint64
	for len(payload) > 0 {
		n, t, size := protowire.ConsumeTag(payload)
		if size < 0 {
			return nil
		}
		payload = payload[size:]
		switch {
		case (n == fieldIPSetUpdate || n == fieldIPSetDelta || n == fieldPolicy) && t == protowire.BytesType && kind == 0:
			kind = n
			if body, size = protowire.ConsumeBytes(payload); size < 0 {
				return nil
			}
		case n == fieldSequence && t == protowire.VarintType:
			if sequence, size = protowire.ConsumeVarint(payload); size < 0 {
				return nil
			}
		default:
			return nil
		}
		payload = payload[size:]
	}
	if kind == fieldPolicy {
		return r.policyUpdate(sequence, string(body))
	}
	m := &pb.ToDataplane{SequenceNumber: sequence}
	if kind == 0 || !readMembers(m, kind == fieldIPSetDelta, string(body)) {
		return nil
	}
	return m
}

// readMembers decodes an IPSetUpdate or an IPSetDeltaUpdate; its strings are substrings of body.
func readMembers(m *pb.ToDataplane, delta bool, body string) bool {
	var counts [4]int
	if !eachString(body, func(n byte, _ string) { counts[n]++ }, func(uint64) { counts[0]++ }) {
		return false
	}
	if delta && counts[0] > 0 || !delta && counts[3] > 0 {
		return false
	}
	if delta {
		u := &pb.IPSetDeltaUpdate{AddedMembers: makeStrings(counts[2]), RemovedMembers: makeStrings(counts[3])}
		m.Payload = &pb.ToDataplane_IpsetDeltaUpdate{IpsetDeltaUpdate: u}
		return eachString(body, func(n byte, s string) {
			switch n {
			case 1:
				u.Id = s
			case 2:
				u.AddedMembers = append(u.AddedMembers, s)
			case 3:
				u.RemovedMembers = append(u.RemovedMembers, s)
			}
		}, func(uint64) {})
	}
	u := &pb.IPSetUpdate{Members: makeStrings(counts[2])}
	m.Payload = &pb.ToDataplane_IpsetUpdate{IpsetUpdate: u}
	return eachString(body, func(n byte, s string) {
		switch n {
		case 1:
			u.Id = s
		case 2:
			u.Members = append(u.Members, s)
		}
	}, func(v uint64) { u.Type = pb.IPSetUpdate_IPSetType(v) })
}

func makeStrings(n int) []string {
	if n == 0 {
		return nil
	}
	return make([]string, 0, n)
}

// eachString calls f with each string of a message whose fields are 1 to 3 with one-byte tags. It calls number for a field
// 3 that is a number. It returns false for any other content.
func eachString(body string, f func(n byte, s string), number func(uint64)) bool {
	for len(body) > 0 {
		tag := body[0]
		n, t := tag>>3, protowire.Type(tag&7)
		if n < 1 || n > 3 {
			return false
		}
		v, used := varint(body[1:])
		if used == 0 {
			return false
		}
		body = body[1+used:]
		switch {
		case t == protowire.VarintType && n == 3:
			number(v)
		case t == protowire.BytesType && v <= uint64(len(body)) && utf8.ValidString(body[:v]):
			f(n, body[:v])
			body = body[v:]
		default:
			return false
		}
	}
	return true
}

// varint reads a number of up to four bytes, enough for lengths; used is 0 if there is none.
func varint(s string) (v uint64, used int) {
	for i := 0; i < len(s) && i < 4; i++ {
		v |= uint64(s[i]&0x7f) << (7 * i)
		if s[i] < 0x80 {
			return v, i + 1
		}
	}
	return 0, 0
}
