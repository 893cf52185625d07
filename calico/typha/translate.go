package typha

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/contiv-agent/contiv-agent/calico/datastore"
	"github.com/contiv-agent/contiv-agent/calico/wire"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/parallel"
	"github.com/contiv-agent/contiv-agent/source/convert"
)

// translator turns changes of keys into changes of objects.
//
// An object may have several keys for a while. When a Pod moves to another node, its new endpoint may be added before the
// old one is removed. The key that was put last counts; when it is removed, the one before counts.
type translator struct {
	objects  map[model.Ref][]bearer
	profiles map[string]*profile
	nodes    map[string]*model.Node
	blocks   map[netip.Prefix]string // address blocks with an affinity, and the node that has it
}

// bearer is a key and the change it makes to an object.
type bearer struct {
	key    string
	change event.Change
}

// profile holds the two keys of a profile that belongs to no namespace and no service account.
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

// objectChanges returns the object changes that the key changes cause. It reads the values on all cores.
func (t *translator) objectChanges(list []wire.KV) []event.Change {
	var out []event.Change
	read := make([]reading, len(list))
	parallel.Ordered(len(list), func(i int) { read[i] = readKV(&list[i]) }, func(i int) {
		for _, c := range t.changesOfKey(list[i].Key, &read[i]) {
			if c.Origin == "" {
				c.Origin = list[i].Key
			}
			out = append(out, c)
		}
		read[i] = reading{}
	})
	return out
}

// reading is the content of one key's value, read without regard to other keys.
type reading struct {
	update datastore.Update
	said   event.Change // of a value that is an object by itself; else only the error
	cidr   string       // the name of a ServiceCIDR, whose key is this program's, not Calico's
	none   bool         // a key of an unknown data model: nothing here depends on it
}

func readKV(kv *wire.KV) reading {
	value := kv.Value
	if kv.Deleted() {
		value = nil
	}
	if name, ok := strings.CutPrefix(kv.Key, datastore.ServiceCIDRPrefix); ok {
		return reading{cidr: name, said: serviceCIDR(name, value)}
	}
	k, err := datastore.ParseKey(kv.Key)
	if err != nil {
		return reading{none: true}
	}
	r := reading{update: datastore.Update{Key: k}}
	if k.Kind != datastore.KeyResource {
		if r.update, r.said.Err = datastore.Decode(kv.Key, value); r.said.Err == nil {
			if r.said.Err = checkSelectors(kv.Key, r.update.Value); r.said.Err != nil {
				r.update.Value = nil
			}
		}
		return r
	}
	switch { // datastore.Decode reads only what Felix needs of these
	case value == nil:
	case k.Type == datastore.ResourceServices:
		svc := &corev1.Service{}
		r.said = readObject(kv.Key, value, svc)
		r.said.UID = string(svc.UID) // the API server's UID: Services are sent unchanged
	case k.Type == datastore.ResourceEndpointSlices:
		r.said = readObject(kv.Key, value, &discoveryv1.EndpointSlice{})
	case k.Type == datastore.ResourceNodes:
		r.said = readNode(kv.Key, k.Name, value)
	case k.Type == datastore.ResourceBGPConfigurations:
		r.said = announced(kv.Key, k.Name, value)
	}
	return r
}

func (t *translator) changesOfKey(key string, r *reading) []event.Change {
	u, said := r.update, r.said
	switch k := u.Key; {
	case r.none:
		return nil
	case r.cidr != "":
		return t.storeChange(key, model.Ref{Kind: model.KindServiceCIDR, Name: r.cidr}, said)
	case k.Kind == datastore.KeyWorkload:
		return t.workload(key, u, said)
	case k.Kind == datastore.KeyHostEndpoint:
		said.Object = object[*model.HostEndpoint](u.Value)
		return t.storeChange(key, model.Ref{Kind: model.KindHostEndpoint, Name: k.Name}, said)
	case k.Kind == datastore.KeyNetworkSet:
		said.Object = object[*model.NetworkSet](u.Value)
		return t.storeChange(key, (&model.NetworkSet{Name: k.Name}).Ref(), said)
	case k.Kind == datastore.KeyTier:
		said.Object = object[*model.Tier](u.Value)
		return t.storeChange(key, model.Ref{Kind: model.KindTier, Name: k.Name}, said)
	case k.Kind == datastore.KeyTieredPolicy, k.Kind == datastore.KeyPolicy:
		return t.policy(key, u, said)
	case k.Kind == datastore.KeyProfileLabels, k.Kind == datastore.KeyProfileRules:
		return t.profile(key, u, said)
	case k.Kind == datastore.KeyBlock:
		return t.block(u, said)
	case k.Kind == datastore.KeyResource:
		return t.resource(key, k, said)
	}
	return nil // routing and Felix's own configuration
}

