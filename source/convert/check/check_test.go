package check

import (
	"encoding/json"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"github.com/contiv-agent/contiv-agent/model"
)

// A wrong field gives the zero value and one problem with its path; a right one gives no problem.
func TestFields(t *testing.T) {
	for _, c := range []struct {
		name  string
		check func(ps *Problems) any
		want  any
		wrong bool
	}{
		{"address", func(ps *Problems) any { return ps.Addr("f", "10.0.0.1") }, netip.MustParseAddr("10.0.0.1"), false},
		{"leading zero", func(ps *Problems) any { return ps.Addr("f", "10.0.0.01") }, netip.Addr{}, true},
		{"mapped", func(ps *Problems) any { return ps.Addr("f", "::ffff:10.0.0.1") }, netip.Addr{}, true},
		{"host", func(ps *Problems) any { return ps.HostAddr("f", "127.0.0.1") }, netip.Addr{}, true},
		{"host bits", func(ps *Problems) any { return ps.Prefix("f", "10.1.2.3/16") }, netip.MustParsePrefix("10.1.0.0/16"), false},
		{"no range", func(ps *Problems) any { return ps.Prefix("f", "10.1.2.3") }, netip.Prefix{}, true},
		{"port", func(ps *Problems) any { return ps.ReadPort("f", 65535) }, uint16(65535), false},
		{"port 0", func(ps *Problems) any { return ps.ReadPort("f", 0) }, uint16(0), true},
		{"optional port 0", func(ps *Problems) any { return ps.OptionalPort("f", 0) }, uint16(0), false},
		{"default protocol", func(ps *Problems) any { return ps.Protocol("f", "") }, model.TCP, false},
	} {
		ps := &Problems{}
		if got := c.check(ps); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
		if (len(ps.List) == 1 && ps.List[0].Field == "f") != c.wrong || (ps.Err() != nil) != c.wrong {
			t.Errorf("%s: problems %v", c.name, ps.List)
		}
	}
}

// Fit finds every field of the wrong type and every unknown one, and sets the wrong ones to null.
func TestFitFindsAllMismatches(t *testing.T) {
	type port struct {
		Port int32  `json:"port"`
		Name string `json:"name"`
	}
	type object struct {
		Ports []port `json:"ports"`
	}
	tree := map[string]any{"ports": []any{
		map[string]any{"port": "eighty", "name": "a"}, map[string]any{"port": json.Number("80"), "name": json.Number("1"), "nmae": "b"},
	}}
	var fit Fit
	fit.CheckType("spec", reflect.TypeFor[object](), tree)
	var wrong []string
	for _, p := range fit.Wrong {
		wrong = append(wrong, p.Field)
	}
	if want := []string{"spec.ports[0].port", "spec.ports[1].name"}; !slices.Equal(wrong, want) {
		t.Errorf("wrong %v, want %v", wrong, want)
	}
	if want := []string{"spec.ports[1].nmae"}; !slices.Equal(fit.Unknown, want) {
		t.Errorf("unknown %v, want %v", fit.Unknown, want)
	}
	if first := tree["ports"].([]any)[0].(map[string]any); first["port"] != nil || first["name"] != "a" {
		t.Errorf("the tree is %v", tree)
	}
}
