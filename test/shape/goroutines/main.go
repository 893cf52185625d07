// Command goroutines prints the packages of a Go tree that start goroutines in their code or tests, one in a line, as go test takes them.
//
//	go test -race $(go run ./test/shape/goroutines .)
package main

import (
	"fmt"
	"os"

	"github.com/contiv-agent/contiv-agent/test/shape"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "goroutines: name one folder")
		os.Exit(2)
	}
	files, err := shape.Tree(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "goroutines:", err)
		os.Exit(1)
	}
	for _, dir := range shape.WithGoroutines(files) {
		fmt.Println("./" + dir)
	}
}
