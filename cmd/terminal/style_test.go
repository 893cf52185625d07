package terminal

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// lines returns a table's text in a style.
func lines(t *testing.T, s Style, rows ...string) string {
	t.Helper()
	var out bytes.Buffer
	table := &Table{w: &Writer{Writer: &out}, style: s}
	for _, r := range rows {
		fmt.Fprintln(table, r)
	}
	if err := table.Flush(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestTable(t *testing.T) {
	long := "prod/" + strings.Repeat("n", 60)
	for name, tc := range map[string]struct {
		width int
		rows  []string
		want  string
	}{
		"aligned": {0, []string{"a\tbb\tc", "aaa\tb\tcc"}, "a    bb  c\naaa  b   cc\n"},
		"a long name moves its own line only": {
			0,
			[]string{"service\t" + long + "\tPENDING: x", "service\tprod/a\tCONFIGURED"},
			"service  " + long + "  PENDING: x\nservice  prod/a" + strings.Repeat(" ", mostPadding-6+gap) + "CONFIGURED\n",
		},
		"the text of a long name is on the next line of a terminal": {
			60,
			[]string{"service\t" + long + "\tPENDING: it waits for VPP", "service\tprod/a\tCONFIGURED"},
			"service  " + long + "\n" + strings.Repeat(" ", 31) + "PENDING: it waits for VPP\nservice  prod/a                CONFIGURED\n",
		},
		"text continues below itself": {40, []string{"node\tn1\tthe first words and then some more of them"}, "node  n1  the first words and then some\n          more of them\n"},
		"a word is not cut":           {30, []string{"node\tn1\t" + strings.Repeat("x", 50) + " y"}, "node  n1  " + strings.Repeat("x", 50) + "\n          y\n"},
		"another alignment":           {0, []string{"aaaa\tb", "heading", "a\tb"}, "aaaa  b\nheading\na  b\n"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := lines(t, Style{Width: tc.width}, tc.rows...); got != tc.want {
				t.Errorf("got\n%swant\n%s", got, tc.want)
			}
		})
	}
}

// A state has a colour, and an object cannot make one.
func TestColours(t *testing.T) {
	got := lines(t, Style{Colour: true}, "service\tprod/\x1b[31ma\tREFUSED: no \x1b[2J port")
	if want := "service  prod/\\u001b[31ma  \x1b[31mREFUSED\x1b[0m: no \\u001b[2J port\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := lines(t, Style{}, "service\tprod/a\tREFUSED"); strings.Contains(got, "\x1b") {
		t.Errorf("a colour on a pipe: %q", got)
	}
}

// openTerminal returns the program's end of a terminal with a width.
func openTerminal(t *testing.T, columns uint16) *os.File {
	t.Helper()
	m, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { m.Close() })
	n, err := unix.IoctlGetUint32(int(m.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(m.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(int(m.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: columns, Row: 24})
	}
	if err != nil {
		t.Fatal(err)
	}
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { tty.Close() })
	return tty
}

func TestStyleOf(t *testing.T) {
	tty := &Writer{Writer: openTerminal(t, 77)}
	pipe := &Writer{Writer: &bytes.Buffer{}}
	for _, tc := range []struct {
		columns, noColour, term string
		tty, pipe               Style
	}{
		{"", "", "xterm", Style{77, true}, Style{}},
		{"50", "", "xterm", Style{50, true}, Style{50, false}},
		{"wide", "1", "xterm", Style{77, false}, Style{}},
		{"", "", "dumb", Style{77, false}, Style{}},
	} {
		t.Setenv("COLUMNS", tc.columns)
		t.Setenv("NO_COLOR", tc.noColour)
		t.Setenv("TERM", tc.term)
		if got := StyleOf(tty); got != tc.tty {
			t.Errorf("%+v: terminal %+v", tc, got)
		}
		if got := StyleOf(pipe); got != tc.pipe {
			t.Errorf("%+v: pipe %+v", tc, got)
		}
	}
}

func TestProgress(t *testing.T) {
	var out bytes.Buffer
	var at time.Time
	show := progress(&out, "rows", func() time.Time { return at })
	for i := 1; i <= 4; i++ {
		at = at.Add(500 * time.Millisecond)
		show(i, 4)
	}
	if want := "\rrows: 2 of 4\x1b[K\rrows: 3 of 4\x1b[K\r\x1b[K"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
	out.Reset()
	Progress(&out, "rows")(1, 2)
	if out.Len() > 0 {
		t.Errorf("a pipe gets %q", out.String())
	}
}
