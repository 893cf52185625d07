package manifest

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"

	"github.com/fsnotify/fsnotify"
)

// watcher passes on the names of files that were touched. It watches folders rather than files: editors replace files by
// renaming, which a watch on the file itself would not survive.
type watcher struct {
	fs      *fsnotify.Watcher
	touched chan string // "" when some names may have been missed
	done    chan struct{}
	blind   map[string]error // folders that cannot be watched; owned by the caller of add
}

// newWatcher watches the folders in which the paths themselves are; folders found on the way are added while scanning.
func newWatcher(paths []string) (*watcher, error) {
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("manifest: watch files: %w", err)
	}
	w := &watcher{fs: notify, touched: make(chan string), done: make(chan struct{}), blind: map[string]error{}}
	for _, p := range paths {
		if p != Stdin {
			w.add(filepath.Dir(filepath.Clean(p)))
		}
	}
	go w.pass()
	return w, nil
}

// add watches one folder; adding twice is harmless. A folder that is gone again is seen by the watch on its parent. What
// else goes wrong (the system's limit of watches) is remembered for faults until adding succeeds.
func (w *watcher) add(folder string) {
	switch err := w.fs.Add(folder); {
	case err == nil, errors.Is(err, fs.ErrNotExist):
		delete(w.blind, folder)
	default:
		w.blind[folder] = fmt.Errorf("changes in %s are not seen: %w", folder, err)
	}
}

// faults joins why folders cannot be watched; nil if all can.
func (w *watcher) faults() error {
	var errs []error
	for _, folder := range slices.Sorted(maps.Keys(w.blind)) {
		errs = append(errs, w.blind[folder])
	}
	return errors.Join(errs...)
}

// pass runs until close.
func (w *watcher) pass() {
	defer close(w.touched)
	for {
		name := ""
		select {
		case <-w.done:
			return
		case e, ok := <-w.fs.Events:
			if !ok {
				return
			}
			name = filepath.Clean(e.Name)
		case _, ok := <-w.fs.Errors: // an overflow: names were lost
			if !ok {
				return
			}
		}
		select {
		case w.touched <- name:
		case <-w.done:
			return
		}
	}
}

// close ends the watcher and waits for it.
func (w *watcher) close() {
	close(w.done)
	_ = w.fs.Close()
	for range w.touched { // until pass has closed it
	}
}
