package hubble

import (
	"errors"
	"strings"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/contiv-agent/contiv-agent/proto/hubble/flow"
	"github.com/contiv-agent/contiv-agent/proto/hubble/observer"
)

// choice is a request for flows, checked.
type choice struct {
	number       uint64
	first        bool
	follow       bool
	since, until time.Time // zero: no bound
	matches      match
	mask         mask
}

// newChoice checks a request.
func newChoice(req *observer.GetFlowsRequest) (*choice, error) {
	out := &choice{number: req.GetNumber(), first: req.GetFirst(), follow: req.GetFollow(), mask: newMask(req.GetFieldMask())}
	var errs []error
	if out.first && out.follow {
		errs = append(errs, errors.New("first: cannot be used with follow"))
	}
	if t := req.GetSince(); t != nil {
		errs = append(errs, t.CheckValid())
		out.since = t.AsTime()
	}
	if t := req.GetUntil(); t != nil {
		errs = append(errs, t.CheckValid())
		out.until = t.AsTime()
	}
	var err error
	out.matches, err = compileLists(req.GetWhitelist(), req.GetBlacklist())
	return out, errors.Join(append(errs, err)...)
}

// choose returns the flows of those that an agent has, which are in the order of their times, that a request asks for.
func (c *choice) choose(all []*flow.Flow) []*flow.Flow {
	if c.follow && c.number == 0 && c.since.IsZero() {
		return nil
	}
	out, _ := c.matching(all)
	if c.number == 0 || c.number >= uint64(len(out)) || c.follow && !c.since.IsZero() {
		return out
	}
	if c.first || !c.since.IsZero() {
		return out[:c.number]
	}
	return out[uint64(len(out))-c.number:]
}

// matching returns the flows that match; over: the time until which the request asks for flows is over.
func (c *choice) matching(all []*flow.Flow) (out []*flow.Flow, over bool) {
	for _, f := range all {
		t := f.GetTime().AsTime()
		switch {
		case !c.until.IsZero() && t.After(c.until):
			return out, true
		case !t.Before(c.since) && c.matches(f):
			out = append(out, f)
		}
	}
	return out, false
}

// mask has the names of fields to keep, each with those of its message; an empty one keeps all.
type mask map[protoreflect.Name]mask

// newMask ignores names of fields that agents do not have.
func newMask(of *fieldmaskpb.FieldMask) mask {
	out := mask{}
	for _, path := range of.GetPaths() {
		at := out
		for name := range strings.SplitSeq(path, ".") {
			next, was := at[protoreflect.Name(name)]
			if was && len(next) == 0 { // the whole field is kept
				at = nil
				break
			}
			if !was {
				next = mask{}
				at[protoreflect.Name(name)] = next
			}
			at = next
		}
		clear(at) // the path ends here: the whole field is kept
	}
	return out
}

// apply clears the fields that are not in the mask.
func (k mask) apply(m protoreflect.Message) {
	if len(k) == 0 {
		return
	}
	m.Range(func(field protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch inner, keep := k[field.Name()]; {
		case !keep:
			m.Clear(field)
		case field.Message() != nil && !field.IsList():
			inner.apply(v.Message())
		}
		return true
	})
}
