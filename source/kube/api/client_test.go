package api

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// request is what a server sees of a request.
type request struct {
	Method, URL, Accept, Type string
	Agent                     string `json:",omitempty"`
	Body                      []byte
}

// server answers every request with one answer, and records it.
type server struct {
	*httptest.Server
	seen   []request
	status int
	kind   string // content type of the answer
	answer string
}

func newServer(t *testing.T) *server {
	s := &server{status: http.StatusOK, kind: "application/json", answer: "{}"}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		h := r.Header
		s.seen = append(s.seen, request{r.Method, r.URL.String(), h.Get("Accept"), h.Get("Content-Type"), h.Get("User-Agent"), body})
		w.Header().Set("Content-Type", s.kind)
		w.WriteHeader(s.status)
		_, _ = io.WriteString(w, s.answer)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *server) client(t *testing.T) *REST {
	t.Helper()
	c, err := New(&rest.Config{Host: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func at(gv schema.GroupVersion, resource, namespace, name, sub string) Target {
	return Target{GroupVersionResource: gv.WithResource(resource), Namespace: namespace, Name: name, Subresource: sub}
}

// Each request is the one that client-go's clientset makes with protobuf: address, content types, user agent and body. requests.json has them;
// TestClientset of interop/kube/clientset compares it with the clientset.
func TestRequestsAreThoseOfClientset(t *testing.T) {
	text, err := os.ReadFile("testdata/requests.json")
	if err != nil {
		t.Fatal(err)
	}
	var want map[string]request
	if err := json.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}
	s := newServer(t)
	c, ctx, seconds := s.client(t), t.Context(), int64(7)
	lists := metav1.ListOptions{FieldSelector: "spec.clusterIP!=None", Limit: 500, ResourceVersion: "5", ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan}
	watches := metav1.ListOptions{LabelSelector: "!a", AllowWatchBookmarks: true, TimeoutSeconds: &seconds, ResourceVersion: "5"}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "n", Namespace: "ns"}}
	event := &eventsv1.Event{ObjectMeta: metav1.ObjectMeta{Name: "e", Namespace: "ns"}, Note: "note"}
	patch := []byte(`{"a":1}`)
	got := map[string]request{}
	for name, do := range map[string]func() error{
		"list": func() error {
			return c.Read(ctx, at(corev1.SchemeGroupVersion, "services", "", "", ""), lists, &corev1.ServiceList{})
		},
		"list of a namespace": func() error {
			return c.Read(ctx, at(discoveryv1.SchemeGroupVersion, "endpointslices", "ns", "", ""), watches, &discoveryv1.EndpointSliceList{})
		},
		"watch": func() error {
			w, err := c.Watch(ctx, at(networkingv1.SchemeGroupVersion, "networkpolicies", "", "", ""), watches)
			if err == nil {
				w.Stop()
			}
			return err
		},
		"get": func() error {
			return c.Read(ctx, at(eventsv1.SchemeGroupVersion, "events", "ns", "e", ""), metav1.ListOptions{}, &eventsv1.Event{})
		},
		"create a lease": func() error {
			return c.Create(ctx, at(coordinationv1.SchemeGroupVersion, "leases", "ns", "", ""), lease)
		},
		"create an event": func() error {
			return c.Create(ctx, at(eventsv1.SchemeGroupVersion, "events", "ns", "", ""), event)
		},
		"patch": func() error {
			return c.Patch(ctx, at(coordinationv1.SchemeGroupVersion, "leases", "ns", "n", ""), types.MergePatchType, patch)
		},
		"patch a status": func() error {
			return c.Patch(ctx, at(corev1.SchemeGroupVersion, "nodes", "", "n", "status"), types.StrategicMergePatchType, patch)
		},
	} {
		s.seen = nil
		if err := do(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if len(s.seen) != 1 || s.seen[0].Agent != rest.DefaultKubernetesUserAgent() {
			t.Fatalf("%s: %+v", name, s.seen)
		}
		s.seen[0].Agent = ""
		got[name] = s.seen[0]
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("- clientset, + ours:\n%s", diff)
	}
}

// codecs are those of the groups whose kinds are sent.
func codecs(t *testing.T) serializer.CodecFactory {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, discoveryv1.AddToScheme, networkingv1.AddToScheme, coordinationv1.AddToScheme, eventsv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return serializer.NewCodecFactory(scheme)
}

// encode returns an object in protobuf, as an API server sends it.
func encode(t *testing.T, gv schema.GroupVersion, obj runtime.Object) string {
	t.Helper()
	info, ok := runtime.SerializerInfoForMediaType(codecs(t).SupportedMediaTypes(), "application/vnd.kubernetes.protobuf")
	if !ok {
		t.Fatal("no protobuf")
	}
	out, err := runtime.Encode(codecs(t).EncoderForVersion(info.Serializer, gv), obj)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// Every kind is read from protobuf.
func TestEveryKindIsDecoded(t *testing.T) {
	s := newServer(t)
	s.kind = "application/vnd.kubernetes.protobuf"
	c := s.client(t)
	for gv, objects := range kinds() {
		for _, empty := range objects {
			want := empty.DeepCopyObject()
			if m, ok := want.(metav1.Object); ok {
				m.SetName("a")
				m.SetResourceVersion("7")
			} else {
				want.(metav1.ListInterface).SetResourceVersion("7")
			}
			s.answer = encode(t, gv, want)
			if err := c.Read(t.Context(), at(gv, "things", "", "a", ""), metav1.ListOptions{}, empty); err != nil {
				t.Errorf("%T: %v", empty, err)
			}
			empty.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
			if diff := cmp.Diff(want, empty); diff != "" {
				t.Errorf("%T (- sent, + read):\n%s", empty, diff)
			}
		}
	}
}

// frames returns the stream of a watch in protobuf, as an API server sends it.
func frames(t *testing.T, gv schema.GroupVersion, kinds []string, objects ...runtime.Object) string {
	t.Helper()
	info, _ := runtime.SerializerInfoForMediaType(codecs(t).SupportedMediaTypes(), "application/vnd.kubernetes.protobuf")
	var out bytes.Buffer
	w := info.StreamSerializer.Framer.NewFrameWriter(&out)
	for i, o := range objects {
		e := &metav1.WatchEvent{Type: kinds[i], Object: runtime.RawExtension{Raw: []byte(encode(t, gv, o))}}
		if err := codecs(t).EncoderForVersion(info.StreamSerializer.Serializer, gv).Encode(e, w); err != nil {
			t.Fatal(err)
		}
	}
	return out.String()
}

// A watch delivers objects, bookmarks and errors, in protobuf or JSON.
func TestWatch(t *testing.T) {
	s := newServer(t)
	inJSON := `{"type":"ADDED","object":{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a"}}}
{"type":"BOOKMARK","object":{"apiVersion":"v1","kind":"Namespace","metadata":{"resourceVersion":"9"}}}
{"type":"ERROR","object":{"apiVersion":"v1","kind":"Status","reason":"Expired","code":410}}
`
	inProtobuf := frames(t, corev1.SchemeGroupVersion, []string{"ADDED", "BOOKMARK", "ERROR"},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "9"}},
		&metav1.Status{Reason: metav1.StatusReasonExpired, Code: http.StatusGone})
	for kind, answer := range map[string]string{"application/json": inJSON, "application/vnd.kubernetes.protobuf;stream=watch": inProtobuf} {
		s.kind, s.answer = kind, answer
		w, err := s.client(t).Watch(t.Context(), at(corev1.SchemeGroupVersion, "namespaces", "", "", ""), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for e := range w.ResultChan() {
			line := string(e.Type)
			switch o := e.Object.(type) {
			case *corev1.Namespace:
				line += " " + o.Name + o.ResourceVersion
			case *metav1.Status:
				line += " " + string(o.Reason)
			}
			got = append(got, line)
		}
		if diff := cmp.Diff([]string{"ADDED a", "BOOKMARK 9", "ERROR Expired"}, got); diff != "" {
			t.Errorf("%s: %s", kind, diff)
		}
	}
}

// The API server's errors arrive as errors of apimachinery, from JSON and from protobuf.
func TestErrors(t *testing.T) {
	s := newServer(t)
	c := s.client(t)
	pods := at(corev1.SchemeGroupVersion, "pods", "", "", "")
	status := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", nil).Status()
	s.status, s.answer = http.StatusForbidden, `{"apiVersion":"v1","kind":"Status","status":"Failure","reason":"Forbidden","code":403}`
	for _, kind := range []string{"application/json", "application/vnd.kubernetes.protobuf"} {
		if s.kind = kind; kind != "application/json" {
			s.answer = encode(t, schema.GroupVersion{Version: "v1"}, &status)
		}
		for what, err := range map[string]error{
			"read":   c.Read(t.Context(), pods, metav1.ListOptions{}, &corev1.PodList{}),
			"create": c.Create(t.Context(), at(eventsv1.SchemeGroupVersion, "events", "ns", "", ""), &eventsv1.Event{}),
			"patch":  c.Patch(t.Context(), at(corev1.SchemeGroupVersion, "nodes", "", "n", "status"), types.MergePatchType, []byte("{}")),
		} {
			if !apierrors.IsForbidden(err) {
				t.Errorf("%s, %s: %v", what, kind, err)
			}
		}
		if _, err := c.Watch(t.Context(), pods, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("watch, %s: %v", kind, err)
		}
	}
	unknown := at(schema.GroupVersion{Group: "apps", Version: "v1"}, "deployments", "", "", "")
	if err := c.Read(t.Context(), unknown, metav1.ListOptions{}, &corev1.PodList{}); err == nil || !strings.Contains(err.Error(), "apps/v1") {
		t.Errorf("a group without kinds: %v", err)
	}
}

func TestServed(t *testing.T) {
	s := newServer(t)
	s.answer = `{"apiVersion":"v1","kind":"APIResourceList","groupVersion":"g/v1","resources":[{"name":"things","kind":"Thing","verbs":["list"]}]}`
	c := s.client(t)
	l, err := c.Served(t.Context(), "g/v1")
	if err != nil || len(l.APIResources) != 1 || l.APIResources[0].Kind != "Thing" || s.seen[0].URL != "/apis/g/v1" {
		t.Errorf("%+v, %v, asked %v", l, err, s.seen)
	}
	if again, err := c.Served(t.Context(), "g/v1"); err != nil || again != l {
		t.Errorf("the same answer is decoded again: %v", err)
	}
	s.answer = strings.Replace(s.answer, "things", "stuffs", 1)
	if other, err := c.Served(t.Context(), "g/v1"); err != nil || other.APIResources[0].Name != "stuffs" || l.APIResources[0].Name != "things" {
		t.Errorf("another answer: %+v, %v", other, err)
	}
	s.status, s.answer = http.StatusNotFound, "404 page not found\n"
	if _, err := c.Served(t.Context(), "g/v1"); !apierrors.IsNotFound(err) {
		t.Errorf("a group that is not served: %v", err)
	}
}

// A group has a rate limit, and using it up does not delay other groups.
func TestGroupsDoNotShareLimit(t *testing.T) {
	c := newServer(t).client(t)
	limits := map[any]bool{}
	for gv, g := range c.groups {
		limits[g.GetRateLimiter()] = true
		if g.GetRateLimiter() == nil || g.GetRateLimiter().QPS() != rest.DefaultQPS {
			t.Errorf("%s: limit %v", gv, g.GetRateLimiter())
		}
	}
	limits[c.discovery.GetRateLimiter()] = true
	if len(limits) != len(c.groups)+1 {
		t.Errorf("%d limits of %d groups and discovery", len(limits), len(c.groups))
	}
}
