package convert

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kjson "k8s.io/apimachinery/pkg/util/json"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/source/convert/check"
	"github.com/contiv-agent/contiv-agent/source/convert/core"
)

// Ref names an object that is not decoded yet. It shows a name of the wrong type as it is; a missing name is "".
func (k *Kind) Ref(tree map[string]any) model.Ref {
	meta, _ := tree["metadata"].(map[string]any)
	ref := model.Ref{Kind: k.Model, Name: scalar(meta["name"])}
	if k.Namespaced {
		ref.Namespace = cmp.Or(scalar(meta["namespace"]), metav1.NamespaceDefault)
	}
	return ref
}

func scalar(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case bool, json.Number:
		return fmt.Sprint(v)
	}
	return ""
}

// Decode is Read for callers that need the value alone.
func (k *Kind) Decode(tree map[string]any) (obj model.Object, unknown []string, err error) {
	r, unknown := k.Read(tree)
	return r.Object, unknown, r.Err
}

// Read converts an object given as a tree of JSON values, with numbers as json.Number. It modifies the tree. It also returns
// the paths of fields that the kind does not have. In the spec of a policy such fields are problems, since they may change the
// policy's meaning; elsewhere Read ignores them.
func (k *Kind) Read(tree map[string]any) (r Result, unknown []string) {
	ps := &problems{check.Problems{Ref: k.Ref(tree)}}
	blank, s := k.blank(), check.Fit{}
	s.CheckType("", reflect.TypeOf(blank).Elem(), tree)
	ps.List, unknown = s.Wrong, s.Unknown
	if k.policy() {
		unknown = ps.unknownFields(unknown)
	}
	ps.misfits()
	if err := ps.Err(); err != nil && !k.closed {
		return Result{Err: err}, unknown
	}
	text, err := json.Marshal(tree)
	if err == nil {
		err = kjson.Unmarshal(text, blank)
	}
	switch {
	case err != nil && !k.closed:
		return Result{Err: fmt.Errorf("%s: %w", ps.Ref, err)}, unknown
	case err != nil:
		ps.Add("spec", "cannot be read: "+err.Error(), nil)
		ps.Broken = append(ps.Broken, "spec")
		blank = k.blank()
	}
	r.Object, r.Err = typed(blank, ps)
	if !shadow(ps.Ref) {
		r.Policy = policySpec(blank)
	}
	return r, unknown
}

// unknownFields makes unknown fields of the spec problems, and returns the others.
func (ps *problems) unknownFields(unknown []string) (elsewhere []string) {
	for _, path := range unknown {
		if check.InPath(path, "spec") {
			ps.Add(path, "is not a field of this kind", nil)
		} else {
			elsewhere = append(elsewhere, path)
		}
	}
	return elsewhere
}

// misfits records which parts are missing from the decoded spec.
func (ps *problems) misfits() {
	for _, p := range ps.List {
		if check.InPath(p.Field, "spec") {
			ps.Broken = append(ps.Broken, p.Field)
		}
	}
}

// unstructuredKind returns the kind that the object itself names.
func unstructuredKind(o *unstructured.Unstructured) (Kind, bool) {
	gvk := o.GroupVersionKind()
	k, ok := KindOf(gvk.Group, gvk.Kind)
	return k, ok && k.Version == gvk.Version
}

// decodeUnstructured converts an object of a dynamic client. It copies the object, since Kind.Read modifies its input.
func decodeUnstructured(o *unstructured.Unstructured) Result {
	k, ok := unstructuredKind(o)
	if !ok {
		return Result{Err: fmt.Errorf("%s: %w", strconv.Quote(o.GroupVersionKind().String()), ErrUnknownKind)}
	}
	tree, err := numbered(o.Object)
	if err != nil {
		return Result{Err: fmt.Errorf("%s: %w", k.Ref(o.Object), err)}
	}
	r, _ := k.Read(tree.(map[string]any))
	return r
}

