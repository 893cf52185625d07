package manifest

import (
	"bytes"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// position finds the line of a field, given as a JSON path as in convert.Problem. A missing field has the line of its
// nearest parent.
type position struct {
	doc    *document
	root   *yaml.Node // parsed on first use; a zero Node if the text has no readable structure
	prefix string     // path of the object within the document: "" or "items[3]"
}

func (p *position) line(path string) int {
	if path == "" && p.prefix == "" {
		return p.doc.firstLine()
	}
	if p.root == nil {
		p.root = parseNodes(p.doc.text)
	}
	n, line := p.root, 0
	for _, step := range append(steps(p.prefix), steps(path)...) {
		child, at := child(n, step)
		if child == nil {
			break
		}
		n, line = child, at
	}
	if line == 0 {
		return p.doc.firstLine()
	}
	return min(p.doc.line+line-1, p.doc.lastLine())
}

// item returns the position of an element of a List.
func (p *position) item(i int) *position {
	if p.root == nil {
		p.root = parseNodes(p.doc.text)
	}
	path := "items[" + strconv.Itoa(i) + "]"
	if p.prefix != "" {
		path = p.prefix + "." + path
	}
	return &position{doc: p.doc, root: p.root, prefix: path}
}

// parseNodes parses YAML or JSON text to nodes with line numbers. Tabs are white space in JSON but not in YAML: outside of
// strings they mean nothing, and inside they do not change lines.
func parseNodes(text []byte) *yaml.Node {
	n := &yaml.Node{}
	if trimmed := bytes.TrimSpace(text); len(trimmed) > 0 && trimmed[0] == '{' {
		text = bytes.ReplaceAll(text, []byte("\t"), []byte(" "))
	}
	if err := yaml.Unmarshal(text, n); err != nil || len(n.Content) == 0 {
		return &yaml.Node{}
	}
	return n.Content[0]
}

// child returns the child of n and the line to show for it (that of its key in a mapping); nil if n has no such child.
func child(n *yaml.Node, step string) (*yaml.Node, int) {
	for range 8 { // aliases of aliases; no real manifest nests more
		if n.Kind != yaml.AliasNode || n.Alias == nil {
			break
		}
		n = n.Alias
	}
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == step {
				return n.Content[i+1], n.Content[i].Line
			}
		}
	case yaml.SequenceNode:
		if i, err := strconv.Atoi(step); err == nil && i >= 0 && i < len(n.Content) {
			return n.Content[i], n.Content[i].Line
		}
	}
	return nil, 0
}

// steps splits "a.b[3].c[x.y/z]" into a, b, 3, c, x.y/z.
func steps(path string) []string {
	var out []string
	for path != "" {
		if path[0] == '[' {
			key, rest, _ := strings.Cut(path[1:], "]")
			out, path = append(out, key), strings.TrimPrefix(rest, ".")
			continue
		}
		end := strings.IndexAny(path, ".[")
		if end < 0 {
			return append(out, path)
		}
		out, path = append(out, path[:end]), strings.TrimPrefix(path[end:], ".")
	}
	return out
}
