package pace

import (
	"os"
	"os/exec"
	"testing"
)

// early is a number of cases that is needed before the flags are parsed.
var early = Fewer(40, 4)

func TestFewer(t *testing.T) {
	want, every := 40, 1
	switch {
	case race:
		want, every = 2, 4
	case testing.Short():
		want, every = 10, 4
	}
	if got := Fewer(40, 4); got != want || early != want {
		t.Errorf("%d cases, %d for a variable, want %d", got, early, want)
	}
	if got := Every(4); got != every {
		t.Errorf("each %dth case, want each %dth", got, every)
	}
	if got := Fewer(3, 40); got < 1 || got > 3 {
		t.Errorf("%d of 3 cases", got)
	}
}

// TestFewerByEachCommandLine runs TestFewer again with and without -short.
func TestFewerByEachCommandLine(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, flag := range []string{"-test.short", "-test.short=true", "-test.short=false", "-test.v"} {
		if out, err := exec.Command(self, flag, "-test.run=^TestFewer$").CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", flag, err, out)
		}
	}
}

func TestNotRaced(t *testing.T) {
	ran := false
	t.Run("many packets", func(t *testing.T) {
		NotRaced(t)
		ran = true
	})
	if ran == race {
		t.Errorf("ran: %t, with the race detector: %t", ran, race)
	}
}
