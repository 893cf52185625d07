package main

import (
	"bytes"
	"errors"
	"fmt"
	"html"
	"os"
	"os/exec"
	"strings"
	"unicode/utf8"
)

// transcript executes the commands of a shell script, one after the other, and returns what a reader of a terminal sees. A comment is
// shown as it is. A command with another exit code than 0 shows the code.
func transcript(path string) (string, error) {
	script, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for line := range strings.Lines(string(script)) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(line, "#!"):
			continue
		case line == "" || strings.HasPrefix(line, "#"):
			out.WriteString(line + "\n")
			continue
		}
		cmd := exec.Command("bash", "-c", line)
		cmd.Env = append(os.Environ(), "COLUMNS=110", "NO_COLOR=1")
		text, err := cmd.CombinedOutput()
		fmt.Fprintf(&out, "$ %s\n%s", line, text)
		var exit *exec.ExitError
		switch {
		case errors.As(err, &exit) && exit.ExitCode() == 3: // it answers no, or shows a difference
			fmt.Fprintf(&out, "(exit code %d)\n", exit.ExitCode())
		case err != nil:
			return "", fmt.Errorf("%s: %s: %w\n%s", path, line, err, text)
		}
	}
	return out.String(), nil
}

// The terminal's measures, in pixels.
const (
	charWidth  = 7.8
	lineHeight = 17
	margin     = 14
)

// terminal returns a transcript as SVG: a window with its text, comments and prompts in colours.
func terminal(text string) []byte {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	longest := 0
	for _, line := range lines {
		longest = max(longest, utf8.RuneCountInString(line))
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%d" role="img" aria-label="a terminal session">
<style>rect{fill:#1d2330}text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;fill:#d7dce5;white-space:pre}.c{fill:#8fa3bf}.p{fill:#9fe08d}.x{fill:#ffb38a}</style>
<rect width="100%%" height="100%%" rx="8"/>
`, float64(longest)*charWidth+2*margin, len(lines)*lineHeight+2*margin)
	for i, line := range lines {
		class := ""
		switch {
		case strings.HasPrefix(line, "#"):
			class = ` class="c"`
		case strings.HasPrefix(line, "$ "):
			class = ` class="p"`
		case strings.Contains(line, ": violated") || strings.HasPrefix(line, "(exit code"):
			class = ` class="x"`
		}
		fmt.Fprintf(&out, "<text x=\"%d\" y=\"%d\"%s xml:space=\"preserve\">%s</text>\n", margin, margin+12+i*lineHeight, class, html.EscapeString(line))
	}
	out.WriteString("</svg>\n")
	return out.Bytes()
}
