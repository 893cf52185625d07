// Package clientset compares the requests that source/kube/api expects of itself with those of client-go's clientset. It is in this module, because the
// clientset has every kind of every group: the product's tests would take longer to compile by a fifth.
package clientset

import (
	"encoding/json"
	"flag"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// golden are the requests that TestRequestsAreThoseOfClientset of source/kube/api expects.
const golden = "../../../source/kube/api/testdata/requests.json"

var update = flag.Bool("update", false, "write "+golden)

// request is what a server sees of a request.
type request struct {
	Method, URL, Accept, Type string
	Body                      []byte
}

// TestClientset makes the requests with protobuf, as the agent's client does.
func TestClientset(t *testing.T) {
	var seen request
	var agent string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		seen, agent = request{r.Method, r.URL.String(), r.Header.Get("Accept"), r.Header.Get("Content-Type"), body}, r.Header.Get("User-Agent")
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, "{}")
	}))
	defer s.Close()
	cfg := &rest.Config{Host: s.URL}
	cfg.AcceptContentTypes, cfg.ContentType = "application/vnd.kubernetes.protobuf,application/json", "application/vnd.kubernetes.protobuf"
	c, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, seconds := t.Context(), int64(7)
	lists := metav1.ListOptions{FieldSelector: "spec.clusterIP!=None", Limit: 500, ResourceVersion: "5", ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan}
	watches := metav1.ListOptions{LabelSelector: "!a", AllowWatchBookmarks: true, TimeoutSeconds: &seconds, ResourceVersion: "5"}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "n", Namespace: "ns"}}
	event := &eventsv1.Event{ObjectMeta: metav1.ObjectMeta{Name: "e", Namespace: "ns"}, Note: "note"}
	patch := []byte(`{"a":1}`)
	got := map[string]request{}
	for name, do := range map[string]func() (any, error){
		"list":                func() (any, error) { return c.CoreV1().Services("").List(ctx, lists) },
		"list of a namespace": func() (any, error) { return c.DiscoveryV1().EndpointSlices("ns").List(ctx, watches) },
		"watch": func() (any, error) {
			w, err := c.NetworkingV1().NetworkPolicies("").Watch(ctx, watches)
			if err == nil {
				w.Stop()
			}
			return w, err
		},
		"get":             func() (any, error) { return c.EventsV1().Events("ns").Get(ctx, "e", metav1.GetOptions{}) },
		"create a lease":  func() (any, error) { return c.CoordinationV1().Leases("ns").Create(ctx, lease, metav1.CreateOptions{}) },
		"create an event": func() (any, error) { return c.EventsV1().Events("ns").Create(ctx, event, metav1.CreateOptions{}) },
		"patch": func() (any, error) {
			return c.CoordinationV1().Leases("ns").Patch(ctx, "n", types.MergePatchType, patch, metav1.PatchOptions{})
		},
		"patch a status": func() (any, error) { return c.CoreV1().Nodes().PatchStatus(ctx, "n", patch) },
	} {
		if _, err := do(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if agent != rest.DefaultKubernetesUserAgent() {
			t.Errorf("%s: user agent %q", name, agent)
		}
		got[name] = seen
	}
	if *update {
		text, err := json.MarshalIndent(got, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(golden, append(text, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	var want map[string]request
	if err := json.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}
	for name, g := range got {
		if !reflect.DeepEqual(g, want[name]) {
			t.Errorf("%s: the clientset sends %+v, source/kube/api expects %+v", name, g, want[name])
		}
	}
	if len(want) != len(got) {
		t.Errorf("%d requests, source/kube/api expects %d", len(got), len(want))
	}
}
