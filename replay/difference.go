package replay

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/model"
)

// mostDifferences bounds the lines about one object.
const mostDifferences = 20

// differences returns the lines that say what a move changes.
func differences(m *Move) []string {
	if m.Source != "" {
		return valueDifferences(m)
	}
	out := []string{m.String()}
	if m.Was.Object == nil || m.Is.Object == nil {
		return out
	}
	var lines []string
	compareTrees("", treeOf(m.Was.Object), treeOf(m.Is.Object), &lines)
	more := len(lines) - mostDifferences
	if more > 0 {
		lines = append(lines[:mostDifferences], fmt.Sprintf("and %d more fields", more))
	}
	for _, line := range lines {
		out = append(out, "  "+line)
	}
	return out
}

func valueDifferences(m *Move) (out []string) {
	show := func(key string, v proto.Message, merge event.Merge) string {
		line := kv.Format(key, v)
		if !merge.Zero() {
			line += " merge " + merge.String()
		}
		return line
	}
	for _, key := range slices.Sorted(maps.Keys(m.Values)) {
		out = append(out, "value of "+m.Source, "  was "+show(key, m.Before[key], m.Unmerge[key]), "  is  "+show(key, m.Values[key], m.Merge[key]))
	}
	return out
}

// treeOf returns an object as maps, lists and plain values.
func treeOf(o model.Object) (tree any) {
	text, err := json.Marshal(o)
	if err == nil {
		err = json.Unmarshal(text, &tree)
	}
	if err != nil {
		return err.Error()
	}
	return tree
}

// compareTrees adds one line for each part that differs: the path, and both sides. An empty side is "-".
func compareTrees(path string, was, is any, out *[]string) {
	a, aMap := was.(map[string]any)
	b, bMap := is.(map[string]any)
	if aMap && bMap {
		keys := maps.Clone(a)
		maps.Copy(keys, b)
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			compareTrees(path+"."+key, a[key], b[key], out)
		}
		return
	}
	x, xList := was.([]any)
	y, yList := is.([]any)
	if xList && yList && len(x) == len(y) {
		for i := range x {
			compareTrees(fmt.Sprintf("%s[%d]", path, i), x[i], y[i], out)
		}
		return
	}
	if before, after := leafText(was), leafText(is); before != after {
		*out = append(*out, fmt.Sprintf("%s: %s -> %s", path[1:], before, after))
	}
}

func leafText(v any) string {
	switch v := v.(type) {
	case nil:
		return "-"
	case string:
		if v == "" {
			return "-"
		}
	}
	text, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
