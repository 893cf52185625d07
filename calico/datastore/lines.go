package datastore

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/contiv-agent/contiv-agent/calc"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/proto/felix"
)

// Lines runs a calculation graph on JSON lines. Its input lines are changes of the datastore, statuses and flushes:
//
//	{"key":"/calico/v1/policy/tier/default/metadata","value":"{\"order\":20}"}   a value as text, or as JSON itself
//	{"key":"/calico/v1/host/n1/bird_ip","deleted":true}
//	{"status":"in-sync"}                                                         or wait-for-ready, resync
//	{"flush":true}
//
// At a flush Lines writes Felix's messages as protobuf-JSON, one per line, and then {"flushed":true}. The end of the input
// is a flush if input followed the last one. For a line that does not parse, Lines at once writes an {"error":…} with its
// number and key; its value counts as deleted, and Lines continues.
//
// Memory: the graph and one line.
type Lines struct {
	Graph calc.Config
	// Send receives the messages of a flush; nil: they are written to the output.
	Send func([]*felix.ToDataplane) error
	// MaxLine bounds a line, in bytes; 0: 256 MiB. Lines skips a longer one with an error.
	MaxLine int
}

// line is the content of an input line.
type line struct {
	Key     string          `json:"key"`
	Value   json.RawMessage `json:"value"`
	Deleted bool            `json:"deleted"`
	Flush   bool            `json:"flush"`
	Status  string          `json:"status"`
}

// lineError is the error of a line or of an object.
type lineError struct {
	Error  string `json:"error"`
	Line   int    `json:"line,omitempty"`
	Key    string `json:"key,omitempty"`
	Object string `json:"object,omitempty"`
}

// Run reads in to its end. It returns an error of reading, writing or Send.
func (l Lines) Run(in io.Reader, out io.Writer) error {
	g := calc.New(l.Graph)
	x := &lineRun{Lines: l, graph: g, feed: NewFeed(g), out: bufio.NewWriterSize(out, 64<<10), said: map[model.Note]bool{}}
	if x.MaxLine <= 0 {
		x.MaxLine = 256 << 20
	}
	r := bufio.NewReaderSize(in, 64<<10)
	for {
		text, err := x.readLine(r)
		if text = bytes.TrimSpace(text); len(text) > 0 {
			x.applyLine(text)
		}
		if errors.Is(err, io.EOF) && x.pending {
			x.flushMessages()
		}
		if x.err != nil {
			return x.err
		}
		if errors.Is(err, io.EOF) {
			return x.out.Flush()
		}
		if err != nil {
			return fmt.Errorf("line %d: %w", x.number, err)
		}
	}
}

type lineRun struct {
	Lines
	graph   *calc.Graph
	feed    *Feed
	out     *bufio.Writer
	number  int                 // of the line
	pending bool                // input followed the last flush
	said    map[model.Note]bool // notes on objects written at the last flush
	err     error               // of writing or sending
}

// readLine returns the next line, or the incomplete one at the end of the input.
func (x *lineRun) readLine(r *bufio.Reader) ([]byte, error) {
	x.number++
	var text []byte
	length := 0
	for {
		part, err := r.ReadSlice('\n')
		if length += len(part); length <= x.MaxLine {
			text = append(text, part...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if length > x.MaxLine {
			x.writeError("", fmt.Errorf("longer than %d bytes", x.MaxLine))
			text = nil
		}
		return text, err
	}
}

// writeError writes the error of a line.
func (x *lineRun) writeError(key string, err error) {
	x.say(lineError{Error: fmt.Sprintf("line %d: %s", x.number, err), Line: x.number, Key: key})
	if x.err == nil {
		x.err = x.out.Flush()
	}
}

func (x *lineRun) say(v any) {
	text, err := json.Marshal(v)
	if err == nil {
		_, err = x.out.Write(append(text, '\n'))
	}
	x.err = errors.Join(x.err, err)
}

func (x *lineRun) applyLine(text []byte) {
	var l line
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	err := d.Decode(&l)
	if _, more := d.Token(); err == nil && !errors.Is(more, io.EOF) {
		err = errors.New("more than one value")
	}
	if err == nil {
		err = l.checkMeaning()
	}
	switch {
	case err != nil:
		x.writeError(l.Key, err)
	case l.Flush:
		x.flushMessages()
	case l.Status == "in-sync":
		x.graph.InSync()
		x.pending = true
	case l.Key != "":
		x.pending = true
		u, err := Decode(l.Key, l.value())
		x.feed.Apply(u)
		if err != nil {
			x.writeError(l.Key, err)
		}
	}
}

// checkMeaning returns an error unless the line has exactly one meaning.
func (l *line) checkMeaning() error {
	says := 0
	for _, yes := range []bool{l.Key != "", l.Flush, l.Status != ""} {
		if yes {
			says++
		}
	}
	switch {
	case says != 1:
		return errors.New(`must have one of "key", "flush":true and "status"`)
	case l.Key == "" && (l.Value != nil || l.Deleted):
		return errors.New(`"value" and "deleted" need a "key"`)
	case l.Key != "" && l.Deleted == (l.Value != nil && string(l.Value) != "null"):
		return errors.New(`must have either "value" or "deleted":true`)
	case l.Status != "" && l.Status != "wait-for-ready" && l.Status != "resync" && l.Status != "in-sync":
		return fmt.Errorf("status %q must be wait-for-ready, resync or in-sync", l.Status)
	}
	return nil
}

// value returns the bytes of the datastore; nil: the key is deleted. They are the content of a string, or any other JSON
// itself.
func (l *line) value() []byte {
	if l.Deleted {
		return nil
	}
	var text string
	if json.Unmarshal(l.Value, &text) == nil {
		return []byte(text)
	}
	return l.Value
}

// flushMessages sends the messages that follow from the input, and writes notes on objects that are not understood, unless the last
// flush wrote them.
func (x *lineRun) flushMessages() {
	x.pending = false
	messages := x.graph.Flush()
	if x.Send != nil {
		x.err = errors.Join(x.err, x.Send(messages))
		messages = nil
	}
	for _, m := range messages {
		x.writeMessage(m)
	}
	said := map[model.Note]bool{}
	for _, n := range x.graph.Notes() {
		if said[n] = true; !x.said[n] {
			x.say(lineError{Error: n.Ref.String() + ": " + n.Reason, Object: n.Ref.String()})
		}
	}
	x.said = said
	x.say(struct {
		Flushed bool `json:"flushed"`
	}{true})
	if x.err == nil {
		x.err = x.out.Flush()
	}
}

// writeMessage writes a message on one line, without the random spaces that protojson inserts.
func (x *lineRun) writeMessage(m *felix.ToDataplane) {
	text, err := protojson.Marshal(m)
	if err == nil {
		var b bytes.Buffer
		if err = json.Compact(&b, text); err == nil {
			b.WriteByte('\n')
			_, err = x.out.Write(b.Bytes())
		}
	}
	x.err = errors.Join(x.err, err)
}
