package sim

// NextScript is the next sequence of picks in counting order, nil after the last: a SetChoice that follows one, and picks 0 beyond its
// end, meets every way a packet can go. Options are the numbers that it was asked to pick of.
func NextScript(script, options []int) []int {
	next := make([]int, len(options))
	copy(next, script)
	for k := len(next) - 1; k >= 0; k-- {
		if next[k]+1 < options[k] {
			next[k]++
			return next[:k+1]
		}
	}
	return nil
}
