// Package main makes the pictures and the benchmark page of the docs from texts and recorded figures.
//
//	pictures draw docs/pictures/overview.txt            makes overview.svg
//	pictures session docs/pictures/session.sh           executes its commands, makes session.txt and session.svg
//	pictures benchmarks docs/benchmarks.md PAGE...      makes the page and its plots from pages of bench/results
//
// The same input gives the same bytes, so a test compares the committed files with new ones.
package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/bep/goat"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "pictures:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 2 {
		return fmt.Errorf("usage: pictures draw|session|benchmarks FILE...")
	}
	files := make(map[string][]byte)
	var err error
	switch verb, rest := args[0], args[1:]; verb {
	case "draw":
		for _, path := range rest {
			if files[replaceExt(path, ".svg")], err = drawing(path); err != nil {
				return err
			}
		}
	case "session":
		for _, path := range rest {
			text, err := transcript(path)
			if err != nil {
				return err
			}
			files[replaceExt(path, ".txt")], files[replaceExt(path, ".svg")] = []byte(text), terminal(text)
		}
	case "benchmarks":
		if files, err = benchmarks(rest[0], rest[1:]); err != nil {
			return err
		}
	default:
		return fmt.Errorf("%s: unknown, want draw, session or benchmarks", verb)
	}
	for path, content := range files {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func replaceExt(path, ext string) string { return strings.TrimSuffix(path, filepath.Ext(path)) + ext }

// drawing returns a drawing of characters as SVG. It follows the reader's dark mode.
func drawing(path string) ([]byte, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	goat.BuildAndWriteSVG(bytes.NewReader(text), &out)
	return out.Bytes(), nil
}
