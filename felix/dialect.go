package felix

import (
	"iter"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/model"
	pb "github.com/contiv-agent/contiv-agent/proto/felix"
)

// Dialect is how a Felix names policies.
type Dialect uint8

// The dialects. Felix changed how policies are named on the wire, with the same field numbers:
//
//	                     up to v3.31                       from v3.32
//	PolicyID             1 tier, 2 name ("ns/name")        2 name, 3 namespace, 4 kind
//	Policy                                                 8 tier
//	TierInfo             2, 3 names                        2, 3 PolicyIDs
//
// (felix/proto/felixbackend.proto of v3.31.0, v3.32.0 and v3.32.1.)
const (
	DialectUnknown Dialect = iota // no policy was named yet
	DialectTier                   // up to v3.31: unique within a tier
	DialectKind                   // from v3.32: by kind, namespace and name
)

// String is "unknown", "v3.31" or "v3.32".
func (d Dialect) String() string {
	return [...]string{"unknown", "v3.31", "v3.32"}[d]
}

// policyKey is a policy's name in the dialect of v3.32.
type policyKey struct{ kind, namespace, name string }

// kindOf is the kind that Felix v3.32 may call otherwise than we do.
func kindOf(written string) model.PolicyKind {
	switch written {
	case "KubernetesNetworkPolicy":
		return model.KindNetworkPolicy
	case "NetworkPolicy":
		return model.KindCalicoNetworkPolicy
	case "KubernetesClusterNetworkPolicy":
		return model.KindClusterNetworkPolicy
	case "KubernetesAdminNetworkPolicy":
		return model.KindAdminNetworkPolicy
	case "KubernetesBaselineAdminNetworkPolicy":
		return model.KindBaselinePolicy
	}
	return model.PolicyKind(written)
}

// legacy is the policy's name in the dialect of v3.31, in which everything else here speaks. It is the one Felix v3.31 gave it, so
// that a change of Felix changes nothing in VPP, unless another policy could have that name: then its kind is in it, behind a
// colon, which no name of Kubernetes has.
func (k policyKey) legacy(tier string) string {
	id := model.PolicyID{Kind: kindOf(k.kind), Namespace: k.namespace, Name: k.name}
	name := id.FelixName(tier)
	if model.PolicyIDOf(tier, name) == id {
		return name
	}
	name = k.kind + ":" + k.name
	switch id.Kind {
	case model.KindStagedKubernetesPolicy, model.KindStagedNetworkPolicy, model.KindStagedGlobalPolicy:
		name = "staged:" + name
	}
	if k.namespace != "" {
		name = k.namespace + "/" + name
	}
	return name
}

// tierOf is a tier by its name on the wire, where the default one may have none.
func tierOf(name string) string {
	if name == "" {
		return model.TierDefault
	}
	return name
}

// decoder turns what frames hold into messages in the words of v3.31.
type decoder struct {
	dialect Dialect
	lists   *tierLists
	hot     reader
	tiers   map[policyKey][]string // that a policy is known in: more than one if it moved and was not removed since
}

func newDecoder() *decoder {
	return &decoder{lists: listsOf(), tiers: map[policyKey][]string{}, hot: reader{protocols: map[string]*pb.Protocol{}}}
}

// decode returns the messages a frame stands for: one, but for policies of v3.32 that moved to another tier, and for removals of
// policies nobody knows.
func (d *decoder) decode(payload []byte) ([]*pb.ToDataplane, error) {
	m := d.hot.read(payload)
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

// keyOf is the name of a policy if it is one of v3.32; it notes the dialect.
func (d *decoder) keyOf(id *pb.PolicyID) (policyKey, bool) {
	key := policyKey{kind: unknownString(id, 4), namespace: unknownString(id, 3), name: id.GetName()}
	if id.GetTier() != "" || key.kind == "" && key.namespace == "" {
		if id.GetTier() != "" {
			d.dialect = DialectTier
		}
		return policyKey{}, false
	}
	d.dialect = DialectKind
	return key, true
}

// unknownString is a string among the fields a message has no name for; the last counts, as for all others.
func unknownString(m proto.Message, number protowire.Number) string {
	out := ""
	for f := range fields(m.ProtoReflect().GetUnknown()) {
		if f.number == number && f.kind == protowire.BytesType {
			out = string(f.value)
		}
	}
	return out
}

// field is one field of a message as it is on the wire.
type field struct {
	number protowire.Number
	kind   protowire.Type
	value  []byte // without its length
	raw    []byte // all of it
}

// fields are those of a message, up to what is none.
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
			f := field{number: n, kind: t, value: b[size : size+used], raw: b[:size+used]}
			if t == protowire.BytesType {
				f.value, _ = protowire.ConsumeBytes(f.value)
			}
			if !yield(f) {
				return
			}
			b = b[size+used:]
		}
	}
}

