// Command conversions prints the integer conversions of a package that gosec remarks on (G115): file, line of code and types, with tabs between. It has gosec's analyzer alone,
// without gosec's own command, which is three times as much to compile.
package main

import (
	"bufio"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/securego/gosec/v2"
	"github.com/securego/gosec/v2/analyzers"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "conversions: name one folder of a package")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "conversions: %s: %v\n", os.Args[1], err)
		os.Exit(1)
	}
}

func run(dir string, out io.Writer) error {
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	a := gosec.NewAnalyzer(gosec.NewConfig(), false, true, false, 1, log.New(io.Discard, "", 0))
	a.LoadAnalyzers(analyzers.Generate(false, analyzers.NewAnalyzerFilter(false, "G115")).AnalyzersInfo())
	if err := a.Process(nil, dir); err != nil {
		return err
	}
	issues, _, errs := a.Report()
	for file, list := range errs {
		return fmt.Errorf("%s: %v", file, list)
	}
	for _, i := range issues {
		file, err := filepath.Rel(root, i.File)
		if err != nil {
			return err
		}
		code, err := lineOf(i.File, i.Line)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%s\t%s\t%s\n", file, strings.TrimSpace(code), strings.TrimPrefix(i.What, "integer overflow conversion "))
	}
	return nil
}

// lineOf returns a line of a file; of a range like 3-5, the first.
func lineOf(path, number string) (string, error) {
	first, _, _ := strings.Cut(number, "-")
	n, err := strconv.Atoi(first)
	if err != nil {
		return "", err
	}
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for range n {
		if !lines.Scan() {
			return "", fmt.Errorf("%s has no line %d: %v", path, n, lines.Err())
		}
	}
	return lines.Text(), nil
}
