package scenario

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/source/manifest"
)

func (s *story) cmdApply(_ *testscript.TestScript, args []string) error {
	changes, err := puts(s.dir, args)
	if err != nil {
		return err
	}
	return s.change(changes)
}

func (s *story) cmdDelete(_ *testscript.TestScript, args []string) error {
	changes, err := removals(s.dir, args)
	if err != nil {
		return err
	}
	return s.change(changes)
}

// puts returns the objects of files in dir, including refused ones.
func puts(dir string, files []string) ([]event.Change, error) {
	if len(files) == 0 {
		return nil, fmt.Errorf("no files given")
	}
	var paths []string
	for _, f := range files {
		paths = append(paths, filepath.Join(dir, f))
	}
	var out []event.Change
	err := manifest.New(manifest.Config{Paths: paths, Keys: true}).Run(background(), func(e event.Event) {
		if u, ok := e.(*event.Update); ok {
			out = u.Changes
		}
	})
	return out, err
}

// kinds are the names of kinds in scripts.
var kinds = []model.Kind{
	model.KindService, model.KindEndpointSlice, model.KindPod, model.KindNode, model.KindNamespace, model.KindServiceCIDR,
}

// removals returns the objects of files in dir, or one object given as KIND NS/NAME.
func removals(dir string, args []string) ([]event.Change, error) {
	if len(args) == 2 {
		at := slices.IndexFunc(kinds, func(k model.Kind) bool { return strings.EqualFold(string(k), args[0]) })
		if at >= 0 {
			return []event.Change{{Ref: ref(kinds[at], args[1])}}, nil
		}
	}
	changes, err := puts(dir, args)
	for i := range changes {
		changes[i] = event.Change{Ref: changes[i].Ref}
	}
	return changes, err
}

// ref returns the name of an object in scripts: namespace default is optional.
func ref(kind model.Kind, name string) model.Ref {
	r := model.Ref{Kind: kind, Name: name}
	if slices.Contains([]model.Kind{model.KindNode, model.KindNamespace, model.KindServiceCIDR}, kind) {
		return r
	}
	r.Namespace = "default"
	if ns, rest, ok := strings.Cut(name, "/"); ok {
		r.Namespace, r.Name = ns, rest
	}
	return r
}