// policy is an update of a policy of v3.32. One that moved to another tier stays known in the old one until it goes: there are
// endpoints that have it there until they are told again.
func (d *decoder) policy(seq uint64, key policyKey, p *pb.Policy) []*pb.ToDataplane {
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

func (d *decoder) policyGone(seq uint64, key policyKey) []*pb.ToDataplane {
	var out []*pb.ToDataplane
	for _, tier := range d.tiers[key] {
		out = append(out, &pb.ToDataplane{SequenceNumber: seq, Payload: &pb.ToDataplane_ActivePolicyRemove{
			ActivePolicyRemove: &pb.ActivePolicyRemove{Id: &pb.PolicyID{Tier: tier, Name: key.legacy(tier)}},
		}})
	}
	delete(d.tiers, key)
	return out
}

// typesOf reads the type of a route as Felix wrote it up to v3.28: one of 0 … 6 in field 1, in place of a sum in field 12.
func typesOf(r *pb.RouteUpdate) {
	for f := range fields(r.ProtoReflect().GetUnknown()) {
		if f.number != 1 || f.kind != protowire.VarintType || r.Types != 0 {
			continue
		}
		if v, _ := protowire.ConsumeVarint(f.value); v >= 1 && v <= 6 {
			r.Types = pb.RouteType(1 << (v - 1))
		}
	}
}

// tierLists leads to the lists of policies in a message: from field to field, until a TierInfo.
type tierLists struct {
	below map[protowire.Number]*tierLists
	info  bool // this is a TierInfo
}

// listsOf is where the lists of policies are in a ToDataplane.
func listsOf() *tierLists {
	info := &tierLists{info: true}
	host := &tierLists{below: map[protowire.Number]*tierLists{3: info, 6: info, 7: info, 8: info}}
	workload := &tierLists{below: map[protowire.Number]*tierLists{7: info}}
	return &tierLists{below: map[protowire.Number]*tierLists{
		9:  {below: map[protowire.Number]*tierLists{3: host}},
		11: {below: map[protowire.Number]*tierLists{5: workload}},
	}}
}

// rename writes the names of v3.31 in place of the PolicyIDs that v3.32 has in lists of policies. It has to be done before the
// message is read as one of v3.31: what was a string there is a message here, whose bytes need not be text. What is no message
// ends where it ceases to be one; whoever reads it will say so.
func (d *decoder) rename(payload []byte) []byte {
	for f := range fields(payload) {
		if d.lists.below[f.number] != nil {
			return d.renameIn(payload, d.lists)
		}
	}
	return payload
}

func (d *decoder) renameIn(b []byte, at *tierLists) []byte {
	tier := ""
	if at.info {
		for f := range fields(b) {
			if f.number == 1 && f.kind == protowire.BytesType {
				tier = string(f.value)
			}
		}
	}
	out, rest := make([]byte, 0, len(b)), b
	for f := range fields(b) {
		rest = rest[len(f.raw):]
		below := at.below[f.number]
		key, is := policyKey{}, false
		if at.info && (f.number == 2 || f.number == 3) && f.kind == protowire.BytesType {
			key, is = policyKeyIn(f.value)
		}
		switch {
		case below != nil && f.kind == protowire.BytesType:
			out = protowire.AppendBytes(protowire.AppendTag(out, f.number, f.kind), d.renameIn(f.value, below))
		case is:
			d.dialect = DialectKind
			out = protowire.AppendString(protowire.AppendTag(out, f.number, f.kind), key.legacy(tierOf(tier)))
		default:
			out = append(out, f.raw...)
		}
	}
	return append(out, rest...)
}

// policyKeyIn reads a PolicyID of v3.32 in a list of policies, where v3.31 has a name. It starts with the tag of one of its fields, a
// control character, and names have none.
func policyKeyIn(b []byte) (policyKey, bool) {
	var key policyKey
	size := 0
	for f := range fields(b) {
		if f.kind != protowire.BytesType {
			return key, false
		}
		switch f.number {
		case 2:
			key.name = string(f.value)
		case 3:
			key.namespace = string(f.value)
		case 4:
			key.kind = string(f.value)
		}
		size += len(f.raw)
	}
	return key, size == len(b) && key != policyKey{} && b[0] < ' '
}
