package interop

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	jsoniter "github.com/json-iterator/go"
	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/calico/lib/std/uniquelabels"
	libapiv3 "github.com/projectcalico/calico/libcalico-go/lib/apis/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/backend/k8s/conversion"
	"github.com/projectcalico/calico/libcalico-go/lib/backend/k8s/resources"
	calico "github.com/projectcalico/calico/libcalico-go/lib/backend/model"
	"github.com/projectcalico/calico/libcalico-go/lib/backend/syncersv1/updateprocessors"
	"github.com/projectcalico/calico/libcalico-go/lib/backend/watchersyncer"
	static "github.com/projectcalico/calico/libcalico-go/lib/resources"
	validator "github.com/projectcalico/calico/libcalico-go/lib/validator/v3"
	"github.com/sirupsen/logrus"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	admin "sigs.k8s.io/network-policy-api/apis/v1alpha1"

	ours "github.com/contiv-agent/contiv-agent/calico"
	"github.com/contiv-agent/contiv-agent/calico/datastore/encode"
	"github.com/contiv-agent/contiv-agent/source/convert"
	"github.com/contiv-agent/contiv-agent/source/convert/check"
)

// vector is one kind of object: how to make a random one, and what Calico makes of it.
type vector struct {
	group   string // of custom resources: they are read as a dynamic client has them
	make    func(*objects) runtime.Object
	convert func(runtime.Object) []*calico.KVPair
	process func() watchersyncer.SyncerUpdateProcessor // nil: it is passed on as it is
}

