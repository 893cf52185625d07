package vpp

import "strings"

// judgeCLI refuses the commands that break NAT. VPP takes any unambiguous beginning of a word, so every word that begins the
// forbidden one counts; several commands may be in one text, one per line.
func judgeCLI(g *Guard, text string) string {
	for _, line := range strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' || r == ';' }) {
		if abbreviates(line, "set", "nat44", "session", "limit") {
			return "'" + strings.TrimSpace(line) + "' wipes the lookup of static mappings: use nat44_set_session_limit"
		}
		if !g.AllowDisable && abbreviates(line, "nat44", "plugin", "disable") {
			return "'" + strings.TrimSpace(line) + "' deletes everything NAT has"
		}
	}
	return ""
}

// abbreviates tells whether line begins with words, each perhaps cut short.
func abbreviates(line string, words ...string) bool {
	fields := strings.Fields(line)
	if len(fields) < len(words) {
		return false
	}
	for i, w := range words {
		if !strings.HasPrefix(w, fields[i]) {
			return false
		}
	}
	return true
}