// numbered returns a copy of a tree of JSON values with numbers as json.Number. It encodes only what a dynamic client does not
// have: values of other types.
func numbered(v any) (any, error) {
	switch v := v.(type) {
	case nil, string, bool:
		return v, nil
	case int64:
		return json.Number(strconv.FormatInt(v, 10)), nil
	case map[string]any:
		if v == nil {
			return nil, nil
		}
		out := make(map[string]any, len(v))
		for key, e := range v {
			var err error
			if out[key], err = numbered(e); err != nil {
				return nil, err
			}
		}
		return out, nil
	case []any:
		if v == nil {
			return nil, nil
		}
		out := make([]any, len(v))
		for i, e := range v {
			var err error
			if out[i], err = numbered(e); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var out any
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	err = dec.Decode(&out)
	return out, err
}

// shadow reports whether Calico's API server shows this object as a second form of another one that is read itself: a
// Kubernetes policy, a namespace or a service account. Users cannot create objects with such names.
func shadow(ref model.Ref) bool {
	var prefixes []string
	switch model.PolicyKind(ref.Kind) {
	case model.KindCalicoNetworkPolicy:
		prefixes = []string{"knp.default."}
	case model.KindGlobalNetworkPolicy:
		prefixes = []string{
			"kanp." + model.TierAdmin + ".", "kbanp." + model.TierBaseline + ".",
			"kcnp." + model.TierKubeAdmin + ".", "kcnp." + model.TierKubeBaseline + ".",
		}
	case model.PolicyKind(model.KindProfile):
		prefixes = []string{"kns.", "ksa."}
	}
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(ref.Name, p) })
}

// typed is Object for every type that this package reads. For policies, ps holds the problems found in decoding.
func typed(obj any, ps *problems) (model.Object, error) {
	if shadow(ps.Ref) {
		return nil, nil
	}
	switch o := obj.(type) {
	case *corev1.Service:
		return finish(core.Service(o))
	case *discoveryv1.EndpointSlice:
		s, ps := core.EndpointSlice(o)
		if s == nil {
			return nil, nil
		}
		return finish(s, ps)
	case *corev1.Pod:
		return finish(core.Pod(o))
	case *corev1.Node:
		return finish(core.Node(o))
	case *corev1.Namespace:
		return finish(core.Namespace(o))
	case *corev1.ServiceAccount:
		return finish(core.ServiceAccount(o))
	case *networkingv1.ServiceCIDR:
		return finish(core.ServiceCIDR(o))
	case *calicoTier:
		return finishClosed(tier(o, ps), ps)
	case *calicoProfile:
		return finish(profile(o, ps))
	case *networkSet:
		return finishClosed(netset(o, ps), ps)
	case *hostEndpoint:
		return finishClosed(hep(o, ps), ps)
	}
	p := policy(obj, ps)
	if p != nil {
		ps.applyDistrust(p)
		if m, ok := obj.(metav1.Object); ok {
			p.Created, p.UID = m.GetCreationTimestamp().UTC(), string(m.GetUID())
			readStaged(p, m.GetAnnotations(), ps)
		}
	}
	return finishClosed(p, ps)
}

// policy converts a policy of any kind; nil if it has no meaning here.
func policy(obj any, ps *problems) *model.Policy {
	if m, ok := obj.(metav1.Object); ok {
		ps.Names(&metav1.ObjectMeta{Name: m.GetName(), Namespace: m.GetNamespace(), Labels: m.GetLabels()}, check.Subdomain)
	}
	switch o := obj.(type) {
	case *networkingv1.NetworkPolicy:
		return networkPolicy(model.KindNetworkPolicy, &o.Spec, ps)
	case *adminPolicy:
		return adminNetworkPolicy(o, ps)
	case *baselinePolicy:
		return baselineAdminNetworkPolicy(o, ps)
	case *clusterPolicy:
		return clusterNetworkPolicy(o, ps)
	case *stagedKubernetesPolicy:
		return o.convert(ps)
	}
	spec := policySpec(obj)
	switch obj.(type) {
	case *calicoPolicy:
		return calicoNetworkPolicy(&spec.GlobalSpec, ps)
	case *globalPolicy:
		return globalNetworkPolicy(&spec.GlobalSpec, ps)
	case *stagedPolicy:
		return ps.withAction(calicoNetworkPolicy(&spec.GlobalSpec, ps), spec.StagedAction)
	case *stagedGlobalPolicy:
		return ps.withAction(globalNetworkPolicy(&spec.GlobalSpec, ps), spec.StagedAction)
	}
	return nil
}
