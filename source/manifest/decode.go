package manifest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/contiv-agent/contiv-agent/calico"
	"github.com/contiv-agent/contiv-agent/calico/datastore/encode"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/source/convert"
	"github.com/contiv-agent/contiv-agent/source/convert/check"
)

// Error is the reason why a piece of a manifest is not used.
type Error struct {
	File string
	Line int    // from 1
	Text string // what and why, without the position
	Err  error  // the cause: a *convert.Error, or nil
}

// Error returns "file:line: text".
func (e *Error) Error() string { return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Text) }

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// entry is the result for one object, or for one unusable piece, of a file: an object, an error, or both for a refused
// policy.
type entry struct {
	ref    model.Ref
	object model.Object
	err    error
	origin string      // file:line
	keys   []calico.KV // with Config.Keys
	syntax bool        // the piece does not parse: its former content is unknown, not deleted
}

// parsed is the content of a file.
type parsed struct {
	entries  []entry
	warnings []string       // one sentence each, with position
	ignored  map[string]int // kinds that the agent does not read, with their number of objects
	withKeys bool
}

// parse reads every document of a file. With withKeys it also encodes the objects as keys.
func parse(file string, data []byte, withKeys bool) *parsed {
	p := &parsed{ignored: map[string]int{}, withKeys: withKeys}
	for _, d := range split(file, data) {
		values, err := d.values()
		if err != nil {
			p.entries = append(p.entries, entry{ref: d.ref(""), err: err, origin: d.origin(err.Line), syntax: true})
			continue
		}
		for i, v := range values {
			name := ""
			if i > 0 {
				name = fmt.Sprintf(" value %d", i+1)
			}
			p.value(&v.position, name, v.tree, 0)
		}
	}
	return p
}

func (d *document) origin(line int) string { return d.file + ":" + strconv.Itoa(line) }

// ref names the document, or a part of it, where no object has a name.
func (d *document) ref(part string) model.Ref {
	name := d.file
	if d.index > 1 {
		name += " document " + strconv.Itoa(d.index)
	}
	return model.Ref{Kind: model.KindManifest, Name: name + part}
}

type value struct {
	position position
	tree     any
}

// values reads the document as JSON (one or more values) or YAML (one).
func (d *document) values() ([]value, *Error) {
	isJSON := filepath.Ext(d.file) == ".json"
	if isJSON || bytes.HasPrefix(bytes.TrimSpace(d.text), []byte("{")) {
		values, err := d.jsonValues()
		if err == nil || isJSON {
			return values, err
		}
	}
	text, err := yaml.YAMLToJSONStrict(d.text)
	if err != nil {
		return nil, d.yamlError(err)
	}
	tree, err := decodeTree(json.NewDecoder(bytes.NewReader(text)))
	if err != nil {
		return nil, d.yamlError(err)
	}
	return []value{{position{doc: d}, tree}}, nil
}

func (d *document) jsonValues() ([]value, *Error) {
	dec := json.NewDecoder(bytes.NewReader(d.text))
	var out []value
	for {
		start := int(dec.InputOffset())
		tree, err := decodeTree(dec)
		if errors.Is(err, io.EOF) && len(out) > 0 {
			return out, nil
		}
		if err != nil {
			offset := int(dec.InputOffset())
			if s, ok := errors.AsType[*json.SyntaxError](err); ok {
				offset = int(s.Offset)
			}
			if errors.Is(err, io.ErrUnexpectedEOF) {
				offset = len(d.text)
			}
			return nil, d.unparsed(d.lineAt(offset), "JSON: "+err.Error())
		}
		end := int(dec.InputOffset())
		part := &document{file: d.file, index: d.index, line: d.lineAt(start), text: d.text[start:end]}
		out = append(out, value{position{doc: part}, tree})
	}
}

// decodeTree reads one JSON value and keeps numbers as written.
func decodeTree(dec *json.Decoder) (tree any, err error) {
	dec.UseNumber()
	err = dec.Decode(&tree)
	return tree, err
}

// lineNumber extracts the line from an error of the YAML parser, which has it in its text only.
func lineNumber(text string) (line int, rest string) {
	m := regexp.MustCompile(`line (\d+): `).FindStringSubmatchIndex(text)
	if m == nil {
		return 0, text
	}
	line, err := strconv.Atoi(text[m[2]:m[3]])
	if err != nil {
		return 0, text
	}
	return line, text[m[1]:]
}

func (d *document) yamlError(err error) *Error {
	text := strings.TrimPrefix(err.Error(), "error converting YAML to JSON: ")
	line, text := lineNumber(strings.TrimPrefix(text, "yaml: "))
	text, _, _ = strings.Cut(text, "\n")
	if line > 0 {
		return d.unparsed(d.line+line-1, "YAML: "+text)
	}
	return d.unparsed(d.firstLine(), "YAML: "+text)
}

// unparsed returns the error that the document is not valid YAML or JSON, from line on.
func (d *document) unparsed(line int, why string) *Error {
	line = min(line, d.lastLine())
	return &Error{File: d.file, Line: line, Text: fmt.Sprintf("not valid %s; the document that begins on line %d is not used", why, d.firstLine())}
}

// maxNesting bounds Lists in Lists.
const maxNesting = 4

