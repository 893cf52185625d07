package flags

import (
	"context"
	"testing"

	"github.com/spf13/pflag"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/source/kube"
)

// oneEvent is a source that emits one event.
type oneEvent struct{ ev event.Event }

// Run implements agent.Source.
func (s oneEvent) Run(_ context.Context, emit func(event.Event)) error {
	emit(s.ev)
	return nil
}

// With a source behind a fan-out server, the reporter knows its objects, and the events pass unchanged; conditions are off.
func TestReportsBehindFanout(t *testing.T) {
	ref := model.Ref{Kind: model.KindService, Namespace: "shop", Name: "web"}
	ev := &event.Update{Changes: []event.Change{{Ref: ref, Object: &model.Service{}, UID: "u1"}}}
	for _, api := range []*kube.Config{nil, {}} {
		f, fs := &Report{}, pflag.NewFlagSet("", pflag.ContinueOnError)
		f.AddFlags(fs)
		var heard event.Event
		if err := f.Behind(api, oneEvent{ev}).Run(t.Context(), func(e event.Event) { heard = e }); err != nil || heard != event.Event(ev) {
			t.Errorf("%v %v", heard, err)
		}
		if r, err := f.Reporter(fs, "node-1", false, nil); err != nil || (r != nil) != (api != nil) {
			t.Errorf("%v %v", r, err)
		}
		if api == nil {
			continue
		}
		if id, ok := f.objects.Identity(ref); !ok || id.UID != "u1" {
			t.Errorf("%v %+v", ok, id)
		}
		if c := f.config("node-1", nil); !c.Events || c.Conditions {
			t.Errorf("%+v", c)
		}
	}
}
