package ask

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// The optional fields apiVersion and kind of a file. With them the file may be in a folder of manifests: their readers skip its kind.
const (
	Version  = "agent.contiv.io/v1alpha1"
	FileKind = "PolicyAssertions"
)

// ReadFile reads the assertions of a file of YAML:
//
//	apiVersion: agent.contiv.io/v1alpha1
//	kind: PolicyAssertions
//	assertions:
//	- name: development does not reach production
//	  reason: test data must stay out
//	  never: namespaces:stage=dev -> namespaces:stage=prod
//
// Each has a name, which no other one has, a reason, and never or always. The error names file, line, assertion and field of everything
// that is wrong.
func ReadFile(path string) ([]Assertion, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return Read(path, text)
}

// Read is ReadFile of a text.
func Read(path string, text []byte) ([]Assertion, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var doc, more yaml.Node
	if err := decoder.Decode(&doc); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if err := decoder.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: want one document", path)
	}
	f := file{path: path}
	f.readDocument(&doc)
	if len(f.list) == 0 && len(f.errs) == 0 {
		f.complain(&doc, "no assertions: want a list of them under assertions")
	}
	return f.list, errors.Join(f.errs...)
}

// file is what has been read.
type file struct {
	path string
	list []Assertion
	errs []error
}

func (f *file) complain(at *yaml.Node, format string, args ...any) {
	f.errs = append(f.errs, fmt.Errorf("%s:%d: %s", f.path, max(at.Line, 1), fmt.Sprintf(format, args...)))
}

// pairs calls visit for each field of a mapping.
func (f *file) pairs(n *yaml.Node, what string, visit func(key, value *yaml.Node)) {
	if n.Kind != yaml.MappingNode {
		f.complain(n, "%s: want fields", what)
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if seen[key.Value] {
			f.complain(key, "%s: field %s is given twice", what, key.Value)
		}
		seen[key.Value] = true
		visit(key, n.Content[i+1])
	}
}

func (f *file) readDocument(doc *yaml.Node) {
	if len(doc.Content) == 0 {
		return
	}
	f.pairs(doc.Content[0], "file", func(key, value *yaml.Node) {
		wanted := map[string]string{"apiVersion": Version, "kind": FileKind}[key.Value]
		switch {
		case wanted != "" && value.Value != wanted:
			f.complain(value, "field %s: want %s", key.Value, wanted)
		case wanted != "":
		case key.Value != "assertions":
			f.complain(key, "field %s is not known: want assertions", key.Value)
		case value.Kind != yaml.SequenceNode:
			f.complain(value, "assertions: want a list")
		default:
			for i, entry := range value.Content {
				f.readEntry(i+1, entry)
			}
		}
	})
}

func (f *file) readEntry(number int, entry *yaml.Node) {
	what := fmt.Sprintf("assertion %d", number)
	fields := map[string]*yaml.Node{}
	wrong := len(f.errs)
	f.pairs(entry, what, func(key, value *yaml.Node) {
		if key.Value == "name" && value.Value != "" {
			what += fmt.Sprintf(" (%s)", value.Value)
		}
		switch {
		case !slices.Contains([]string{"name", "reason", "never", "always"}, key.Value):
			f.complain(key, "%s: field %s is not known: want name, reason, and never or always", what, key.Value)
		case value.Kind != yaml.ScalarNode || strings.TrimSpace(value.Value) == "":
			f.complain(value, "%s: field %s: want a text", what, key.Value)
		default:
			fields[key.Value] = value
		}
	})
	if len(f.errs) > wrong {
		return
	}
	never, always := fields["never"], fields["always"]
	switch {
	case fields["name"] == nil || fields["reason"] == nil:
		f.complain(entry, "%s: fields name and reason are required", what)
		return
	case (never == nil) == (always == nil):
		f.complain(entry, "%s: want either never or always", what)
		return
	}
	kind, demand := Never, never
	if never == nil {
		kind, demand = Always, always
	}
	a, err := Parse(kind, demand.Value)
	if err != nil {
		f.complain(demand, "%s: field %s: %v", what, kind, err)
		return
	}
	a.Name, a.Reason = fields["name"].Value, strings.TrimSpace(fields["reason"].Value)
	if slices.ContainsFunc(f.list, func(b Assertion) bool { return b.Name == a.Name }) {
		f.complain(entry, "%s: another assertion has this name", what)
	}
	f.list = append(f.list, a)
}
