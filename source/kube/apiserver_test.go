package kube

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/contiv-agent/contiv-agent/source/kube/api"
)

// apiServer is a fake API server with what list and watch need: versions, history and bookmarks. It can also fail in
// several ways.
type apiServer struct {
	*httptest.Server
	streaming bool // lists may be streamed, as by Kubernetes 1.34 and later
	absent    string

	mu       sync.Mutex
	version  int
	objects  map[string]map[string]runtime.Object // resource → namespace/name → object
	history  map[string][]watchEvent
	watchers map[chan struct{}]bool // woken by every change; closed to drop the watch
	oldest   int                    // watches from an older version are answered 410 Gone
	down     bool                   // every request is answered 503
	mute     bool                   // discovery is answered 503
	secret   string                 // list and watch of this resource are answered 403; for a group and version, its discovery is
	served   map[string][]string    // kinds of custom resources, by group and version
	asked    []string               // resource?selectors of every request
}

type watchEvent struct {
	Type    string         `json:"type"`
	Object  runtime.Object `json:"object"`
	version int
}

func newAPIServer(t *testing.T) *apiServer {
	s := &apiServer{
		objects: map[string]map[string]runtime.Object{}, history: map[string][]watchEvent{},
		watchers: map[chan struct{}]bool{}, version: 100, served: map[string][]string{},
	}
	s.Server = httptest.NewServer(s)
	t.Cleanup(func() {
		s.drop()
		s.Close()
	})
	return s
}

func (s *apiServer) client(t *testing.T) api.Client {
	t.Helper()
	c, err := api.New(&rest.Config{Host: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// apply stores objects, or removes them if gone is true. All of them share one new version.
func (s *apiServer) apply(gone bool, objects ...metav1.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range objects {
		s.version++
		o.SetResourceVersion(strconv.Itoa(s.version))
		obj := o.(runtime.Object)
		resource, kind := names(obj)
		obj.GetObjectKind().SetGroupVersionKind(kind)
		obj = obj.DeepCopyObject()
		if s.objects[resource] == nil {
			s.objects[resource] = map[string]runtime.Object{}
		}
		key, e := o.GetNamespace()+"/"+o.GetName(), watchEvent{"MODIFIED", obj, s.version}
		switch _, known := s.objects[resource][key]; {
		case gone:
			e.Type = "DELETED"
			delete(s.objects[resource], key)
		case !known:
			e.Type = "ADDED"
			fallthrough
		default:
			s.objects[resource][key] = obj
		}
		s.history[resource] = append(s.history[resource], e)
	}
	s.wake()
}

func (s *apiServer) put(objects ...metav1.Object)    { s.apply(false, objects...) }
func (s *apiServer) remove(objects ...metav1.Object) { s.apply(true, objects...) }

func (s *apiServer) wake() {
	for w := range s.watchers {
		select {
		case w <- struct{}{}:
		default:
		}
	}
}

// drop closes every watch without an error.
func (s *apiServer) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.watchers {
		close(w)
		delete(s.watchers, w)
	}
}

// set changes the server's behaviour under its lock.
func (s *apiServer) set(f func(*apiServer)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s)
}

// forget drops all history: the next watch from an old version is 410 Gone.
func (s *apiServer) forget() { s.set(func(s *apiServer) { s.version += 10; s.oldest = s.version }) }

// dynamic is a client for custom resources.
func (s *apiServer) dynamic(t *testing.T) dynamic.Interface {
	t.Helper()
	c, err := dynamic.NewForConfig(&rest.Config{Host: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// serve replaces the kinds that the server serves in one group and version.
func (s *apiServer) serve(gv string, kinds ...string) {
	s.set(func(s *apiServer) { s.served[gv] = kinds })
}

// custom returns the kind of a custom resource ("tiers.crd.projectcalico.org") if gv serves it.
func (s *apiServer) custom(gv, resource string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, kind := range s.served[gv] {
		if plural(kind) == resource {
			return kind
		}
	}
	return ""
}

func plural(kind string) string {
	if stem, ok := strings.CutSuffix(strings.ToLower(kind), "y"); ok {
		return stem + "ies"
	}
	return strings.ToLower(kind) + "s"
}

// discover answers a discovery request: the custom resources that gv serves.
func (s *apiServer) discover(w http.ResponseWriter, gv string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.served[gv]) == 0 {
		fail(w, http.StatusNotFound, metav1.StatusReasonNotFound, "the server could not find the requested resource")
		return
	}
	l := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: gv}
	for _, kind := range s.served[gv] {
		l.APIResources = append(l.APIResources,
			metav1.APIResource{Name: plural(kind), Kind: kind, Verbs: metav1.Verbs{"get", "list", "watch"}},
			metav1.APIResource{Name: plural(kind) + "/status", Kind: kind, Verbs: metav1.Verbs{"get"}})
	}
	_ = json.NewEncoder(w).Encode(l)
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	resource := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
	kind := ""
	if parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/"); len(parts) > 2 && strings.Contains(parts[1], ".org") || len(parts) > 2 && parts[1] == "policy.networking.k8s.io" {
		gv := parts[1] + "/" + parts[2]
		if len(parts) == 3 {
			resource = gv
		} else if kind = s.custom(gv, resource); kind != "" {
			resource += "." + parts[1]
			kind = gv + " " + kind
		} else {
			resource = s.absent
		}
	}
	q := r.URL.Query()
	w.Header().Set("Content-Type", "application/json")
	s.mu.Lock()
	s.asked = append(s.asked, resource+"?"+q.Get("labelSelector")+q.Get("fieldSelector"))
	down, streaming, secret := s.down || s.mute && strings.Contains(resource, "/"), s.streaming, s.secret
	s.mu.Unlock()
	switch {
	case down:
		fail(w, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "on fire")
	case secret != "" && resource == secret:
		fail(w, http.StatusForbidden, metav1.StatusReasonForbidden, "forbidden: ask somebody else")
	case strings.Contains(resource, "/"):
		s.discover(w, resource)
	case resource == s.absent:
		fail(w, http.StatusNotFound, metav1.StatusReasonNotFound, "the server could not find the requested resource")
	case q.Get("watch") == "":
		s.list(w, resource, kind)
	case q.Get("sendInitialEvents") == "true" && !streaming:
		fail(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "sendInitialEvents is forbidden for watch")
	default:
		s.watch(w, r, resource, q.Get("resourceVersion"), q.Get("sendInitialEvents") == "true", kind)
	}
}

func fail(w http.ResponseWriter, code int, reason metav1.StatusReason, text string) {
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(status(code, reason, text))
}

func status(code int, reason metav1.StatusReason, text string) *metav1.Status {
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   "Failure", Code: int32(code), Reason: reason, Message: text,
	}
}

