package ui_test

import (
	"bufio"
	"context"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	agentflows "github.com/contiv-agent/contiv-agent/agent/flows"
	"github.com/contiv-agent/contiv-agent/flows"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/ui"
	"github.com/contiv-agent/contiv-agent/ui/sample"
	"github.com/contiv-agent/contiv-agent/ui/watch"
)

const key = "KEY"

// page is a served page about a sample.
type page struct {
	t      *testing.T
	server *httptest.Server
	cookie *http.Cookie
}

func open(t *testing.T, c *sample.Cluster, source watch.Source) *page {
	t.Helper()
	w := watch.New(source, 100*time.Millisecond, time.Now)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	for s, limit := w.Latest(), time.After(10*time.Second); s.At.IsZero(); s = w.Latest() { // pages have what agents answered
		select {
		case <-s.Replaced():
		case <-limit:
			t.Fatal("no round of questions ends")
		}
	}
	s, err := ui.New(ui.Config{
		Watcher: w, Where: "test", Key: key, Objects: func(context.Context) ([]model.Object, error) { return c.Objects, nil },
		Trace: func(_ context.Context, from, to, protocol string) (string, string, error) {
			return "dropped", from + " -> " + to + " " + protocol + ": dropped", nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	p := &page{t: t, server: httptest.NewServer(s.Handler())}
	t.Cleanup(func() { p.server.CloseClientConnections(); p.server.Close(); cancel(); <-ended })
	resp := p.do(http.MethodGet, "/?key="+key, nil)
	if resp.StatusCode != http.StatusSeeOther || resp.Header.Get("Location") != "/" || len(resp.Cookies()) != 1 {
		t.Fatalf("%s to %s", resp.Status, resp.Header.Get("Location"))
	}
	p.cookie = resp.Cookies()[0]
	if !p.cookie.HttpOnly || p.cookie.SameSite != http.SameSiteStrictMode {
		t.Errorf("cookie %+v", p.cookie)
	}
	return p
}

func (p *page) do(method, path string, change func(*http.Request)) *http.Response {
	p.t.Helper()
	r, err := http.NewRequestWithContext(p.t.Context(), method, p.server.URL+path, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	if p.cookie != nil {
		r.AddCookie(p.cookie)
	}
	if change != nil {
		change(r)
	}
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(r)
	if err != nil {
		p.t.Fatal(err)
	}
	return resp
}

func (p *page) get(path string, code int) string {
	p.t.Helper()
	resp := p.do(http.MethodGet, path, nil)
	defer resp.Body.Close()
	var b strings.Builder
	if _, err := bufio.NewReader(resp.Body).WriteTo(&b); err != nil || resp.StatusCode != code {
		p.t.Fatalf("%s: %s, %v\n%s", path, resp.Status, err, b.String())
	}
	return b.String()
}

func wants(t *testing.T, path, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%s has no %q\n%s", path, part, text)
		}
	}
}

func TestPages(t *testing.T) {
	c := sample.New(sample.Small)
	p := open(t, c, c)
	for path, parts := range map[string][]string{
		"/":                             {`aria-current="page">Map</a>`, "service shop/web", "✕ dropped", `/edge?from=workload&#43;shop%2Fworker&amp;to=workload&#43;shop%2Fdb&amp;verdict=dropped`, "3 connections", "5432/TCP"},
		"/?toggle=shop":                 {"namespace shop, 15 pods", "✕ 3 inside"},
		"/flows":                        {"33 flows", "NetworkPolicy shop/db isolates shop/db-0", "/policy?direction=ingress", "dialled 10.255.0.2:8080", "/trace?from=pod%3Ashop%2Fworker-0"},
		"/flows?verdict=dropped":        {"3 flows", `value="dropped" selected`},
		"/flows?from=shop/worker":       {"3 flows", `value="shop/worker"`},
		"/flows?peer=198.51.100.1":      {"1 flow,"},
		"/flows?text=ISOLATES":          {"3 flows"},
		"/flows?text=nothing+has+this":  {"None of 33 flows matches."},
		"/nodes":                        {"✓ healthy", "✕ not healthy", "Service shop/legacy is REFUSED", "✓ connected, 25.10-release", "GigabitEthernet0/8/0"},
		"/matrix":                       {`class="cell some"`, `class="cell all"`, "15 pods"},
		"/matrix?from=shop&to=shop":     {"NetworkPolicy shop/db", "Trace this packet"},
		"/policy?pod=shop/db-0":         {"NetworkPolicy shop/db", "tcp from {app == &#39;api&#39;} to ports 5432", "Otherwise: <b>deny</b>"},
		"/trace?from=pod:a/b&to=1.2:80": {"✕ dropped", "pod:a/b -&gt; 1.2:80 TCP"},
		"/whatif":                       {"Nothing is applied"},
		"/edge?from=workload+shop/worker&to=workload+shop/db&verdict=dropped": {"✕ dropped", "shop/worker-2", "isolates shop/db-1"},
	} {
		wants(t, path, p.get(path, http.StatusOK), append(parts, "<!doctype html>", `href="#main"`)...)
	}
	for path, want := range map[string]string{"/flows?verdict=maybe": "must be allowed or dropped", "/edge": "both ends", "/policy?pod=x": "want NAMESPACE/POD", "/?namespace=/": "must be NAMESPACE"} {
		wants(t, path, p.get(path, http.StatusBadRequest), want)
	}
	p.get("/nothing", http.StatusNotFound)
}

// The rule that decided is marked: the rule itself, or the end of the tier of the policies that isolate the pod.
func TestPolicyPageMarksTheRule(t *testing.T) {
	c := sample.New(sample.Small)
	p := open(t, c, c)
	for query, want := range map[string]string{
		"&policy=NetworkPolicy+shop/db&rule=ingress+rule+1&direction=ingress": `<li id="rule" class="chosen"`,
		"&policy=NetworkPolicy+shop/db&direction=ingress":                     `<p id="rule" class="chosen"`,
		"&policy=NetworkPolicy+shop/db&direction=egress":                      "",
		"": "",
	} {
		text := p.get("/policy?pod=shop/db-0"+query, http.StatusOK)
		if n := strings.Count(text, `id="rule"`); n > 1 || (n == 1) != (want != "") || !strings.Contains(text, want) {
			t.Errorf("%q: %d marks, want %q", query, n, want)
		}
	}
}

// Each link of each page leads to a page.
func TestLinksLeadToPages(t *testing.T) {
	c := sample.New(sample.Small)
	p := open(t, c, c)
	seen, queue := map[string]bool{}, []string{"/", "/?toggle=shop", "/matrix?from=shop&to=shop"}
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		text := p.get(at, http.StatusOK)
		for _, part := range strings.Split(text, `href="`)[1:] {
			link, _, _ := strings.Cut(part, `"`)
			link, _, _ = strings.Cut(strings.ReplaceAll(strings.ReplaceAll(link, "&amp;", "&"), "&#43;", "+"), "#")
			if link != "" && !seen[link] && len(seen) < 120 {
				seen[link] = true
				queue = append(queue, link)
			}
		}
	}
	if len(seen) < 60 {
		t.Errorf("only %d links", len(seen))
	}
}

// A request from another site, from another machine's name, without the key, or one that would change something gets nothing.
func TestGuard(t *testing.T) {
	c := sample.New(sample.Small)
	p := open(t, c, c)
	host := strings.TrimPrefix(p.server.URL, "http://")
	for name, r := range map[string]struct {
		method string
		change func(*http.Request)
		code   int
	}{
		"a page of ours":       {http.MethodGet, func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-origin") }, 200},
		"the address line":     {http.MethodGet, func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "none") }, 200},
		"a forwarded port":     {http.MethodGet, func(r *http.Request) { r.Host = "localhost:9999" }, 200},
		"IPv6":                 {http.MethodGet, func(r *http.Request) { r.Host = "[::1]:8484" }, 200},
		"DNS rebinding":        {http.MethodGet, func(r *http.Request) { r.Host = "evil.example:8484" }, 403},
		"a similar name":       {http.MethodGet, func(r *http.Request) { r.Host = "localhost.evil.example" }, 403},
		"an address outside":   {http.MethodGet, func(r *http.Request) { r.Host = "192.0.2.1:8484" }, 403},
		"no host":              {http.MethodGet, func(r *http.Request) { r.Host = "[]" }, 403},
		"another site":         {http.MethodGet, func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }, 403},
		"another port":         {http.MethodGet, func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-site") }, 403},
		"a form elsewhere":     {http.MethodPost, func(r *http.Request) { r.URL.Path = "/whatif"; r.Header.Set("Origin", "http://evil.example") }, 403},
		"a form of ours":       {http.MethodPost, func(r *http.Request) { r.URL.Path = "/whatif"; r.Header.Set("Origin", "http://"+host) }, 200},
		"a POST to a page":     {http.MethodPost, nil, 405},
		"PUT":                  {http.MethodPut, func(r *http.Request) { r.URL.Path = "/whatif" }, 405},
		"DELETE":               {http.MethodDelete, nil, 405},
		"no key":               {http.MethodGet, func(r *http.Request) { r.Header.Del("Cookie") }, 403},
		"a wrong key":          {http.MethodGet, func(r *http.Request) { r.Header.Del("Cookie"); r.URL.RawQuery = "key=WRONG" }, 403},
		"another cookie":       {http.MethodGet, func(r *http.Request) { r.Header.Set("Cookie", p.cookie.Name+"=x") }, 403},
		"the key in a rebound": {http.MethodGet, func(r *http.Request) { r.Host = "evil.example"; r.URL.RawQuery = "key=" + key }, 403},
	} {
		resp := p.do(r.method, "/", r.change)
		_ = resp.Body.Close()
		if resp.StatusCode != r.code {
			t.Errorf("%s: %s, want %d", name, resp.Status, r.code)
		}
		for _, h := range []string{"Content-Security-Policy", "X-Content-Type-Options", "Referrer-Policy", "Cache-Control"} {
			if resp.Header.Get(h) == "" {
				t.Errorf("%s: no %s", name, h)
			}
		}
		if csp := resp.Header.Get("Content-Security-Policy"); strings.Contains(csp, "unsafe") || !strings.Contains(csp, "default-src 'none'") {
			t.Errorf("%s: %s", name, csp)
		}
	}
	resp := p.do(http.MethodGet, "//evil.example/?key="+key, nil)
	_ = resp.Body.Close()
	if to := resp.Header.Get("Location"); strings.HasPrefix(to, "//") {
		t.Errorf("a redirect to %s", to)
	}
}

