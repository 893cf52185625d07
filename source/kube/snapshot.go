package kube

import (
	"context"

	"github.com/contiv-agent/contiv-agent/event"
)

// Snapshot returns the API server's current objects, refused ones included. It waits until all are read, as long as the API
// server answers. It returns an error if the API server is unreachable or forbids reading what is needed.
func Snapshot(ctx context.Context, cfg Config) ([]event.Change, error) {
	running, stop := context.WithCancel(ctx)
	defer stop()
	var all []event.Change
	var failed error
	complete := false
	err := New(cfg).Run(running, func(ev event.Event) {
		switch ev := ev.(type) {
		case *event.Update:
			all = append(all, ev.Changes...)
		case *event.SyncStatus:
			switch {
			case ev.Err != nil && failed == nil:
				failed = ev.Err
				stop()
			case ev.Status == event.InSync:
				complete = true
				stop()
			}
		}
	})
	switch {
	case failed != nil:
		return nil, failed
	case !complete:
		return nil, err
	}
	return all, nil
}
