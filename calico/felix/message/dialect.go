package message

import (
	"iter"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/model"
	pb "github.com/contiv-agent/contiv-agent/proto/felix"
)

// Dialect is the form in which a Felix names policies.
type Dialect uint8

// The dialects. Felix v3.32 changed the names of policies on the wire, with the same field numbers:
//
//	                     up to v3.31                       from v3.32
//	PolicyID             1 tier, 2 name ("ns/name")        2 name, 3 namespace, 4 kind
//	Policy                                                 8 tier
//	TierInfo             2, 3 names                        2, 3 PolicyIDs
//
// (felix/proto/felixbackend.proto of v3.31.0, v3.32.0 and v3.32.1.)
const (
	DialectUnknown Dialect = iota // no message named a policy yet
	DialectTier                   // up to v3.31: unique within a tier
	DialectKind                   // from v3.32: by kind, namespace and name
)

// String returns "unknown", "v3.31" or "v3.32".
func (d Dialect) String() string {
	return [...]string{"unknown", "v3.31", "v3.32"}[d]
}

// policyKey is a policy's name in the dialect of v3.32.
type policyKey struct{ kind, namespace, name string }

// kindOf returns the model's kind for a kind as Felix v3.32 writes it.
func kindOf(written string) model.PolicyKind {
	if kind, ok := model.PolicyKindStored(written); ok {
		return kind
	}
	return model.PolicyKind(written)
}

// legacy returns the policy's name in the dialect of v3.31, which the rest of the program uses. It is the name that Felix
// v3.31 gives, so that an upgrade of Felix changes nothing in VPP. If another policy could have that name, it also contains
// the kind, behind a colon, which no Kubernetes name contains.
func (k policyKey) legacy(tier string) string {
	id := model.PolicyID{Kind: kindOf(k.kind), Namespace: k.namespace, Name: k.name}
	name := id.FelixName(tier)
	if model.PolicyIDOf(tier, name) == id {
		return name
	}
	name = k.kind + ":" + k.name
	if kind, _ := id.Kind.Info(); kind.Staged {
		name = "staged:" + name
	}
	if k.namespace != "" {
		name = k.namespace + "/" + name
	}
	return name
}

// tierOf returns a tier's name; on the wire the default tier may have none.
func tierOf(name string) string {
	if name == "" {
		return model.TierDefault
	}
	return name
}

// Decoder turns frames into messages of the v3.31 dialect.
type Decoder struct {
	Dialect Dialect // of the names decoded so far
	lists   *tierLists
	hot     reader
	tiers   map[policyKey][]string // the tiers of each known policy: several if it moved and was not removed since
}

// NewDecoder returns a decoder for the frames of one connection.
func NewDecoder() *Decoder {
	return &Decoder{lists: listsOf(), tiers: map[policyKey][]string{}, hot: reader{protocols: map[string]*pb.Protocol{}}}
}

// Decode returns the messages of a frame. It is one message, except for v3.32 policies that moved to another tier, and for
// removals of unknown policies.
func (d *Decoder) Decode(payload []byte) ([]*pb.ToDataplane, error) {
	m := d.hot.readMessage(payload)
	if m == nil {
		m = &pb.ToDataplane{}
		if err := proto.Unmarshal(d.rename(payload), m); err != nil {
			return nil, err
		}
	}
	switch p := m.Payload.(type) {
	case *pb.ToDataplane_ActivePolicyUpdate:
		if key, is := d.keyOf(p.ActivePolicyUpdate.GetId()); is {
			return d.policy(m.SequenceNumber, key, p.ActivePolicyUpdate.GetPolicy()), nil
		}
	case *pb.ToDataplane_ActivePolicyRemove:
		if key, is := d.keyOf(p.ActivePolicyRemove.GetId()); is {
			return d.policyGone(m.SequenceNumber, key), nil
		}
	case *pb.ToDataplane_RouteUpdate:
		typesOf(p.RouteUpdate)
	}
	return []*pb.ToDataplane{m}, nil
}

// keyOf returns a policy's name if it is of the v3.32 dialect, and records the dialect.
func (d *Decoder) keyOf(id *pb.PolicyID) (policyKey, bool) {
	key := policyKey{kind: unknownString(id, 4), namespace: unknownString(id, 3), name: id.GetName()}
	if id.GetTier() != "" || key.kind == "" && key.namespace == "" {
		if id.GetTier() != "" {
			d.Dialect = DialectTier
		}
		return policyKey{}, false
	}
	d.Dialect = DialectKind
	return key, true
}

// unknownString returns a string field that the message type does not have; the last occurrence counts, as for all fields.
func unknownString(m proto.Message, number protowire.Number) string {
	out := ""
	for f := range fields(m.ProtoReflect().GetUnknown()) {
		if f.number == number && f.Kind == protowire.BytesType {
			out = string(f.Value)
		}
	}
	return out
}

// field is one field of an encoded message.
type field struct {
	number protowire.Number
	Kind   protowire.Type
	Value  []byte // without its length
	raw    []byte // with tag and length
}

