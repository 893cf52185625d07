package terminal

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// hostile is text that would clear a terminal, set its title, write a separate line, and turn the direction.
const hostile = "x\x1b[2J\x1b]0;owned\x07\nservice  prod/web  CONFIGURED\r\u009b1m\u202e\xff\t"

func TestPlain(t *testing.T) {
	for in, want := range map[string]string{
		"":                   "",
		"größer – 東京 \\n":    "größer – 東京 \\n",
		"a\nb":               `a\nb`,
		"\x1b[2J":            `\u001b[2J`,
		"\u009b\u202e":       `\u009b\u202e`,
		"\U000e0041":         `\U000e0041`,
		"\xff\ufffd\t\r\x7f": `\xff\ufffd\u0009\u000d\u007f`,
	} {
		if got := Plain(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func FuzzPlain(f *testing.F) {
	f.Add(hostile)
	f.Fuzz(func(t *testing.T, in string) {
		out := Plain(in)
		if strings.ContainsFunc(out, unprintable) {
			t.Errorf("%q: %q", in, out)
		}
		if Plain(out) != out {
			t.Errorf("%q is not plain", out)
		}
		var whole, parts bytes.Buffer
		_, _ = (&Writer{Writer: &whole}).Write([]byte(in))
		w := &Writer{Writer: &parts}
		for _, c := range []byte(in) {
			_, _ = w.Write([]byte{c})
		}
		if whole.String() != parts.String() {
			t.Errorf("%q: %q at once, %q in parts", in, whole.String(), parts.String())
		}
		if i := bytes.IndexFunc(whole.Bytes(), func(r rune) bool { return r < 0x20 && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0 }); i >= 0 {
			t.Errorf("%q: %q", in, whole.String())
		}
	})
}

// The terminal writer removes control characters from all other text; JSON does not change.
func TestTerminal(t *testing.T) {
	var b bytes.Buffer
	w := &Writer{Writer: &b}
	if err := json.NewEncoder(w).Encode(hostile); err != nil {
		t.Fatal(err)
	}
	var back string
	if err := json.Unmarshal(b.Bytes(), &back); err != nil || back != strings.ToValidUTF8(hostile, "\ufffd") {
		t.Errorf("%q, %v", back, err)
	}
	if strings.ContainsRune(b.String(), 0x9b) {
		t.Errorf("written %q", b.String())
	}
}
