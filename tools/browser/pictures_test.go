package browser

import (
	"bytes"
	"cmp"
	"image"
	"image/color"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/contiv-agent/contiv-agent/ui/sample"
)

// folder has the pictures of docs/ui.md; mostBytes bounds each.
const (
	folder    = "../../docs/pictures/ui"
	mostBytes = 150 << 10
)

// picture is one of them.
type picture struct {
	name, path    string
	width, height int64
	phone, dark   bool
	before        func(*browser)
}

var pictures = []picture{ // read only
	{name: "map", path: "/", width: 1200, height: 560},
	{name: "flows", path: "/flows?verdict=dropped", width: 1200, height: 420},
	{name: "policy", path: views[6], width: 900, height: 520},
	{name: "matrix", path: views[2], width: 900, height: 560},
	{name: "whatif", path: "/whatif", width: 1100, height: 800, before: func(b *browser) {
		b.dropFile()
		b.run(chromedp.Click(chromedp.CSS(`#trial button`)), chromedp.WaitVisible(chromedp.CSS("#result")))
	}},
	{name: "nodes", path: "/nodes", width: 1200, height: 560},
	{name: "dark", path: "/", width: 800, height: 520, dark: true},
	{name: "phone", path: "/flows?verdict=dropped", width: 360, height: 640, phone: true},
}

// TestPictures draws the pictures with -update. Without, it checks that they exist and are small.
func TestPictures(t *testing.T) {
	if *update {
		small := open(t, sample.Small)
		for _, p := range pictures {
			small.draw(p)
		}
		open(t, sample.Large).draw(picture{name: "map-large", path: "/?toggle=team-07", width: 1200, height: 760})
		several := open(t, sample.Size{Nodes: 3, Namespaces: 8, Replicas: 2})
		several.draw(picture{name: "matrix", path: "/matrix?from=team-01&to=shop", width: 900, height: 620, before: func(b *browser) { b.awaits(missingRows + ` === 0`) }})
	}
	for _, p := range append(pictures, picture{name: "map-large"}) {
		data, err := os.ReadFile(filepath.Join(folder, p.name+".png"))
		if err != nil {
			t.Error(err)
			continue
		}
		if _, err := png.DecodeConfig(bytes.NewReader(data)); err != nil || len(data) > mostBytes {
			t.Errorf("%s: %d bytes, %v", p.name, len(data), err)
		}
	}
}

func (b *browser) draw(p picture) {
	b.t.Helper()
	mode := "light"
	if p.dark {
		mode = "dark"
	}
	b.resize(p.width, p.height, p.phone)
	b.prefer(mode, "reduce")
	b.visit(p.path)
	if p.before != nil {
		p.before(b)
	} else if eval[bool](b, `document.getElementById("live").dataset.events !== undefined`) {
		b.isLive()
	}
	shot, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		b.t.Fatal(err)
	}
	img, err := png.Decode(bytes.NewReader(shot))
	if err != nil {
		b.t.Fatal(err)
	}
	var out bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, reduced(img)); err != nil {
		b.t.Fatal(err)
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, p.name+".png"), out.Bytes(), 0o644); err != nil {
		b.t.Fatal(err)
	}
	b.t.Logf("%s: %d kB", p.name, out.Len()/1000)
}

// reduced returns a picture in its 128 most frequent colours. Those that are no shades of grey count more: a thin line must not lose its colour.
func reduced(img image.Image) image.Image {
	count := map[color.RGBA]int{}
	at := func(x, y int) color.RGBA { return color.RGBAModel.Convert(img.At(x, y)).(color.RGBA) }
	r := img.Bounds()
	for y := r.Min.Y; y < r.Max.Y; y++ {
		for x := r.Min.X; x < r.Max.X; x++ {
			c := at(x, y)
			count[c] += 1 + int(max(c.R, c.G, c.B)-min(c.R, c.G, c.B))/4
		}
	}
	order := slices.SortedFunc(maps.Keys(count), func(a, b color.RGBA) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(a.R, b.R), cmp.Compare(a.G, b.G), cmp.Compare(a.B, b.B))
	})
	var colours color.Palette
	for _, c := range order[:min(len(order), 128)] {
		colours = append(colours, c)
	}
	known := map[color.RGBA]uint8{}
	out := image.NewPaletted(r, colours)
	for y := r.Min.Y; y < r.Max.Y; y++ {
		for x := r.Min.X; x < r.Max.X; x++ {
			c := at(x, y)
			i, is := known[c]
			if !is {
				i = uint8(colours.Index(c))
				known[c] = i
			}
			out.SetColorIndex(x, y, i)
		}
	}
	return out
}
