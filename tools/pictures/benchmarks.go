package main

import (
	"bytes"
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// A record is one line of a benchmark, with its metrics by unit.
type record struct {
	name    string // without Benchmark, and without the number of processors
	metrics map[string]float64
}

// records are the lines of pages of bench/results, in their order. Lines with the same name are runs of the same benchmark.
type records []record

var processors = regexp.MustCompile(`-\d+$`)

func readRecords(page string) (out records) {
	for line := range strings.Lines(page) {
		fields := strings.Fields(line)
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}
		r := record{name: processors.ReplaceAllString(strings.TrimPrefix(fields[0], "Benchmark"), ""), metrics: make(map[string]float64)}
		for i := 2; i+1 < len(fields); i += 2 {
			v, err := strconv.ParseFloat(fields[i], 64)
			if err != nil {
				continue
			}
			r.metrics[fields[i+1]] = v
		}
		out = append(out, r)
	}
	return out
}

// median returns the median of a benchmark's runs, and whether the pages have one.
func (rs records) median(name, unit string) (float64, bool) {
	var all []float64
	for _, r := range rs {
		if v, ok := r.metrics[unit]; ok && r.name == name {
			all = append(all, v)
		}
	}
	if len(all) == 0 {
		return 0, false
	}
	slices.Sort(all)
	return all[(len(all)-1)/2], true
}

// A bar is one measured figure of one program.
type bar struct {
	program string
	value   float64
	unit    string
}

// A group is what several programs did under the same conditions.
type group struct {
	what string
	bars []bar
}

// A chapter compares programs in one kind of work.
type chapter struct {
	file   string // of the plot, beside the page
	title  string
	axis   string
	text   string
	from   string // the record that has the figures
	groups []group
}

// A column names a program's benchmark and metric. %s in the name stands for the case of the group.
type column struct{ program, name, unit string }

// collect makes groups for cases. A program without a figure in a case is left out.
func (rs records) collect(unit string, cases [][2]string, columns ...column) (out []group) {
	for _, c := range cases {
		g := group{what: c[1]}
		for _, col := range columns {
			name := strings.ReplaceAll(col.name, "%s", c[0])
			if v, ok := rs.median(name, col.unit); ok {
				g.bars = append(g.bars, bar{col.program, v, unit})
			}
		}
		if len(g.bars) > 1 {
			out = append(out, g)
		}
	}
	return out
}

var services = [][2]string{{"100", "100 Services"}, {"1000", "1,000 Services"}, {"10000", "10,000 Services"}}

