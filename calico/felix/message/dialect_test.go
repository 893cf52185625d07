package message

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	pb "github.com/contiv-agent/contiv-agent/proto/felix"
)

// raw builds encoded messages field by field, as a Felix of either dialect sends them.
type raw []byte

func (r raw) str(n protowire.Number, s string) raw {
	return protowire.AppendString(protowire.AppendTag(r, n, protowire.BytesType), s)
}

func (r raw) num(n protowire.Number, v uint64) raw {
	return protowire.AppendVarint(protowire.AppendTag(r, n, protowire.VarintType), v)
}

func (r raw) msg(n protowire.Number, m raw) raw {
	return protowire.AppendBytes(protowire.AppendTag(r, n, protowire.BytesType), m)
}

// policyID encodes a PolicyID of v3.32.
func policyID(kind, namespace, name string) raw {
	id := raw{}.str(2, name)
	if namespace != "" {
		id = id.str(3, namespace)
	}
	return id.str(4, kind)
}

func policyUpdate(id raw, tier string) raw {
	return raw{}.msg(7, raw{}.msg(1, id).msg(2, raw{}.msg(1, raw{}.str(1, "allow")).str(8, tier)))
}

func endpointUpdate(tier raw) raw {
	return raw{}.msg(11, raw{}.msg(1, raw{}.str(2, "k8s").str(3, "prod/web-0").str(4, "eth0")).
		msg(5, raw{}.str(1, "active").str(2, "cali1").msg(7, tier).str(5, "10.1.1.2/32"))).num(15, 9)
}

// The same policies in both dialects decode to the same messages.
func TestDialectsDecodeToSameMessages(t *testing.T) {
	long := strings.Repeat("x", 200) // its length takes two bytes
	old := []raw{
		raw{}.msg(7, raw{}.msg(1, raw{}.str(1, "default").str(2, "prod/knp.default.web")).msg(2, raw{}.msg(1, raw{}.str(1, "allow")))),
		raw{}.msg(7, raw{}.msg(1, raw{}.str(1, "sec").str(2, "sec."+long)).msg(2, raw{}.msg(1, raw{}.str(1, "allow")))),
		endpointUpdate(raw{}.str(1, "default").str(2, "prod/knp.default.web").str(2, "prod/staged:default.try").str(3, "prod/default.own").str(4, "Deny")),
		endpointUpdate(raw{}.str(1, "sec").str(2, "sec."+long)),
		raw{}.msg(9, raw{}.msg(1, raw{}.str(2, "eth0")).msg(3, raw{}.str(1, "eth0").
			msg(3, raw{}.str(1, "sec").str(2, "sec.a")).msg(6, raw{}.str(1, "sec").str(3, "sec.b")).msg(7, raw{}.str(1, "sec").str(2, "sec.c")).msg(8, raw{}.str(1, "sec").str(3, "staged:sec.d")))),
		raw{}.msg(8, raw{}.msg(1, raw{}.str(1, "default").str(2, "prod/knp.default.web"))),
	}
	modern := []raw{
		policyUpdate(policyID("KubernetesNetworkPolicy", "prod", "web"), "default"),
		policyUpdate(policyID("GlobalNetworkPolicy", "", "sec."+long), "sec"),
		endpointUpdate(raw{}.str(1, "default").msg(2, policyID("KubernetesNetworkPolicy", "prod", "web")).msg(2, policyID("StagedNetworkPolicy", "prod", "default.try")).
			msg(3, policyID("NetworkPolicy", "prod", "default.own")).str(4, "Deny")),
		endpointUpdate(raw{}.str(1, "sec").msg(2, policyID("GlobalNetworkPolicy", "", "sec."+long))),
		raw{}.msg(9, raw{}.msg(1, raw{}.str(2, "eth0")).msg(3, raw{}.str(1, "eth0").
			msg(3, raw{}.str(1, "sec").msg(2, policyID("GlobalNetworkPolicy", "", "sec.a"))).msg(6, raw{}.str(1, "sec").msg(3, policyID("GlobalNetworkPolicy", "", "sec.b"))).
			msg(7, raw{}.str(1, "sec").msg(2, policyID("GlobalNetworkPolicy", "", "sec.c"))).msg(8, raw{}.msg(3, policyID("StagedGlobalNetworkPolicy", "", "sec.d")).str(1, "sec")))),
		raw{}.msg(8, raw{}.msg(1, policyID("KubernetesNetworkPolicy", "prod", "web"))),
	}
	one, other := NewDecoder(), NewDecoder()
	for i := range old {
		a, b := decoded(t, one, old[i]), decoded(t, other, modern[i])
		if len(a) != 1 || len(b) != 1 {
			t.Fatalf("message %d: %d and %d messages", i, len(a), len(b))
		}
		if p := b[0].GetActivePolicyUpdate().GetPolicy(); p != nil {
			p.ProtoReflect().SetUnknown(nil) // the tier, which is in the name here
		}
		if diff := cmp.Diff(a[0], b[0], protocmp.Transform()); diff != "" {
			t.Errorf("message %d (-v3.31 +v3.32):\n%s", i, diff)
		}
	}
	if one.Dialect != DialectTier || other.Dialect != DialectKind {
		t.Errorf("dialects %s and %s", one.Dialect, other.Dialect)
	}
}

