package record

import (
	"encoding/json"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/model"
)

// Entry is a decoded line. Exactly one of the pointers is set.
type Entry struct {
	Line
	Header  *Header
	Gap     *Gap
	Outcome *Outcome
	Event   event.Event // *event.Update with one change, *event.SyncStatus, *event.External, *event.Located or *event.VPPStatus
	Lacking []string    // what the event lacks of what the agent received
}

// newObject returns an object of the type that a line names; nil: no such type.
func newObject(name string) model.Object {
	switch name {
	case "Service":
		return &model.Service{}
	case "EndpointSlice":
		return &model.EndpointSlice{}
	case "Pod":
		return &model.Pod{}
	case "Node":
		return &model.Node{}
	case "Namespace":
		return &model.Namespace{}
	case "ServiceCIDR":
		return &model.ServiceCIDR{}
	case "ServiceAccount":
		return &model.ServiceAccount{}
	case "Policy":
		return &model.Policy{}
	case "Tier":
		return &model.Tier{}
	case "Profile":
		return &model.Profile{}
	case "NetworkSet":
		return &model.NetworkSet{}
	case "HostEndpoint":
		return &model.HostEndpoint{}
	}
	return nil
}

// Decode returns what a line says. The error names the line.
func Decode(l *Line) (Entry, error) {
	e := Entry{Line: *l}
	err := e.decodeBody()
	if err != nil {
		err = fmt.Errorf("record %d (%s): %w", l.Number, l.Key, err)
	}
	return e, err
}

func (e *Entry) decodeBody() error {
	kind := e.Key
	for i := range kind {
		if kind[i] == ' ' {
			kind = kind[:i]
			break
		}
	}
	switch kind {
	case "segment":
		e.Header = &Header{}
		return json.Unmarshal(e.Body, e.Header)
	case "gap":
		e.Gap = &Gap{}
		return json.Unmarshal(e.Body, e.Gap)
	case "outcome":
		e.Outcome = &Outcome{}
		return json.Unmarshal(e.Body, e.Outcome)
	case "object":
		return e.decodeChange()
	case "external":
		return e.decodeExternal()
	case "located":
		located := &event.Located{}
		e.Event = located
		return json.Unmarshal(e.Body, located)
	case "source":
		var s state
		err := json.Unmarshal(e.Body, &s)
		status := event.WaitForReady
		for _, st := range []event.Sync{event.ResyncInProgress, event.InSync} {
			if st.String() == s.Status {
				status = st
			}
		}
		e.Event = &event.SyncStatus{Source: s.Source, Status: status, Err: failure(s.Err), Note: s.Note}
		return err
	case "vpp":
		var c connection
		err := json.Unmarshal(e.Body, &c)
		e.Event = &event.VPPStatus{Connected: c.Connected, Version: c.Version, Generation: c.Generation, Err: failure(c.Err)}
		return err
	}
	return errors.New("of a kind that this version does not know")
}

func (e *Entry) decodeChange() error {
	var body read
	if err := json.Unmarshal(e.Body, &body); err != nil {
		return err
	}
	ch := event.Change{Ref: body.Ref, Err: failure(body.Err), Origin: body.Origin, UID: body.UID}
	if body.Type != "" {
		if ch.Object = newObject(body.Type); ch.Object == nil {
			return fmt.Errorf("an object of type %q, which this version does not know", body.Type)
		}
		if err := json.Unmarshal(body.Object, ch.Object); err != nil {
			return err
		}
	}
	e.Event = &event.Update{Source: body.Source, Changes: []event.Change{ch}}
	return nil
}

func (e *Entry) decodeExternal() error {
	var body external
	if err := json.Unmarshal(e.Body, &body); err != nil {
		return err
	}
	ev := &event.External{Source: body.Source, Resync: body.Resync, Values: map[string]proto.Message{}}
	for _, v := range body.Values {
		key, m, err := kv.ParseLine(v.Line)
		if err != nil {
			return err
		}
		ev.Values[key] = m
		merge, err := event.ParseMerge(v.Merge)
		if err != nil {
			return err
		}
		if !merge.Zero() {
			if ev.Merge == nil {
				ev.Merge = map[string]event.Merge{}
			}
			ev.Merge[key] = merge
		}
		if v.Lacking != "" {
			e.Lacking = append(e.Lacking, key+": "+v.Lacking)
		}
	}
	e.Event = ev
	return nil
}

func failure(text string) error {
	if text == "" {
		return nil
	}
	return errors.New(text)
}

// SourceOf returns the name of the source of an event; "": it has none.
func SourceOf(ev event.Event) string {
	switch ev := ev.(type) {
	case *event.Update:
		return ev.Source
	case *event.SyncStatus:
		return ev.Source
	case *event.External:
		return ev.Source
	}
	return ""
}
