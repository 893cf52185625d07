package browser

import (
	"context"
	"flag"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/ui"
	"github.com/contiv-agent/contiv-agent/ui/sample"
	"github.com/contiv-agent/contiv-agent/ui/watch"
)

var update = flag.Bool("update", false, "write the pictures of docs/ui.md")

// patience bounds each interaction on a busy machine.
const patience = time.Minute

// chromium returns the program, or skips the test.
func chromium(t *testing.T) string {
	t.Helper()
	if path := os.Getenv("CHROMIUM"); path != "" {
		return path
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("SKIPPED: no Chromium on this machine, so no view of the page is tested in a browser; apt-get install chromium, or set $CHROMIUM")
	return ""
}

// browser is a tab with a page about a sample.
type browser struct {
	t       *testing.T
	ctx     context.Context
	cluster *sample.Cluster
	url     string

	mu         sync.Mutex
	complaints []string // errors of scripts, and what the content security policy refused
}

func open(t *testing.T, size sample.Size) *browser {
	t.Helper()
	program := chromium(t)
	b := &browser{t: t, cluster: sample.New(size)}
	w := watch.New(b.cluster, 100*time.Millisecond, time.Now)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	s, err := ui.New(ui.Config{
		Watcher: w, Where: "example", Key: "key", Objects: func(context.Context) ([]model.Object, error) { return b.cluster.Objects, nil },
		Trace: func(_ context.Context, from, to, protocol string) (string, string, error) {
			return "dropped", fmt.Sprintf("%s -> %s %s: dropped\n  denied: NetworkPolicy shop/db isolates shop/db-0 for ingress and no rule allows it", from, to, protocol), nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(s.Handler())
	b.url = server.URL
	allocated, stop := chromedp.NewExecAllocator(ctx, append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program), chromedp.NoSandbox,
		chromedp.DisableGPU, chromedp.Flag("disable-dev-shm-usage", true), chromedp.WindowSize(1200, 760), chromedp.WSURLReadTimeout(patience))...)
	tab, closeTab := chromedp.NewContext(allocated)
	b.ctx = tab
	t.Cleanup(func() {
		closeTab()
		stop()
		server.CloseClientConnections()
		server.Close()
		cancel()
		<-ended
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, c := range b.complaints {
			t.Error("the browser complains: " + c)
		}
	})
	if err := chromedp.Listen(tab, b.hear); err != nil { // it starts the browser: its context must not end
		t.Fatal(err)
	}
	b.resize(1200, 760, false)
	b.run(chromedp.Navigate(b.url+"/?key=key"), chromedp.WaitVisible(chromedp.CSS("#main")))
	return b
}

func (b *browser) hear(ev any) {
	text := ""
	switch ev := ev.(type) {
	case *runtime.EventExceptionThrown:
		text = ev.ExceptionDetails.Text
	case *log.EventEntryAdded:
		if ev.Entry.Level == "error" {
			text = ev.Entry.Text + " " + ev.Entry.URL
		}
	}
	if text != "" {
		b.mu.Lock()
		b.complaints = append(b.complaints, text)
		b.mu.Unlock()
	}
}

func (b *browser) run(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		b.t.Fatal(err)
	}
}

// call calls a command of the browser.
func call[P, R any](b *browser, c cdp.Command[P, R], params P) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if _, err := chromedp.Call(ctx, c, params); err != nil {
		b.t.Fatal(err)
	}
}

func (b *browser) resize(width, height int64, phone bool) {
	b.t.Helper()
	call(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: 1, Mobile: phone})
}

// prefer sets what the reader prefers: "light" or "dark", and whether less motion.
func (b *browser) prefer(colours, motion string) {
	b.t.Helper()
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: colours}, {Name: "prefers-reduced-motion", Value: motion},
	}})
}

// do runs a statement of JavaScript.
func (b *browser) do(js string) {
	b.t.Helper()
	eval[any](b, "(() => { "+js+"; return null; })()")
}

// eval returns the value of an expression of JavaScript; of a promise, what it becomes.
func eval[T any](b *browser, js string) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	out, err := chromedp.Run(ctx, chromedp.Evaluate[T](js, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatal(err)
	}
	return out
}

func (b *browser) visit(path string) {
	b.t.Helper()
	b.run(chromedp.Navigate(b.url+path), chromedp.WaitVisible(chromedp.CSS("#main")))
}