// hostile has names that no API server accepts.
type hostile struct{ *sample.Cluster }

const evil = `<script>alert(1)</script>"'&` + "\n\ndata: x"

func (h hostile) Flows(context.Context, string, uint64) (*agentflows.Answer, error) {
	p := flows.Peer{Kind: flows.Pod, Namespace: evil, Name: evil, Workload: evil, Address: netip.MustParseAddr("10.0.0.1")}
	return &agentflows.Answer{Next: 1, Flows: []flows.Flow{{
		Number: 1, Source: p, Destination: p, Verdict: flows.Dropped, Direction: "ingress", Protocol: evil, Node: evil, Decision: flows.Decision{Text: evil, Policy: evil, Rule: evil},
	}}, Sources: []agentflows.Source{{Name: evil, Problem: evil}}}, nil
}

// Names cannot write to the page, nor add events to its stream.
func TestNamesAreEscaped(t *testing.T) {
	c := sample.New(sample.Small)
	p := open(t, c, hostile{c})
	for _, path := range []string{"/", "/?toggle=" + url.QueryEscape(evil), "/flows?text=" + url.QueryEscape(evil), "/flows", "/nodes", "/trace?to=x&from=" + url.QueryEscape(evil), "/edge?to=x&from=" + url.QueryEscape(evil)} {
		if text := p.get(path, http.StatusOK); strings.Contains(text, "<script>alert") || strings.Contains(text, `"'&`) {
			t.Errorf("%s has the name as it is:\n%s", path, text)
		}
	}
	event := p.event("/events/flows")
	if strings.Contains(event, "<script>") || !strings.Contains(event, "&lt;script&gt;") {
		t.Error(event)
	}
	for line := range strings.SplitSeq(strings.TrimSpace(event), "\n") {
		if line != "event: view" && !strings.HasPrefix(line, "data:") {
			t.Errorf("a line %q in an event", line)
		}
	}
}