func vectors() map[string]vector {
	readLabels()
	c := conversion.NewConverter()
	single := func(kv *calico.KVPair, err error) []*calico.KVPair {
		if kv == nil {
			panic(err)
		}
		return []*calico.KVPair{kv}
	}
	const crd, policy = "crd.projectcalico.org/v1", "policy.networking.k8s.io/v1alpha1"
	custom := func(kind string) func(runtime.Object) []*calico.KVPair {
		return func(o runtime.Object) []*calico.KVPair { return stored(kind, o) }
	}
	return map[string]vector{
		"Pod": {
			make: (*objects).pod, process: updateprocessors.NewWorkloadEndpointUpdateProcessor,
			convert: func(o runtime.Object) []*calico.KVPair {
				if !c.IsValidCalicoWorkloadEndpoint(o.(*corev1.Pod)) {
					return nil
				}
				list, err := c.PodToWorkloadEndpoints(o.(*corev1.Pod))
				if err != nil {
					panic(err)
				}
				return list
			},
		},
		"Namespace": {
			make: (*objects).namespace, process: updateprocessors.NewProfileUpdateProcessor,
			convert: func(o runtime.Object) []*calico.KVPair { return single(c.NamespaceToProfile(o.(*corev1.Namespace))) },
		},
		"ServiceAccount": {
			make: (*objects).account, process: updateprocessors.NewProfileUpdateProcessor,
			convert: func(o runtime.Object) []*calico.KVPair {
				return single(c.ServiceAccountToProfile(o.(*corev1.ServiceAccount)))
			},
		},
		"Node": {
			make:    (*objects).node,
			process: func() watchersyncer.SyncerUpdateProcessor { return updateprocessors.NewFelixNodeUpdateProcessor(false) },
			convert: func(o runtime.Object) []*calico.KVPair {
				return single(resources.K8sNodeToCalico(o.(*corev1.Node), false))
			},
		},
		"Service": {
			make:    (*objects).service,
			convert: func(o runtime.Object) []*calico.KVPair { return single(c.ServiceToKVP(o.(*corev1.Service))) },
		},
		"EndpointSlice": {
			make: (*objects).slice,
			convert: func(o runtime.Object) []*calico.KVPair {
				return single(c.EndpointSliceToKVP(o.(*discoveryv1.EndpointSlice)))
			},
		},
		"NetworkPolicy": {
			make: (*objects).networkPolicy, process: updateprocessors.NewNetworkPolicyUpdateProcessor,
			convert: func(o runtime.Object) []*calico.KVPair {
				return single(c.K8sNetworkPolicyToCalico(o.(*networkingv1.NetworkPolicy)))
			},
		},
		"AdminNetworkPolicy": {
			group: policy, make: (*objects).adminPolicy, process: updateprocessors.NewGlobalNetworkPolicyUpdateProcessor,
			convert: func(o runtime.Object) []*calico.KVPair {
				return single(c.K8sAdminNetworkPolicyToCalico(o.(*admin.AdminNetworkPolicy)))
			},
		},
		"BaselineAdminNetworkPolicy": {
			group: policy, make: (*objects).baselinePolicy, process: updateprocessors.NewGlobalNetworkPolicyUpdateProcessor,
			convert: func(o runtime.Object) []*calico.KVPair {
				return single(c.K8sBaselineAdminNetworkPolicyToCalico(o.(*admin.BaselineAdminNetworkPolicy)))
			},
		},
		apiv3.KindNetworkPolicy + ".v3": {
			group: crd, make: (*objects).calicoPolicy, convert: custom(apiv3.KindNetworkPolicy),
			process: updateprocessors.NewNetworkPolicyUpdateProcessor,
		},
		apiv3.KindGlobalNetworkPolicy: {
			group: crd, make: (*objects).globalPolicy, convert: custom(apiv3.KindGlobalNetworkPolicy),
			process: updateprocessors.NewGlobalNetworkPolicyUpdateProcessor,
		},
		apiv3.KindStagedNetworkPolicy: {
			group: crd, make: (*objects).stagedPolicy, convert: custom(apiv3.KindStagedNetworkPolicy),
			process: updateprocessors.NewStagedNetworkPolicyUpdateProcessor,
		},
		apiv3.KindStagedGlobalNetworkPolicy: {
			group: crd, make: (*objects).stagedGlobalPolicy, convert: custom(apiv3.KindStagedGlobalNetworkPolicy),
			process: updateprocessors.NewStagedGlobalNetworkPolicyUpdateProcessor,
		},
		apiv3.KindStagedKubernetesNetworkPolicy: {
			group: crd, make: (*objects).stagedKubernetes, convert: custom(apiv3.KindStagedKubernetesNetworkPolicy),
			process: updateprocessors.NewStagedKubernetesNetworkPolicyUpdateProcessor,
		},
		apiv3.KindTier:             {group: crd, make: (*objects).tier, convert: custom(apiv3.KindTier), process: updateprocessors.NewTierUpdateProcessor},
		apiv3.KindNetworkSet:       {group: crd, make: (*objects).networkSet, convert: custom(apiv3.KindNetworkSet), process: updateprocessors.NewNetworkSetUpdateProcessor},
		apiv3.KindGlobalNetworkSet: {group: crd, make: (*objects).globalSet, convert: custom(apiv3.KindGlobalNetworkSet), process: updateprocessors.NewGlobalNetworkSetUpdateProcessor},
		apiv3.KindHostEndpoint:     {group: crd, make: (*objects).hostEndpoint, convert: custom(apiv3.KindHostEndpoint), process: updateprocessors.NewHostEndpointUpdateProcessor},
		apiv3.KindIPPool:           {group: crd, make: (*objects).pool, convert: custom(apiv3.KindIPPool), process: updateprocessors.NewIPPoolUpdateProcessor},
		apiv3.KindBGPConfiguration: {group: crd, make: (*objects).bgpConfiguration, convert: custom(apiv3.KindBGPConfiguration)},
		apiv3.KindBGPPeer:          {group: crd, make: (*objects).bgpPeer, convert: custom(apiv3.KindBGPPeer)},
		apiv3.KindBGPFilter:        {group: crd, make: (*objects).bgpFilter, convert: custom(apiv3.KindBGPFilter)},
		apiv3.KindCalicoNodeStatus: {group: crd, make: (*objects).nodeStatus, convert: custom(apiv3.KindCalicoNodeStatus)},
		libapiv3.KindIPAMBlock: {group: crd, make: (*objects).block, convert: func(o runtime.Object) []*calico.KVPair {
			b := o.(*libapiv3.IPAMBlock)
			return single(resources.IPAMBlockV3toV1(&calico.KVPair{Value: b, Revision: b.ResourceVersion}))
		}},
		apiv3.KindProfile: {group: crd, make: (*objects).profile, convert: custom(apiv3.KindProfile), process: updateprocessors.NewProfileUpdateProcessor},
	}
}

