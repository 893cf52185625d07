package heap

import (
	"runtime/debug"
	"testing"
)

// Hurry changes the pace of collections until calm, unless the environment sets it.
func TestHurry(t *testing.T) {
	before := debug.SetGCPercent(100)
	t.Cleanup(func() { debug.SetGCPercent(before) })
	pace := func() int {
		n := debug.SetGCPercent(100)
		debug.SetGCPercent(n)
		return n
	}
	t.Setenv("GOGC", "")
	calm := Hurry()
	if n := pace(); n != startGC {
		t.Errorf("GOGC %d in a hurry", n)
	}
	calm()
	calm()
	if n := pace(); n != 100 {
		t.Errorf("GOGC %d afterwards", n)
	}
	t.Setenv("GOGC", "50")
	Hurry()()
	if n := pace(); n != 100 {
		t.Errorf("GOGC %d although the environment sets it", n)
	}
}