// object returns v as an object, nil if v is nil.
func object[T model.Object](v any) model.Object {
	if o, ok := v.(T); ok {
		return o
	}
	return nil
}

// storeChange stores the change c of ref under key; a c with neither object nor error means that the key is removed. It returns the
// object's change, if any.
func (t *translator) storeChange(key string, ref model.Ref, c event.Change) []event.Change {
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
		if at == len(list)-1 && c.Err == nil && list[at].change.Err == nil && c.UID == list[at].change.UID && model.Equal(list[at].change.Object, c.Object) {
			list[at].change = c
			return nil
		}
		list = slices.Delete(list, at, at+1)
	}
	t.objects[ref] = append(list, bearer{key, c})
	return []event.Change{c}
}

// resource converts the keys whose values are whole resources.
func (t *translator) resource(key string, k datastore.Key, said event.Change) []event.Change {
	ref := model.Ref{Namespace: k.Namespace, Name: k.Name}
	switch k.Type {
	case datastore.ResourceServices:
		ref.Kind = model.KindService
	case datastore.ResourceEndpointSlices:
		ref.Kind = model.KindEndpointSlice
	case datastore.ResourceNodes:
		ref.Kind = model.KindNode
		delete(t.nodes, k.Name)
		if n, ok := said.Object.(*model.Node); ok {
			t.nodes[k.Name] = n
			said.Object = t.withBlocks(k.Name)
		}
	case datastore.ResourceBGPConfigurations:
		ref = model.Ref{Kind: model.KindServiceCIDR, Name: "bgpconfiguration:" + k.Name}
	default:
		return nil
	}
	return t.storeChange(key, ref, said)
}

// readObject reads a Kubernetes object as from an API server.
func readObject(key string, value []byte, into runtime.Object) event.Change {
	if err := json.Unmarshal(value, into); err != nil {
		return event.Change{Err: fmt.Errorf("%s: %w", key, err)}
	}
	o, err := convert.Object(into)
	if err != nil {
		err = fmt.Errorf("%s: %w", key, err)
	}
	return event.Change{Object: o, Err: err}
}

// readNode converts a Calico Node to the Kubernetes Node it was made of.
func readNode(key, name string, value []byte) event.Change {
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
	if err := json.Unmarshal(value, &v); err != nil {
		return event.Change{Err: fmt.Errorf("%s: %w", key, err)}
	}
	in := &corev1.Node{Spec: corev1.NodeSpec{PodCIDRs: v.Status.PodCIDRs}}
	in.Name, in.Labels = name, v.Metadata.Labels
	for _, a := range v.Spec.Addresses {
		if kind := corev1.NodeAddressType(a.Type); kind == corev1.NodeInternalIP || kind == corev1.NodeExternalIP {
			in.Status.Addresses = append(in.Status.Addresses, corev1.NodeAddress{Type: kind, Address: a.Address})
		}
	}
	if b := v.Spec.BGP; b != nil && len(in.Status.Addresses) == 0 { // a node without addresses from Kubernetes
		for _, text := range []string{b.IPv4Address, b.IPv6Address} {
			if p, err := netip.ParsePrefix(text); err == nil {
				in.Status.Addresses = append(in.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: p.Addr().String()})
			}
		}
	}
	o, err := convert.Object(in)
	if err != nil {
		return event.Change{Err: fmt.Errorf("%s: %w", key, err)}
	}
	return event.Change{Object: o}
}

// withBlocks returns a Node whose pod ranges include its address blocks.
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

// block records which node has an address block.
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
			out = append(out, t.storeChange(key, ref, event.Change{Object: t.withBlocks(name)})...)
		}
	}
	if said.Err != nil {
		out = append(out, event.Change{Ref: model.Ref{Kind: "IPAMBlock", Name: u.Key.CIDR.String()}, Err: said.Err})
	}
	return out
}
