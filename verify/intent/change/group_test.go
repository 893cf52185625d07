package change

import "testing"

func TestGroupsText(t *testing.T) {
	many := make([]Group, mostGroups+2)
	for i := range many {
		many[i].Name = "a/" + string(rune('a'+i))
	}
	for want, list := range map[string][]Group{
		"":                             nil,
		"ns:shop (2 pods), outside":    {{Name: "ns:shop", Pods: []string{"shop/a", "shop/b"}}, {Name: "outside"}},
		"shop/a (1 pod) (new)":         {{Name: "shop/a", Pods: []string{"shop/a"}, Only: "new"}},
		"a/a, a/b, a/c, a/d, a/e, a/f": many[:mostGroups],
		"a/a, a/b, a/c, a/d, a/e, a/f, and 2 more": many,
	} {
		if got := GroupsText(list); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
