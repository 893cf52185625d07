package terminal

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/term"
)

// Style says how text is written for people. The zero value is that of a pipe: lines of any width, without colours.
type Style struct {
	Width  int // columns of a line; 0: any number
	Colour bool
}

// StyleOf returns the style for a writer. $COLUMNS is the width, as the program watch sets it; without it, a terminal has its width, and a pipe or a file none.
// Only a terminal has colours, unless $NO_COLOR is set or $TERM is dumb.
func StyleOf(w io.Writer) Style {
	var s Style
	file, is := Raw(w).(*os.File)
	is = is && term.IsTerminal(int(file.Fd()))
	if is {
		s.Width, _, _ = term.GetSize(int(file.Fd())) // 0: unknown
		s.Colour = os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	}
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 {
		s.Width = n
	}
	return s
}

// Raw returns the writer below a Writer, for output that is no text, such as a file.
func Raw(w io.Writer) io.Writer {
	if t, is := w.(*Writer); is {
		return Raw(t.Writer)
	}
	return w
}

// IsTerminal reports whether text is for a person.
func IsTerminal(w io.Writer) bool {
	file, is := Raw(w).(*os.File)
	return is && term.IsTerminal(int(file.Fd()))
}

// writeText writes text that State has coloured.
func (s Style) writeText(w io.Writer, text string) error {
	if s.Colour {
		w = Raw(w) // Writer would show the colours' control characters
	}
	_, err := io.WriteString(w, text)
	return err
}

// colours returns the colour of each state that a cell may begin with: red for failures, yellow for states that need time or attention, green for success.
func colours() map[string]int {
	const red, green, yellow = 31, 32, 33
	return map[string]int{
		"CONFIGURED": green, "delivered": green, "connected": green, "in-sync": green, "ok": green,
		"PENDING": yellow, "RETRYING": yellow, "PARTIAL": yellow, "HELD": yellow, "unknown": yellow, "rejected": yellow, "note": yellow,
		"FAILED": red, "INVALID": red, "UNIMPLEMENTED": red, "REFUSED": red, "dropped": red, "missing": red, "wrong": red, "dangerous": red, "drift": red, "refused": red,
	}
}

// State returns the text of a cell; if it begins with the name of a state, this has a colour. Control characters of objects stay visible.
func (s Style) State(cell string) string {
	if !s.Colour {
		return cell
	}
	lines := strings.Split(cell, "\n")
	for i := range lines {
		lines[i] = Plain(lines[i])
	}
	cell = strings.Join(lines, "\n")
	end := strings.IndexAny(cell, ":; \n")
	if end < 0 {
		end = len(cell)
	}
	if code, known := colours()[cell[:end]]; known {
		return fmt.Sprintf("\x1b[%dm%s\x1b[0m%s", code, cell[:end], cell[end:])
	}
	return cell
}

// Clear empties the screen of a terminal; it does nothing to other writers.
func Clear(w io.Writer) {
	if IsTerminal(w) {
		_, _ = io.WriteString(Raw(w), "\x1b[H\x1b[2J\x1b[3J") // the next write has the error
	}
}

// Progress returns a function that shows a person at a terminal how much of a task is done, at most five times a second and not in its first second. The last call
// removes the line. For other writers it does nothing.
func Progress(w io.Writer, what string) func(done, all int) {
	if !IsTerminal(w) {
		return func(int, int) {}
	}
	return progress(Raw(w), what, time.Now)
}

func progress(w io.Writer, what string, now func() time.Time) func(done, all int) {
	next, shown := now().Add(time.Second), false
	return func(done, all int) {
		switch at := now(); {
		case done == all && shown:
			fmt.Fprint(w, "\r\x1b[K")
		case done < all && !at.Before(next):
			fmt.Fprintf(w, "\r%s: %d of %d\x1b[K", what, done, all)
			next, shown = at.Add(200*time.Millisecond), true
		}
	}
}
