package report

import (
	"context"
	"encoding/json"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/contiv-agent/contiv-agent/event"
)

// Controller is who reports, in Events and elsewhere.
const Controller = "contiv-agent"

// action is what all Events of ours are about; the API asks for one.
const action = "Render"

// Limits of the API (k8s.io/kubernetes/pkg/apis/core/validation/events.go, v1.36), in bytes.
const (
	mostNote     = 1024
	mostInstance = 128
)

// tell creates the Event of a statement, or counts one more in that which is there, unless that is recent enough.
func (r *Reporter) tell(ctx context.Context, now time.Time, s *statement) error {
	namespace := s.object.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	kind := corev1.EventTypeWarning
	if s.reason == event.Rendered {
		kind = corev1.EventTypeNormal
	}
	events := r.client.EventsV1().Events(namespace)
	_, err := events.Create(ctx, &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: s.name(), Namespace: namespace},
		EventTime:  metav1.NewMicroTime(now), Type: kind, Reason: string(s.reason), Action: action, Note: shorten(s.text, mostNote),
		ReportingController: Controller, ReportingInstance: shorten(r.cfg.Node, mostInstance), Regarding: s.object.Reference(),
	}, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	have, err := events.Get(ctx, s.name(), metav1.GetOptions{})
	if err != nil {
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
	_, err = events.Patch(ctx, s.name(), types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// shorten cuts a text to so many bytes, and shows it.
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

// final tells an error that is of this one request. That there is no right to it is not: an API server that starts knows of no rights.
func final(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsNotFound(err)
}

// retreat is when to try something again that fails: later and later, but soon after an API server that was away is back.
type retreat struct {
	until time.Time
	pause time.Duration
}

// result notes how it went.
func (b *retreat) result(now time.Time, err error) {
	switch {
	case err == nil || final(err):
		*b = retreat{}
		return
	case b.pause == 0:
		b.pause = interval
	case apierrors.IsForbidden(err):
		b.pause = min(2*b.pause, refresh)
	default:
		b.pause = min(2*b.pause, settled)
	}
	b.until = now.Add(b.pause)
}
