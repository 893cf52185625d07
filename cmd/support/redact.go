package support

import (
	"bytes"
	"regexp"
	"slices"
	"strings"

	"github.com/contiv-agent/contiv-agent/recorder/record"
)

// redacted replaces what is secret.
const redacted = "REDACTED"

var (
	privateKey = regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----`)
	credential = regexp.MustCompile(`(?i)((?:password|passwd|passphrase|secret|token|authorization|api[-_]?key|client-key-data)\\?["']?\s*[:=]\s*\\?["']?(?:bearer |basic )?)[^\s"'\\,{}\[\]]+`)
	unquoted   = regexp.MustCompile(`(\\?")\s*:\s*$`)
	inURL      = regexp.MustCompile(`(://[^\s/:@"'\\]+:)[^\s/@"'\\]+@`)
	signed     = regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*`) // a JSON web token
)

// words are what a line must have in lower case so that credential can match it. Most lines have none, and regular expressions are slow.
var words = [][]byte{[]byte("passw"), []byte("passphrase"), []byte("secret"), []byte("token"), []byte("authorization"), []byte("api"), []byte("client-key-data")} // read only

// redact replaces private keys, JSON web tokens, the values of passwords, secrets and tokens, and passwords in URLs. JSON stays JSON.
func redact(text []byte) []byte {
	if bytes.Contains(text, []byte("PRIVATE KEY-----")) {
		text = privateKey.ReplaceAll(text, []byte(redacted))
	}
	var out bytes.Buffer
	for line := range bytes.Lines(text) {
		if bytes.Contains(line, []byte("eyJ")) {
			line = signed.ReplaceAll(line, []byte(redacted))
		}
		lower := bytes.ToLower(line)
		if slices.ContainsFunc(words, func(word []byte) bool { return bytes.Contains(lower, word) }) {
			line = credential.ReplaceAllFunc(line, redactValue)
		}
		if bytes.Contains(line, []byte("://")) {
			line = inURL.ReplaceAll(line, []byte("${1}"+redacted+"@"))
		}
		out.Write(line)
	}
	return out.Bytes()
}

// redactValue replaces the value behind the name of a secret.
func redactValue(found []byte) []byte {
	name := credential.FindSubmatch(found)[1]
	quote := ""
	if m := unquoted.FindSubmatch(name); m != nil { // a number, null, true or false of JSON
		quote = string(m[1])
	}
	return slices.Concat(name, []byte(quote+redacted+quote))
}

// redactJournal is redact for a file of a flight recorder. A line that is changed gets the checksum of its new text, so that the file replays.
func redactJournal(text []byte) []byte {
	var out bytes.Buffer
	for line := range bytes.Lines(text) {
		clean := redact(line)
		if bytes.Equal(clean, line) {
			out.Write(line)
			continue
		}
		l, err := record.ParseLine(bytes.TrimSuffix(line, []byte("\n")))
		if err != nil { // a damaged line stays one
			out.Write(clean)
			continue
		}
		l.Key, l.Body = string(redact([]byte(l.Key))), redact(l.Body)
		out.Write(l.AppendTo(nil))
	}
	return out.Bytes()
}

// newestOf returns the last lines of a text that have at most that many bytes together. A first line says what is left out.
func newestOf(text []byte, most int) []byte {
	if len(text) <= most {
		return text
	}
	rest := text[len(text)-most:]
	if _, whole, ok := bytes.Cut(rest, []byte("\n")); ok {
		rest = whole
	}
	return append([]byte(leftOut(len(text)-len(rest))), rest...)
}

// isJournal reports whether a file of an archive is one of a flight recorder.
func isJournal(name string) bool { return strings.HasSuffix(name, ".journal") }
