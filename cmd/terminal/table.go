package terminal

import (
	"bytes"
	"io"
	"strings"
	"unicode/utf8"
)

// mostPadding bounds the width that a column gets for its longest cell. One long name does not move the cells of all other lines.
const mostPadding = 40

// gap is the space between two columns.
const gap = 2

// Table aligns the cells of lines. Cells end with a tab, and the last cell of a line with the line. A line without a tab ends the alignment: columns after it
// have other widths.
//
// If the style has a width, the last cell of a line continues below itself, and cells after one that is longer than its column are
// on the next line. Words are never cut: a name can be copied. Without a width each line stays one line, for grep.
type Table struct {
	w     io.Writer
	style Style
	text  bytes.Buffer
}

// NewTable returns a table with the style of its writer.
func NewTable(w io.Writer) *Table { return &Table{w: w, style: StyleOf(w)} }

// Write implements io.Writer.
func (t *Table) Write(p []byte) (int, error) { return t.text.Write(p) }

// Flush writes the lines.
func (t *Table) Flush() error {
	var out strings.Builder
	var block [][]string
	for line := range strings.Lines(t.text.String()) {
		cells := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(cells) > 1 {
			block = append(block, cells)
			continue
		}
		t.align(&out, block)
		block = nil
		out.WriteString(line)
	}
	t.align(&out, block)
	t.text.Reset()
	return t.style.writeText(t.w, out.String())
}

// align writes lines of one alignment.
func (t *Table) align(out *strings.Builder, block [][]string) {
	most := mostPadding
	if t.style.Width > 0 {
		most = min(most, max(t.style.Width/3, 12))
	}
	var widths []int
	for _, cells := range block {
		for i, c := range cells[:len(cells)-1] {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], min(utf8.RuneCountInString(c), most))
		}
	}
	for _, cells := range block {
		t.line(out, cells, widths)
	}
}

// line writes one line, or with a width several.
func (t *Table) line(out *strings.Builder, cells []string, widths []int) {
	at, indent := 0, 0
	last := len(cells) - 1
	for i, c := range cells[:last] {
		out.WriteString(strings.Repeat(" ", max(indent-at, 0)) + t.style.State(c))
		at = max(indent, at) + utf8.RuneCountInString(c)
		indent += widths[i] + gap
		switch {
		case at+gap <= indent:
		case t.style.Width > 0 && i+1 == last:
			out.WriteByte('\n')
			at = 0
		default:
			out.WriteString(strings.Repeat(" ", gap))
			at += gap
		}
	}
	if cells[last] == "" {
		out.WriteByte('\n')
		return
	}
	out.WriteString(strings.Repeat(" ", max(indent-at, 0)))
	pad := "\n" + strings.Repeat(" ", indent)
	text := []string{cells[last]}
	if t.style.Width > 0 {
		text = wrap(cells[last], max(t.style.Width-indent, leastText))
	}
	out.WriteString(t.style.State(strings.Join(text, pad)) + "\n")
}

// leastText is the width that a text gets in any case: a narrower one would have one word a line.
const leastText = 20

// wrap returns the lines of a text with at most so many columns each, as far as its words allow.
func wrap(text string, width int) (lines []string) {
	line := ""
	for word := range strings.SplitSeq(text, " ") {
		switch {
		case line == "":
			line = word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) <= width:
			line += " " + word
		default:
			lines = append(lines, line)
			line = word
		}
	}
	return append(lines, line)
}
