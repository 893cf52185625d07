// Package words turns a tree into the number of private idioms in its comments and Markdown pages, by room.
//
// A private idiom is a turn of phrase that a newcomer has to decode, and that a plain word replaces. Idioms
// lists both. Invariant: the package reads comments and Markdown only; identifiers, strings and code blocks do not count.
package words

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Idiom is a turn of phrase with its plain replacement.
type Idiom struct {
	Pattern *regexp.Regexp
	Instead string
}

// Idioms returns the turns of phrase that count. Patterns see a paragraph as one line.
func Idioms() []Idiom {
	var out []Idiom
	for _, i := range [][2]string{
		{`(?i)\b(tell|tells|told|telling)\b`, "send, report, return"},
		{`(^|[.!] )(What|Who|Whatever) [a-z]`, "name the subject"},
		{`(^|[.!] )Where (a|an|the|it|its|they|there|no|nothing|nobody|one|that|this|is|are|was|VPP)\b`, "name the subject; if"},
		{`(?i)\bglad\b`, "name the effect"},
		{`(?i)\b(needs?|has|have|gets?|without|no|the) leave\b`, "may, right"},
		{`(?i)\b(is|are|was|were|be|been) there\b`, "exists"},
		{`(?i)\bof (its|their|his|your|our) own\b`, "separate"},
		{`(?i)\b(somebody|whoever|whom)\b`, "another owner, foreign"},
		{`(?i)\ball the same\b`, "nevertheless"},
		{`(?i)\b(judges|judged|judging)\b`, "evaluates"},
		{`(?i)\b(goes|comes|went)([.,;:)]|$| (and|again|back|on)\b)`, "is removed, is added, continues"},
		{`(?i)\bon (the|its|their) way\b`, "on the path, not yet done"},
	} {
		out = append(out, Idiom{regexp.MustCompile(i[0]), i[1]})
	}
	return out
}

// Finding is one idiom in a paragraph.
type Finding struct {
	// Path is relative to the tree. Line is the first line of the paragraph.
	Path string
	Line int
	// Text is the phrase, Instead its plain replacement.
	Text, Instead string
}

// String returns "path:line: "text": instead".
func (f Finding) String() string {
	return fmt.Sprintf("%s:%d: %q: better %s", f.Path, f.Line, f.Text, f.Instead)
}

// Count is the number of words and the idioms of a room.
type Count struct {
	Words    int
	Findings []Finding
}

// Rate returns the idioms per 10,000 words; 0 without words.
func (c Count) Rate() float64 {
	if c.Words == 0 {
		return 0
	}
	return float64(len(c.Findings)) * 10_000 / float64(c.Words)
}

// Sum returns the count of all rooms together.
func Sum(rooms map[string]Count) (out Count) {
	for _, c := range rooms {
		out.Words += c.Words
		out.Findings = append(out.Findings, c.Findings...)
	}
	return out
}

// Tree returns the counts of a tree by room: its top folder, or "." for files at the root. It skips generated Go files, testdata, and
// folders that begin with a dot or are named bin.
func Tree(root string) (map[string]Count, error) {
	out := map[string]Count{}
	idioms := Idioms()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if base := d.Name(); path != root && (strings.HasPrefix(base, ".") || base == "testdata" || base == "bin") {
				return filepath.SkipDir
			}
			return nil
		}
		paragraphs, err := readParagraphs(path)
		if err != nil || len(paragraphs) == 0 {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		room, _, below := strings.Cut(rel, "/")
		if !below {
			room = "."
		}
		c := out[room]
		for _, p := range paragraphs {
			c.Words += len(strings.Fields(p.text))
			c.Findings = append(c.Findings, findIdioms(idioms, rel, p)...)
		}
		out[room] = c
		return nil
	})
	return out, err
}

// paragraph is running text on one line, and the line where it begins.
type paragraph struct {
	line int
	text string
}

func findIdioms(idioms []Idiom, path string, p paragraph) (out []Finding) {
	for _, i := range idioms {
		for _, text := range i.Pattern.FindAllString(p.text, -1) {
			out = append(out, Finding{path, p.line, strings.TrimSpace(text), i.Instead})
		}
	}
	return out
}

// readParagraphs returns the paragraphs of a Go file's comments or of a Markdown page; none for other files.
func readParagraphs(path string) ([]paragraph, error) {
	switch filepath.Ext(path) {
	case ".go":
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		return comments(path, text)
	case ".md":
		text, err := os.ReadFile(path)
		return pages(string(text)), err
	}
	return nil, nil
}

// comments returns the paragraphs of a Go file's comments. Indented lines are code and do not count, nor do directives.
func comments(path string, text []byte) (out []paragraph, err error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil || ast.IsGenerated(file) {
		return nil, err
	}
	for _, group := range file.Comments {
		begin := fset.Position(group.Pos()).Line
		lines := strings.Split(group.Text(), "\n")
		out = append(out, joinLines(lines, begin, func(line string) bool { return line[0] == ' ' || line[0] == '\t' })...)
	}
	return out, nil
}

// pages returns the paragraphs of a Markdown page without its code blocks. Markers of headings, lists and tables are removed.
func pages(text string) []paragraph {
	lines := strings.Split(text, "\n")
	block := false
	var plain []string
	for _, line := range lines {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			block = !block
			line = ""
		}
		if block || strings.HasPrefix(line, "    ") {
			line = ""
		}
		marker := strings.HasPrefix(line, "#") || strings.HasPrefix(line, "|") || strings.HasPrefix(strings.TrimSpace(line), "* ") ||
			strings.HasPrefix(strings.TrimSpace(line), "- ")
		if line = strings.TrimLeft(line, "#*-| "); marker && len(plain) > 0 {
			line = "\x00" + line // begins a paragraph
		}
		plain = append(plain, line)
	}
	return joinLines(plain, 1, func(string) bool { return false })
}

// joinLines makes paragraphs of lines, of which the first has the number begin. skip reports whether a line does not count.
func joinLines(lines []string, begin int, skip func(string) bool) (out []paragraph) {
	var p paragraph
	end := func() {
		if p.text != "" {
			out = append(out, p)
		}
		p = paragraph{}
	}
	for i, line := range lines {
		if strings.HasPrefix(line, "\x00") {
			end()
			line = line[1:]
		}
		if strings.TrimSpace(line) == "" || skip(line) {
			end()
			continue
		}
		if p.text == "" {
			p.line = begin + i
		} else {
			p.text += " "
		}
		p.text += strings.TrimSpace(line)
	}
	end()
	return out
}
