package typha

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/contiv-agent/contiv-agent/datastore"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/fanout/wire"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/source/convert"
)

// translator turns changes of keys into changes of objects.
//
// One object may have several keys for a while (a Pod that moved to another node: its new endpoint may come before the old
// one goes), so what was put last counts, and what is left when that goes.
type translator struct {
	objects  map[model.Ref][]bearer
	profiles map[string]*profile
	nodes    map[string]*model.Node
	blocks   map[netip.Prefix]string // blocks of addresses with an affinity, and the node that has it
}

// bearer is a key with what it says of an object.
type bearer struct {
	key    string
	change event.Change
}

// profile is what the keys of a profile that is nobody else's say.
type profile struct {
	labels datastore.Labels
	rules  *model.ProfileRules
}

func newTranslator() *translator {
	return &translator{
		objects: map[model.Ref][]bearer{}, profiles: map[string]*profile{},
		nodes: map[string]*model.Node{}, blocks: map[netip.Prefix]string{},
	}
}

// changes are the steps of objects that the steps of keys amount to.
func (t *translator) changes(list []wire.KV) []event.Change {
	var out []event.Change
	for i := range list {
		kv := &list[i]
		for _, c := range t.change(kv) {
			if c.Origin == "" {
				c.Origin = kv.Key
			}
			out = append(out, c)
		}
	}
	return out
}

func (t *translator) change(kv *wire.KV) []event.Change {
	value := kv.Value
	if kv.Deleted() {
		value = nil
	}
	if name, ok := serviceCIDRName(kv.Key); ok {
		return t.put(kv.Key, model.Ref{Kind: model.KindServiceCIDR, Name: name}, serviceCIDR(name, value))
	}
	u, err := datastore.Decode(kv.Key, value)
	if errors.Is(err, datastore.ErrUnknownKey) {
		return nil // of a newer data model: nothing here depends on it
	}
	said := event.Change{Err: err}
	switch k := u.Key; k.Kind {
	case datastore.KeyWorkload:
		return t.workload(kv.Key, u, said)
	case datastore.KeyHostEndpoint:
		said.Object = object[*model.HostEndpoint](u.Value)
		return t.put(kv.Key, model.Ref{Kind: model.KindHostEndpoint, Name: k.Name}, said)
	case datastore.KeyNetworkSet:
		said.Object = object[*model.NetworkSet](u.Value)
		return t.put(kv.Key, (&model.NetworkSet{Name: k.Name}).Ref(), said)
	case datastore.KeyTier:
		said.Object = object[*model.Tier](u.Value)
		return t.put(kv.Key, model.Ref{Kind: model.KindTier, Name: k.Name}, said)
	case datastore.KeyTieredPolicy, datastore.KeyPolicy:
		return t.policy(kv.Key, u, said)
	case datastore.KeyProfileLabels, datastore.KeyProfileRules:
		return t.profile(kv.Key, u, said)
	case datastore.KeyBlock:
		return t.block(u, said)
	case datastore.KeyResource:
		return t.resource(kv.Key, k, value, said)
	}
	return nil // routing and Felix's own configuration
}

// object is v as an object, nil if it is none.
func object[T model.Object](v any) model.Object {
	if o, ok := v.(T); ok {
		return o
	}
	return nil
}

// put makes c what the key says of ref; neither object nor error is that the key is gone. It returns the step of the object, if
// there is one.
func (t *translator) put(key string, ref model.Ref, c event.Change) []event.Change {
	c.Ref = ref
	if c.Origin == "" {
		c.Origin = key
	}
	list := t.objects[ref]
	at := slices.IndexFunc(list, func(b bearer) bool { return b.key == key })
	gone := c.Object == nil && c.Err == nil
	switch {
	case at < 0 && gone:
		return nil
	case gone && at < len(list)-1:
		t.objects[ref] = slices.Delete(list, at, at+1)
		return nil
	case gone && len(list) > 1:
		t.objects[ref] = slices.Delete(list, at, at+1)
		return []event.Change{t.objects[ref][len(list)-2].change}
	case gone:
		delete(t.objects, ref)
		return []event.Change{c}
	}
	if at >= 0 {
		if at == len(list)-1 && c.Err == nil && list[at].change.Err == nil && model.Equal(list[at].change.Object, c.Object) {
			list[at].change = c
			return nil
		}
		list = slices.Delete(list, at, at+1)
	}
	t.objects[ref] = append(list, bearer{key, c})
	return []event.Change{c}
}

