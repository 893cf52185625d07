package main

import (
	"image/color"
	"math"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
)

var (
	ours   = []color.Color{color.RGBA{0x1f, 0x77, 0xb4, 0xff}, color.RGBA{0x8f, 0xc1, 0xe3, 0xff}}
	theirs = []color.Color{color.RGBA{0xd6, 0x7d, 0x3a, 0xff}, color.RGBA{0xf0, 0xc2, 0x9a, 0xff}, color.RGBA{0x7a, 0x7a, 0x7a, 0xff}, color.RGBA{0xc0, 0xc0, 0xc0, 0xff}}
)

// colour returns the colour of the program at i: one of ours, or of the peers.
func colour(programs []string, i int) color.Color {
	before, set := 0, theirs
	mine := func(program string) bool { return strings.HasPrefix(program, "contiv-agent") }
	if mine(programs[i]) {
		set = ours
	}
	for _, p := range programs[:i] {
		if mine(p) == mine(programs[i]) {
			before++
		}
	}
	return set[before%len(set)]
}

// decades has a tick at each power of ten above the lowest one. Bars have no logarithmic axis in the library, so their lengths are logarithms.
type decades float64

// Ticks returns the ticks of an axis.
func (d decades) Ticks(least, most float64) (out []plot.Tick) {
	for v := math.Ceil(least); v <= most; v++ {
		out = append(out, plot.Tick{Value: v, Label: strconv.FormatFloat(math.Pow(10, v+float64(d)), 'f', -1, 64)})
	}
	return out
}