// awaits waits until an expression is true.
func (b *browser) awaits(js string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	for {
		ok, err := chromedp.Run(ctx, chromedp.Evaluate[bool](js))
		if ok {
			return
		}
		if ctx.Err() != nil { // an error may be that the page changes
			b.t.Fatalf("%s: %v; the page has\n%s", js, err, b.text())
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// press presses keys one after the other.
func (b *browser) press(keys ...string) {
	b.t.Helper()
	for _, k := range keys {
		b.run(chromedp.KeyEvent(k))
	}
}

// isLive waits until the page has its first event.
func (b *browser) isLive() {
	b.t.Helper()
	b.awaits(`document.getElementById("line").textContent === "live"`)
}

func (b *browser) text() string {
	b.t.Helper()
	return eval[string](b, `document.body.innerText`)
}

func (b *browser) wants(parts ...string) {
	b.t.Helper()
	text := b.text()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			b.t.Errorf("the page has no %q:\n%s", p, text)
		}
	}
}

// From a line of the map to its flows, and from a flow to the rule and to the trace, by keys alone.
func TestKeysLeadFromTheMapToTheRule(t *testing.T) {
	b := open(t, sample.Small)
	b.isLive()
	b.press(kb.Tab)
	if got := eval[string](b, `document.activeElement.textContent`); got != "Skip to the content" {
		t.Errorf("the first stop of Tab is %q", got)
	}
	b.press(kb.Enter, "j")
	first := eval[string](b, `document.activeElement.id`)
	b.press("j", "j", "k", "k")
	if got := eval[string](b, `document.activeElement.id`); first == "" || got != first {
		t.Errorf("j j k k leads from %q to %q", first, got)
	}
	b.press(kb.ArrowDown, kb.ArrowUp, "k")
	if got := eval[string](b, `document.activeElement.id`); got != first {
		t.Errorf("arrows lead from %q to %q", first, got)
	}
	b.run(chromedp.Focus(chromedp.CSS(`a.line.no`)), chromedp.KeyEvent(kb.Enter))
	b.awaits(`location.pathname === "/edge" && document.readyState === "complete"`)
	b.wants("workload shop/worker → workload shop/db", "✕ dropped", "isolates shop/db-0")
	b.isLive()
	b.press("j", kb.Enter)
	b.awaits(`location.pathname === "/policy" && document.getElementById("rule") !== null`)
	if got := eval[string](b, `document.querySelector(".chosen").innerText`); got != "Otherwise: deny" {
		t.Errorf("the mark is at %q", got)
	}
	b.visit("/flows?verdict=dropped")
	b.run(chromedp.Click(chromedp.CSS(`td a[href^="/trace"]`)))
	b.awaits(`location.pathname === "/trace" && document.getElementById("answer") !== null`)
	b.wants("✕ dropped", "pod:shop/worker-")
	b.do(`document.getElementById("main").focus()`)
	b.press("2")
	b.awaits(`location.pathname === "/flows"`)
}

// A flow appears on an open page. The focus, the scroll position and an opened detail stay.
func TestUpdatesKeepTheReadersPlace(t *testing.T) {
	b := open(t, sample.Small)
	b.cluster.Silence("node-3", true)
	b.visit("/flows")
	b.isLive()
	b.awaits(`document.querySelector("#live details") !== null`)
	b.run(chromedp.Click(chromedp.CSS(`#live summary`)))
	b.do(`document.querySelectorAll("[data-row]")[4].focus()`)
	id := eval[string](b, `document.activeElement.id`)
	b.cluster.Attack()
	b.awaits(`document.body.innerText.includes("203.0.113.9")`)
	if got := eval[string](b, `document.activeElement.id`); got != id || id == "" {
		t.Errorf("the focus went from %q to %q", id, got)
	}
	if !eval[bool](b, `document.querySelector("#live details").open`) {
		t.Error("an opened detail is closed")
	}
	b.do(`getSelection().selectAllChildren(document.querySelector("#live tbody tr"))`)
	selected := eval[string](b, `String(getSelection())`)
	b.cluster.Deny(0)
	b.run(chromedp.Sleep(500 * time.Millisecond)) // more than the period of the queries
	if got := eval[string](b, `String(getSelection())`); got != selected || got == "" {
		t.Errorf("a selection of %q became %q", selected, got)
	}
	b.do(`getSelection().removeAllRanges()`)
	b.awaits(`document.querySelector("#live tbody tr").innerText.includes("worker")`)
}

func TestFilter(t *testing.T) {
	b := open(t, sample.Small)
	b.visit("/flows")
	call(b, input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: "keyDown", Key: "/", Text: "/"}) // as a keyboard does: what the page prevents is not typed
	if got := eval[string](b, `document.activeElement.id`); got != "text" {
		t.Errorf("/ leads to %q", got)
	}
	b.press("j") // a letter in a field, not a key of the page
	if got := eval[string](b, `document.getElementById("text").value`); got != "j" {
		t.Errorf("the field has %q", got)
	}
	b.run(chromedp.SetValue(chromedp.CSS("#text"), "ISOLATES"), chromedp.SendKeys(chromedp.CSS("#text"), kb.Enter))
	b.awaits(`location.search.includes("ISOLATES") && document.querySelectorAll("#live tbody tr").length === 3`)
	b.isLive()
	if n := eval[int](b, `document.querySelectorAll("#live tbody tr:not(.no)").length`); n != 0 {
		t.Errorf("%d rows that are not dropped", n)
	}
}