func decoded(t *testing.T, d *Decoder, b raw) []*pb.ToDataplane {
	t.Helper()
	out, err := d.Decode(b)
	if err != nil {
		t.Fatalf("% x: %v", []byte(b), err)
	}
	return out
}

// The encoder's bytes of v3.31 stay the same: what Felix v3.31.0 sends for an endpoint with two tiers.
func TestGoldenBytes(t *testing.T) {
	for _, c := range []struct{ name, hex, want string }{
		{
			"v3.31 workload", "5a3b0a171203" + hex.EncodeToString([]byte("k8s")) + "1a0a" + hex.EncodeToString([]byte("prod/web-0")) + "220465746830" +
				"2a200a06616374697665" + "3a160a0764656661756c74" + "120b" + hex.EncodeToString([]byte("prod/d.web1")) + "7805",
			"prod/d.web1",
		},
		{
			"v3.32 workload", "5a450a171203" + hex.EncodeToString([]byte("k8s")) + "1a0a" + hex.EncodeToString([]byte("prod/web-0")) + "220465746830" +
				"2a2a0a06616374697665" + "3a200a0764656661756c74" + "1215" + "1202" + hex.EncodeToString([]byte("ab")) + "1a00" + "220d" + hex.EncodeToString([]byte("NetworkPolicy")) + "7805",
			"NetworkPolicy:ab", // without a namespace it is not a Kubernetes policy: it keeps its kind
		},
	} {
		b, err := hex.DecodeString(c.hex)
		if err != nil {
			t.Fatal(err)
		}
		got := decoded(t, NewDecoder(), b)
		tiers := got[0].GetWorkloadEndpointUpdate().GetEndpoint().GetTiers()
		if got[0].SequenceNumber != 5 || len(tiers) != 1 || tiers[0].Name != "default" || len(tiers[0].IngressPolicies) != 1 || tiers[0].IngressPolicies[0] != c.want {
			t.Errorf("%s: %v", c.name, got[0])
		}
	}
}

// Different policies have different names, whatever they are called.
func TestLegacyNames(t *testing.T) {
	seen := map[string]policyKey{}
	for _, kind := range []string{
		"KubernetesNetworkPolicy", "NetworkPolicy", "GlobalNetworkPolicy", "StagedNetworkPolicy", "StagedGlobalNetworkPolicy",
		"StagedKubernetesNetworkPolicy", "KubernetesClusterNetworkPolicy", "KubernetesAdminNetworkPolicy", "SomethingElse",
	} {
		for _, namespace := range []string{"", "prod"} {
			for _, name := range []string{"web", "knp.default.web", "kanp.adminnetworkpolicy.web", "kcnp.web", "default.web", "kcnp.default.web"} {
				key := policyKey{kind, namespace, name}
				legacy := key.legacy("default")
				if other, taken := seen[legacy]; taken {
					t.Errorf("%v and %v are both %s", key, other, legacy)
				}
				seen[legacy] = key
				if staged := strings.HasPrefix(legacy[strings.Index(legacy, "/")+1:], "staged:"); staged != strings.HasPrefix(kind, "Staged") {
					t.Errorf("%v is %s: staged %v", key, legacy, staged)
				}
			}
		}
	}
}

