// Package clusterdns answers for the names of Services, as CoreDNS does in a cluster, as far as programs of this tree ask: addresses of
// Services, those of the endpoints of headless ones, and of endpoints with a host name.
//
// Invariant: a name that no Service has gets "no such name", not silence.
package clusterdns

import (
	"context"
	"net/netip"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/contiv-agent/contiv-agent/test/guestbook"
)

// domain is what all names end with.
const domain = ".svc.cluster.local."

// Run serves the Services of the cluster that this program is a Pod of.
func Run(ctx context.Context) error {
	cfg, err := rest.InClusterConfig()
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	names := newNames()
	factory := informers.NewSharedInformerFactory(client, 0)
	services, slices := factory.Core().V1().Services().Informer(), factory.Discovery().V1().EndpointSlices().Informer()
	for informer, change := range map[cache.SharedIndexInformer]func(obj any, gone bool){services: names.service, slices: names.slice} {
		if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(obj any) { change(obj, false) }, UpdateFunc: func(_, obj any) { change(obj, false) },
			DeleteFunc: func(obj any) {
				if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
					obj = gone.Obj
				}
				change(obj, true)
			},
		}); err != nil {
			return err
		}
	}
	factory.Start(ctx.Done())
	cache.WaitForCacheSync(ctx.Done(), services.HasSynced, slices.HasSynced)
	return guestbook.ServeDNS(":53", names.find)
}

// names are those of the cluster.
type names struct {
	mu        sync.Mutex
	addresses map[string][]netip.Addr          // by NAME.NAMESPACE; empty: headless
	headless  map[string]map[string][]endpoint // endpoints by NAME.NAMESPACE, and by slice
	external  map[string]string                // the name that stands for NAME.NAMESPACE
}

func newNames() *names {
	return &names{addresses: map[string][]netip.Addr{}, headless: map[string]map[string][]endpoint{}, external: map[string]string{}}
}

type endpoint struct {
	host  string
	addrs []netip.Addr
}

func (n *names) service(obj any, gone bool) {
	svc, ok := obj.(*corev1.Service)
	if !ok {
		return
	}
	key := svc.Name + "." + svc.Namespace
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.addresses, key)
	delete(n.external, key)
	if gone {
		return
	}
	if svc.Spec.Type == corev1.ServiceTypeExternalName {
		n.external[key] = strings.ToLower(strings.TrimSuffix(svc.Spec.ExternalName, ".")) + "."
		return
	}
	n.addresses[key] = parse(svc.Spec.ClusterIPs)
}

func (n *names) slice(obj any, gone bool) {
	s, ok := obj.(*discoveryv1.EndpointSlice)
	if !ok {
		return
	}
	key := s.Labels[discoveryv1.LabelServiceName] + "." + s.Namespace
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.headless[key] == nil {
		n.headless[key] = map[string][]endpoint{}
	}
	delete(n.headless[key], s.Name)
	for _, e := range s.Endpoints {
		if gone || e.Conditions.Ready != nil && !*e.Conditions.Ready {
			continue
		}
		host := ""
		if e.Hostname != nil {
			host = *e.Hostname
		}
		n.headless[key][s.Name] = append(n.headless[key][s.Name], endpoint{host, parse(e.Addresses)})
	}
}

// find is of the type guestbook.Names. A name that stands for another one has the addresses of that one, which has to be a Service of the cluster.
func (n *names) find(name string) ([]netip.Addr, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if other, ok := n.external[strings.TrimSuffix(name, domain)]; ok {
		name = other
	}
	name, ok := strings.CutSuffix(name, domain)
	if !ok {
		return nil, false
	}
	host := ""
	if strings.Count(name, ".") == 2 {
		host, name, _ = strings.Cut(name, ".")
	}
	addrs, known := n.addresses[name]
	if !known || host == "" && len(addrs) > 0 {
		return addrs, known
	}
	var out []netip.Addr
	for _, endpoints := range n.headless[name] {
		for _, e := range endpoints {
			if host == "" || e.host == host {
				out = append(out, e.addrs...)
			}
		}
	}
	return out, host == "" || len(out) > 0
}

// parse drops what is no address, as None.
func parse(texts []string) (out []netip.Addr) {
	for _, text := range texts {
		if addr, err := netip.ParseAddr(text); err == nil {
			out = append(out, addr)
		}
	}
	return out
}
