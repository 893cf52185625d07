package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestPagesNameCommandsThatExist reads the pages for operators: each command line of ours in them is one, and its flags are there.
func TestPagesNameCommandsThatExist(t *testing.T) {
	for page, least := range map[string]int{"operations": 4, "handover": 6} {
		text, err := os.ReadFile("../../docs/" + page + ".md")
		if err != nil {
			t.Fatal(err)
		}
		lines := regexp.MustCompile("(?m)(?:^    |`)(?:[^`\n]* )?(contiv-agent [a-z-]+[^`\n]*)").FindAllStringSubmatch(string(text), -1)
		if len(lines) < least {
			t.Errorf("%s.md: only %d command lines were found", page, len(lines))
		}
		for _, line := range lines {
			words := strings.Fields(line[1])[1:]
			cmd, rest, err := newRoot().Find(words)
			if err == nil {
				err = cmd.ParseFlags(rest)
			}
			if err == nil && cmd.Args != nil {
				err = cmd.Args(cmd, cmd.Flags().Args())
			}
			if err != nil || cmd.Name() != words[0] {
				t.Errorf("%s.md: %s: %v", page, line[1], err)
			}
		}
	}
}
