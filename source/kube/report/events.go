package report

import (
	"context"
	"encoding/json"
	"time"
	"unicode/utf8"

	"github.com/contiv-agent/contiv-agent/backoff"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/source/kube/api"
)

// Controller is the name of the reporting controller, in Events and elsewhere.
const Controller = "contiv-agent"

// action is the action of all Events; the API requires one.
const action = "Render"

// Limits of the API (k8s.io/kubernetes/pkg/apis/core/validation/events.go, v1.36), in bytes.
const (
	mostNote     = 1024
	mostInstance = 128
)

// sendEvent creates the Event of a statement. If the Event exists, sendEvent counts one more occurrence, unless the last one is
// recent enough.
func (r *Reporter) sendEvent(ctx context.Context, now time.Time, s *statement) error {
	namespace := s.object.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	kind := corev1.EventTypeWarning
	if s.reason == event.Rendered {
		kind = corev1.EventTypeNormal
	}
	events := api.Target{GroupVersionResource: eventsv1.SchemeGroupVersion.WithResource("events"), Namespace: namespace}
	err := r.client.Create(ctx, events, &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: s.name(), Namespace: namespace},
		EventTime:  metav1.NewMicroTime(now), Type: kind, Reason: string(s.reason), Action: action, Note: shorten(s.text, mostNote),
		ReportingController: Controller, ReportingInstance: shorten(r.cfg.Node, mostInstance), Regarding: s.object.Reference(),
	})
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	events.Name = s.name()
	var have eventsv1.Event
	if err := r.client.Read(ctx, events, metav1.ListOptions{}, &have); err != nil {
		return err
	}
	last, count := have.EventTime.Time, int32(2)
	if have.Series != nil {
		last, count = have.Series.LastObservedTime.Time, have.Series.Count+1
	}
	if !last.Before(s.after) {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"series": eventsv1.EventSeries{Count: count, LastObservedTime: metav1.NewMicroTime(now)}})
	if err != nil {
		return err
	}
	return r.client.Patch(ctx, events, types.MergePatchType, patch)
}

// shorten cuts a text to most bytes, and marks the cut with an ellipsis.
func shorten(text string, most int) string {
	if len(text) <= most {
		return text
	}
	const dots = "…"
	cut := most - len(dots)
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + dots
}

// final reports whether err concerns this one request only, so that a retry is useless. Forbidden is not final: an API
// server that is starting grants no rights yet.
func final(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsNotFound(err)
}

// record records the result of an attempt. The pause after a failure is capped, so that the operation runs soon after the API server
// is back.
func record(t *backoff.Timer, now time.Time, err error) {
	switch {
	case err == nil || final(err):
		t.Reset()
	case apierrors.IsForbidden(err):
		t.Failed(now, backoff.Range{Min: interval, Max: refresh})
	default:
		t.Failed(now, backoff.Range{Min: interval, Max: settled})
	}
}
