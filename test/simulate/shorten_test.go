package simulate

// Shorten returns the shortest schedule that it finds that still fails, and its error: it leaves out half of the actions, then smaller parts,
// and at last single ones, until none can be left out. fails runs a schedule; nil: it passes.
func Shorten(s Schedule, err error, fails func(Schedule) error) (Schedule, error) {
	for size := (len(s.Actions) + 1) / 2; size > 0; {
		shorter := false
		for end := len(s.Actions); end > 0; end -= size {
			part := s.Without(max(0, end-size), end)
			if e := fails(part); e != nil {
				s, err, shorter = part, e, true
			}
		}
		if size = size / 2; size == 0 && shorter {
			size = 1
		}
	}
	return s, err
}
