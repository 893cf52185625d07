package exit

import "testing"

func TestWorse(t *testing.T) {
	for _, tc := range []struct{ a, b, want int }{
		{OK, OK, OK},
		{OK, Differs, Differs},
		{Differs, Wrong, Wrong},
		{Wrong, Differs, Wrong},
		{Wrong, Failed, Failed},
		{Failed, Differs, Failed},
		{Differs, 137, Failed},
	} {
		if got := Worse(tc.a, tc.b); got != tc.want {
			t.Errorf("%d, then %d: %d, want %d", tc.a, tc.b, got, tc.want)
		}
	}
}
