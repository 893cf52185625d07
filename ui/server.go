// Package ui turns snapshots of a cluster, and questions about it, into pages for a browser on the same machine.
//
//	watch.Snapshot ─┬─▶ views: data of a page ─▶ html/template ─▶ page
//	                └─▶ the same part of the page, as a server-sent event, for each later snapshot that changes it
//	objects ─ reach, Trace ─▶ answers about policies and packets
//
// Invariant: no request changes anything in a cluster. A request has to know the key, and names a loopback host.
package ui

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/ui/reach"
	"github.com/contiv-agent/contiv-agent/ui/watch"
)

//go:embed page
var files embed.FS

const (
	// firstWait bounds how long a page waits for the first snapshot.
	firstWait = 3 * time.Second
	// keepAlive is the longest silence of an event stream.
	keepAlive = 20 * time.Second
	// workLimit bounds the time of an answer from objects.
	workLimit = 2 * time.Minute
)

// Config is what a Server shows.
type Config struct {
	Watcher *watch.Watcher
	// Where names the cluster or the node, for titles.
	Where string
	// Key has to be in the first request of a browser, as the parameter key.
	Key string
	// Objects returns the objects of the cluster; nil: the page answers no questions about policies and packets.
	Objects func(context.Context) ([]model.Object, error)
	// Trace returns the verdict on a packet, and the text of the trace command about it. The arguments are a question's fields.
	Trace func(ctx context.Context, from, to, protocol string) (verdict, text string, err error)
	Now   func() time.Time
}

// Server serves the pages.
type Server struct {
	Config
	pages  *template.Template
	static map[string][]byte
	// turn holds the last matrix: one request at a time takes it and works on objects.
	turn chan *lastMatrix
}

// lastMatrix is the last matrix, which may lack rows.
type lastMatrix struct {
	work *reach.Work // nil: none yet
	at   time.Time   // when its objects were read
}

// New returns a server. Its only error is about its embedded files.
func New(cfg Config) (*Server, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	s := &Server{Config: cfg, static: map[string][]byte{}, turn: make(chan *lastMatrix, 1)}
	s.turn <- &lastMatrix{}
	var err error
	if s.pages, err = template.New("").Funcs(templateTexts(cfg.Now)).ParseFS(files, "page/*.html"); err != nil {
		return nil, err
	}
	for _, name := range []string{"style.css", "script.js", "icon.svg"} {
		if s.static["/"+name], err = files.ReadFile("page/" + name); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Handler serves every page behind the guard.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	for path, kind := range map[string]string{"/style.css": "text/css", "/script.js": "text/javascript", "/icon.svg": "image/svg+xml"} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind+"; charset=utf-8")
			_, _ = w.Write(s.static[path]) // an error means that the client has disconnected
		})
	}
	for _, v := range s.views() {
		mux.HandleFunc("GET "+v.pattern(), func(w http.ResponseWriter, r *http.Request) { s.servePage(w, r, v) })
		if v.live {
			mux.HandleFunc("GET /events/"+v.name, func(w http.ResponseWriter, r *http.Request) { s.serveEvents(w, r, v) })
		}
	}
	mux.HandleFunc("POST /whatif", func(w http.ResponseWriter, r *http.Request) { s.servePage(w, r, s.viewOf("whatif")) })
	return s.guard(mux)
}

// view is one kind of page.
type view struct {
	name, title string
	menu        bool
	live        bool // it changes with the snapshot
	data        func(*http.Request, *watch.Snapshot) (any, error)
}

func (v *view) pattern() string {
	if v.name == "map" {
		return "/{$}"
	}
	return "/" + v.name
}

// Path is the address of the view.
func (v *view) Path() string { return strings.TrimSuffix(v.pattern(), "{$}") }

// Title is its name in the menu.
func (v *view) Title() string { return v.title }

