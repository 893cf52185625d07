package message

import (
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	pb "github.com/contiv-agent/contiv-agent/proto/felix"
)

// part is one field of an encoded message: a number or a text, which is a substring of the message.
type part struct {
	number uint32
	kind   protowire.Type
	value  uint64
	text   string
	raw    string // with tag and length
}

// is reports whether the field has that number and is a text.
func (p *part) is(number uint32) bool { return p.number == number && p.kind == protowire.BytesType }

// cut splits the first field off a message. It returns false for a field that is neither a number nor a text of usual size.
func (p *part) cut(b string) (rest string, ok bool) {
	tag, used := varint(b)
	if used == 0 || used != protowire.SizeVarint(tag) { // protobuf re-encodes an unknown field's tag in as few bytes as possible
		return b, false
	}
	p.number, p.kind = uint32(tag>>3), protowire.Type(tag&7)
	v, more := varint(b[used:])
	if more == 0 || p.number == 0 {
		return b, false
	}
	used += more
	switch p.kind {
	case protowire.VarintType:
		p.value, p.text = v, ""
	case protowire.BytesType:
		if v > uint64(len(b)-used) {
			return b, false
		}
		p.value, p.text = 0, b[used:used+int(v)]
		used += int(v)
	default:
		return b, false
	}
	p.raw = b[:used]
	return b[used:], true
}

// policyRoom holds what every policy update needs, in one allocation.
type policyRoom struct {
	message pb.ToDataplane
	payload pb.ToDataplane_ActivePolicyUpdate
	update  pb.ActivePolicyUpdate
	id      pb.PolicyID
	policy  pb.Policy
}

// mostProtocols bounds the cache of protocols.
const mostProtocols = 64

// policyUpdate decodes a policy update with few allocations; its texts are substrings of one string.
func (r *reader) policyUpdate(sequence uint64, body string) *pb.ToDataplane {
	room := &policyRoom{}
	if !r.decodeUpdate(room, body) {
		return nil
	}
	room.payload.ActivePolicyUpdate = &room.update
	room.message.Payload, room.message.SequenceNumber = &room.payload, sequence
	return &room.message
}

// decodeUpdate decodes an ActivePolicyUpdate.
func (r *reader) decodeUpdate(room *policyRoom, b string) bool {
	var p part
	for ok := true; len(b) > 0; {
		if b, ok = p.cut(b); !ok {
			return false
		}
		switch {
		case p.is(1) && room.update.Id == nil && readPolicyID(&room.id, p.text):
			room.update.Id = &room.id
		case p.is(2) && room.update.Policy == nil && r.policy(&room.policy, p.text):
			room.update.Policy = &room.policy
		default:
			return false
		}
	}
	return true
}

// readPolicyID decodes a PolicyID. v3.32's fields stay unknown fields, as with protobuf.
func readPolicyID(id *pb.PolicyID, b string) bool {
	var p part
	var unknown []byte
	for ok := true; len(b) > 0; {
		if b, ok = p.cut(b); !ok {
			return false
		}
		switch {
		case p.is(1):
			id.Tier, ok = validText(p.text)
		case p.is(2):
			id.Name, ok = validText(p.text)
		case p.number > 2:
			unknown = append(unknown, p.raw...)
		default:
			return false
		}
		if !ok {
			return false
		}
	}
	if unknown != nil {
		id.ProtoReflect().SetUnknown(unknown)
	}
	return true
}

func validText(s string) (string, bool) { return s, utf8.ValidString(s) }

// shelf is one array of things from which growing lists are cut, one after the other.
type shelf[T any] struct {
	things []T
	used   int
	last   *[]T // the list that grows now
}

func newShelf[T any](n int) shelf[T] {
	if n == 0 {
		return shelf[T]{}
	}
	return shelf[T]{things: make([]T, n)}
}

// appendTo appends to a list.
func (s *shelf[T]) appendTo(list *[]T, thing T) {
	n := len(*list)
	if s.used == len(s.things) || n > 0 && s.last != list {
		*list = append(*list, thing)
		return
	}
	s.things[s.used] = thing
	s.used++
	*list, s.last = s.things[s.used-n-1:s.used:s.used], list
}

// shelves hold the parts of a policy's rules.
type shelves struct {
	texts shelf[string]
	ports shelf[*pb.PortRange]
	ends  []pb.PortRange // the unused ones
}

// policy decodes a Policy.
func (r *reader) policy(to *pb.Policy, b string) bool {
	in, out, texts, ports, ok := countRules(b)
	if !ok {
		return false
	}
	r.shelves = shelves{newShelf[string](texts), newShelf[*pb.PortRange](ports), make([]pb.PortRange, ports)}
	rules, refs := make([]pb.Rule, in+out), make([]*pb.Rule, in+out)
	for i := range rules {
		refs[i] = &rules[i]
	}
	if in > 0 {
		to.InboundRules = refs[:in:in]
	}
	if out > 0 {
		to.OutboundRules = refs[in:]
	}
	in, out = 0, in
	var p part
	var unknown []byte
	for len(b) > 0 && ok {
		b, _ = p.cut(b)
		switch {
		case p.is(1):
			ok = r.decodeRule(refs[in], p.text)
			in++
		case p.is(2):
			ok = r.decodeRule(refs[out], p.text)
			out++
		case p.number == 3 && p.kind == protowire.VarintType:
			to.Untracked = p.value != 0
		case p.number == 4 && p.kind == protowire.VarintType:
			to.PreDnat = p.value != 0
		case p.is(5):
			to.Namespace, ok = validText(p.text)
		case p.is(6):
			to.OriginalSelector, ok = validText(p.text)
		case p.is(7):
			to.PerfHints, ok = append(to.PerfHints, p.text), utf8.ValidString(p.text)
		case p.number > 7:
			unknown = append(unknown, p.raw...)
		default:
			return false
		}
	}
	if unknown != nil {
		to.ProtoReflect().SetUnknown(unknown)
	}
	return ok
}