const closing = `apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web, namespace: shop}
spec:
  podSelector: {matchLabels: {app: web}}
  policyTypes: [Ingress]
  ingress:
  - from: [{podSelector: {matchLabels: {app: client}}}]
`

// dropFile drops a file with a policy on the page.
func (b *browser) dropFile() {
	b.t.Helper()
	b.do(fmt.Sprintf(`const d = new DataTransfer(); d.items.add(new File([%q], "web.yaml")); document.dispatchEvent(new DragEvent("drop", {dataTransfer: d, bubbles: true, cancelable: true}))`, closing))
	b.awaits(`document.getElementById("policy").value.includes("podSelector")`)
}

// A dropped file is tried: the page shows what it closes.
func TestDroppedPolicyIsTried(t *testing.T) {
	b := open(t, sample.Small)
	b.visit("/whatif")
	b.dropFile()
	b.run(chromedp.Click(chromedp.CSS(`#trial button`)), chromedp.WaitVisible(chromedp.CSS("#result")))
	b.wants("NetworkPolicy shop/web (new)", "✕ closed", "outside", "shop/web (3 pods)")
	if got := eval[string](b, `document.getElementById("policy").value`); got != closing {
		t.Errorf("the text became %q", got)
	}
}

// contrast is the ratio of the luminances of a text and of what is behind it, the smallest on the page, with the text.
const contrast = `(() => {
  const parse = (s) => { const m = s.match(/[\d.]+/g).map(Number); return m.length < 4 ? [...m, 1] : m; };
  const lum = (c) => { const f = c.slice(0, 3).map((v) => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }); return 0.2126 * f[0] + 0.7152 * f[1] + 0.0722 * f[2]; };
  const behind = (e) => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c[3] > 0) return c; } return [255, 255, 255, 1]; };
  let worst = [99, ""];
  for (const e of document.querySelectorAll("main *, header *, footer *")) {
    if (e.closest("svg") || e.closest("select") || ![...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim())) continue;
    const a = lum(parse(getComputedStyle(e).color)), z = lum(behind(e));
    const r = (Math.max(a, z) + 0.05) / (Math.min(a, z) + 0.05);
    if (r < worst[0]) worst = [r, e.textContent.trim().slice(0, 60)];
  }
  return worst[0] < 4.5 ? worst.join(" ") : "";
})()`

var views = []string{"/", "/flows", "/matrix?from=shop&to=shop", "/whatif", "/nodes", "/trace?from=pod:shop/worker-0&to=pod:shop/db-0:5432&protocol=TCP", "/policy?pod=shop/db-0&policy=NetworkPolicy+shop/db&rule=ingress+rule+1&direction=ingress", "/edge?from=workload+shop/worker&to=workload+shop/db&verdict=dropped"} // read only

// Every view is readable in both modes, on a phone without scrolling sideways, and with denied edges that differ by more than a colour.
func TestViewsAreReadable(t *testing.T) {
	b := open(t, sample.Small)
	for _, mode := range []string{"light", "dark"} {
		b.prefer(mode, "no-preference")
		for _, path := range views {
			b.visit(path)
			if bad := eval[string](b, contrast); bad != "" {
				t.Errorf("%s, %s: contrast %s", path, mode, bad)
			}
		}
		bright := eval[bool](b, `getComputedStyle(document.body).backgroundColor === "rgb(255, 255, 255)"`)
		if bright != (mode == "light") {
			t.Errorf("%s: bright is %v", mode, bright)
		}
	}
	b.visit("/")
	if dash := eval[string](b, `getComputedStyle(document.querySelector(".map .edge.no")).strokeDasharray + " " + document.querySelector(".map .cross").textContent`); dash == "none ✕" || !strings.HasSuffix(dash, "✕") {
		t.Errorf("a denied edge has dashes %q", dash)
	}
	b.resize(360, 740, true)
	for _, path := range views {
		b.visit(path)
		if n := eval[int](b, `document.documentElement.scrollWidth`); n > 360 {
			t.Errorf("%s is %d wide on a phone", path, n)
		}
	}
}