// event returns the first event of a stream.
func (p *page) event(path string) string {
	resp := p.do(http.MethodGet, path, nil)
	defer resp.Body.Close()
	return next(p.t, bufio.NewReader(resp.Body))
}

// next reads one event.
func next(t *testing.T, r *bufio.Reader) string {
	t.Helper()
	var b strings.Builder
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		b.WriteString(line)
		if line == "\n" {
			return b.String()
		}
	}
}

// An open page gets its part again when the flows change, and only then.
func TestEventsFollowTheFlows(t *testing.T) {
	c := sample.New(sample.Small)
	p := open(t, c, c)
	resp := p.do(http.MethodGet, "/events/flows?verdict=dropped", nil)
	defer resp.Body.Close()
	r := bufio.NewReader(resp.Body)
	wants(t, "the first event", next(t, r), "3 flows")
	c.Attack()
	wants(t, "the second event", next(t, r), "4 flows", "203.0.113.9")
	c.Deny(0)
	wants(t, "the third event", next(t, r), "4 flows", "2 packets")
}

func (p *page) try(policy string) string {
	p.t.Helper()
	resp := p.do(http.MethodPost, "/whatif", func(r *http.Request) {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		*r = *r.WithContext(r.Context())
		r.Body = http.NoBody
		body := url.Values{"policy": {policy}}.Encode()
		r.Body, r.ContentLength = readCloser{strings.NewReader(body)}, int64(len(body))
	})
	defer resp.Body.Close()
	var b strings.Builder
	if _, err := bufio.NewReader(resp.Body).WriteTo(&b); err != nil {
		p.t.Fatal(err)
	}
	return b.String()
}