// countRules counts the parts of a policy's rules. Fields that are not parts of rules may make the counts too high.
func countRules(b string) (in, out, texts, ports int, ok bool) {
	var p, q part
	for ok = true; len(b) > 0; {
		if b, ok = p.cut(b); !ok {
			return 0, 0, 0, 0, false
		}
		switch p.number {
		case 1:
			in++
		case 2:
			out++
		default:
			continue
		}
		for rule := p.text; len(rule) > 0; {
			if rule, ok = q.cut(rule); !ok {
				return 0, 0, 0, 0, false
			}
			switch q.number {
			case 5, 7, 104, 106:
				ports++
			case 4, 6, 10, 11, 12, 13, 15, 103, 105, 109, 110, 112, 113:
				texts++
			}
		}
	}
	return in, out, texts, ports, ok
}

// decodeRule decodes a Rule. It returns false also for content that few rules have.
func (r *reader) decodeRule(to *pb.Rule, b string) bool {
	var p part
	for ok := true; len(b) > 0; {
		if b, ok = p.cut(b); !ok {
			return false
		}
		if p.kind == protowire.VarintType {
			if p.number != 2 {
				return false
			}
			to.IpVersion = pb.IPVersion(p.value)
			continue
		}
		if at := textOf(to, p.number); at != nil {
			*at, ok = validText(p.text)
		} else if at := textsOf(to, p.number); at != nil {
			r.shelves.texts.appendTo(at, p.text)
			ok = utf8.ValidString(p.text)
		} else if at := portsOf(to, p.number); at != nil {
			ok = r.shelves.addPorts(at, p.text)
		} else {
			ok = r.protocolOf(to, p.number, p.text)
		}
		if !ok {
			return false
		}
	}
	return true
}

// textOf returns the rule's field for the text of that number; nil: no such field.
func textOf(r *pb.Rule, number uint32) *string {
	switch number {
	case 1:
		return &r.Action
	case 114:
		return &r.OriginalSrcSelector
	case 115:
		return &r.OriginalDstSelector
	case 116:
		return &r.OriginalSrcNamespaceSelector
	case 117:
		return &r.OriginalDstNamespaceSelector
	case 118:
		return &r.OriginalNotSrcSelector
	case 119:
		return &r.OriginalNotDstSelector
	case 130:
		return &r.OriginalDstService
	case 131:
		return &r.OriginalDstServiceNamespace
	case 132:
		return &r.OriginalSrcService
	case 133:
		return &r.OriginalSrcServiceNamespace
	case 201:
		return &r.RuleId
	}
	return nil
}

// textsOf returns the rule's field for the texts of that number; nil: no such field.
func textsOf(r *pb.Rule, number uint32) *[]string {
	switch number {
	case 4:
		return &r.SrcNet
	case 6:
		return &r.DstNet
	case 10:
		return &r.SrcIpSetIds
	case 11:
		return &r.DstIpSetIds
	case 12:
		return &r.SrcNamedPortIpSetIds
	case 13:
		return &r.DstNamedPortIpSetIds
	case 15:
		return &r.DstIpPortSetIds
	case 103:
		return &r.NotSrcNet
	case 105:
		return &r.NotDstNet
	case 109:
		return &r.NotSrcIpSetIds
	case 110:
		return &r.NotDstIpSetIds
	case 112:
		return &r.NotSrcNamedPortIpSetIds
	case 113:
		return &r.NotDstNamedPortIpSetIds
	}
	return nil
}

// portsOf returns the rule's field for the ports of that number; nil: no such field.
func portsOf(r *pb.Rule, number uint32) *[]*pb.PortRange {
	switch number {
	case 5:
		return &r.SrcPorts
	case 7:
		return &r.DstPorts
	case 104:
		return &r.NotSrcPorts
	case 106:
		return &r.NotDstPorts
	}
	return nil
}

func (s *shelves) addPorts(to *[]*pb.PortRange, b string) bool {
	var p part
	ports := &s.ends[0] // countRules made room
	s.ends = s.ends[1:]
	for ok := true; len(b) > 0; {
		if b, ok = p.cut(b); !ok || p.kind != protowire.VarintType {
			return false
		}
		switch p.number {
		case 1:
			ports.First = int32(p.value)
		case 2:
			ports.Last = int32(p.value)
		default:
			return false
		}
	}
	s.ports.appendTo(to, ports)
	return true
}

// protocolOf decodes a rule's protocol, if that field is one.
func (r *reader) protocolOf(rule *pb.Rule, number uint32, b string) bool {
	to := &rule.Protocol
	if number != 3 {
		to = &rule.NotProtocol
	}
	if number != 3 && number != 102 || *to != nil {
		return false
	}
	if *to = r.protocols[b]; *to != nil {
		return true
	}
	var p part
	rest, ok := p.cut(b)
	if !ok || rest != "" {
		return false
	}
	switch {
	case p.number == 1 && p.kind == protowire.VarintType:
		*to = &pb.Protocol{NumberOrName: &pb.Protocol_Number{Number: int32(p.value)}}
	case p.is(2) && utf8.ValidString(p.text):
		*to = &pb.Protocol{NumberOrName: &pb.Protocol_Name{Name: strings.Clone(p.text)}}
	default:
		return false
	}
	if len(r.protocols) < mostProtocols {
		r.protocols[strings.Clone(b)] = *to
	}
	return true
}
