package conflict

// Merge calls f for each element of two lists: the common elements in order, and between them those of old only, then those of now only.
// Elements are equal if their keys are.
func Merge[T any, K comparable](old, now []T, key func(T) K, f func(e T, had, will bool)) {
	start, end := Alike(len(old), len(now), func(i, j int) bool { return key(old[i]) == key(now[j]) })
	for _, e := range now[:start] {
		f(e, true, true)
	}
	mergeDiffering(old[start:len(old)-end], now[start:len(now)-end], key, f)
	for _, e := range now[len(now)-end:] {
		f(e, true, true)
	}
}

// mergeDiffering is Merge by the longest common subsequence.
func mergeDiffering[T any, K comparable](old, now []T, key func(T) K, f func(e T, had, will bool)) {
	longest := make([][]uint16, len(old)+1)
	for i := range longest {
		longest[i] = make([]uint16, len(now)+1)
	}
	for i := len(old) - 1; i >= 0; i-- {
		for j := len(now) - 1; j >= 0; j-- {
			if key(old[i]) == key(now[j]) {
				longest[i][j] = longest[i+1][j+1] + 1
			} else {
				longest[i][j] = max(longest[i+1][j], longest[i][j+1])
			}
		}
	}
	i, j := 0, 0
	for i < len(old) || j < len(now) {
		switch {
		case i < len(old) && j < len(now) && key(old[i]) == key(now[j]):
			f(now[j], true, true)
			i, j = i+1, j+1
		case j == len(now) || i < len(old) && longest[i+1][j] >= longest[i][j+1]:
			f(old[i], true, false)
			i++
		default:
			f(now[j], false, true)
			j++
		}
	}
}

// Alike returns the number of equal elements at the beginning of two lists of n and m elements and, of the others, at the end.
func Alike(n, m int, equal func(i, j int) bool) (start, end int) {
	least := min(n, m)
	for start < least && equal(start, start) {
		start++
	}
	for end < least-start && equal(n-1-end, m-1-end) {
		end++
	}
	return start, end
}

// Without returns the elements of a list that others does not have.
func Without[T comparable](list, others []T) (out []T) {
	there := make(map[T]struct{}, len(others))
	for _, e := range others {
		there[e] = struct{}{}
	}
	for _, e := range list {
		if _, also := there[e]; !also {
			out = append(out, e)
		}
	}
	return out
}