// Without its script every view has its content.
func TestWithoutScript(t *testing.T) {
	b := open(t, sample.Small)
	call(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	b.run(chromedp.Navigate(b.url+"/flows?verdict=dropped"), chromedp.WaitVisible(chromedp.CSS("#live tbody tr.no")))
	b.run(chromedp.Navigate(b.url+"/"), chromedp.WaitVisible(chromedp.CSS(".map .edge.no")))
}

// firstPaint is the time of the first contentful paint of the present page.
const firstPaint = `new Promise((r) => { const look = () => { const e = performance.getEntriesByName("first-contentful-paint")[0]; if (e) r(e.startTime); else setTimeout(look, 5); }; look(); })`

// Times are recorded, not compared with a bound: the machine is shared. Both sizes show a new edge on an open map.
func TestTimes(t *testing.T) {
	for name, size := range map[string]sample.Size{"15 pods": sample.Small, "1,000 pods": sample.Large} {
		t.Run(name, func(t *testing.T) {
			b := open(t, size)
			b.visit("/flows")
			b.visit("/?toggle=" + map[bool]string{true: "shop"}[size == sample.Large])
			paint := eval[float64](b, firstPaint)
			b.isLive()
			if n := eval[int](b, `document.querySelectorAll(".map .box").length`); n > 72 || n < 8 {
				t.Errorf("%d boxes", n)
			}
			b.do(`window.seen = new Promise((r) => { const at = document.querySelectorAll(".line.no").length; new MutationObserver(() => { if (document.querySelectorAll(".line.no").length > at) requestAnimationFrame(() => r(Date.now())); }).observe(document.getElementById("live"), {childList: true}); })`)
			begin := time.Now()
			b.cluster.Attack()
			seen := time.UnixMilli(int64(eval[float64](b, `window.seen`)))
			bytes := eval[int](b, `document.getElementById("live").innerHTML.length`)
			t.Logf("first paint %.0f ms, update %d ms, event %d kB", paint, seen.Sub(begin).Milliseconds(), bytes/1000)
		})
	}
}

// A namespace of a large map opens by a click, and closes again.
func TestNamespacesOpen(t *testing.T) {
	b := open(t, sample.Large)
	b.isLive()
	if n := eval[int](b, `document.querySelectorAll(".map .box").length`); n != 41 {
		t.Errorf("%d boxes", n)
	}
	b.do(`[...document.querySelectorAll(".box.namespace a")].find((a) => a.textContent.includes("team-07")).dispatchEvent(new MouseEvent("click", {bubbles: true, cancelable: true}))`)
	b.awaits(`location.search.includes("team-07") && document.querySelectorAll(".map .box").length === 48`)
	b.do(`document.querySelector(".area a").dispatchEvent(new MouseEvent("click", {bubbles: true, cancelable: true}))`)
	b.awaits(`!location.search.includes("team-07") && document.querySelectorAll(".map .box").length === 41`)
}

// A matrix that takes longer than a moment shows the rows that exist. The others appear by events, and the focus stays where it is.
func TestMatrixGrows(t *testing.T) {
	b := open(t, sample.Size{Nodes: 3, Namespaces: 16, Replicas: 1})
	begin := time.Now()
	b.visit("/matrix")
	b.isLive()
	t.Logf("%d of 17 rows after %d ms", 17-eval[int](b, missingRows), time.Since(begin).Milliseconds())
	b.do(`document.querySelector(".matrix a").focus()`)
	b.awaits(missingRows + ` === 0 && !document.querySelector("#live progress")`)
	t.Logf("all rows after %d ms", time.Since(begin).Milliseconds())
	if n := eval[int](b, `document.querySelectorAll(".matrix tbody td.cell a").length`); n != 17*17 {
		t.Errorf("%d cells", n)
	}
	if !eval[bool](b, `document.activeElement === document.querySelector(".matrix a")`) {
		t.Error("the focus has moved")
	}
	b.do(`document.querySelector(".matrix tbody tr:last-child a").click()`)
	b.awaits(`document.getElementById("cell") !== null`)
}

// missingRows is the number of rows of a matrix without answers.
const missingRows = `[...document.querySelectorAll(".matrix tbody tr")].filter((r) => !r.querySelector("a")).length`