func (s *apiServer) list(w http.ResponseWriter, resource, custom string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	items := []runtime.Object{}
	for _, o := range s.objects[resource] {
		items = append(items, o)
	}
	kind, version := listKind(resource, custom)
	_ = json.NewEncoder(w).Encode(map[string]any{
		"kind": kind, "apiVersion": version, "items": items,
		"metadata": map[string]string{"resourceVersion": strconv.Itoa(s.version)},
	})
}

// watch streams events after a version until it is dropped.
func (s *apiServer) watch(w http.ResponseWriter, r *http.Request, resource, from string, initial bool, custom string) {
	enc := json.NewEncoder(w)
	woken := make(chan struct{}, 1)
	s.mu.Lock()
	at, _ := strconv.Atoi(from)
	if at < s.oldest && !initial {
		s.mu.Unlock()
		_ = enc.Encode(watchEvent{Type: "ERROR", Object: status(http.StatusGone, metav1.StatusReasonExpired, "too old resource version")})
		return
	}
	if initial {
		for _, o := range s.objects[resource] {
			_ = enc.Encode(watchEvent{Type: "ADDED", Object: o})
		}
		at = s.version
		_ = enc.Encode(watchEvent{Type: "BOOKMARK", Object: bookmark(resource, custom, at, true)})
	}
	s.watchers[woken] = true
	s.mu.Unlock()
	for {
		s.mu.Lock()
		for _, e := range s.history[resource] {
			if e.version > at {
				_ = enc.Encode(e)
				at = e.version
			}
		}
		if s.version > at { // only other resources changed: send a bookmark
			at = s.version
			_ = enc.Encode(watchEvent{Type: "BOOKMARK", Object: bookmark(resource, custom, at, false)})
		}
		s.mu.Unlock()
		w.(http.Flusher).Flush()
		select {
		case _, ok := <-woken:
			if !ok {
				return
			}
		case <-r.Context().Done():
			s.set(func(s *apiServer) { delete(s.watchers, woken) })
			return
		}
	}
}

func bookmark(resource, custom string, version int, end bool) runtime.Object {
	o := blank(resource, custom)
	m := o.(metav1.Object)
	m.SetResourceVersion(fmt.Sprint(version))
	if end {
		m.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	}
	_, kind := names(o)
	o.GetObjectKind().SetGroupVersionKind(kind)
	return o
}
