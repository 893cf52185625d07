package manifest

import (
	"fmt"
	"path/filepath"

	"github.com/fsnotify/fsnotify"
)

// watcher passes on the names of files that were touched. It watches folders rather than files: editors replace files by
// renaming, which a watch on the file itself would not survive.
type watcher struct {
	fs      *fsnotify.Watcher
	touched chan string // "" when some names may have been missed
	done    chan struct{}
}

// newWatcher watches the folders in which the paths themselves are; folders found on the way are added while scanning.
func newWatcher(paths []string) (*watcher, error) {
	fs, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("manifest: watch files: %w", err)
	}
	w := &watcher{fs: fs, touched: make(chan string), done: make(chan struct{})}
	for _, p := range paths {
		if p != Stdin {
			w.add(filepath.Dir(filepath.Clean(p)))
		}
	}
	go w.pass()
	return w, nil
}

// add watches one folder; one that is gone again will be seen by the watch on its parent. Adding twice is harmless.
func (w *watcher) add(folder string) { _ = w.fs.Add(folder) }

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
