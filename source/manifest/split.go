package manifest

import (
	"bytes"
	"strings"
)

// document is one document of a file: the text between two separators.
type document struct {
	file  string
	index int // 1, 2, 3 … among the file's documents that are not empty
	line  int // line of the file on which text starts, from 1
	text  []byte
}

// split cuts a file at its document separators: lines that begin with "---" or "...". It cuts before parsing, so that a
// document that does not parse leaves all others readable. It drops empty documents.
func split(file string, data []byte) []document {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	var docs []document
	start, startLine := 0, 1
	flush := func(end int) {
		if text := data[start:end]; !empty(text) {
			docs = append(docs, document{file: file, index: len(docs) + 1, line: startLine, text: text})
		}
	}
	for pos, line := 0, 1; pos < len(data); line++ {
		next := len(data)
		if i := bytes.IndexByte(data[pos:], '\n'); i >= 0 {
			next = pos + i + 1
		}
		if isSeparator(data[pos:next]) {
			flush(pos)
			start, startLine = pos+3, line // the rest of a separator's line belongs to the next document
		}
		pos = next
	}
	flush(len(data))
	return docs
}

func isSeparator(line []byte) bool {
	if !bytes.HasPrefix(line, []byte("---")) && !bytes.HasPrefix(line, []byte("...")) {
		return false
	}
	return len(line) == 3 || strings.IndexByte(" \t\r\n", line[3]) >= 0
}

// empty reports whether text has only blank lines, comments and %directives.
func empty(text []byte) bool {
	for line := range bytes.Lines(text) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' && line[0] != '%' {
			return false
		}
	}
	return true
}

// firstLine returns the line of the file with the document's first content.
func (d *document) firstLine() int {
	n := d.line
	for line := range bytes.Lines(d.text) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' && line[0] != '%' {
			return n
		}
		n++
	}
	return d.line
}

// lastLine returns the document's last line in the file. YAML counts more line breaks than editors do (U+2028, a lone
// carriage return), and parsers may name the line after the end. Callers therefore limit a parser's line to lastLine.
func (d *document) lastLine() int {
	return d.line + bytes.Count(bytes.TrimSuffix(d.text, []byte("\n")), []byte("\n"))
}

// lineAt returns the line of the file that holds a byte of the document.
func (d *document) lineAt(offset int) int {
	return d.line + bytes.Count(d.text[:min(max(offset, 0), len(d.text))], []byte("\n"))
}
