package kube

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/contiv-agent/contiv-agent/backoff"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/contiv-agent/contiv-agent/calico/datastore/encode"
	"github.com/contiv-agent/contiv-agent/source/convert"
)

// discovery returns the resources that the API server serves in a group and version.
type discovery interface {
	Served(ctx context.Context, groupVersion string) (*metav1.APIResourceList, error)
}

// optional follows the policy kinds that an API server may or may not serve. It repeats discovery, less often the longer
// nothing changes, and withdraws the objects of kinds that are no longer served.
type optional struct {
	discovery discovery
	dynamic   dynamic.Interface
	groups    []*group
	ignore    []string      // resource.group
	keys      bool          // also follow kinds that become datastore keys only
	least     time.Duration // shortest time between two discoveries
	missed    chan struct{} // receives when an informer's resource is not found
	start     func(context.Context, *resource, any, func(error)) (*following, error)
}

// group is a set of kinds that is served in one of several versions, the preferred one first. Only one version is followed,
// since Calico's API server serves under another name what it stores in crd.projectcalico.org.
type group struct {
	versions []schema.GroupVersion
	at       schema.GroupVersion // the followed version; zero if none is
	kinds    map[string]*following
	missing  int // how many discoveries in a row did not find the followed version
}

const (
	mostLooks   = 30 // times least: the longest time between two discoveries
	goneLooks   = 3  // a starting server may answer "not found" for a moment
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

// optionalGroupNames returns the API groups in which optional looks for policy kinds.
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

// runDiscovery repeats discovery until ctx is done. It sends what the first successful discovery finds to found, and passes the
// result of each discovery to report.
func (o *optional) runDiscovery(ctx context.Context, found chan<- []*following, report func(error)) {
	defer o.waitForInformers()
	pause := o.least
	for {
		changed, err := o.discoverKinds(ctx)
		if ctx.Err() != nil {
			return
		}
		report(err)
		if err == nil && found != nil {
			found <- o.allFollowed()
			found = nil
		}
		if changed || err != nil {
			pause = 0
		}
		pause = backoff.Range{Min: o.least, Max: mostLooks * o.least}.Next(pause)
		if !o.rest(ctx, pause) {
			return
		}
	}
}

// rest waits for the next discovery: for pause, or, once an informer misses its resource, for the shortest time only.
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

// discoverKinds starts to follow served kinds and stops to follow missing ones. changed means that the next discovery should follow
// soon.
func (o *optional) discoverKinds(ctx context.Context) (changed bool, err error) {
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
				o.leaveGroup(g)
			}
			changed = true
			continue
		}
		g.at, g.missing = at, 0
		for _, r := range served {
			if g.kinds[r.Name] != nil {
				continue
			}
			f, ferr := o.followKind(ctx, at, r)
			if ferr != nil {
				err = ferr
				continue
			}
			g.kinds[r.Name], changed = f, true
		}
	}
	return changed, err
}

// served returns the kinds that a group serves, and their version. It asks for the followed version only, if one is
// followed. An error for one version does not matter if another version answers.
func (o *optional) served(ctx context.Context, g *group) (at schema.GroupVersion, kinds []metav1.APIResource, err error) {
	for _, gv := range g.versions {
		if !g.at.Empty() && gv != g.at {
			continue
		}
		list, gvErr := o.discovery.Served(ctx, gv.String())
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

// readable returns the resources that this source can convert and may follow.
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

// keysOnly reports whether a kind is followed for its datastore keys alone. Without the right to read such a kind the
// source continues.
func (o *optional) keysOnly(gv schema.GroupVersion, kind string) bool {
	_, ok := encode.Extra(gv.Group, gv.Version, kind, "")
	return ok && o.keys
}

func (o *optional) followKind(ctx context.Context, gv schema.GroupVersion, r metav1.APIResource) (*following, error) {
	example := &unstructured.Unstructured{}
	example.SetGroupVersionKind(gv.WithKind(r.Kind))
	client := o.dynamic.Resource(gv.WithResource(r.Name))
	res := resource{name: r.Name + "." + gv.Group, example: example, optional: true, dispensable: o.keysOnly(gv, r.Kind), watch: client.Watch}
	res.list = func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return client.List(ctx, o) }
	return o.start(ctx, &res, o.dynamic, func(err error) {
		if apierrors.IsNotFound(err) {
			select {
			case o.missed <- struct{}{}:
			default:
			}
		}
	})
}

// leaveGroup stops to follow a group and withdraws its objects.
func (o *optional) leaveGroup(g *group) {
	for name, f := range g.kinds {
		f.withdraw()
		delete(g.kinds, name)
	}
	g.at, g.missing = schema.GroupVersion{}, 0
}

func (o *optional) allFollowed() (out []*following) {
	for _, g := range o.groups {
		for _, f := range g.kinds {
			out = append(out, f)
		}
	}
	return out
}

// waitForInformers waits for all informers. They end with the context they were started with.
func (o *optional) waitForInformers() {
	for _, f := range o.allFollowed() {
		f.done.Wait()
	}
}

// following is a resource that the source follows.
type following struct {
	informer cache.SharedIndexInformer
	synced   cache.DoneChecker
	without  <-chan struct{} // closed when the API server turns out not to have the resource
	stop     context.CancelFunc
	done     sync.WaitGroup
	gone     func(*item) // called for each object that is withdrawn
	lost     func()      // called after the last of them
}

// withdraw stops the informer and withdraws the objects it has delivered.
func (f *following) withdraw() {
	f.stop()
	f.done.Wait()
	for _, o := range f.informer.GetStore().List() {
		if it, ok := o.(*item); ok {
			f.gone(it)
		}
	}
	f.lost()
}