// frame is the data of a whole page.
type frame struct {
	View, Title, Where string
	Menu               []*view
	Events             string // address of the stream of the live part; "": it has none
	Body               template.HTML
	Form               any // data of the part that no event replaces
	Error              string
}

func (s *Server) servePage(w http.ResponseWriter, r *http.Request, v *view) {
	f := frame{View: v.name, Title: v.title, Where: s.Where}
	for _, m := range s.views() {
		if m.menu {
			f.Menu = append(f.Menu, m)
		}
	}
	if v.live {
		f.Events = "/events/" + v.name
		if r.URL.RawQuery != "" {
			f.Events += "?" + r.URL.RawQuery
		}
	}
	code := http.StatusOK
	data, err := v.data(r, s.snapshot(r.Context()))
	var wrong *userError
	switch {
	case errors.As(err, &wrong):
		code, f.Error = http.StatusBadRequest, err.Error()
	case err != nil:
		code, f.Error = http.StatusServiceUnavailable, err.Error()
	}
	f.Form = data
	var out bytes.Buffer
	if err == nil {
		if f.Body, err = s.render(v, data); err != nil {
			code, f.Error = http.StatusInternalServerError, err.Error()
		}
	}
	if err := s.pages.ExecuteTemplate(&out, "frame.html", &f); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	_, _ = out.WriteTo(w) // an error means that the client has disconnected
}

// render returns the part of a page that events replace.
func (s *Server) render(v *view, data any) (template.HTML, error) {
	var out bytes.Buffer
	err := s.pages.ExecuteTemplate(&out, v.name+".html", data)
	return template.HTML(out.String()), err // html/template has escaped it
}

// snapshot returns the last snapshot; if no round has ended yet, it waits a short time.
func (s *Server) snapshot(ctx context.Context) *watch.Snapshot {
	snap := s.Watcher.Latest()
	if !snap.At.IsZero() {
		return snap
	}
	wait := time.NewTimer(firstWait)
	defer wait.Stop()
	select {
	case <-snap.Replaced():
	case <-wait.C:
	case <-ctx.Done():
	}
	return s.Watcher.Latest()
}

// serveEvents sends the live part of a page whenever a later snapshot changes it.
func (s *Server) serveEvents(w http.ResponseWriter, r *http.Request, v *view) {
	stream := http.NewResponseController(w)
	if err := errors.Join(stream.SetReadDeadline(time.Time{}), stream.SetWriteDeadline(time.Time{})); err != nil {
		http.Error(w, err.Error(), http.StatusNotImplemented)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	alive := time.NewTicker(keepAlive)
	defer alive.Stop()
	var sent template.HTML
	for {
		snap := s.Watcher.Latest()
		data, err := v.data(r, snap)
		text := template.HTML("")
		if err == nil {
			text, err = s.render(v, data)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if text != sent {
			sent = text
			writeEvent(w, string(text))
		}
		if stream.Flush() != nil {
			return
		}
		replaced := snap.Replaced()
		if u, grows := data.(interface{ Unfinished() bool }); grows {
			if u.Unfinished() && r.Context().Err() == nil {
				continue // the next call has more
			}
			replaced = nil // it changes little from here, and is large
		}
		select {
		case <-r.Context().Done():
			return
		case <-replaced:
		case <-alive.C:
			_, _ = io.WriteString(w, ": alive\n\n") // Flush has the error
		}
	}
}

// writeEvent writes a server-sent event of the name view. Flush has its error.
func writeEvent(w io.Writer, text string) {
	_, _ = io.WriteString(w, "event: view\n")
	for line := range strings.SplitSeq(strings.ReplaceAll(text, "\r", ""), "\n") {
		_, _ = fmt.Fprintf(w, "data: %s\n", line)
	}
	_, _ = io.WriteString(w, "\n")
}

// userError is an error in a request.
type userError struct{ error }

func wrongRequest(format string, args ...any) error { return &userError{fmt.Errorf(format, args...)} }

func (e *userError) Unwrap() error { return e.error }
