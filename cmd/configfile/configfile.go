// Package configfile turns files of YAML into flags: each flag of a command is a field of its file. It also writes the page that lists
// all fields.
//
// Invariant: a file sets a flag to the same value as the command line would, or an error names file, line and field.
package configfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/contiv-agent/contiv-agent/cmd/exit"
)

// Version is the apiVersion of configuration files.
const Version = "agent.contiv.io/v1alpha1"

// Kinds of configuration files.
const (
	AgentKind  = "AgentConfiguration"
	FanoutKind = "FanoutConfiguration"
)

// File are the flags for a configuration file whose fields are the other flags of the command.
type File struct {
	Kind  string
	Blank func() *cobra.Command // the command, with an empty command line
	// Bare means that a file without apiVersion and kind is also read: its fields have the names of the flags.
	Bare bool

	Path  string
	Check bool
}

// AddFlags adds the flags for a file of this kind to a command, of which blank makes another.
func (f *File) AddFlags(fs *pflag.FlagSet, kind string, blank func() *cobra.Command) {
	f.Kind, f.Blank = kind, blank
	text := "file of YAML with any of these flags as fields: apiVersion: " + Version + ", kind: " + kind + ", logLevel: debug; the command line wins"
	if f.Bare {
		text += ", then the environment. Without apiVersion and kind the fields have the names of the flags"
	}
	fs.StringVar(&f.Path, "config", "", text)
	fs.BoolVar(&f.Check, "validate-config", false, "report all errors of flags and file, and end: exit code 0 if there is none, 2 otherwise")
}

// Report ends a command that only validates its configuration.
func (f *File) Report(w io.Writer, errs ...error) error {
	if err := errors.Join(errs...); err != nil {
		return exit.Usage(err)
	}
	fmt.Fprintln(w, "the configuration is valid")
	return nil
}

// Fields returns the flags that a file may set, by their field names.
func (f *File) Fields(fs *pflag.FlagSet) map[string]*pflag.Flag {
	out := map[string]*pflag.Flag{}
	fs.VisitAll(func(flag *pflag.Flag) {
		if !slices.Contains([]string{"config", "validate-config", "help"}, flag.Name) {
			out[FieldName(flag.Name)] = flag
		}
	})
	return out
}

// FieldName returns the field of a flag: serviceCIDR for service-cidr.
func FieldName(flag string) string {
	words := strings.Split(flag, "-")
	for i, word := range words[1:] {
		switch word {
		case "ca", "cidr", "cn", "db", "icmp", "ip", "san", "snat", "tcp", "ttl", "udp", "uri":
			word = strings.ToUpper(word)
		case "cidrs", "ips":
			word = strings.ToUpper(word[:len(word)-1]) + "s"
		default:
			word = strings.ToUpper(word[:1]) + word[1:]
		}
		words[i+1] = word
	}
	return strings.Join(words, "")
}

// Apply sets the flags that the command line does not set, from the file, if there is one. The error names all errors of the
// file, also for fields that the command line overrides. apply sets the valid fields nevertheless.
func (f *File) Apply(fs *pflag.FlagSet) error {
	if f.Path == "" {
		return nil
	}
	text, err := os.ReadFile(f.Path)
	if err != nil {
		return fmt.Errorf("--config: %w", err)
	}
	inFile := f.Blank().Flags()
	err = f.Read(text, inFile)
	inFile.Visit(func(from *pflag.Flag) { f.applyFlag(fs.Lookup(from.Name), from) })
	return err
}

// applyFlag sets a flag as in the file, unless the command line sets it.
func (f *File) applyFlag(flag, from *pflag.Flag) {
	if flag.Changed {
		return
	}
	flag.Changed = true
	if list, ok := from.Value.(pflag.SliceValue); ok {
		_ = flag.Value.(pflag.SliceValue).Replace(list.GetSlice()) // strings, of the same flag
		return
	}
	_ = flag.Value.Set(from.Value.String()) // the text of an equal flag is valid
}

