package kv_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/proto/ligato/kvscheduler"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/interfaces"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/l3"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/nat"
)

func mapping() *nat.DNat44 {
	return &nat.DNat44{Label: "x", StMappings: []*nat.DNat44_StaticMapping{{
		ExternalIp:   "10.96.0.1",
		ExternalPort: 443,
		LocalIps:     []*nat.DNat44_StaticMapping_LocalIP{{LocalIp: "10.0.0.1", LocalPort: 6443, Probability: 1}},
		Protocol:     nat.DNat44_UDP,
		TwiceNat:     nat.DNat44_StaticMapping_SELF,
	}}}
}

// mappingJSON is the text that the real ligato v3 stores for mapping.
const mappingJSON = `{"label":"x","stMappings":[{"externalIp":"10.96.0.1","externalPort":443,"localIps":[{"localIp":"10.0.0.1","localPort":6443,"probability":1}],"protocol":"UDP","twiceNat":"SELF"}]}`

func TestMarshalJSONGolden(t *testing.T) {
	got, err := kv.MarshalJSON(mapping())
	if err != nil || string(got) != mappingJSON {
		t.Errorf("MarshalJSON = %s, %v; want %s", got, err, mappingJSON)
	}
	if _, err := kv.MarshalJSON(&nat.DNat44{Label: "\xff"}); err == nil {
		t.Error("MarshalJSON of text that is not UTF-8: no error")
	}
}

