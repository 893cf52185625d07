package report

import (
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/source/convert"
	"github.com/contiv-agent/contiv-agent/source/kube"
)

// Named implements Objects for an agent that follows a fan-out server. It knows objects by name, and by UID if the source
// sent one. It does not know their conditions, so it does not serve Config.Conditions. The zero value is ready; Named is
// safe for concurrent use.
type Named struct {
	mu   sync.Mutex
	byID map[model.Ref]*kube.Identity
}

// Heard records the objects of a source's event.
func (n *Named) Heard(ev event.Event) {
	update, ok := ev.(*event.Update)
	if !ok {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, ch := range update.Changes {
		kind, ok := called(ch.Ref.Kind)
		switch {
		case !ok:
		case ch.Object == nil && ch.Err == nil:
			delete(n.byID, ch.Ref)
		default:
			if n.byID == nil {
				n.byID = map[model.Ref]*kube.Identity{}
			}
			n.byID[ch.Ref] = &kube.Identity{GroupVersionKind: kind, Namespace: ch.Ref.Namespace, Name: ch.Ref.Name, UID: types.UID(ch.UID)}
		}
	}
}

// Identity implements Objects.
func (n *Named) Identity(ref model.Ref) (kube.Identity, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	id, ok := n.byID[ref]
	if !ok {
		return kube.Identity{}, false
	}
	return *id, true
}

// Identities implements Objects.
func (n *Named) Identities(visit func(ref model.Ref, id *kube.Identity) bool, kinds ...model.Kind) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for ref, id := range n.byID {
		if slices.Contains(kinds, ref.Kind) && !visit(ref, id) {
			return
		}
	}
}

// called returns the API server's name of a kind; false: no report names the kind. For Calico's kinds it is the name that
// users see.
func called(kind model.Kind) (schema.GroupVersionKind, bool) {
	group := convert.GroupCalico
	switch info, policy := model.PolicyKind(kind).Info(); {
	case policy:
		group = info.Group
	case kind == model.KindService || kind == model.KindNode:
		group = ""
	case !slices.Contains([]model.Kind{model.KindTier, model.KindNetworkSet, model.KindGlobalNetworkSet, model.KindHostEndpoint}, kind):
		return schema.GroupVersionKind{}, false
	}
	k, ok := convert.KindOf(group, strings.TrimPrefix(string(kind), "Calico"))
	return k.GroupVersionKind, ok && k.Model == kind
}
