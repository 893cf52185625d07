package convert

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A copied tree equals the tree that its JSON decodes to, whatever types a program has put into it.
func TestNumberedEqualsDecodedJSON(t *testing.T) {
	in := map[string]any{
		"text": "a", "true": true, "null": nil, "int64": int64(-7), "int": 8, "float": 1.5, "large": 1e21, "whole": 3.0,
		"list": []any{int64(1), "b", nil, map[string]any{"x": []any{}}}, "strings": []string{"c"}, "labels": map[string]string{"d": "e"},
		"no list": []any(nil), "no map": map[string]any(nil), "port": json.Number("80"),
	}
	text, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	var want any
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	if err := dec.Decode(&want); err != nil {
		t.Fatal(err)
	}
	got, err := numbered(in)
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("error %v, -want +got:\n%s", err, d)
	}
	got.(map[string]any)["list"].([]any)[3].(map[string]any)["x"] = "changed"
	if in["list"].([]any)[3].(map[string]any)["x"] == "changed" {
		t.Error("a change of the copy changes the original")
	}
	if _, err := numbered([]any{func() {}}); err == nil {
		t.Error("a function is copied")
	}
}
