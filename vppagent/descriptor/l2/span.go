package l2

import (
	"errors"
	"fmt"
	"strconv"

	"go.fd.io/govpp/binapi/span"

	"github.com/contiv-agent/contiv-agent/kv"
	ligato "github.com/contiv-agent/contiv-agent/proto/ligato/vpp/interfaces"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

// mirror copies the packets of one interface to another.
type mirror struct {
	from, to string
	state    span.SpanState
	l2       bool
}

// Span describes ligato's Span. VPP keeps a mirror when one of its interfaces is deleted, and the next interface of that index
// inherits it: the agent removes the mirror before either interface of ours.
func Span() *descriptor.Descriptor {
	return descriptor.Spec[*ligato.Span, *mirror]{
		Name: "span", Prefix: "config/vpp/v2/span/",
		Compile: func(_ string, m *ligato.Span) (*mirror, error) {
			s := &mirror{from: m.GetInterfaceFrom(), to: m.GetInterfaceTo(), l2: m.GetIsL2()}
			switch {
			case s.from == "":
				return nil, errors.New("interface_from: empty")
			case s.to == "":
				return nil, errors.New("interface_to: empty")
			case s.from == s.to:
				return nil, errors.New("interface_to: the one that is watched")
			}
			var ok bool
			s.state, ok = map[ligato.Span_Direction]span.SpanState{
				ligato.Span_RX: span.SPAN_STATE_API_RX, ligato.Span_TX: span.SPAN_STATE_API_TX, ligato.Span_BOTH: span.SPAN_STATE_API_RX_TX,
			}[m.GetDirection()]
			if !ok {
				return nil, fmt.Errorf("direction: %s is none", m.GetDirection())
			}
			return s, nil
		},
		Message: func(s *mirror) *ligato.Span {
			return &ligato.Span{InterfaceFrom: s.from, InterfaceTo: s.to, Direction: ligato.Span_Direction(s.state), IsL2: s.l2}
		},
		Equal: func(have, want *mirror) bool { return have.state == want.state && have.l2 == want.l2 },
		Dependencies: func(s *mirror) []descriptor.Dependency {
			return []descriptor.Dependency{{Key: kv.InterfaceKey(s.from), Bond: descriptor.Dies}, {Key: kv.InterfaceKey(s.to), Bond: descriptor.Dies}}
		},
		Recreate: func(have, want *mirror) bool { return have.l2 != want.l2 },
		Create:   createMirror,
		Update: func(w *descriptor.World, _, want *mirror) ([]descriptor.Op, error) {
			return want.sendState(w, want.state)
		},
		Delete: func(w *descriptor.World, s *mirror) ([]descriptor.Op, error) {
			return s.sendState(w, span.SPAN_STATE_API_DISABLED)
		},
		Dumps: func(*descriptor.World, descriptor.Candidates) []descriptor.Request {
			return []descriptor.Request{spanRequest(false), spanRequest(true)}
		},
		Retrieve: retrieveSpans,
	}.Descriptor()
}

func spanRequest(l2 bool) descriptor.Request {
	return descriptor.DumpRequest("sw_interface_span_dump "+strconv.FormatBool(l2), &span.SwInterfaceSpanDump{IsL2: l2})
}

// createMirror first ends a mirror that VPP may have kept from deleted interfaces: its features are off, and VPP would not turn
// them on again for a mirror that it has (span_add_delete_entry, VPP 24.06).
func createMirror(w *descriptor.World, s *mirror) ([]descriptor.Op, error) {
	off, err := s.sendState(w, span.SPAN_STATE_API_DISABLED)
	if err != nil {
		return nil, err
	}
	on, err := s.sendState(w, s.state)
	return append(off, on...), err
}

func (s *mirror) sendState(w *descriptor.World, state span.SpanState) ([]descriptor.Op, error) {
	from, err := w.Index(s.from)
	if err != nil {
		return nil, err
	}
	to, err := w.Index(s.to)
	if err != nil {
		return nil, err
	}
	return []descriptor.Op{{Gone: state == span.SPAN_STATE_API_DISABLED, Call: descriptor.Write(&span.SwInterfaceSpanEnableDisable{
		SwIfIndexFrom: from, SwIfIndexTo: to, State: state, IsL2: s.l2,
	})}}, nil
}

// retrieveSpans looks up the candidates. Of two mirrors between the same interfaces, it returns the one of the wanted layer.
func retrieveSpans(w *descriptor.World, d *descriptor.Dump, c descriptor.Candidates) ([]descriptor.Found, error) {
	type place struct {
		from, to uint32
		l2       bool
	}
	inVPP := map[place]span.SpanState{}
	for _, l2 := range []bool{false, true} {
		all, err := descriptor.Details[*span.SwInterfaceSpanDetails](d, spanRequest(l2).ID)
		if err != nil {
			return nil, err
		}
		for _, m := range all {
			inVPP[place{uint32(m.SwIfIndexFrom), uint32(m.SwIfIndexTo), l2}] = m.State
		}
	}
	var out []descriptor.Found
	c.Each(func(key string, state any, wanted bool) {
		s := state.(*mirror)
		from, ok1 := w.Interface(s.from)
		to, ok2 := w.Interface(s.to)
		if !ok1 || !ok2 || !wanted && c.Wanted(key) != nil {
			return
		}
		for _, l2 := range []bool{s.l2, !s.l2} {
			if st, ok := inVPP[place{from.Index, to.Index, l2}]; ok {
				out = append(out, descriptor.Found{Key: key, State: &mirror{from: s.from, to: s.to, state: st, l2: l2}})
				return
			}
		}
	})
	return out, nil
}
