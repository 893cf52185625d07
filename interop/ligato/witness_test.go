package ligato

import (
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"testing"

	gogo "github.com/gogo/protobuf/proto"
	"github.com/google/go-cmp/cmp"
	"github.com/ligato/cn-infra/db/keyval"
	"github.com/ligato/vpp-agent/api/models/linux/interfaces"
	"github.com/ligato/vpp-agent/api/models/linux/iptables"
	"github.com/ligato/vpp-agent/api/models/linux/l3"
	"github.com/ligato/vpp-agent/api/models/vpp/abf"
	"github.com/ligato/vpp-agent/api/models/vpp/acl"
	"github.com/ligato/vpp-agent/api/models/vpp/interfaces"
	"github.com/ligato/vpp-agent/api/models/vpp/ipsec"
	"github.com/ligato/vpp-agent/api/models/vpp/l2"
	"github.com/ligato/vpp-agent/api/models/vpp/l3"
	"github.com/ligato/vpp-agent/api/models/vpp/nat"
	"github.com/ligato/vpp-agent/api/models/vpp/punt"
	"github.com/ligato/vpp-agent/pkg/models"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/runtime/protoimpl"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/contiv-agent/contiv-agent/kv"
)

// theirs are all models that v2.5.1 has and we have as well.
func theirs() []gogo.Message {
	return []gogo.Message{
		&linux_interfaces.Interface{}, &linux_iptables.RuleChain{}, &linux_l3.ARPEntry{}, &linux_l3.Route{},
		&vpp_abf.ABF{}, &vpp_acl.ACL{}, &vpp_interfaces.Interface{}, &vpp_interfaces.Span{},
		&vpp_ipsec.SecurityAssociation{}, &vpp_ipsec.SecurityPolicyDatabase{},
		&vpp_l2.BridgeDomain{}, &vpp_l2.FIBEntry{}, &vpp_l2.XConnectPair{},
		&vpp_l3.ARPEntry{}, &vpp_l3.DHCPProxy{}, &vpp_l3.IPScanNeighbor{}, &vpp_l3.ProxyARP{}, &vpp_l3.Route{}, &vpp_l3.VrfTable{},
		&vpp_nat.DNat44{}, &vpp_nat.Nat44Global{}, &vpp_punt.Exception{}, &vpp_punt.IPRedirect{}, &vpp_punt.ToHost{},
	}
}

// Changes of v3, which this agent follows.
var (
	// A DHCP proxy had one VRF; numbers of IPsec's were text, and nothing if they were not set; families of punting were spelled IPv4.
	otherKey = []string{"vpp.l3.DHCPProxy", "vpp.ipsec.SecurityAssociation", "vpp.ipsec.SecurityPolicyDatabase", "vpp.punt.IPRedirect", "vpp.punt.ToHost"}
	// Policies of IPsec were part of their database; algorithms of associations have other fields.
	otherFields = []string{"vpp.ipsec.SecurityAssociation", "vpp.ipsec.SecurityPolicyDatabase"}
)

const rounds = 300

// name is their full name of a message.
func name(m gogo.Message) string { return string(reflected(m).Descriptor().FullName()) }

func reflected(m gogo.Message) protoreflect.Message {
	return protoimpl.X.ProtoMessageV2Of(m).ProtoReflect()
}

// ours is our model of the same values; it goes by the prefix of keys.
func ours(t *testing.T, m gogo.Message) kv.Model {
	t.Helper()
	prefix := strings.TrimSuffix(models.Model(m).KeyPrefix(), "/")
	for _, model := range kv.Models() {
		if strings.TrimSuffix(model.Prefix, "/") == prefix {
			if !strings.HasSuffix(model.Proto, name(m)) {
				t.Errorf("%s: is %s here", name(m), model.Proto)
			}
			return model
		}
	}
	t.Fatalf("%s: no model with prefix %s", name(m), prefix)
	return kv.Model{}
}

// fill sets fields at random, depth levels deep.
func fill(r *rand.Rand, m protoreflect.Message, depth int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if r.IntN(3) == 0 || depth == 0 && f.Message() != nil {
			continue
		}
		value := func(set func(protoreflect.Value), sub func() protoreflect.Value) {
			if f.Message() != nil {
				v := sub()
				fill(r, v.Message(), depth-1)
				set(v)
				return
			}
			set(random(r, f))
		}
		switch {
		case f.IsMap():
		case f.IsList():
			list := m.Mutable(f).List()
			for range r.IntN(4) {
				value(list.Append, list.NewElement)
			}
		default:
			value(func(v protoreflect.Value) { m.Set(f, v) }, func() protoreflect.Value { return m.NewField(f) })
		}
	}
}