// fields yields the fields of an encoded message, up to the first bytes that are not a field.
func fields(b []byte) iter.Seq[field] {
	return func(yield func(field) bool) {
		for len(b) > 0 {
			n, t, size := protowire.ConsumeTag(b)
			if size < 0 {
				return
			}
			used := protowire.ConsumeFieldValue(n, t, b[size:])
			if used < 0 {
				return
			}
			f := field{number: n, Kind: t, Value: b[size : size+used], raw: b[:size+used]}
			if t == protowire.BytesType {
				f.Value, _ = protowire.ConsumeBytes(f.Value)
			}
			if !yield(f) {
				return
			}
			b = b[size+used:]
		}
	}
}

// policy handles an update of a v3.32 policy. A policy that moved to another tier stays known in the old tier until it is
// removed: endpoints refer to it there until their own updates.
func (d *Decoder) policy(seq uint64, key policyKey, p *pb.Policy) []*pb.ToDataplane {
	tier := tierOf(unknownString(p, 8))
	if !slices.Contains(d.tiers[key], tier) {
		d.tiers[key] = append(d.tiers[key], tier)
	}
	var out []*pb.ToDataplane
	for _, tier := range d.tiers[key] {
		out = append(out, &pb.ToDataplane{SequenceNumber: seq, Payload: &pb.ToDataplane_ActivePolicyUpdate{
			ActivePolicyUpdate: &pb.ActivePolicyUpdate{Id: &pb.PolicyID{Tier: tier, Name: key.legacy(tier)}, Policy: p},
		}})
	}
	return out
}

func (d *Decoder) policyGone(seq uint64, key policyKey) []*pb.ToDataplane {
	var out []*pb.ToDataplane
	for _, tier := range d.tiers[key] {
		out = append(out, &pb.ToDataplane{SequenceNumber: seq, Payload: &pb.ToDataplane_ActivePolicyRemove{
			ActivePolicyRemove: &pb.ActivePolicyRemove{Id: &pb.PolicyID{Tier: tier, Name: key.legacy(tier)}},
		}})
	}
	delete(d.tiers, key)
	return out
}

// typesOf reads a route's type as Felix wrote it up to v3.28: one of 0 … 6 in field 1, instead of a sum in field 12.
func typesOf(r *pb.RouteUpdate) {
	for f := range fields(r.ProtoReflect().GetUnknown()) {
		if f.number != 1 || f.Kind != protowire.VarintType || r.Types != 0 {
			continue
		}
		if v, _ := protowire.ConsumeVarint(f.Value); v >= 1 && v <= 6 {
			r.Types = pb.RouteType(1 << (v - 1))
		}
	}
}

// tierLists is a tree of the fields in which a message contains lists of policies, down to TierInfo.
type tierLists struct {
	below map[protowire.Number]*tierLists
	info  bool // this field is a TierInfo
}

// listsOf returns the tree for ToDataplane.
func listsOf() *tierLists {
	info := &tierLists{info: true}
	host := &tierLists{below: map[protowire.Number]*tierLists{3: info, 6: info, 7: info, 8: info}}
	workload := &tierLists{below: map[protowire.Number]*tierLists{7: info}}
	return &tierLists{below: map[protowire.Number]*tierLists{
		9:  {below: map[protowire.Number]*tierLists{3: host}},
		11: {below: map[protowire.Number]*tierLists{5: workload}},
	}}
}

// rename replaces the PolicyIDs in v3.32's lists of policies with v3.31's names. It must run before the message is decoded
// as v3.31: there the field is a string, here it is a message whose bytes need not be valid text. It stops at bytes that
// are not a message; the decoder then reports them.
func (d *Decoder) rename(payload []byte) []byte {
	for f := range fields(payload) {
		if d.lists.below[f.number] != nil {
			return d.renameIn(payload, d.lists)
		}
	}
	return payload
}

func (d *Decoder) renameIn(b []byte, at *tierLists) []byte {
	tier := ""
	if at.info {
		for f := range fields(b) {
			if f.number == 1 && f.Kind == protowire.BytesType {
				tier = string(f.Value)
			}
		}
	}
	out, rest := make([]byte, 0, len(b)), b
	for f := range fields(b) {
		rest = rest[len(f.raw):]
		below := at.below[f.number]
		key, is := policyKey{}, false
		if at.info && (f.number == 2 || f.number == 3) && f.Kind == protowire.BytesType {
			key, is = policyKeyIn(f.Value)
		}
		switch {
		case below != nil && f.Kind == protowire.BytesType:
			out = protowire.AppendBytes(protowire.AppendTag(out, f.number, f.Kind), d.renameIn(f.Value, below))
		case is:
			d.Dialect = DialectKind
			out = protowire.AppendString(protowire.AppendTag(out, f.number, f.Kind), key.legacy(tierOf(tier)))
		default:
			out = append(out, f.raw...)
		}
	}
	return append(out, rest...)
}

// policyKeyIn reads a v3.32 PolicyID from a list of policies, where v3.31 has a name. A PolicyID starts with the tag of one
// of its fields, a control character, which names do not contain.
func policyKeyIn(b []byte) (policyKey, bool) {
	var key policyKey
	size := 0
	for f := range fields(b) {
		if f.Kind != protowire.BytesType {
			return key, false
		}
		switch f.number {
		case 2:
			key.name = string(f.Value)
		case 3:
			key.namespace = string(f.Value)
		case 4:
			key.kind = string(f.Value)
		}
		size += len(f.raw)
	}
	return key, size == len(b) && key != policyKey{} && b[0] < ' '
}
