package record

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
)

// MostValues bounds the values of an Outcome.
const MostValues = 200

// Lines returns the lines of an event, without numbers and time. It has none for ticks and for messages of a Felix. An object or value that
// JSON cannot express gives a Notice with the error.
func Lines(ev event.Event) []Line {
	switch ev := ev.(type) {
	case *event.Update:
		out := make([]Line, 0, len(ev.Changes))
		for i := range ev.Changes {
			out = append(out, changeLine(ev.Source, &ev.Changes[i]))
		}
		return out
	case *event.SyncStatus:
		return []Line{line(Put, "source "+ev.Source, state{Source: ev.Source, Status: ev.Status.String(), Err: text(ev.Err), Note: ev.Note})}
	case *event.External:
		return externalLines(ev)
	case *event.Located:
		return []Line{line(Put, "located", ev)}
	case *event.VPPStatus:
		return []Line{line(Put, "vpp", connection{ev.Connected, ev.Version, ev.Generation, text(ev.Err)})}
	}
	return nil
}

// line returns a line with v as its body.
func line(op Op, key string, v any) Line {
	body, err := json.Marshal(v)
	if err != nil {
		body, _ = json.Marshal(Gap{Dropped: 1, Error: fmt.Sprintf("%s cannot be recorded: %v", key, err)}) // a Gap has a form
		return Line{Op: Notice, Key: "gap", Body: body}
	}
	return Line{Op: op, Key: key, Body: body}
}

// HeaderLine returns the first line of a segment.
func HeaderLine(h *Header) Line { return line(Notice, "segment", h) }

// GapLine returns the line that says what the journal lacks.
func GapLine(g *Gap) Line { return line(Notice, "gap", g) }

func changeLine(source string, ch *event.Change) Line {
	body := written{change: change{Source: source, Ref: ch.Ref, Origin: ch.Origin, UID: ch.UID, Err: text(ch.Err)}, Object: ch.Object}
	op := Put
	switch {
	case ch.Object != nil:
		body.Type = reflect.TypeOf(ch.Object).Elem().Name()
	case ch.Err == nil:
		op = Remove
	}
	return line(op, "object "+ch.Ref.String(), body)
}

// externalLines returns one line for a resync, and one for each value of a change. A removed value is a Put: it outlives the resync before it.
func externalLines(ev *event.External) []Line {
	key := "external " + strconv.Quote(ev.Source)
	all := external{Source: ev.Source, Resync: ev.Resync}
	out := []Line{}
	for _, k := range kv.Values(ev.Values).Keys() {
		v, err := externalValue(k, ev.Values[k], ev.Merge[k])
		if err != nil { // the agent refuses the whole event, too
			return []Line{GapLine(&Gap{Error: fmt.Sprintf("external configuration of %s was refused: %v", ev.Source, err)})}
		}
		if all.Values = append(all.Values, v); !ev.Resync {
			out = append(out, line(Put, key+" "+k, external{Source: ev.Source, Values: []value{v}}))
		}
	}
	if ev.Resync {
		return []Line{line(Reset, key, all)}
	}
	return out
}

func externalValue(key string, m proto.Message, merge event.Merge) (v value, err error) {
	if m == nil {
		return value{Line: kv.Format(key, nil)}, nil
	}
	if err := errors.Join(kv.Check(key, m), merge.Check(m.ProtoReflect().Descriptor())); err != nil {
		return v, err
	}
	if hasSecret(m.ProtoReflect()) {
		m, v.Lacking = proto.Clone(m), "keys and secrets are not recorded"
		clearSecrets(m.ProtoReflect())
	}
	v.Line, v.Merge = kv.Format(key, m), merge.String()
	return v, nil
}

// secret reports whether a field holds a key or a password.
func secret(f protoreflect.FieldDescriptor) bool {
	name := string(f.Name())
	return f.Kind() == protoreflect.StringKind && (name == "secret" || strings.HasSuffix(name, "_key") && name != "public_key")
}

func hasSecret(m protoreflect.Message) (found bool) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case secret(f):
			found = true
		case f.Message() != nil && !f.IsMap() && !f.IsList():
			found = hasSecret(v.Message())
		}
		return !found
	})
	return found
}

func clearSecrets(m protoreflect.Message) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case secret(f):
			m.Clear(f)
		case f.Message() != nil && !f.IsMap() && !f.IsList():
			clearSecrets(v.Message())
		}
		return true
	})
}

// OutcomeLine returns the line of a transaction that ended.
func OutcomeLine(ev *event.Committed, messages []Messages) Line {
	out := Outcome{
		Seq: ev.Seq, Cause: ev.Cause, Kind: ev.Resync.String(), Add: ev.Add, Mod: ev.Mod, Del: ev.Del, Writes: ev.Writes, Took: ev.Took,
		Error: text(ev.Err), Messages: messages,
	}
	worse := slices.Clone(ev.Statuses)
	slices.SortStableFunc(worse, func(a, b event.ValueStatus) int { return cmp.Compare(good(a), good(b)) })
	if len(worse) > MostValues {
		out.More, worse = len(worse)-MostValues, worse[:MostValues]
	}
	for _, st := range worse {
		out.Values = append(out.Values, Value{Key: st.Key, State: st.State.String(), Error: st.Err, Waits: st.Details})
	}
	return line(Notice, "outcome", out)
}

// good is 1 for a value that is as desired, and 0 for others.
func good(st event.ValueStatus) int {
	if st.State == event.Configured || st.State == event.Removed || st.State == event.Nonexistent {
		return 1
	}
	return 0
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// SortMessages returns requests sorted by name.
func SortMessages(byName map[string]*Messages) []Messages {
	out := make([]Messages, 0, len(byName))
	for _, m := range byName {
		out = append(out, *m)
	}
	slices.SortFunc(out, func(a, b Messages) int { return cmp.Compare(a.Name, b.Name) })
	return out
}