// readLabels lets json-iterator write Calico's labels, which it misreads when it is built with Go 1.26: the bytes are those the
// labels' own method writes, as with Go 1.25.
var readLabels = sync.OnceFunc(func() {
	jsoniter.RegisterTypeEncoderFunc("uniquelabels.Map", func(p unsafe.Pointer, s *jsoniter.Stream) {
		text, err := (*uniquelabels.Map)(p).MarshalJSON()
		if err != nil {
			s.Error = err
		}
		s.Write(text)
	}, func(unsafe.Pointer) bool { return false })
})

// stored is a custom resource as Calico's client for them returns it.
func stored(kind string, o runtime.Object) []*calico.KVPair {
	r := o.DeepCopyObject().(resources.Resource)
	r.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{Group: apiv3.Group, Version: apiv3.VersionCurrent, Kind: kind})
	m := r.GetObjectMeta()
	key := calico.ResourceKey{Kind: kind, Name: m.GetName(), Namespace: m.GetNamespace()}
	switch o := r.(type) { // its converters from version 1
	case *apiv3.Tier:
		static.DefaultTierFields(o)
	case *apiv3.IPPool:
		if _, err := (resources.IPPoolv1v3Converter{}).ConvertFromK8s(o); err != nil {
			panic(err)
		}
	}
	if err := resources.ConvertK8sResourceToCalicoResource(r); err != nil {
		panic(err)
	}
	return []*calico.KVPair{{Key: key, Value: r, Revision: m.GetResourceVersion()}}
}

// line is a key with its value, its revision, and the resource version beside it.
func line(kv ours.KV) string {
	return fmt.Sprintf("%s\n  %s\n  revision %s, %s", kv.Key, kv.Value, kv.Revision, kv.V3ResourceVersion)
}

// calicoLines is what Calico sends for an object, deletes left out.
func (v *vector) calicoLines(t *testing.T, o runtime.Object) (out []string) {
	t.Helper()
	list := v.convert(o)
	if v.process != nil && len(list) > 0 {
		var err error
		if list, err = v.process().Process(list[0]); err != nil && list == nil { // it may report what it ignored
			t.Fatalf("Calico: %v", err)
		}
	}
	for _, kv := range list {
		if kv.Value == nil {
			continue
		}
		key, err := calico.KeyToDefaultPath(kv.Key)
		if err != nil {
			t.Fatal(err)
		}
		out1 := ours.KV{Key: key, Revision: fmt.Sprint(kv.Revision)}
		if m, ok := kv.Value.(metav1.Object); ok { // as Typha does, so that versions alone are no change
			out1.V3ResourceVersion = m.GetResourceVersion()
			m.SetResourceVersion("")
		}
		if out1.Value, err = calico.SerializeValue(kv); err != nil {
			t.Fatal(err)
		}
		out = append(out, line(out1))
	}
	return out
}

// ourLines is what we send for it.
func (v *vector) ourLines(t *testing.T, kind string, o runtime.Object) []string {
	t.Helper()
	kind, _, _ = strings.Cut(kind, ".")
	u := untyped(t, o)
	u.SetKind(kind)
	given, forms := o, 2
	switch {
	case v.group != "":
		u.SetAPIVersion(v.group)
		given, forms = u, 1
	case kind == "EndpointSlice":
		u.SetAPIVersion("discovery.k8s.io/v1")
	case kind == "NetworkPolicy":
		u.SetAPIVersion("networking.k8s.io/v1")
	default:
		u.SetAPIVersion("v1")
	}
	read := convert.Read(u)
	if read.Policy != nil && !read.Refused() {
		forms = 2 // with and without the form that conversion has read
	}
	var out []string
	for i := range forms {
		result := convert.Result{}
		if i > 0 && read.Policy != nil {
			result = read
		}
		list, err := encode.Object(given, result)
		if err != nil {
			t.Fatalf("ours: %v\n%v", err, u.Object)
		}
		var lines []string
		for _, kv := range list {
			lines = append(lines, line(kv))
		}
		if i > 0 {
			if d := cmp.Diff(out, lines); d != "" {
				t.Fatalf("typed or unread (-) and untyped or read (+) differ:\n%s\n%v", d, u.Object)
			}
		}
		out, given = lines, u
	}
	return out
}