// resource reads what travels as it is.
func (t *translator) resource(key string, k datastore.Key, value []byte, said event.Change) []event.Change {
	switch k.Type {
	case datastore.ResourceServices:
		return t.put(key, model.Ref{Kind: model.KindService, Namespace: k.Namespace, Name: k.Name}, read(key, value, &corev1.Service{}))
	case datastore.ResourceEndpointSlices:
		ref := model.Ref{Kind: model.KindEndpointSlice, Namespace: k.Namespace, Name: k.Name}
		return t.put(key, ref, read(key, value, &discoveryv1.EndpointSlice{}))
	case datastore.ResourceNodes:
		return t.node(key, k.Name, value)
	case datastore.ResourceBGPConfigurations:
		ref := model.Ref{Kind: model.KindServiceCIDR, Name: "bgpconfiguration:" + k.Name}
		if value == nil || said.Err != nil {
			return t.put(key, ref, event.Change{Err: said.Err})
		}
		return t.put(key, ref, announced(key, ref.Name, value))
	}
	return nil
}

// read reads an object of Kubernetes as from an API server.
func read(key string, value []byte, into runtime.Object) event.Change {
	if value == nil {
		return event.Change{}
	}
	if err := json.Unmarshal(value, into); err != nil {
		return event.Change{Err: fmt.Errorf("%s: %w", key, err)}
	}
	o, err := convert.Object(into)
	if err != nil {
		err = fmt.Errorf("%s: %w", key, err)
	}
	return event.Change{Object: o, Err: err}
}

// node reads a Node of Calico's as the Node of Kubernetes it was made of.
func (t *translator) node(key, name string, value []byte) []event.Change {
	ref := model.Ref{Kind: model.KindNode, Name: name}
	if value == nil {
		delete(t.nodes, name)
		return t.put(key, ref, event.Change{})
	}
	var v struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
		Spec     struct {
			Addresses []struct{ Address, Type string } `json:"addresses"`
			BGP       *struct {
				IPv4Address string `json:"ipv4Address"`
				IPv6Address string `json:"ipv6Address"`
			} `json:"bgp"`
		} `json:"spec"`
		Status struct {
			PodCIDRs []string `json:"podCIDRs"`
		} `json:"status"`
	}
	delete(t.nodes, name)
	if err := json.Unmarshal(value, &v); err != nil {
		return t.put(key, ref, event.Change{Err: fmt.Errorf("%s: %w", key, err)})
	}
	in := &corev1.Node{Spec: corev1.NodeSpec{PodCIDRs: v.Status.PodCIDRs}}
	in.Name, in.Labels = name, v.Metadata.Labels
	for _, a := range v.Spec.Addresses {
		if kind := corev1.NodeAddressType(a.Type); kind == corev1.NodeInternalIP || kind == corev1.NodeExternalIP {
			in.Status.Addresses = append(in.Status.Addresses, corev1.NodeAddress{Type: kind, Address: a.Address})
		}
	}
	if b := v.Spec.BGP; b != nil && len(in.Status.Addresses) == 0 { // a node Kubernetes says nothing of
		for _, text := range []string{b.IPv4Address, b.IPv6Address} {
			if p, err := netip.ParsePrefix(text); err == nil {
				in.Status.Addresses = append(in.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: p.Addr().String()})
			}
		}
	}
	o, err := convert.Object(in)
	if err != nil {
		return t.put(key, ref, event.Change{Err: fmt.Errorf("%s: %w", key, err)})
	}
	t.nodes[name] = o.(*model.Node)
	return t.put(key, ref, event.Change{Object: t.withBlocks(name)})
}

// withBlocks is a Node with the blocks of addresses that are its own, among its ranges of pods.
func (t *translator) withBlocks(name string) *model.Node {
	n := *t.nodes[name]
	var own []netip.Prefix
	for p, node := range t.blocks {
		if node == name && !slices.Contains(n.PodCIDRs, p) {
			own = append(own, p)
		}
	}
	slices.SortFunc(own, netip.Prefix.Compare)
	n.PodCIDRs = slices.Concat(n.PodCIDRs, own)
	return &n
}

// block notes which node has a block of addresses.
func (t *translator) block(u datastore.Update, said event.Change) []event.Change {
	before := t.blocks[u.Key.CIDR]
	delete(t.blocks, u.Key.CIDR)
	now := ""
	if b, ok := u.Value.(*model.Block); ok && b.Node != "" {
		now = b.Node
		t.blocks[u.Key.CIDR] = now
	}
	var out []event.Change
	for _, name := range []string{before, now} {
		if t.nodes[name] != nil && before != now {
			ref := model.Ref{Kind: model.KindNode, Name: name}
			key := datastore.Key{Kind: datastore.KeyResource, Type: datastore.ResourceNodes, Name: name}.String()
			out = append(out, t.put(key, ref, event.Change{Object: t.withBlocks(name)})...)
		}
	}
	if said.Err != nil {
		out = append(out, event.Change{Ref: model.Ref{Kind: "IPAMBlock", Name: u.Key.CIDR.String()}, Err: said.Err})
	}
	return out
}
