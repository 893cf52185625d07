package control

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/httpserver"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/plugins/controller"
	"github.com/contiv-agent/contiv-agent/recorder/record"
)

// Objects are what an agent has from its sources.
type Objects struct {
	Node string
	// List has the objects in any order. They must not be changed.
	List []model.Object
}

// Holder reads the objects of an agent in its loop.
type Holder struct {
	Node       string
	Controller *controller.Controller
	Have       func() []model.Object // in the loop
}

// Read returns the objects once all sources have sent theirs.
func (h *Holder) Read(ctx context.Context) (*Objects, error) {
	out := &Objects{Node: h.Node}
	var waiting error
	err := h.Controller.Ask(ctx, func(c *controller.Controller) {
		st := c.Status()
		at := slices.IndexFunc(st.Sources, func(s event.SyncStatus) bool { return s.Status != event.InSync })
		if at >= 0 && !st.Started {
			waiting = fmt.Errorf("the agent has not received all objects: source %s is in state %s", st.Sources[at].Source, st.Sources[at].Status)
			return
		}
		out.List = h.Have()
	})
	return out, cmp.Or(err, waiting)
}

// mostReaders bounds the clients that read objects at the same time.
const mostReaders = 2

// serveObjects sends a header and one line for each object, sorted, in the form of the flight recorder's journal. It encodes one object at a time. A client
// that reads slowly loses its connection when the server's limit for an answer ends.
func (s *Server) serveObjects(w http.ResponseWriter, r *http.Request, free chan struct{}) {
	fail := func(code int, err error) { httpserver.JSON(w, code, map[string]string{"error": err.Error()}) }
	if s.Objects == nil {
		fail(http.StatusNotFound, errors.New("this agent serves no objects"))
		return
	}
	select {
	case free <- struct{}{}:
		defer func() { <-free }()
	default:
		fail(http.StatusServiceUnavailable, fmt.Errorf("%d clients read objects: try again", mostReaders))
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), queryLimit)
	defer cancel()
	objects, err := s.Objects(ctx)
	if err != nil {
		fail(http.StatusServiceUnavailable, err)
		return
	}
	slices.SortFunc(objects.List, func(a, b model.Object) int { return a.Ref().Compare(b.Ref()) })
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	out := bufio.NewWriterSize(w, 64<<10)
	header := record.HeaderLine(&record.Header{Format: record.Format, Node: objects.Node, Kept: len(objects.List)})
	text, now := []byte(nil), time.Now()
	for i := -1; i < len(objects.List); i++ {
		l := header
		if i >= 0 {
			o := objects.List[i]
			l = record.Lines(&event.Update{Changes: []event.Change{{Ref: o.Ref(), Object: o}}})[0]
		}
		l.Number, l.At = uint64(i+2), now //nolint:gosec // at least 1
		text = l.AppendTo(text[:0])
		if _, err := out.Write(text); err != nil {
			return // the client has disconnected
		}
	}
	_ = out.Flush() // as above
}

// FetchObjects fetches the objects of the agent at a unix socket. The error of an answer that lacks some says so.
func FetchObjects(ctx context.Context, socket string) ([]event.Change, error) {
	reader, writer := io.Pipe()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answered := make(chan error, 1)
	go func() {
		err := request(ctx, socket, http.MethodGet, "/objects", nil, writer)
		_ = writer.CloseWithError(err) // it returns no error
		answered <- err
	}()
	changes, err := readObjects(reader)
	_ = reader.CloseWithError(err) // as above; the request then ends
	if errAnswer := <-answered; errAnswer != nil {
		return nil, errAnswer
	}
	if err != nil {
		return nil, fmt.Errorf("objects of the agent at %s: %w", socket, err)
	}
	return changes, nil
}

// readObjects reads a header, and as many objects as it promises.
func readObjects(r io.Reader) (changes []event.Change, err error) {
	lines := bufio.NewReaderSize(r, 64<<10)
	kept := -1
	for {
		text, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) && len(text) == 0 {
			break
		}
		if err != nil {
			return nil, err
		}
		l, err := record.ParseLine(bytes.TrimSuffix(text, []byte("\n")))
		if err != nil {
			return nil, err
		}
		e, err := record.Decode(&l)
		if err != nil {
			return nil, err
		}
		update, ok := e.Event.(*event.Update)
		switch {
		case kept < 0 && e.Header != nil && e.Header.Format == record.Format:
			kept = e.Header.Kept
		case kept < 0:
			return nil, fmt.Errorf("its first line is no header of format %d: agent and program have different versions", record.Format)
		case e.Gap != nil:
			return nil, errors.New(e.Gap.Error)
		case ok:
			changes = append(changes, update.Changes...)
		}
	}
	if len(changes) != kept {
		return nil, fmt.Errorf("the answer has %d objects, and promised %d", len(changes), kept)
	}
	return changes, nil
}
