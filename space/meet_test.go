package space

import (
	"testing"

	"pgregory.net/rapid"
)

func TestCommonHeaderIsTheFirstOfTheIntersection(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := New()
		var sets [3]Set
		for i := range sets {
			sets[i], _ = randomSet(t, s)
			if rapid.IntRange(0, 2).Draw(t, "large") > 0 { // most random sets are small, and have nothing in common
				sets[i] = s.Minus(s.Complement(sets[i]), s.Box(randomBox().Draw(t, "without")))
			}
		}
		nodes, _ := s.Size()
		h, found := Common(s, sets[:]...)
		if now, _ := s.Size(); now != nodes {
			t.Errorf("%d nodes were made", now-nodes)
		}
		want, some := s.Witness(s.Intersect(s.Intersect(sets[0], sets[1]), sets[2]))
		if h != want || found != some {
			t.Errorf("%v, %v; the intersection has %v, %v", h, found, want, some)
		}
	})
}

func TestFirstPartDecides(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := New()
		var parts []Part
		var models []model
		for range rapid.IntRange(0, 6).Draw(t, "parts") {
			set, has := randomSet(t, s)
			parts, models = append(parts, Part{set, uint8(rapid.IntRange(1, 3).Draw(t, "verdict"))}), append(models, has)
		}
		d := Parts(s, parts)
		for _, h := range headers(t) {
			want := uint8(0)
			for i, has := range models {
				if has(h) {
					want = parts[i].Verdict
					break
				}
			}
			if got := s.Verdict(d, h); got != want {
				t.Errorf("%v: verdict %d, should be %d", h, got, want)
			}
		}
	})
}
