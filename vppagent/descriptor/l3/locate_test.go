package l3

import "testing"

func TestContainsName(t *testing.T) {
	for _, tc := range []struct {
		tag string
		in  bool
	}{
		{"default/web", true},
		{"host-default/web/eth0", false},
		{"cni:default/web/eth0", true},
		{"default/web-1", false},
		{"my-default/web", false},
		{"default/web.x default/web", true},
		{"", false},
	} {
		if got := containsName(tc.tag, "default/web"); got != tc.in {
			t.Errorf("%q: %t", tc.tag, got)
		}
	}
}