// words are what texts are made of: names that have to be cleaned and networks that have to be masked among them.
var words = []string{
	"", "a", "tap-1", "GigabitEthernet0/8/0", "default/web", "a//b/../c", "10.1.2.3/24", "10.0.0.1", "0.0.0.0/0", "FE80::1", "2001:db8::1/48",
	"::ffff:10.0.0.1/104", "1.2.3.4/032", "nonsense", "ipsec4-spi-0", "12:2b:c0:a8:10:02", "ü 1", "..", "alloc:net/if",
}

func random(r *rand.Rand, f protoreflect.FieldDescriptor) protoreflect.Value {
	n := []uint64{0, 1, 2, 7, 80, 65535, 1 << 31}[r.IntN(7)]
	switch f.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(words[r.IntN(len(words))])
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(n%2 == 1)
	case protoreflect.EnumKind:
		values := f.Enum().Values()
		if values.Len() == 0 { // defined in another file, which only gogo's registry knows
			return protoreflect.ValueOfEnum(protoreflect.EnumNumber(r.IntN(3)))
		}
		return protoreflect.ValueOfEnum(values.Get(r.IntN(values.Len())).Number())
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(uint32(n))
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(int32(n))
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(n)
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(int64(n))
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte{byte(n), 1})
	}
	panic(fmt.Sprintf("%s: kind %s", f.FullName(), f.Kind()))
}

// each calls f with random values of every model, theirs and the same as ours; with JSON, ours is read from theirs.
func each(t *testing.T, f func(t *testing.T, their gogo.Message, our proto.Message)) {
	for _, zero := range theirs() {
		t.Run(name(zero), func(t *testing.T) {
			model := ours(t, zero)
			for seed := range rounds {
				r := rand.New(rand.NewPCG(uint64(seed), 1))
				their := gogo.Clone(zero)
				fill(r, reflected(their), 4)
				b, err := gogo.Marshal(their)
				if err != nil {
					t.Fatal(err)
				}
				our := model.New()
				if err := proto.Unmarshal(b, our); err != nil {
					if slices.Contains(otherFields, name(zero)) {
						continue
					}
					t.Fatalf("%v: %v", their, err)
				}
				f(t, their, our)
				if t.Failed() {
					t.Fatalf("seed %d: %v", seed, their)
				}
			}
		})
	}
}

// TestEncoding: what they write on the wire is read whole here, and what we write of it is theirs again.
func TestEncoding(t *testing.T) {
	each(t, func(t *testing.T, their gogo.Message, our proto.Message) {
		if slices.Contains(otherFields, name(their)) {
			return
		}
		unknown(t, our.ProtoReflect())
		b, err := proto.Marshal(our)
		if err != nil {
			t.Fatal(err)
		}
		again := gogo.Clone(their)
		again.Reset()
		if err := gogo.Unmarshal(b, again); err != nil || !gogo.Equal(their, again) {
			t.Errorf("%v comes back as %v: %v", their, again, err)
		}
	})
}

// unknown fails if there is anything in a message that its type has no field for.
func unknown(t *testing.T, m protoreflect.Message) {
	t.Helper()
	if len(m.GetUnknown()) > 0 {
		t.Errorf("%s: has unknown fields", m.Descriptor().FullName())
	}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.Message() == nil || f.IsMap():
		case f.IsList():
			for i := range v.List().Len() {
				unknown(t, v.List().Get(i).Message())
			}
		default:
			unknown(t, v.Message())
		}
		return true
	})
}

// TestKeys: every value has the key they give it.
func TestKeys(t *testing.T) {
	each(t, func(t *testing.T, their gogo.Message, our proto.Message) {
		if slices.Contains(otherKey, name(their)) {
			return
		}
		if r, ok := their.(*linux_l3.Route); ok {
			if _, _, err := net.ParseCIDR(r.DstNetwork); err != nil {
				return // v3 takes it as it is written
			}
		}
		want, err := models.GetKey(their)
		if err != nil {
			t.Fatal(err)
		}
		if got := kv.Key(our); got != want {
			t.Errorf("key %q, theirs %q", got, want)
		}
	})
}

// TestJSON: what they keep in etcd is read as the same value.
func TestJSON(t *testing.T) {
	each(t, func(t *testing.T, their gogo.Message, our proto.Message) {
		key := kv.Key(our)
		if slices.Contains(otherFields, name(their)) || kv.Check(key, our) != nil {
			return
		}
		text, err := (&keyval.SerializerJSON{}).Marshal(their)
		if err != nil {
			t.Fatal(err)
		}
		got, err := kv.UnmarshalJSON(key, text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if diff := cmp.Diff(our, got, protocmp.Transform()); diff != "" {
			t.Errorf("%s (-wire +JSON):\n%s", text, diff)
		}
	})
}
