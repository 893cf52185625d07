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

// watcher passes on the names of touched files. It watches folders, not files: editors replace a file by renaming, which
// ends a watch on the file itself.
type watcher struct {
	fs      *fsnotify.Watcher
	touched chan string // "" if some names may be missing
	done    chan struct{}
	blind   map[string]error // folders that cannot be watched; owned by the caller of add
}

// newWatcher watches the parent folders of the paths. A scan adds the folders it finds.
func newWatcher(paths []string) (*watcher, error) {
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("manifest: watch files: %w", err)
	}
	w := &watcher{fs: notify, touched: make(chan string), done: make(chan struct{}), blind: map[string]error{}}
	for _, p := range paths {
		if p != Stdin {
			w.addFolder(filepath.Dir(filepath.Clean(p)))
		}
	}
	go w.pass()
	return w, nil
}

// addFolder watches one folder; adding it twice is harmless. It ignores a folder that is gone: the watch on its parent reports
// that. Other errors (the system's limit of watches) are kept for faults until addFolder succeeds.
func (w *watcher) addFolder(folder string) {
	switch err := w.fs.Add(folder); {
	case err == nil, errors.Is(err, fs.ErrNotExist):
		delete(w.blind, folder)
	default:
		w.blind[folder] = fmt.Errorf("changes in %s are not seen: %w", folder, err)
	}
}

// faults joins the errors of folders that cannot be watched; nil if there are none.
func (w *watcher) faults() error {
	var errs []error
	for _, folder := range slices.Sorted(maps.Keys(w.blind)) {
		errs = append(errs, w.blind[folder])
	}
	return errors.Join(errs...)
}

// pass passes on events until close.
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
		case _, ok := <-w.fs.Errors: // an overflow: names are lost
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
