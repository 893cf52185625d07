// Command count turns trees into a table of private idioms in comments and pages, one row per room and two columns per tree.
//
//	go run ./test/words/count [-v] [BEFORE] .
//
// Each tree has the columns idioms and idioms per 10,000 words. With -v the idioms of the last tree follow, one per line. Invariant: it
// only reads the trees.
package main

import (
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/contiv-agent/contiv-agent/test/words"
)

func main() {
	verbose := flag.Bool("v", false, "list the idioms of the last tree")
	flag.Parse()
	if err := countIdioms(os.Stdout, flag.Args(), *verbose); err != nil {
		fmt.Fprintln(os.Stderr, "count:", err)
		os.Exit(1)
	}
}

func countIdioms(w io.Writer, trees []string, verbose bool) error {
	if len(trees) == 0 {
		trees = []string{"."}
	}
	var counts []map[string]words.Count
	rooms := map[string]bool{}
	for _, dir := range trees {
		c, err := words.Tree(dir)
		if err != nil {
			return err
		}
		counts = append(counts, c)
		for room := range c {
			rooms[room] = true
		}
	}
	fmt.Fprint(w, "| room |")
	for _, dir := range trees {
		name := filepath.Base(dir)
		fmt.Fprintf(w, " words, %s | idioms | per 10,000 |", name)
	}
	fmt.Fprintln(w, "\n|---|"+strings.Repeat("---|", 3*len(trees)))
	names := slices.Sorted(maps.Keys(rooms))
	for _, room := range names {
		writeRow(w, room, counts, func(c map[string]words.Count) words.Count { return c[room] })
	}
	writeRow(w, "all", counts, words.Sum)
	if verbose {
		last := counts[len(counts)-1]
		for _, room := range names {
			for _, f := range last[room].Findings {
				fmt.Fprintln(w, f)
			}
		}
	}
	return nil
}

func writeRow(w io.Writer, name string, trees []map[string]words.Count, of func(map[string]words.Count) words.Count) {
	fmt.Fprintf(w, "| %s |", name)
	for _, tree := range trees {
		c := of(tree)
		fmt.Fprintf(w, " %d | %d | %.0f |", c.Words, len(c.Findings), c.Rate())
	}
	fmt.Fprintln(w)
}