type readCloser struct{ *strings.Reader }

func (readCloser) Close() error { return nil }

// A policy is tried, not applied: what it closes and opens is shown, and the next trial begins with the same objects.
func TestTrial(t *testing.T) {
	c := sample.New(sample.Small)
	p := open(t, c, c)
	const deny = "{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: web, namespace: shop}, spec: {podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress]}}"
	for range 2 {
		wants(t, "a new policy", p.try(deny), "NetworkPolicy shop/web (new)", "0 kinds of connections open", "shop/web (3 pods)", "✕ closed")
	}
	wants(t, "a replaced policy", p.try(strings.ReplaceAll(strings.ReplaceAll(deny, "name: web", "name: db"), "app: web", "app: db")), "NetworkPolicy shop/db (replaced)", "5432")
	wants(t, "a policy that changes nothing", p.try(strings.ReplaceAll(deny, "app: web", "app: nothing")), "The same connections are allowed.")
	wants(t, "no policy", p.try("{apiVersion: v1, kind: Namespace, metadata: {name: x}}"), "is no policy", "the text has no policy")
	wants(t, "no YAML", p.try("{"), "the text has no policy", `class="error"`)
	wants(t, "text", p.try("<script>alert(1)</script>"), "&lt;script&gt;")
}

// Without objects the page says how it gets them, and shows everything else.
func TestWithoutObjects(t *testing.T) {
	c := sample.New(sample.Small)
	w := watch.New(c, time.Second, time.Now)
	s, err := ui.New(ui.Config{Watcher: w, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	p := &page{t: t, server: httptest.NewServer(s.Handler())}
	defer p.server.Close()
	p.cookie = p.do(http.MethodGet, "/?key="+key, nil).Cookies()[0]
	for _, path := range []string{"/matrix", "/whatif", "/trace"} {
		wants(t, path, p.get(path, http.StatusServiceUnavailable), "--manifests")
	}
}

// A matrix that takes long shows the rows that exist, and how many are missing. Events bring the others; one page's work serves all pages.
func TestMatrixGrows(t *testing.T) {
	c := sample.New(sample.Size{Nodes: 1, Namespaces: 4, Replicas: 1})
	w := watch.New(c, time.Second, time.Now)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	var ticks atomic.Int64
	s, err := ui.New(ui.Config{
		Watcher: w, Key: key, Objects: func(context.Context) ([]model.Object, error) { return c.Objects, nil },
		Now: func() time.Time { return sample.Begin.Add(time.Duration(ticks.Add(1)) * time.Second / 4) }, // a row takes half a second
	})
	if err != nil {
		t.Fatal(err)
	}
	p := &page{t: t, server: httptest.NewServer(s.Handler())}
	t.Cleanup(func() { p.server.CloseClientConnections(); p.server.Close(); cancel(); <-ended })
	p.cookie = p.do(http.MethodGet, "/?key="+key, nil).Cookies()[0]
	first := p.get("/matrix", http.StatusOK)
	wants(t, "the first page", first, "of 5 rows calculated", `<td class="cell">…</td>`, "/events/matrix")
	again := p.get("/matrix?from=outside&to=shop", http.StatusOK)
	wants(t, "a second page", again, `id="cell"`)
	if a, b := strings.Count(first, "…</td>"), strings.Count(again, "…</td>"); b >= a {
		t.Errorf("%d cells missing at first, then %d", a, b)
	}
	resp := p.do(http.MethodGet, "/events/matrix", nil)
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	text := ""
	for lines.Scan() {
		if text += lines.Text() + "\n"; lines.Text() == "" {
			if !strings.Contains(text, "rows calculated") {
				break
			}
			text = ""
		}
	}
	wants(t, "the last event", text, "team-03", "20 pods")
	if strings.Contains(text, "…</td>") {
		t.Error("the last event lacks cells")
	}
}