// Read sets flags from the text of a file.
func (f *File) Read(text []byte, into *pflag.FlagSet) error {
	root, err := f.parse(text)
	if err != nil {
		return err
	}
	r := reader{path: f.Path, fields: f.Fields(into), flags: into}
	head := map[string]bool{}
	for i := 0; i < len(root.Content); i += 2 {
		head[root.Content[i].Value] = true
	}
	if r.bare = f.Bare && !head["apiVersion"] && !head["kind"]; r.bare {
		for _, flag := range f.Fields(into) {
			r.fields[flag.Name] = flag
		}
	}
	for _, must := range [][2]string{{"apiVersion", Version}, {"kind", f.Kind}} {
		if !head[must[0]] && !r.bare {
			r.addProblem(&yaml.Node{Line: 1}, must[0], "must be "+must[1])
		}
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(root.Content); i += 2 {
		key, value := root.Content[i], root.Content[i+1]
		if before := seen[key.Value]; before > 0 {
			r.addProblem(key, key.Value, fmt.Sprintf("is a duplicate of line %d", before))
			continue
		}
		seen[key.Value] = key.Line
		r.field(key, value, f.Kind)
	}
	slices.SortStableFunc(r.found, func(a, b problem) int { return a.line - b.line })
	var errs []error
	for _, p := range r.found {
		errs = append(errs, p.err)
	}
	return errors.Join(errs...)
}

// lineOf matches the line number in an error of the YAML parser.
var lineOf = regexp.MustCompile(`^yaml: line (\d+): `)

// parse returns the single mapping of a file.
func (f *File) parse(text []byte) (*yaml.Node, error) {
	var doc, more yaml.Node
	d := yaml.NewDecoder(bytes.NewReader(text))
	if err := d.Decode(&doc); errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s:1: is empty", f.Path)
	} else if err != nil {
		return nil, f.syntax(err)
	}
	switch err := d.Decode(&more); {
	case err == nil:
		return nil, fmt.Errorf("%s:%d: must be one document", f.Path, more.Line)
	case !errors.Is(err, io.EOF):
		return nil, f.syntax(err)
	}
	if doc.Content[0].Kind != yaml.MappingNode {
		return nil, fmt.Errorf("%s:%d: must have fields", f.Path, doc.Content[0].Line)
	}
	return doc.Content[0], nil
}

func (f *File) syntax(err error) error {
	return errors.New(f.Path + ":" + strings.TrimPrefix(lineOf.ReplaceAllString(err.Error(), "$1: "), "yaml: "))
}

// reader sets flags from the fields of a file.
type reader struct {
	path   string
	fields map[string]*pflag.Flag
	flags  *pflag.FlagSet
	bare   bool // values may also be written as on a command line
	found  []problem
}

// problem is an error in a line.
type problem struct {
	line int
	err  error
}

func (r *reader) addProblem(at *yaml.Node, field, why string) {
	r.found = append(r.found, problem{at.Line, fmt.Errorf("%s:%d: %s: %s", r.path, at.Line, field, why)})
}

func (r *reader) field(key, value *yaml.Node, kind string) {
	for value.Kind == yaml.AliasNode {
		value = value.Alias
	}
	name, want := key.Value, ""
	switch {
	case r.bare:
	case name == "apiVersion":
		want = Version
	case name == "kind":
		want = kind
	}
	if want != "" {
		if value.Kind != yaml.ScalarNode || value.Value != want {
			r.addProblem(value, name, "must be "+want)
		}
		return
	}
	flag := r.fields[name]
	if flag == nil {
		r.addProblem(key, name, r.unknown(name))
		return
	}
	if why := r.setFlag(flag, value); why != "" {
		r.addProblem(value, name, why)
	}
}

// unknown returns the error for an unknown field, with a similar field if there is one.
func (r *reader) unknown(name string) string {
	plain := func(s string) string { return strings.ToLower(strings.ReplaceAll(s, "-", "")) }
	for _, field := range slices.Sorted(maps.Keys(r.fields)) { // a bare file accepts two names for each flag
		if plain(field) == plain(name) {
			return "no such field; did you mean " + field + "?"
		}
	}
	if r.bare {
		return "no such flag: " + name
	}
	return "no such field"
}

// setFlag sets a flag from a YAML value; it returns why it cannot, or "".
func (r *reader) setFlag(flag *pflag.Flag, value *yaml.Node) string {
	if list, ok := flag.Value.(pflag.SliceValue); ok && (value.Kind == yaml.SequenceNode || !r.bare) {
		items, why := texts(value, r.bare)
		if why == "" {
			_ = r.flags.Set(flag.Name, "") // marks the flag as set
			_ = list.Replace(items)        // strings
		}
		return why
	}
	tag := map[string]string{"string": "!!str", "duration": "!!str", "bool": "!!bool"}[flag.Value.Type()]
	if tag == "" {
		tag = "!!int"
	}
	if value.Kind != yaml.ScalarNode || value.ShortTag() == "!!null" || !r.bare && value.ShortTag() != tag {
		return "must be " + map[string]string{
			"string": "a string; quote it", "duration": "a duration such as 30s, a string", "bool": "true or false",
		}[flag.Value.Type()] + map[bool]string{true: "a whole number"}[tag == "!!int"]
	}
	if err := r.flags.Set(flag.Name, value.Value); err != nil {
		why := err.Error()
		if inner := errors.Unwrap(err); inner != nil {
			why = inner.Error()
		}
		return why
	}
	return ""
}

// texts returns the strings of a list, or why it is not one.
func texts(list *yaml.Node, bare bool) (out []string, why string) {
	if list.Kind != yaml.SequenceNode {
		return nil, "must be a list of strings"
	}
	for _, n := range list.Content {
		for n.Kind == yaml.AliasNode {
			n = n.Alias
		}
		if n.Kind != yaml.ScalarNode || !bare && n.ShortTag() != "!!str" {
			return nil, "must be a list of strings; quote them"
		}
		out = append(out, n.Value)
	}
	return out, ""
}
