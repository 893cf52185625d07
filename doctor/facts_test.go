package doctor

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// stated checks that programs need no words of a check: every number and every name that Found has is in a fact. A name is a word with a character that
// is no letter. The page about output names each fact.
func stated(t *testing.T, c Check) {
	t.Helper()
	if c.Verdict == Unknown || c.Verdict == Skipped {
		return // Found says why there is no fact
	}
	if len(c.Facts) == 0 {
		t.Errorf("%s: no facts: %+v", c.Name, c)
		return
	}
	text, err := json.Marshal(c.Facts)
	if err != nil {
		t.Fatal(err)
	}
	facts := string(text)
	page, err := os.ReadFile("../docs/output.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range slices.Sorted(maps.Keys(c.Facts)) {
		if !strings.Contains(string(page), "`"+key+"`") {
			t.Errorf("%s: docs/output.md does not name the fact %s", c.Name, key)
		}
		if bytes, is := c.Facts[key].(uint64); is {
			facts += " " + mebibytes(float64(bytes))
		}
	}
	for _, word := range strings.FieldsFunc(c.Found, func(r rune) bool { return strings.ContainsRune(" ,()", r) }) {
		word = strings.Trim(word, ";:")
		name := strings.ContainsFunc(strings.ReplaceAll(word, "'", ""), func(r rune) bool { return !unicode.IsLetter(r) })
		flag := strings.HasPrefix(word, "--") // the caller's, not VPP's
		if quoted, err := json.Marshal(word); err == nil {
			word = string(quoted[1 : len(quoted)-1]) // an error may have quotes
		}
		if name && !flag && word != "af_packet" && word != "IPv4" && !strings.Contains(facts, word) {
			t.Errorf("%s: %q is in no fact of %s: %s", c.Name, word, text, c.Found)
		}
	}
}