// Every kind of object is written as Calico's own converters write it, byte for byte.
func TestVectors(t *testing.T) {
	logrus.SetLevel(logrus.FatalLevel)
	for kind, v := range vectors() {
		t.Run(kind, func(t *testing.T) {
			written := 0
			for seed := range uint64(max(1000, *cases/5)) {
				r := &objects{world: newWorld(seed), uids: rand.New(rand.NewPCG(seed, 2))}
				o := v.make(r)
				want := v.calicoLines(t, o.DeepCopyObject())
				got := v.ourLines(t, kind, o)
				if d := cmp.Diff(want, got); d != "" {
					text, _ := json.MarshalIndent(o, "", " ")
					t.Fatalf("seed %d: Calico (-) and ours (+) differ:\n%s\n%s", seed, d, text)
				}
				written += len(got)
			}
			if written < 300 {
				t.Errorf("only %d keys of 1000 objects", written)
			}
		})
	}
}

// What Calico's own validation accepts we do not refuse, so that it is never written as what is left of a refused object.
func TestAcceptedByCalico(t *testing.T) {
	logrus.SetLevel(logrus.FatalLevel)
	accepted := 0
	for kind, v := range vectors() {
		if _, extra := encode.Extra(apiv3.Group, "v3", kind, ""); !strings.HasPrefix(v.group, "crd.") || extra ||
			kind == libapiv3.KindIPAMBlock || kind == apiv3.KindStagedKubernetesNetworkPolicy { // the last is Kubernetes' to judge
			continue
		}
		for seed := range uint64(1000) {
			o := v.make(&objects{world: newWorld(seed), uids: rand.New(rand.NewPCG(seed, 2))})
			if validator.Validate(o) != nil {
				continue
			}
			accepted++
			u := untyped(t, o)
			u.SetKind(strings.TrimSuffix(kind, ".v3"))
			u.SetAPIVersion(apiv3.GroupVersionCurrent)
			if _, err := convert.Object(u); err != nil && !check.Unsupported(err) {
				t.Errorf("%s %d: %v", kind, seed, err)
			}
		}
	}
	if accepted < 2000 {
		t.Errorf("Calico accepted only %d objects", accepted)
	}
}

func untyped(t *testing.T, o runtime.Object) *unstructured.Unstructured {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal(text, &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

// The keys without any object are Calico's: the profile that allows, and the flag.
func TestVectorsBuiltin(t *testing.T) {
	v := vector{process: updateprocessors.NewProfileUpdateProcessor, convert: func(runtime.Object) []*calico.KVPair {
		return []*calico.KVPair{static.DefaultAllowProfile()}
	}}
	want := v.calicoLines(t, nil)
	ready, err := calico.KeyToDefaultPath(calico.ReadyFlagKey{})
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]string{}
	for _, kv := range encode.Builtin() {
		have[kv.Key] = string(kv.Value)
	}
	if have[ready] != "true" {
		t.Errorf("%s is %q", ready, have[ready])
	}
	for _, l := range want {
		key, rest, _ := strings.Cut(l, "\n  ")
		val, _, _ := strings.Cut(rest, "\n")
		if have[key] != val {
			t.Errorf("%s: %s, want %s", key, have[key], val)
		}
	}
}

// objects makes random objects of an API server.
type objects struct {
	*world
	uids *rand.Rand
}

func (r *objects) meta(namespaced bool, name string) metav1.ObjectMeta {
	m := metav1.ObjectMeta{Name: name, ResourceVersion: fmt.Sprint(r.IntN(10_000)), Labels: r.objectLabels()}
	if namespaced {
		m.Namespace = one(r.world, "prod", "dev", "kube-system")
	}
	m.UID = randomUUID(r.uids)
	if r.chance(80) {
		m.CreationTimestamp = metav1.Time{Time: time.Date(2026, 1, 1, 0, 0, r.IntN(86_400), 0, time.UTC)}
	}
	if r.chance(30) {
		m.Annotations = map[string]string{"note": one(r.world, "plain", "<&> \u2028 \"q\"", "")}
	}
	return m
}

func (r *objects) objectLabels() map[string]string {
	if r.chance(20) {
		return nil
	}
	out := map[string]string{}
	for range r.IntN(4) {
		out[one(r.world, "app", "env", "a.b/c", "pcns.team", "pcsa.x", "projectcalico.org/serviceaccount")] = r.named("v", 3)
	}
	if len(out) == 0 {
		return nil
	}
	return out
}
