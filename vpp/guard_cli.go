package vpp

import "strings"

// judgeCLI refuses commands that break NAT. VPP accepts any unambiguous prefix of a word, so every prefix of a forbidden
// word counts; a text may have several commands, one per line.
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

// abbreviates reports whether line begins with words, each perhaps abbreviated.
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