// A v3.32 policy that moves to another tier is known in both tiers until it is removed: endpoints may be updated before or
// after that.
func TestPolicyMovesToAnotherTier(t *testing.T) {
	d := NewDecoder()
	id := policyID("GlobalNetworkPolicy", "", "x")
	if got := decoded(t, d, raw{}.msg(8, raw{}.msg(1, id))); len(got) != 0 {
		t.Errorf("removed before it came: %v", got)
	}
	decoded(t, d, policyUpdate(id, "a"))
	moved := decoded(t, d, policyUpdate(id, "b"))
	gone := decoded(t, d, raw{}.msg(8, raw{}.msg(1, id)))
	if len(moved) != 2 || len(gone) != 2 || gone[0].GetActivePolicyRemove().Id.Tier != "a" || gone[1].GetActivePolicyRemove().Id.Tier != "b" {
		t.Errorf("moved: %v, gone: %v", moved, gone)
	}
	if got := decoded(t, d, policyUpdate(id, "b")); len(got) != 1 {
		t.Errorf("after it was gone: %v", got)
	}
}

// Felix up to v3.28 writes a route's type in another field.
func TestRouteType(t *testing.T) {
	for v, want := range []pb.RouteType{0, 1, 2, 4, 8, 16, 32, 0} {
		got := decoded(t, NewDecoder(), raw{}.msg(23, raw{}.str(3, "10.0.0.0/8").num(1, uint64(v))))
		if types := got[0].GetRouteUpdate().GetTypes(); types != want {
			t.Errorf("type %d is %d, want %d", v, types, want)
		}
	}
	if got := decoded(t, NewDecoder(), raw{}.msg(23, raw{}.num(12, 9))); got[0].GetRouteUpdate().GetTypes() != 9 {
		t.Errorf("a sum is not kept: %v", got)
	}
}

// FuzzDecoder decodes arbitrary bytes: nothing panics, and a v3.31 message is decoded as protobuf decodes it.
func FuzzDecoder(f *testing.F) {
	f.Add([]byte(endpointUpdate(raw{}.str(1, "default").str(2, "prod/knp.default.web"))))
	f.Add([]byte(endpointUpdate(raw{}.str(1, "default").msg(2, policyID("GlobalNetworkPolicy", "", "x")))))
	f.Add([]byte(policyUpdate(policyID("GlobalNetworkPolicy", "", "x"), "a")))
	f.Add([]byte(raw{}.msg(8, raw{}.msg(1, policyID("GlobalNetworkPolicy", "", "x")))))
	f.Add([]byte(raw{}.msg(23, raw{}.num(1, 3))))
	f.Add([]byte(raw{}.msg(2, raw{}.str(1, "s:a").str(2, "10.0.0.1/32").str(2, "").num(3, 1)).num(15, 300)))
	f.Add([]byte(raw{}.msg(3, raw{}.str(1, "s:a").str(2, "10.0.0.1/32").str(3, strings.Repeat("x", 200)))))
	f.Add([]byte(raw{}.msg(3, raw{}.num(3, 1)).msg(2, nil)))
	f.Add([]byte(raw{}.msg(9, raw{}.msg(3, raw{}.msg(3, raw{0x12, 0x80})))))
	for _, rule := range everyRule(f) {
		f.Add([]byte(raw{}.msg(7, raw{}.msg(1, raw{}.str(1, "default").str(2, "x")).msg(2, raw{}.msg(1, rule).msg(2, rule)))))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		before := bytes.Clone(b)
		d := NewDecoder()
		got, err := d.Decode(b)
		if !bytes.Equal(b, before) {
			t.Fatal("the frame was changed")
		}
		for _, m := range got {
			Complete(m)
			UnknownValue(m)
		}
		plain := &pb.ToDataplane{}
		if m := NewDecoder().hot.readMessage(b); m != nil {
			if err := proto.Unmarshal(b, plain); err != nil || !proto.Equal(m, plain) {
				t.Fatalf("%v, %v is read as %v", plain, err, m)
			}
		}
		if perr := proto.Unmarshal(b, plain); (perr == nil) != (err == nil) && d.Dialect != DialectKind {
			t.Fatalf("decoded: %v; unmarshalled: %v", err, perr)
		}
		if (plain.GetIpsetUpdate() != nil || plain.GetIpsetDeltaUpdate() != nil) && d.Dialect != DialectKind && err == nil && !proto.Equal(got[0], plain) {
			t.Fatalf("%v is decoded as %v", plain, got[0])
		}
		if d.Dialect != DialectKind && err == nil && plain.GetRouteUpdate() == nil && (len(got) != 1 || len(plain.ProtoReflect().GetUnknown()) == 0 && Name(got[0]) != Name(plain)) {
			t.Fatalf("%v is decoded as %v", plain, got)
		}
	})
}
