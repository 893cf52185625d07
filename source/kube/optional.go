package kube

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/contiv-agent/contiv-agent/datastore"
	"github.com/contiv-agent/contiv-agent/source/convert"
)

// optional follows the kinds of policies an API server may or may not serve. It looks for them again and again, less and
// less often as long as it finds nothing new, and takes their objects back when they are served no more.
type optional struct {
	discovery discovery.ServerResourcesInterfaceWithContext
	dynamic   dynamic.Interface
	groups    []*group
	ignore    []string      // resource.group
	keys      bool          // kinds that are keys only are followed, too
	least     time.Duration // between two looks
	missed    chan struct{} // an informer was told that its resource is not there
	start     func(context.Context, *resource, any, func(error)) (*following, error)
}

// group is kinds that are served in one of some versions, the best first: Calico's API server shows what it stores itself
// under another name.
type group struct {
	versions []schema.GroupVersion
	at       schema.GroupVersion // the version that is followed; zero if none is
	kinds    map[string]*following
	missing  int // how many looks in a row found the followed version gone
}

const (
	mostLooks   = 30 // times least: the longest time between two looks
	goneLooks   = 3  // a server that starts may answer "not found" for a moment
	lookingName = "discovery"
)

func optionalGroups() []*group {
	out := []*group{
		{versions: []schema.GroupVersion{{Group: convert.GroupPolicy, Version: "v1alpha1"}}},
		{versions: []schema.GroupVersion{{Group: convert.GroupPolicy, Version: "v1alpha2"}}},
		{versions: []schema.GroupVersion{{Group: convert.GroupCalico, Version: "v3"}, {Group: convert.GroupCalicoCRD, Version: "v1"}}},
	}
	for _, g := range out {
		g.kinds = map[string]*following{}
	}
	return out
}

// optionalGroupNames are the groups kinds of policies are looked for in.
func optionalGroupNames() (names []string) {
	for _, g := range optionalGroups() {
		for _, gv := range g.versions {
			if !slices.Contains(names, gv.Group) {
				names = append(names, gv.Group)
			}
		}
	}
	return names
}

// run looks until ctx is done. What the first look without an error finds goes to found; each look's result to report.
func (o *optional) run(ctx context.Context, found chan<- []*following, report func(error)) {
	defer o.end()
	pause := o.least
	for {
		changed, err := o.look(ctx)
		if ctx.Err() != nil {
			return
		}
		report(err)
		if err == nil && found != nil {
			found <- o.all()
			found = nil
		}
		if pause *= 2; changed || err != nil {
			pause = o.least
		}
		pause = min(pause, mostLooks*o.least)
		if !o.rest(ctx, pause) {
			return
		}
	}
}

// rest waits for the next look: for a pause, or, if an informer misses its resource, for the least one.
func (o *optional) rest(ctx context.Context, pause time.Duration) bool {
	least, full := time.NewTimer(wait.Jitter(o.least, 0.1)), time.NewTimer(wait.Jitter(pause, 0.1))
	defer least.Stop()
	defer full.Stop()
	select {
	case <-least.C:
	case <-ctx.Done():
		return false
	}
	select {
	case <-full.C:
	case <-o.missed:
	case <-ctx.Done():
		return false
	}
	return true
}

// look compares what is served with what is followed. changed asks for another look soon.
func (o *optional) look(ctx context.Context) (changed bool, err error) {
	for _, g := range o.groups {
		at, served, gerr := o.served(ctx, g)
		switch {
		case gerr != nil:
			err = gerr
			continue
		case at.Empty() && g.at.Empty():
			continue
		case at.Empty():
			if g.missing++; g.missing == goneLooks {
				o.leave(g)
			}
			changed = true
			continue
		}
		g.at, g.missing = at, 0
		for _, r := range served {
			if g.kinds[r.Name] != nil {
				continue
			}
			f, ferr := o.follow(ctx, at, r)
			if ferr != nil {
				err = ferr
				continue
			}
			g.kinds[r.Name], changed = f, true
		}
	}
	return changed, err
}

// served asks which kinds of a group there are, and in which version; in the one that is followed, if there is one. A version
// that cannot be had does not matter if another one can.
func (o *optional) served(ctx context.Context, g *group) (at schema.GroupVersion, kinds []metav1.APIResource, err error) {
	for _, gv := range g.versions {
		if !g.at.Empty() && gv != g.at {
			continue
		}
		list, gvErr := o.discovery.ServerResourcesForGroupVersionWithContext(ctx, gv.String())
		switch {
		case apierrors.IsNotFound(gvErr):
		case gvErr != nil:
			err = gvErr
		default:
			if kinds := o.readable(gv, list.APIResources); len(kinds) > 0 {
				return gv, kinds, nil
			}
		}
	}
	return schema.GroupVersion{}, nil, err
}

// readable are the resources this source converts and may follow.
func (o *optional) readable(gv schema.GroupVersion, list []metav1.APIResource) []metav1.APIResource {
	return slices.DeleteFunc(slices.Clone(list), func(r metav1.APIResource) bool {
		k, ok := convert.KindOf(gv.Group, r.Kind)
		if o.keysOnly(gv, r.Kind) {
			k.Version, ok = gv.Version, true
		}
		return !ok || k.Version != gv.Version || strings.Contains(r.Name, "/") || slices.Contains(o.ignore, r.Name+"."+gv.Group) ||
			!slices.Contains(r.Verbs, "list") || !slices.Contains(r.Verbs, "watch")
	})
}

// keysOnly tells a kind that is followed for its keys, if those are asked for. Without the right to read it we go on.
func (o *optional) keysOnly(gv schema.GroupVersion, kind string) bool {
	_, ok := datastore.Extra(gv.Group, gv.Version, kind, "")
	return ok && o.keys
}

func (o *optional) follow(ctx context.Context, gv schema.GroupVersion, r metav1.APIResource) (*following, error) {
	example := &unstructured.Unstructured{}
	example.SetGroupVersionKind(gv.WithKind(r.Kind))
	res := of(o.dynamic.Resource(gv.WithResource(r.Name)), resource{name: r.Name + "." + gv.Group, example: example, optional: true})
	res.dispensable = o.keysOnly(gv, r.Kind)
	return o.start(ctx, &res, o.dynamic, func(err error) {
		if apierrors.IsNotFound(err) {
			select {
			case o.missed <- struct{}{}:
			default:
			}
		}
	})
}

// leave stops following a group and takes back its objects.
func (o *optional) leave(g *group) {
	for name, f := range g.kinds {
		f.leave()
		delete(g.kinds, name)
	}
	g.at, g.missing = schema.GroupVersion{}, 0
}

func (o *optional) all() (out []*following) {
	for _, g := range o.groups {
		for _, f := range g.kinds {
			out = append(out, f)
		}
	}
	return out
}

// end waits for all informers, which end with the context they were started with.
func (o *optional) end() {
	for _, f := range o.all() {
		f.done.Wait()
	}
}

// following is a resource that is being followed.
type following struct {
	informer cache.SharedIndexInformer
	synced   cache.DoneChecker
	without  <-chan struct{} // closed when it turns out that there is no such resource
	stop     context.CancelFunc
	done     sync.WaitGroup
	gone     func(*item) // hears of each object that is not to be had any more
	lost     func()      // hears when there is no more to come
}

// leave stops the informer and takes back what it has delivered.
func (f *following) leave() {
	f.stop()
	f.done.Wait()
	for _, o := range f.informer.GetStore().List() {
		if it, ok := o.(*item); ok {
			f.gone(it)
		}
	}
	f.lost()
}