// chapters are what the page has, in its order.
func chapters(page string, rs records) (out []chapter) {
	add := func(c chapter) {
		if c.from = page; len(c.groups) > 0 {
			out = append(out, c)
		}
	}
	proxy := func(unit string, metric string) []group {
		return rs.collect(unit, services,
			column{"contiv-agent, VPP", "KubeProxy/services=%s/agent=vpp", metric}, column{"contiv-agent, simulated VPP", "KubeProxy/services=%s/agent=sim", metric},
			column{"kube-proxy, nftables, minSyncPeriod 1ns", "KubeProxy/services=%s/kube-proxy=1ns", metric}, column{"kube-proxy, nftables, its default", "KubeProxy/services=%s/kube-proxy=1s", metric},
			column{"kube-proxy, iptables, minSyncPeriod 1ns", "KubeProxy/services=%s/kube-proxy-iptables=1ns", metric}, column{"kube-proxy, iptables, its default", "KubeProxy/services=%s/kube-proxy-iptables=1s", metric})
	}
	add(chapter{
		file: "latency.svg", title: "One endpoint changes: time until the dataplane has it", axis: "ms, median",
		text:   "A real API server, one EndpointSlice changes. The end is the kernel's report of the nftables transaction, the end of iptables-restore, or for contiv-agent VPP's answer. The agent collects changes for 5 ms. kube-proxy waits for minSyncPeriod between two changes, 1 s by default.",
		groups: proxy("ms", "p50-ms"),
	})
	add(chapter{
		file: "work.svg", title: "One endpoint changes: processor time", axis: "ms",
		text:   "The same changes. The time of kube-proxy includes its nft or iptables-restore. It does not include the API server. A real VPP polls, so its processor time says nothing and is left out.",
		groups: proxy("ms", "cpu-ms/change"),
	})
	snapshots := [][2]string{{"tags=10000/pods=10000", "10,000 tags, 10,000 pods"}, {"tags=10000/pods=250000", "10,000 tags, 250,000 pods"}, {"netsets=1000/pods=10000", "1,000 network sets, 10,000 pods"}, {"netsets=10000/pods=10000", "10,000 network sets, 10,000 pods"}}
	add(chapter{
		file: "snapshot.svg", title: "Policies of a whole cluster: time to calculate", axis: "ms, median",
		text:   "The calculation graphs of contiv-agent and of Felix v3.31.0 run in one process, in turn, with workloads of Felix's own benchmarks. Both send the same messages for a dataplane.",
		groups: rs.collect("ms", snapshots, column{"contiv-agent", "Snapshot/%s", "ours-ms"}, column{"Felix", "Snapshot/%s", "felix-ms"}),
	})
	add(chapter{
		file: "heap.svg", title: "Policies of a whole cluster: memory", axis: "MB",
		text:   "Heap of the graph after it has sent everything.",
		groups: rs.collect("MB", snapshots, column{"contiv-agent", "Snapshot/%s", "ours-MB"}, column{"Felix", "Snapshot/%s", "felix-MB"}),
	})
	changes := [][2]string{{"EndpointUpdate/felix/selectors=10000", "labels of an endpoint, 10,000 selectors of Felix"}, {"EndpointUpdate/kubernetes/selectors=10000", "the same, selectors of Kubernetes"}, {"SelectorAdd/felix/pods=100000", "a new selector of Felix, 100,000 pods"}, {"SelectorAdd/kubernetes/pods=100000", "the same, selector of Kubernetes"}, {"NamespaceUpdate", "labels of a namespace"}}
	add(chapter{
		file: "change.svg", title: "One change of policies: time to calculate", axis: "ms",
		text:   "The same graphs, after the snapshot.",
		groups: rs.collect("ms", changes, column{"contiv-agent", "%s", "ours-ms"}, column{"Felix", "%s", "felix-ms"}),
	})
	clients := [][2]string{{"1", "1 client"}, {"10", "10 clients"}, {"100", "100 clients"}, {"400", "400 clients"}}
	fanout := func(unit, metric string) []group {
		return rs.collect(unit, clients, column{"contiv-agent fanout", "Fanout/server=ours/clients=%s", metric}, column{"Typha", "Fanout/server=typha/clients=%s", metric})
	}
	add(chapter{
		file: "fanout.svg", title: "Fan-out server: time until all clients are in sync", axis: "ms, median client",
		text:   "100,000 endpoints. Clients connect at once to our server, or to the sync server of Typha v3.31.0, by the same protocol.",
		groups: fanout("ms", "first-p50-ms"),
	})
	add(chapter{file: "fanout-later.svg", title: "Fan-out server: clients that connect later", axis: "ms, median client", text: "The servers have made their snapshot by then.", groups: fanout("ms", "again-p50-ms")})
	add(chapter{file: "fanout-work.svg", title: "Fan-out server: processor time of 10,000 updates", axis: "s", text: "1,000 updates per second.", groups: fanout("s", "update-cpu-s")})
	peers := [][2]string{{"vpp", "a real VPP"}, {"sim", "the simulated VPP"}}
	add(chapter{
		file: "first-sync.svg", title: "First sync of 10,000 Services with 10 endpoints each", axis: "ms, median",
		text: "The bare writers send the agent's messages, recorded before, and do nothing else: the agent also calculates them. The pipelined one sends all requests before it awaits an answer, and is the least that any program " +
			"needs. The sequential one awaits each answer, as ligato's vpp-agent does; ligato's own work is added to that.",
		groups: rs.collect("ms", peers, column{"contiv-agent", "FirstSync/peer=%s", "agent-ms"}, column{"bare writer, pipelined", "FirstSync/peer=%s", "bare-ms"}, column{"bare writer, sequential", "FirstSync/peer=%s", "sequential-ms"}),
	})
	return out
}

// benchmarks returns the page and its plots, which are in a folder with the page's name.
func benchmarks(path string, pages []string) (map[string][]byte, error) {
	files := make(map[string][]byte)
	folder := strings.TrimSuffix(path, filepath.Ext(path))
	var all []chapter
	var machines []string
	for _, page := range pages {
		content, err := os.ReadFile(page)
		if err != nil {
			return nil, err
		}
		all = append(all, chapters(page, readRecords(string(content)))...)
		var lines []string
		for line := range strings.Lines(string(content)) {
			if strings.HasPrefix(line, "- machine:") || strings.HasPrefix(line, "- load before") || strings.HasPrefix(line, "- go version") {
				lines = append(lines, strings.TrimSpace(strings.TrimPrefix(line, "- ")))
			}
		}
		machines = append(machines, fmt.Sprintf("| [%s](%s) | %s |\n", strings.TrimSuffix(filepath.Base(page), ".md"), link(path, page), strings.Join(lines, "; ")))
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%v: no figures of peers", pages)
	}
	var out bytes.Buffer
	out.WriteString(head)
	for _, c := range all {
		svg, err := c.plot()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.file, err)
		}
		files[filepath.Join(folder, c.file)] = svg
		c.write(&out, path, folder)
	}
	out.WriteString("\n## Records\n\nRaw data, the machine and its load:\n\n| record | machine |\n|---|---|\n" + strings.Join(machines, ""))
	files[path] = out.Bytes()
	return files, nil
}

