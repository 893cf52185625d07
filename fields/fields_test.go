package fields

import "testing"

func TestObjectOf(t *testing.T) {
	for text, want := range map[string]*Object{
		"NetworkPolicy prod/web":      {"NetworkPolicy", "prod", "web"},
		"AdminNetworkPolicy guard":    {"AdminNetworkPolicy", "", "guard"},
		"GlobalNetworkPolicy ops.web": {"GlobalNetworkPolicy", "", "ops.web"},
		"Manifest a/b/web.yaml":       {"Manifest", "", "a/b/web.yaml"},
		"VPP":                         nil,
		"config/contiv/v1/dnat44/web": nil,
		"interface tap1":              nil,
		"Service prod/web is REFUSED": nil,
		"Service /web":                nil,
		"Service prod/":               nil,
		"Service a/b/c":               nil,
		"Service ":                    nil,
		" web":                        nil,
		"":                            nil,
	} {
		got := ObjectOf(text)
		if (got == nil) != (want == nil) || got != nil && (*got != *want || got.String() != text) {
			t.Errorf("%q: %+v, want %+v", text, got, want)
		}
	}
}

func TestRuleOf(t *testing.T) {
	for text, want := range map[string]*Rule{
		"ingress rule 2":            {"ingress", 2, ""},
		"egress rule 3 (no-telnet)": {"egress", 3, "no-telnet"},
		"egress rule 3 (a (b))":     {"egress", 3, "a (b)"},
		"end of tier":               nil,
		"ingress rules":             nil,
		"ingress rule 0":            nil,
		"ingress rule 02":           nil,
		"ingress rule x":            nil,
		"ingress rule 1 (":          nil,
		"ingress rule 1 ()":         nil,
		"":                          nil,
	} {
		got := RuleOf(text)
		if (got == nil) != (want == nil) || got != nil && (*got != *want || got.String() != text) {
			t.Errorf("%q: %+v, want %+v", text, got, want)
		}
	}
}
