package simulate

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/test/oracle/hear"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy/generate"
	"github.com/contiv-agent/contiv-agent/test/simulate/apiserver"
)

// version is the cluster at one moment of its history.
type version struct {
	objects map[model.Ref]event.Change
	list    []model.Object // the same, in the generator's order
	stored  []apiserver.Object
	changes []event.Change
	spec    *policy.Cluster
	flows   []policy.Flow                 // a sample of those that are worth a packet
	sticky  map[frontend]bool             // those with affinity of clients
	fronts  map[frontend][]netip.AddrPort // nil: not asked for yet
}

// withPortsOnce replaces pods by copies without init containers, and without ports of a name that an earlier container has.
func withPortsOnce(objects []policy.Object) {
	for i, o := range objects {
		p, ok := o.(*corev1.Pod)
		if !ok {
			continue
		}
		p = p.DeepCopy()
		p.Spec.InitContainers = nil
		known := map[string]bool{}
		for c := range p.Spec.Containers {
			ports := &p.Spec.Containers[c].Ports
			*ports = slices.DeleteFunc(*ports, func(port corev1.ContainerPort) bool {
				was := known[port.Name]
				known[port.Name] = true
				return was
			})
		}
		objects[i] = p
	}
}

// withBothFamilies returns the objects with a ServiceCIDR, and with copies of the Services that have a cluster IP of both families: cnat serves IPv6. Every second
// Service has session affinity.
func withBothFamilies(objects []policy.Object) []policy.Object {
	out := []policy.Object{&networkingv1.ServiceCIDR{
		TypeMeta: policy.TypeOf(policy.GroupNetwork, "ServiceCIDR"), ObjectMeta: policy.Meta("", "kubernetes", nil),
		Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.96.0.0/16", "fd00:10:96::/112"}},
	}}
	for _, o := range objects {
		if s, ok := o.(*corev1.Service); ok {
			s = s.DeepCopy()
			a := netip.MustParseAddr(s.Spec.ClusterIP).As4()
			s.Spec.ClusterIPs = append(s.Spec.ClusterIPs, fmt.Sprintf("fd00:10:96::%x", a[3]))
			s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
			if a[3]%2 == 0 {
				seconds := int32(600)
				s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
				s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &seconds}}
			}
			o = s
		}
		out = append(out, o)
	}
	return out
}

// nodes are the names of the version's nodes.
func (v *version) nodes() (names []string) {
	for _, o := range v.list {
		if o, ok := o.(*model.Node); ok {
			names = append(names, o.Name)
		}
	}
	return names
}

// flowsPerVersion is the number of flows that are drawn of each version.
const flowsPerVersion = 60

// history draws the versions of a cluster. For a fan-out server it has only what means the same in Calico's datastore: policies of Kubernetes alone, no
// ports of init containers, and one port of a name.
func history(seed uint64, versions int, stored bool) ([]*version, error) {
	w := generate.NewWorld(seed, generate.Kinds{Admin: !stored, Cluster: !stored, Calico: !stored, Services: true})
	var out []*version
	for i := range versions {
		objects := withBothFamilies(w.Objects())
		if stored {
			withPortsOnce(objects)
		}
		v, err := newVersion(objects)
		if err != nil {
			return nil, err
		}
		v.flows = w.Sample(w.Flows(1), flowsPerVersion)
		out = append(out, v)
		if i%3 == 2 {
			w.StepServices()
		}
		w.Step()
	}
	return out, nil
}

// newVersion is the cluster with these objects.
func newVersion(objects []policy.Object) (*version, error) {
	v := &version{objects: map[model.Ref]event.Change{}}
	var all []generate.Change
	for _, o := range objects {
		all = append(all, generate.Change{Key: policy.KeyOf(o), Object: o})
		v.stored = append(v.stored, o)
	}
	var err error
	if v.changes, err = hear.All(all); err != nil {
		return nil, err
	}
	for _, ch := range v.changes {
		v.objects[ch.Ref] = ch
		if ch.Object != nil {
			v.list = append(v.list, ch.Object)
		}
	}
	v.spec, err = policy.Read(objects)
	return v, err
}

// changesBetween are the changes that lead from one state of the objects to another, in the order of their names: removals last.
func changesBetween(from, to map[model.Ref]event.Change) []event.Change {
	var out []event.Change
	for ref, ch := range to {
		if was, had := from[ref]; !had || !reflect.DeepEqual(was.Object, ch.Object) || (was.Err == nil) != (ch.Err == nil) {
			out = append(out, ch)
		}
	}
	for ref := range from {
		if _, stays := to[ref]; !stays {
			out = append(out, event.Change{Ref: ref})
		}
	}
	slices.SortFunc(out, func(a, b event.Change) int {
		if (a.Object == nil) != (b.Object == nil) {
			if a.Object != nil {
				return -1
			}
			return 1
		}
		return strings.Compare(a.Ref.String(), b.Ref.String())
	})
	return out
}
