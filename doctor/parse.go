package doctor

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// release is a VPP release by year and month; the zero value: unknown.
type release struct{ year, month int }

// releaseForm is compiled once: each message that the agent needs asks for the release.
var releaseForm = regexp.MustCompile(`^v?(\d\d)\.(\d\d)\b`)

// parseRelease reads "v24.06-release", "25.10-rc0~3-gabc".
func parseRelease(version string) (release, bool) {
	m := releaseForm.FindStringSubmatch(version)
	if m == nil {
		return release{}, false
	}
	year, _ := strconv.Atoi(m[1]) // both are two digits
	month, _ := strconv.Atoi(m[2])
	return release{year, month}, true
}

func (r release) before(o release) bool {
	return r.year < o.year || r.year == o.year && r.month < o.month
}

func (r release) String() string { return fmt.Sprintf("%02d.%02d", r.year, r.month) }

// Shares of a resource.
const (
	much = 0.8 // of a resource that grows: time to act
	full = 0.95
)

// use is the size of a resource and how much of it is used.
type use struct{ total, used float64 }

// share returns the used share, 0 to 1.
func (u use) share() float64 {
	if u.total <= 0 {
		return 0
	}
	return u.used / u.total
}

// parseMemory reads the line "total: 511.99M, used: 36.84M, free: …" of show memory (VPP 24.06 to 25.10).
func parseMemory(text string) (use, bool) {
	m := regexp.MustCompile(`total: ([\d.]+)([KMGT]?), used: ([\d.]+)([KMGT]?)`).FindStringSubmatch(text)
	if m == nil {
		return use{}, false
	}
	total, used := bytes(m[1], m[2]), bytes(m[3], m[4])
	return use{total, used}, total > 0
}

// bytes converts a number with VPP's unit, in upper or lower case.
func bytes(number, unit string) float64 {
	n, err := strconv.ParseFloat(number, 64)
	if err != nil {
		return 0
	}
	for _, u := range "KMGT" {
		if n *= 1 << 10; strings.EqualFold(unit, string(u)) {
			return n
		}
	}
	return n / (1 << 40)
}

// mebibytes formats a size for a report.
func mebibytes(n float64) string { return fmt.Sprintf("%.0f MiB", n/(1<<20)) }

// parseNATSessions reads "total sessions: 12 (timed out: 3)" of show nat44 summary.
func parseNATSessions(text string) (total, idle uint64, ok bool) {
	return parsePair(text, `total sessions: (\d+) \(timed out: (\d+)\)`)
}

// parseCNATSessions reads the number of cnat's sessions and their memory in bytes from show cnat session. A table that was
// never used prints "empty, uninitialized".
func parseCNATSessions(text string) (sessions uint64, size float64, ok bool) {
	_, text, ok = strings.Cut(text, "Hash table 'CNat Session DB'")
	if !ok {
		return 0, 0, false
	}
	if strings.Contains(text, "empty, uninitialized") {
		return 0, 0, true
	}
	sessions, _, ok = parsePair(text, `(\d+) active elements (\d+) active buckets`)
	if m := regexp.MustCompile(`bytes: used ([\d.]+)([kmgtKMGT]?)`).FindStringSubmatch(text); m != nil {
		size = bytes(m[1], m[2])
	}
	return sessions, size, ok
}

// parseACLSessions reads "Sessions active: add 5 - deact 2 = 3".
func parseACLSessions(text string) (uint64, bool) {
	m := regexp.MustCompile(`Sessions active: .*= (\d+)`).FindStringSubmatch(text)
	if m == nil {
		return 0, false
	}
	n, err := strconv.ParseUint(m[1], 10, 64)
	return n, err == nil
}

func parsePair(text, pattern string) (a, b uint64, ok bool) {
	m := regexp.MustCompile(pattern).FindStringSubmatch(text)
	if m == nil {
		return 0, 0, false
	}
	a, errA := strconv.ParseUint(m[1], 10, 64)
	b, errB := strconv.ParseUint(m[2], 10, 64)
	return a, b, errA == nil && errB == nil
}
