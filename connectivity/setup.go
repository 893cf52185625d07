package connectivity

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/contiv-agent/contiv-agent/connectivity/probe"
)

// makeObjects makes the test's objects, waits for its pods, and reads what the paths lead to.
func (t *run) makeObjects(ctx context.Context, image string) error {
	if t.reused { // policies of an earlier test that was killed
		if err := t.cluster.Delete(ctx, "networkpolicies", "--all", "--namespace="+t.cfg.Namespace); err != nil {
			return err
		}
	}
	var names []string
	for _, m := range t.nodes {
		names = append(names, m.name)
	}
	if err := t.cluster.Apply(ctx, t.cfg.Namespace, t.cfg.manifest(names, image)); err != nil {
		return err
	}
	r, err := t.awaitPods(ctx)
	if err != nil {
		return err
	}
	t.addResult(r)
	if err := t.awaitEndpoints(ctx); err != nil {
		return err
	}
	return t.readServices(ctx)
}

// pollEvery is how often objects are read that are waited for.
const pollEvery = 500 * time.Millisecond

// awaitPods waits until the test's pods run, and returns which do not.
func (t *run) awaitPods(ctx context.Context) (Result, error) {
	r := Result{Group: GroupPods, Check: "start", State: OK}
	began := time.Now()
	for {
		var list corev1.PodList
		if err := t.cluster.Read(ctx, &list, "pods", "--namespace="+t.cfg.Namespace); err != nil {
			return r, err
		}
		t.endpoints = nil
		late := t.sortPods(&list)
		r.Took = time.Since(began)
		if len(late) == 0 {
			r.Found = fmt.Sprintf("%d pods on %s", len(t.endpoints), counted(len(t.nodes), "node"))
			return r, nil
		}
		if r.Took > t.cfg.Start || ctx.Err() != nil {
			r.State, r.Found = Failed, fmt.Sprintf("%d of %d pods do not run after %s", len(late), len(list.Items), t.cfg.Start)
			t.blameLate(ctx, &r, late)
			return r, ctx.Err()
		}
		sleep(ctx, pollEvery)
	}
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// sortPods makes endpoints of the pods that are ready, in the order of nodes, and returns the others.
func (t *run) sortPods(list *corev1.PodList) (late []*corev1.Pod) {
	for _, m := range t.nodes {
		for _, role := range []string{rolePod, rolePeer, roleHost} {
			at := slices.IndexFunc(list.Items, func(p corev1.Pod) bool { return p.Name == podName(role, m.name) })
			if at < 0 {
				late = append(late, &corev1.Pod{Spec: corev1.PodSpec{NodeName: m.name}})
				continue
			}
			pod := &list.Items[at]
			if !isReady(pod) {
				late = append(late, pod)
				continue
			}
			e := &endpoint{name: pod.Name, role: role, node: m.name}
			for _, ip := range pod.Status.PodIPs {
				if a, err := netip.ParseAddr(ip.IP); err == nil {
					e.addresses = append(e.addresses, a)
				}
			}
			t.endpoints = append(t.endpoints, e)
		}
	}
	return late
}

func isReady(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && len(pod.Status.PodIPs) > 0 && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// blameLate says why pods do not run: what their Events report, or their status.
func (t *run) blameLate(ctx context.Context, r *Result, late []*corev1.Pod) {
	var events corev1.EventList
	said := map[string]string{}
	if err := t.cluster.Read(ctx, &events, "events", "--namespace="+t.cfg.Namespace, "--field-selector=type=Warning"); err == nil {
		for _, e := range events.Items {
			said[e.InvolvedObject.Name] = e.Reason + ": " + strings.ReplaceAll(strings.TrimSpace(e.Message), "\n", " ")
		}
	}
	for _, pod := range late {
		why := waitsFor(pod)
		if text := said[pod.Name]; text != "" {
			why = text
		}
		r.Failures = append(r.Failures, Failure{From: pod.Name, Node: pod.Spec.NodeName, Reason: why})
		cause := fmt.Sprintf("the kubelet of %s does not start pods: kubectl describe node %s", pod.Spec.NodeName, pod.Spec.NodeName)
		switch m := t.node(pod.Spec.NodeName); {
		case len(m.trouble) > 0:
			cause = t.causeOfTrouble(m)
		case strings.Contains(why, "mage"):
			cause = "the node has no such image, or may not pull it: --image names another one"
		case strings.Contains(why, "address already in use"):
			cause = fmt.Sprintf("another process of the node has port %d: choose another one (--host-port)", t.cfg.HostPort)
		case strings.Contains(why, "FailedCreatePodSandBox"):
			cause = fmt.Sprintf("the CNI plugin or its agent refuses pods on %s: contiv-agent doctor --cni there", m.name)
		}
		if !slices.Contains(r.Causes, cause) {
			r.Causes = append(r.Causes, cause)
		}
	}
}

// awaitEndpoints waits until the controllers know all endpoints of the test's Services.
func (t *run) awaitEndpoints(ctx context.Context) error {
	for deadline := time.Now().Add(t.cfg.Start); len(t.with(rolePod)) > 0; sleep(ctx, pollEvery) {
		known := map[string]bool{}
		all, err := t.endpointSlices(ctx, t.cfg.Namespace, clusterIP)
		if err != nil {
			return err
		}
		for _, s := range all {
			for _, e := range s.Endpoints {
				if e.TargetRef != nil && (e.Conditions.Ready == nil || *e.Conditions.Ready) {
					known[e.TargetRef.Name] = true
				}
			}
		}
		missing := slices.DeleteFunc(t.namesOf(rolePod, ""), func(name string) bool { return known[name] })
		if len(missing) == 0 {
			return nil
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			return fmt.Errorf("no EndpointSlice of Service %s/%s has %s: does kube-controller-manager run?", t.cfg.Namespace, clusterIP, missing[0])
		}
	}
	return nil
}

// readServices finds the test's Services, that of the API server, and the one that has the address of the pods' name server.
func (t *run) readServices(ctx context.Context) error {
	var list corev1.ServiceList
	if err := t.cluster.Read(ctx, &list, "services", "--all-namespaces"); err != nil {
		return err
	}
	for i := range list.Items {
		switch svc := &list.Items[i]; {
		case svc.Namespace == t.cfg.Namespace:
			t.services[svc.Name] = svc
		case svc.Namespace == "default" && svc.Name == "kubernetes":
			t.apiServer = svc
		}
	}
	pods := t.with(rolePod)
	if !t.cfg.wants(GroupDNS) || len(pods) == 0 {
		return nil
	}
	t.describe(ctx, pods[:1])
	for _, server := range pods[0].servers {
		for i := range list.Items {
			if svc := &list.Items[i]; t.dns == nil && slices.Contains(svc.Spec.ClusterIPs, server) {
				if err := t.readDNS(ctx, svc, server); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// endpointSlices reads those of a Service, or of all ("").
func (t *run) endpointSlices(ctx context.Context, namespace, service string) ([]discoveryv1.EndpointSlice, error) {
	var list discoveryv1.EndpointSliceList
	selector := discoveryv1.LabelServiceName
	if service != "" {
		selector += "=" + service
	}
	err := t.cluster.Read(ctx, &list, "endpointslices", "--namespace="+namespace, "--selector="+selector)
	return list.Items, err
}

// describe asks pods for their links and name servers.
func (t *run) describe(ctx context.Context, pods []*endpoint) {
	var all []*path
	for _, e := range pods {
		all = append(all, &path{from: e, probe: probe.Probe{Kind: probe.Self, Limit: t.cfg.Limit}})
	}
	t.measurePaths(ctx, all, nil)
	for _, p := range all {
		p.from.links, p.from.servers = p.outcome.Links, p.outcome.Servers
	}
}

func (t *run) readDNS(ctx context.Context, svc *corev1.Service, server string) error {
	a, err := netip.ParseAddr(server)
	if err != nil {
		return nil //nolint:nilerr // a cluster IP that is no address is none
	}
	t.dns = &dnsService{name: svc.Namespace + "/" + svc.Name, addresses: []netip.Addr{a}}
	all, err := t.endpointSlices(ctx, svc.Namespace, svc.Name)
	if err != nil {
		return err
	}
	for _, s := range all {
		for _, e := range s.Endpoints {
			pod := ""
			if e.TargetRef != nil {
				pod = e.TargetRef.Namespace + "/" + e.TargetRef.Name
			}
			if e.Conditions.Ready != nil && !*e.Conditions.Ready {
				t.dns.pods = append(t.dns.pods, pod)
				continue
			}
			for _, port := range s.Ports {
				if port.Port == nil || port.Protocol == nil || *port.Protocol != corev1.ProtocolUDP {
					continue
				}
				if at, err := netip.ParseAddr(e.Addresses[0]); err == nil {
					t.dns.servers = append(t.dns.servers, dnsServer{netip.AddrPortFrom(at, uint16(*port.Port)), pod}) //nolint:gosec // a port
				}
			}
		}
	}
	return nil
}
