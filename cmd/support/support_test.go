package support

import (
	"encoding/json"
	"testing"
)

// Private keys, passwords and tokens are replaced, whatever surrounds them; other text stays, and JSON stays JSON.
func TestRedact(t *testing.T) {
	for text, want := range map[string]string{
		`{"token":"abc.def","next":1}`:                                               `{"token":"REDACTED","next":1}`,
		`{"a":"password=abc def"}`:                                                   `{"a":"password=REDACTED def"}`,
		`{"a":"{\"password\": \"abc\"}"}`:                                            `{"a":"{\"password\": \"REDACTED\"}"}`,
		"Authorization: Bearer abc\nnext":                                            "Authorization: Bearer REDACTED\nnext",
		"etcd PASSWD=x,y":                                                            "etcd PASSWD=REDACTED,y",
		"pod prod/token-server has no token":                                         "pod prod/token-server has no token",
		`{"token":null,"secret":{"a":1},"password":["b"],"passwd":12}`:               `{"token":"REDACTED","secret":{"a":1},"password":["b"],"passwd":"REDACTED"}`,
		`{"a":"{\"token\": 7}"}`:                                                     `{"a":"{\"token\": \"REDACTED\"}"}`,
		"get https://me:word@host/x?y":                                               "get https://me:REDACTED@host/x?y",
		"used eyJhbGciOiJS.eyJpc3MiOiJr.c2ln-_x":                                     "used REDACTED",
		"a\n-----BEGIN RSA PRIVATE KEY-----\nx\ny\n-----END RSA PRIVATE KEY-----\nb": "a\nREDACTED\nb",
	} {
		got := string(redact([]byte(text)))
		if got != want {
			t.Errorf("%s\n is %s\nwant %s", text, got, want)
		}
		if json.Valid([]byte(text)) && !json.Valid([]byte(got)) {
			t.Errorf("%s is no JSON any more", got)
		}
	}
}