const head = `# Benchmarks

<!-- ` + "`make bench-peers`" + ` writes this page from its records. Do not edit it. -->

contiv-agent beside the programs that do the same work elsewhere. ` + "`make bench-peers`" + ` measures all of them in one run on one machine, records the raw data, and writes
this page. Both sides of a comparison run in turn, so the ratio holds better than the times: the machine was shared. A ratio above 1 means that contiv-agent is better.
Bars that are missed are in the records. [traffic.md](traffic.md) has what clients notice of changes, rollouts and restarts.
`

func link(from, to string) string {
	rel, err := filepath.Rel(filepath.Dir(from), to)
	if err != nil {
		return to
	}
	return filepath.ToSlash(rel)
}

// write writes the chapter's text and table. The first program of a group is ours, and ratios are to it.
func (c *chapter) write(out *bytes.Buffer, page, folder string) {
	fmt.Fprintf(out, "\n## %s\n\n%s ([record](%s))\n\n![%s](%s)\n\n| | program | %s | ratio |\n|---|---|---|---|\n", c.title, c.text, link(page, c.from), c.title, link(page, filepath.Join(folder, c.file)), c.axis)
	for _, g := range c.groups {
		for i, b := range g.bars {
			what, ratio := g.what, ""
			if i > 0 {
				what, ratio = "", short(b.value/g.bars[0].value)
			}
			fmt.Fprintf(out, "| %s | %s | %s | %s |\n", what, b.program, short(b.value), ratio)
		}
	}
}

// short formats a figure with three digits.
func short(v float64) string {
	switch {
	case v >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case v >= 1:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// plot draws horizontal bars on a logarithmic axis. Groups stand in the order of the table, from the top.
func (c *chapter) plot() ([]byte, error) {
	p := plot.New()
	for _, style := range []*text.Style{&p.Title.TextStyle, &p.X.Label.TextStyle, &p.X.Tick.Label, &p.Y.Tick.Label, &p.Legend.TextStyle} {
		style.Font.Variant = "Sans" // as wide as Arial, which readers have
	}
	p.Title.Text = c.title
	p.X.Label.Text = c.axis + " (logarithmic)"
	programs, rows := c.programs(), len(c.groups)
	height := vg.Points(11)
	least, most := c.groups[0].bars[0].value, 0.0
	for _, g := range c.groups {
		for _, b := range g.bars {
			least, most = min(least, b.value), max(most, b.value)
		}
	}
	floor := math.Floor(math.Log10(least))
	p.X.Min, p.X.Max = 0, math.Log10(most)-floor+0.1
	p.X.Tick.Marker = decades(floor)
	for i, program := range programs {
		values := make(plotter.Values, rows)
		for r, g := range c.groups {
			if at := slices.IndexFunc(g.bars, func(b bar) bool { return b.program == program }); at >= 0 {
				values[rows-1-r] = max(math.Log10(g.bars[at].value)-floor, 0.01)
			}
		}
		bars, err := plotter.NewBarChart(values, height)
		if err != nil {
			return nil, err
		}
		bars.Horizontal, bars.Color = true, colour(programs, i)
		bars.LineStyle.Width = 0
		bars.Offset = height * vg.Length(float64(len(programs)-1)/2-float64(i))
		p.Add(bars)
		p.Legend.Add(program, bars)
	}
	var names []string
	for _, g := range slices.Backward(c.groups) {
		names = append(names, g.what+"    ") // room for fonts that are wider
	}
	p.NominalY(names...)
	p.Legend.Left, p.Legend.YOffs, p.Legend.Padding = true, -vg.Points(float64(16*len(programs)+44)), vg.Points(2)
	canvas := vgsvg.New(vg.Points(640), vg.Points(float64(rows*(len(programs)*12+10)+16*len(programs)+110)))
	area := draw.New(canvas)
	area.SetColor(color.White)
	area.Fill(area.Rectangle.Path())
	area.Max.X -= vg.Points(12)
	area.Max.Y -= vg.Points(6)
	area.Min.X += vg.Points(6)
	area.Min.Y += vg.Points(float64(16*len(programs) + 4))
	p.Draw(area)
	var out bytes.Buffer
	if _, err := canvas.WriteTo(&out); err != nil {
		return nil, err
	}
	return bytes.ReplaceAll(out.Bytes(), []byte("font-family:Liberation Sans"), []byte("font-family:Liberation Sans,Arial,Helvetica,sans-serif")), nil
}

// programs returns the programs of all groups, ours first.
func (c *chapter) programs() (out []string) {
	for _, g := range c.groups {
		for _, b := range g.bars {
			if !slices.Contains(out, b.program) {
				out = append(out, b.program)
			}
		}
	}
	return out
}
