package main

import (
	"context"
	"testing"

	"github.com/spf13/pflag"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/source/kube"
)

// telling is a source that says one thing.
type telling struct{ ev event.Event }

// Run implements agent.Source.
func (s telling) Run(_ context.Context, emit func(event.Event)) error {
	emit(s.ev)
	return nil
}

// Behind a fan-out server what it tells is known to who reports, and handed on as it is; conditions are nobody's there.
func TestReportsBehindFanout(t *testing.T) {
	ref := model.Ref{Kind: model.KindService, Namespace: "shop", Name: "web"}
	said := &event.Update{Changes: []event.Change{{Ref: ref, Object: &model.Service{}, UID: "u1"}}}
	for _, api := range []*kube.Config{nil, {}} {
		f, fs := &reportFlags{}, pflag.NewFlagSet("", pflag.ContinueOnError)
		f.add(fs)
		var heard event.Event
		if err := f.behind(api, telling{said}).Run(t.Context(), func(ev event.Event) { heard = ev }); err != nil || heard != event.Event(said) {
			t.Errorf("%v %v", heard, err)
		}
		if r, err := f.reporter(fs, "node-1", false, nil); err != nil || (r != nil) != (api != nil) {
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