// value reads one value of a document: an object or a List of objects. part names it within the document.
func (p *parsed) value(pos *position, part string, tree any, depth int) {
	m, ok := tree.(map[string]any)
	if !ok {
		if tree != nil {
			p.refuse(pos, part, "", "not a Kubernetes object: it must be a mapping with apiVersion and kind")
		}
		return
	}
	apiVersion, hasVersion := m["apiVersion"].(string)
	kind, hasKind := m["kind"].(string)
	if !hasVersion || !hasKind || apiVersion == "" || kind == "" {
		missing := "kind"
		if !hasVersion || apiVersion == "" {
			missing = "apiVersion"
		}
		p.refuse(pos, part, missing, "not a Kubernetes object: "+missing+" is missing or not a string")
		return
	}
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		p.refuse(pos, part, "apiVersion", "not a Kubernetes object: apiVersion must be group/version")
		return
	}
	if element, ok := strings.CutSuffix(kind, "List"); ok {
		if _, ok := convert.KindOf(gv.Group, element); ok || kind == "List" && gv.Group == "" {
			p.items(pos, part, m, apiVersion, element, depth)
			return
		}
	}
	p.object(pos, part, m, gv, kind)
}

// items reads the elements of a List. Those of a typed list (ServiceList) may omit the apiVersion and kind that the list
// implies.
func (p *parsed) items(pos *position, part string, list map[string]any, apiVersion, element string, depth int) {
	items, ok := list["items"].([]any)
	if !ok && list["items"] != nil {
		p.refuse(pos, part, "items", "items must be a list")
		return
	}
	if depth == maxNesting {
		p.refuse(pos, part, "", "Lists are nested too deeply")
		return
	}
	for i, item := range items {
		if m, ok := item.(map[string]any); ok && element != "" {
			if m["kind"] == nil && m["apiVersion"] == nil {
				m["kind"], m["apiVersion"] = element, apiVersion
			}
		}
		p.value(pos.item(i), fmt.Sprintf("%s item %d", part, i+1), item, depth+1)
	}
}

// refuse records a piece that is not an object.
func (p *parsed) refuse(pos *position, part, field, why string) {
	line := pos.line(field)
	p.entries = append(p.entries, entry{
		ref: pos.doc.ref(part), origin: pos.doc.origin(line),
		err: &Error{File: pos.doc.file, Line: line, Text: why},
	})
}

// object reads one object.
func (p *parsed) object(pos *position, part string, tree map[string]any, gv schema.GroupVersion, kind string) {
	k, ok := convert.KindOf(gv.Group, kind)
	if !ok {
		if !p.keysOnly(pos, tree, gv, kind) {
			p.ignored[gv.String()+" "+kind]++
		}
		return
	}
	ref := k.Ref(tree)
	e := entry{ref: ref, origin: pos.doc.origin(pos.line(""))}
	if ref.Name == "" {
		e.ref = pos.doc.ref(part)
	}
	var err error
	if gv.Version == k.Version {
		raw := p.raw(tree)
		result, unknown := k.Read(tree)
		e.object = result.Object
		for _, path := range unknown {
			p.warnings = append(p.warnings, fmt.Sprintf("%s: %s: %s: is not a field of this kind; ignored", pos.doc.origin(pos.line(path)), ref, path))
		}
		err = e.encodeKeys(raw, result)
	} else {
		err = &check.Error{Ref: ref, Problems: []check.Problem{{
			Field: "apiVersion", Why: "must be " + k.GroupVersion().String(), Value: strconv.Quote(gv.String()),
		}}}
	}
	if err != nil {
		e.err = p.located(pos, err)
	}
	if e.object != nil || err != nil || len(e.keys) > 0 {
		p.entries = append(p.entries, e)
	}
}

// keysOnly reads an object that becomes datastore keys only, with Config.Keys. It reports whether the kind is such a one.
func (p *parsed) keysOnly(pos *position, tree map[string]any, gv schema.GroupVersion, kind string) bool {
	raw := p.raw(tree)
	if raw == nil {
		return false
	}
	ref, ok := encode.Extra(gv.Group, gv.Version, kind, raw.GetName())
	if !ok || ref.Name == "" {
		return false
	}
	e := entry{ref: ref, origin: pos.doc.origin(pos.line(""))}
	if err := e.encodeKeys(raw, convert.Result{}); err != nil {
		e.err = p.located(pos, err)
	}
	p.entries = append(p.entries, e)
	return true
}

// raw returns a copy of an object before decoding, if it is to be encoded as keys.
func (p *parsed) raw(tree map[string]any) *unstructured.Unstructured {
	if !p.withKeys {
		return nil
	}
	u := &unstructured.Unstructured{}
	if text, err := json.Marshal(tree); err != nil || json.Unmarshal(text, &u.Object) != nil {
		return nil // decoding reports the error
	}
	return u
}

// encodeKeys adds the object as Calico's datastore stores it. It returns why the object is refused, or why it cannot be encoded; in
// the latter case its converted form may still serve an agent.
func (e *entry) encodeKeys(raw *unstructured.Unstructured, result convert.Result) error {
	if raw == nil {
		return result.Err
	}
	var err error
	e.keys, err = encode.Object(raw, result)
	if result.Err == nil && !errors.Is(err, encode.ErrNotEncoded) {
		return err
	}
	return result.Err
}

// located prefixes a conversion error with its position, and each further field on another line with that line.
func (p *parsed) located(pos *position, err error) *Error {
	out := &Error{File: pos.doc.file, Line: pos.line(""), Text: err.Error(), Err: err}
	c, ok := errors.AsType[*check.Error](err)
	if !ok {
		return out
	}
	out.Line = pos.line(c.Problems[0].Field)
	ref := c.Ref
	ref.Name = cmp.Or(ref.Name, "(no name)")
	out.Text = ref.String() + ": " + c.Text(func(pr check.Problem) string {
		if line := pos.line(pr.Field); line != out.Line {
			return fmt.Sprintf("line %d: %s", line, pr)
		}
		return pr.String()
	})
	return out
}