func TestUnmarshalJSON(t *testing.T) {
	const key = "config/vpp/nat/v2/dnat44/x"
	for name, text := range map[string]string{
		"stored":       mappingJSON,
		"proto names":  `{"label":"x","st_mappings":[{"external_ip":"10.96.0.1","external_port":443,"local_ips":[{"local_ip":"10.0.0.1","local_port":6443,"probability":1}],"protocol":"UDP","twice_nat":"SELF"}]}`,
		"enum numbers": strings.NewReplacer(`"UDP"`, "1", `"SELF"`, "2").Replace(mappingJSON),
		"white space":  " " + strings.NewReplacer(":", " :\n", ",", ",\t").Replace(mappingJSON) + "\n",
	} {
		m, err := kv.UnmarshalJSON(key, []byte(text))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if diff := cmp.Diff(proto.Message(mapping()), m, protocmp.Transform()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	for name, tc := range map[string]struct {
		key, text string
		want      error
	}{
		"unknown field":  {key, `{"label":"x","colour":"red"}`, kv.ErrSyntax},
		"no JSON":        {key, `{"label"`, kv.ErrSyntax},
		"empty":          {key, ``, kv.ErrSyntax},
		"null":           {key, `null`, kv.ErrSyntax},
		"other label":    {key, `{"label":"y"}`, kv.ErrKeyMismatch},
		"unknown prefix": {"config/vpp/nat/v2/dnat99/x", `{}`, kv.ErrNoModel},
		"derived":        {kv.Nat44EndpointDependentKey, `{}`, kv.ErrNoModel},
		"unclean key":    {"config/vpp/nat/v2/dnat44/a//b", `{"label":"a//b"}`, kv.ErrKeyMismatch},
	} {
		if m, err := kv.UnmarshalJSON(tc.key, []byte(tc.text)); !errors.Is(err, tc.want) {
			t.Errorf("%s: UnmarshalJSON = %v, %v; want error %v", name, m, err, tc.want)
		}
	}
}

var lines = []struct {
	line string
	m    proto.Message
}{
	{"config/vpp/nat/v2/dnat44/x " + mappingJSON, mapping()},
	{`config/vpp/nat/v2/nat44-global {}`, &nat.Nat44Global{}},
	{`config/vpp/v2/route/vrf/0/dst/10.0.0.0/8/gw/FE80::1 {"dstNetwork":"10.1.2.3/8","nextHopAddr":"FE80::1"}`, &l3.Route{DstNetwork: "10.1.2.3/8", NextHopAddr: "FE80::1"}},
	{`config/vpp/v2/interfaces/tap1 {"name":"tap1","type":"TAP","ipAddresses":["10.0.0.1/32"],"tap":{"version":2}}`, &interfaces.Interface{
		Name: "tap1", Type: interfaces.Interface_TAP, IpAddresses: []string{"10.0.0.1/32"},
		Link: &interfaces.Interface_Tap{Tap: &interfaces.TapLink{Version: 2}},
	}},
	{`"config/vpp/nat/v2/dnat44/a {b\n\"é" {"label":"a {b\n\"é"}`, &nat.DNat44{Label: "a {b\n\"é"}},
	{`"config/vpp/nat/v2/dnat44/a\"b" {"label":"a\"b"}`, &nat.DNat44{Label: `a"b`}},
	{`config/vpp/nat/v2/dnat44/gone -`, nil},
}

func TestFormatAndParseLine(t *testing.T) {
	for _, tc := range lines {
		key, m, err := kv.ParseLine(tc.line)
		if err != nil {
			t.Errorf("ParseLine(%s): %v", tc.line, err)
			continue
		}
		if diff := cmp.Diff(tc.m, m, protocmp.Transform()); diff != "" {
			t.Errorf("ParseLine(%s) (-want +got):\n%s", tc.line, diff)
		}
		if got := kv.Format(key, m); got != tc.line {
			t.Errorf("Format:\ngot  %s\nwant %s", got, tc.line)
		}
	}
	// A status may name a key without a model; Format shows it nevertheless.
	const derived = `vpp/nat44/endpoint-dependent {"key":"k","state":"PENDING"}`
	if got := kv.Format(kv.Nat44EndpointDependentKey, &kvscheduler.ValueStatus{Key: "k", State: kvscheduler.ValueState_PENDING}); got != derived {
		t.Errorf("Format of a derived key = %s, want %s", got, derived)
	}
}

func TestFormatUnencodable(t *testing.T) {
	m := &nat.DNat44{Label: "\xff"}
	line := kv.Format(kv.Key(m), m)
	if !strings.HasPrefix(line, `"config/vpp/nat/v2/dnat44/\xff" !"`) {
		t.Errorf("Format = %s", line)
	}
	if _, _, err := kv.ParseLine(line); !errors.Is(err, kv.ErrSyntax) {
		t.Errorf("ParseLine(%s) = %v, want a syntax error", line, err)
	}
}

func TestParseLineErrors(t *testing.T) {
	for _, tc := range []struct {
		line string
		want error
	}{
		{"", kv.ErrSyntax},
		{" {}", kv.ErrSyntax},
		{"config/vpp/nat/v2/nat44-global", kv.ErrSyntax},
		{"config/vpp/nat/v2/nat44-global ", kv.ErrSyntax},
		{"config/vpp/nat/v2/nat44-global --", kv.ErrSyntax},
		{"config/vpp/nat/v2/dnat44/\x00 -", kv.ErrSyntax},
		{`"config/vpp/nat/v2/nat44-global {}`, kv.ErrSyntax},
		{`"config/vpp/nat/v2/nat44-global"{}`, kv.ErrSyntax},
		{"vpp/nat44/endpoint-dependent -", kv.ErrNoModel},
		{"a {}", kv.ErrNoModel},
		{`config/vpp/nat/v2/dnat44/x {"label":"y"}`, kv.ErrKeyMismatch},
	} {
		if key, m, err := kv.ParseLine(tc.line); !errors.Is(err, tc.want) {
			t.Errorf("ParseLine(%q) = %q, %v, %v; want error %v", tc.line, key, m, err, tc.want)
		}
	}
}

// A line that parses is canonical after one Format: a second Format does not change it, the value stays the same, and
// its key is the one in the line.
func FuzzParseLine(f *testing.F) {
	for _, tc := range lines {
		f.Add(tc.line)
	}
	f.Add(`"config/vpp/nat/v2/nat44-global" {"forwarding":true, "natInterfaces":[{}]}`)
	f.Fuzz(func(t *testing.T, line string) {
		key, m, err := kv.ParseLine(line)
		if err != nil {
			return
		}
		text := kv.Format(key, m)
		if strings.ContainsAny(text, "\n\r") {
			t.Fatalf("Format(%q) is more than a line: %q", line, text)
		}
		key2, m2, err := kv.ParseLine(text)
		if err != nil || key2 != key || !kv.Equal(m, m2) {
			t.Fatalf("ParseLine(%q) = %q, %v, %v; from %q", text, key2, m2, err, line)
		}
		if again := kv.Format(key2, m2); again != text {
			t.Fatalf("Format changed %q to %q", text, again)
		}
		if m != nil && kv.Key(m) != key {
			t.Fatalf("ParseLine(%q): value has key %q", line, kv.Key(m))
		}
	})
}

// Lookup finds exactly the keys that the model's Key gives for the name.
func FuzzLookup(f *testing.F) {
	for _, tc := range golden {
		f.Add(tc.key)
	}
	f.Add("config/vpp/nat/v2/dnat44/../nat44-global")
	f.Fuzz(func(t *testing.T, key string) {
		m, name, ok := kv.Lookup(key)
		var want []string
		for _, model := range kv.Models() {
			if model.Singleton() && key == model.Prefix ||
				!model.Singleton() && strings.HasPrefix(key, model.Prefix) && key != model.Prefix {
				want = append(want, model.Name)
			}
		}
		if ok != (len(want) == 1) || ok && want[0] != m.Name {
			t.Fatalf("Lookup(%q) = %q, %v; want %v", key, m.Name, ok, want)
		}
		if ok && m.Prefix+name != key {
			t.Fatalf("Lookup(%q): %q + %q", key, m.Prefix, name)
		}
	})
}

func BenchmarkFormat(b *testing.B) {
	b.ReportAllocs()
	m := mapping()
	for b.Loop() {
		kv.Format("config/vpp/nat/v2/dnat44/x", m)
	}
}

func BenchmarkParseLine(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := kv.ParseLine(lines[0].line); err != nil {
			b.Fatal(err)
		}
	}
}
