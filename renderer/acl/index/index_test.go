package index

import "testing"

// A pair counts once, and an object without users has no entry.
func TestUsers(t *testing.T) {
	x := Of[string, int]{}
	x.Add("a", 1)
	x.Add("a", 1)
	x.Add("a", 2)
	x.Remove("b", 1)
	if len(x["a"]) != 2 || len(x) != 1 {
		t.Fatalf("%v", x)
	}
	x.Remove("a", 1)
	x.Remove("a", 2)
	if len(x) != 0 {
		t.Errorf("%v", x)
	}
}
