package client

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"sigs.k8s.io/yaml"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/proto/ligato/configurator"
)

// Document is one item in a file.
type Document struct {
	Key     string
	Message proto.Message // nil: the document names the item without a value
	Merge   event.Merge
	Labels  map[string]string
	Where   string // "file: document 2 (line 14)"
}

// written is a document in this program's form. Either key, or model and name, identifies the item; with a value, model is
// enough.
type written struct {
	Key    string            `json:"key,omitempty"`
	Model  string            `json:"model,omitempty"`
	Name   *string           `json:"name,omitempty"`
	Value  json.RawMessage   `json:"value,omitempty"`
	Merge  string            `json:"merge,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
}

// ReadDocuments reads a file of YAML or JSON documents. A document is one item, with key, or model and name, and value; or
// ligato's whole configuration (vppConfig, linuxConfig), as its agentctl prints it. Fields may be spelled as in the .proto
// or in lowerCamelCase. The error names all problems, by document and field. Two items with the same key are an error.
func ReadDocuments(name string, data []byte) ([]Document, error) {
	var out []Document
	var errs []error
	first := map[string]string{} // key → where
	for i, d := range split(data) {
		where := fmt.Sprintf("%s: document %d (line %d)", name, i+1, d.line)
		docs, err := readDocument(d.text)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", where, err))
			continue
		}
		for _, doc := range docs {
			doc.Where = where
			if there, twice := first[doc.Key]; twice {
				errs = append(errs, fmt.Errorf("%s: %s is in %s already", where, doc.Key, there))
				continue
			}
			first[doc.Key] = where
			out = append(out, doc)
		}
	}
	return out, errors.Join(errs...)
}

// text is a document and its first line in the file.
type text struct {
	text []byte
	line int
}

// split cuts a file at lines that begin with three dashes, and drops empty documents.
func split(data []byte) (out []text) {
	at, line := 1, 0
	var b bytes.Buffer
	flush := func() {
		for l := range bytes.Lines(b.Bytes()) {
			if t := bytes.TrimSpace(l); len(t) > 0 && t[0] != '#' {
				out = append(out, text{slices.Clone(b.Bytes()), at})
				break
			}
		}
		b.Reset()
	}
	for l := range bytes.Lines(data) {
		line++
		if rest, marker := bytes.CutPrefix(l, []byte("---")); marker && (len(bytes.TrimSpace(rest)) == 0 || rest[0] == ' ') {
			flush()
			at = line + 1
			b.Write(rest)
			continue
		}
		b.Write(l)
	}
	flush()
	return out
}

func readDocument(text []byte) ([]Document, error) {
	data, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, plain(err)
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil {
		return nil, errors.New("must be a mapping, with key, or model and name, and value")
	}
	for field := range fields {
		if strings.HasSuffix(strings.ToLower(strings.ReplaceAll(field, "_", "")), "config") {
			return readWhole(data)
		}
	}
	var w written
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	err = d.Decode(&w)
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return nil, fmt.Errorf("%s: must be a %s, is a %s", wrong.Field, wrong.Type, wrong.Value)
	}
	if err != nil {
		return nil, errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	doc, err := w.document()
	return []Document{doc}, err
}

// document checks a document and finds its key.
func (w *written) document() (doc Document, err error) {
	doc.Labels = w.Labels
	if doc.Merge, err = event.ParseMerge(w.Merge); err != nil {
		return doc, err
	}
	var model kv.Model
	switch {
	case w.Key != "" && (w.Model != "" || w.Name != nil):
		return doc, errors.New("key: must not be given together with model and name")
	case w.Key != "":
		var known bool
		if model, _, known = kv.Lookup(w.Key); !known {
			return doc, fmt.Errorf("key %q: %w", w.Key, kv.ErrNoModel)
		}
		doc.Key = w.Key
	case w.Model != "":
		if model, err = byName(w.Model); err != nil {
			return doc, err
		}
		if w.Name != nil || model.Singleton() {
			name := ""
			if w.Name != nil {
				name = *w.Name
			}
			doc.Key = model.Key(name)
		}
	default:
		return doc, errors.New("must have a key or a model")
	}
	if len(w.Value) == 0 || string(w.Value) == "null" {
		if doc.Key == "" {
			return doc, errors.New("name: is missing: a model without a value needs it")
		}
		return doc, nil
	}
	doc.Message = model.New()
	if err := protojson.Unmarshal(w.Value, doc.Message); err != nil {
		return doc, fmt.Errorf("value: %w", plain(err))
	}
	own := kv.Key(doc.Message)
	if doc.Key == "" {
		doc.Key = own
	}
	if err := kv.Check(doc.Key, doc.Message); err != nil {
		return doc, fmt.Errorf("value: its key is %q, not %q: %w", own, doc.Key, kv.ErrKeyMismatch)
	}
	return doc, doc.Merge.Check(doc.Message.ProtoReflect().Descriptor())
}

func byName(name string) (kv.Model, error) {
	var names []string
	for _, m := range kv.Models() {
		if m.Name == name {
			return m, nil
		}
		names = append(names, m.Name)
	}
	return kv.Model{}, fmt.Errorf("model %q: is unknown: must be one of %s", name, strings.Join(names, ", "))
}

// readWhole reads ligato's whole configuration.
func readWhole(data []byte) ([]Document, error) {
	config := &configurator.Config{}
	if err := protojson.Unmarshal(data, config); err != nil {
		return nil, plain(err)
	}
	var out []Document
	var errs []error
	add := func(field protoreflect.FieldDescriptor, at int, m proto.Message) {
		key := kv.Key(m)
		if err := kv.Check(key, m); err != nil {
			errs = append(errs, fmt.Errorf("%s[%d]: %w", field.JSONName(), at, err))
			return
		}
		out = append(out, Document{Key: key, Message: m})
	}
	for _, part := range []protoreflect.Message{config.GetVppConfig().ProtoReflect(), config.GetLinuxConfig().ProtoReflect()} {
		fields := part.Descriptor().Fields()
		for i := range fields.Len() {
			f := fields.Get(i)
			switch {
			case !part.Has(f):
			case f.IsList():
				for j := range part.Get(f).List().Len() {
					add(f, j, part.Get(f).List().Get(j).Message().Interface())
				}
			default:
				add(f, 0, part.Get(f).Message().Interface())
			}
		}
	}
	return out, errors.Join(errs...)
}

// places matches prefixes and positions in parsers' messages. Protobuf's spaces differ between builds, and its lines are
// those of the intermediate JSON.
var places = regexp.MustCompile(`^(error converting YAML to JSON: |proto:\s+)|\(line \d+:\d+\):\s+|syntax error `)

func plain(err error) error {
	return errors.New(places.ReplaceAllString(strings.ReplaceAll(err.Error(), "\u00a0", " "), ""))
}

// WriteDocuments writes items in the form that ReadDocuments reads, with field names as in the .proto.
func WriteDocuments(items []Item) ([]byte, error) {
	var out bytes.Buffer
	for i, item := range items {
		value, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(item.Message)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", item.Key, err)
		}
		doc, err := yaml.Marshal(written{Key: item.Key, Value: value, Labels: item.Labels})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", item.Key, err)
		}
		if i > 0 {
			out.WriteString("---\n")
		}
		out.Write(doc)
	}
	return out.Bytes(), nil
}
