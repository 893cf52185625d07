// Package choices counts through the random decisions of a simulated VPP (sim.VPP.SetChoice).
package choices

// Next returns the next sequence of picks in counting order, nil after the last. A SetChoice that follows one sequence, and
// picks 0 beyond its end, reaches every path of a packet. Options are the numbers of choices that it had at each pick.
func Next(script, options []int) []int {
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
