package typha

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/contiv-agent/contiv-agent/calico/datastore"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/selector"
	"github.com/contiv-agent/contiv-agent/source/convert"
)

// errNoPod is the error of an endpoint that is not the only endpoint of a Kubernetes Pod.
var errNoPod = errors.New("is not the only endpoint of a Kubernetes Pod: ignored")

// workload converts a Pod's endpoint to the Pod.
func (t *translator) workload(key string, u datastore.Update, said event.Change) []event.Change {
	ns, name, ok := strings.Cut(u.Key.Workload, "/")
	if !ok || u.Key.Orchestrator != model.OrchestratorKubernetes || u.Key.Name != "eth0" {
		if u.Value != nil {
			said.Err = fmt.Errorf("%s: %w", key, errNoPod)
		}
		return t.storeChange(key, model.Ref{Kind: "WorkloadEndpoint", Name: strings.TrimPrefix(key, "/calico/v1/host/")}, said)
	}
	if w, ok := u.Value.(*model.WorkloadEndpoint); ok {
		said.Object, said.Err = pod(model.PodID{Namespace: ns, Name: name}, w)
	}
	if said.Err != nil && !strings.HasPrefix(said.Err.Error(), key) {
		said.Err = fmt.Errorf("%s: %w", key, said.Err)
	}
	return t.storeChange(key, model.Ref{Kind: model.KindPod, Namespace: ns, Name: name}, said)
}

func pod(id model.PodID, w *model.WorkloadEndpoint) (model.Object, error) {
	p := &model.Pod{ID: id, NodeName: w.ID.Node, Finished: w.State != "active"}
	for k, v := range w.Labels {
		switch k {
		case model.LabelNamespace, model.LabelOrchestrator:
			continue
		case model.LabelServiceAccount:
			p.ServiceAccount = v
			continue
		}
		if p.Labels == nil {
			p.Labels = map[string]string{}
		}
		p.Labels[k] = v
	}
	for i, n := range w.Nets {
		if !n.IsSingleIP() {
			return nil, fmt.Errorf("net %d: %s is a range, not an address", i, n)
		}
		p.IPs = append(p.IPs, n.Addr())
	}
	for _, port := range w.Ports {
		if !slices.ContainsFunc(p.Ports, func(o model.NamedPort) bool { return o.Name == port.Name && o.Protocol == port.Protocol }) {
			p.Ports = append(p.Ports, port)
		}
	}
	if len(w.AllowSpoofedSources) > 0 {
		list, err := json.Marshal(w.AllowSpoofedSources)
		if err != nil {
			return nil, fmt.Errorf("allow_spoofed_source_ips: %w", err)
		}
		p.Annotations = map[string]string{model.AnnotationAllowedSources: string(list)}
	}
	return p, nil
}

// policy converts a policy. It restores the name of the object the policy was made of, and numbers the rules by their
// position.
func (t *translator) policy(key string, u datastore.Update, said event.Change) []event.Change {
	id := u.Key.Object()
	if u.Key.Kind == datastore.KeyTieredPolicy && id.FelixName(u.Key.Tier) != u.Key.Name {
		id = u.Key.PolicyID() // no object has such a name
	}
	if p, ok := u.Value.(*model.Policy); ok {
		p.ID = id
		number("ingress", p.InboundRules)
		number("egress", p.OutboundRules)
		said.Object = p
	}
	return t.storeChange(key, id.Ref(), said)
}

// checkSelectors parses the selectors of a policy or of a profile's rules. A value with an invalid selector does not parse,
// as in Felix.
func checkSelectors(key string, value any) error {
	check := func(field, text string) error {
		if text == "" {
			return nil
		}
		if _, err := selector.Parse(text); err != nil {
			return &datastore.Error{Key: key, Field: field, Reason: "is not a valid " + err.Error()} // "selector: expected …"
		}
		return nil
	}
	rules := func(field string, list []model.Rule) (err error) {
		for i := range list {
			for _, p := range []struct {
				end  string
				peer *model.Peer
			}{{"src", &list[i].Source}, {"dst", &list[i].Destination}} {
				at := fmt.Sprintf("%s[%d].", field, i)
				err = cmp.Or(err, check(at+p.end+"_selector", p.peer.Selector), check(at+"!"+p.end+"_selector", p.peer.NotSelector))
			}
		}
		return err
	}
	switch v := value.(type) {
	case *model.Policy:
		return cmp.Or(check("selector", v.Selector), rules("inbound_rules", v.InboundRules), rules("outbound_rules", v.OutboundRules))
	case *model.ProfileRules:
		return cmp.Or(rules("inbound_rules", v.Inbound), rules("outbound_rules", v.Outbound))
	}
	return nil
}

func number(direction string, rules []model.Rule) {
	for i := range rules {
		rules[i].Origin = direction + " rule " + strconv.Itoa(i+1)
	}
}

// profileAllow is a profile that exists without an object, as in plugins/policy.
const profileAllow = "projectcalico-default-allow"

// profile converts a profile's keys to those of a namespace, a service account, or a profile of Calico.
func (t *translator) profile(key string, u datastore.Update, said event.Change) []event.Change {
	name := u.Key.Name
	labels, _ := u.Value.(datastore.Labels)
	if name == profileAllow {
		return nil
	}
	if ns, ok := model.ProfileNamespace(name); ok {
		if u.Key.Kind == datastore.KeyProfileRules {
			return nil // a namespace's profile always allows both directions
		}
		if labels != nil {
			said.Object = &model.Namespace{Name: ns, Labels: unprefixed(labels, model.PrefixNamespace)}
		}
		return t.storeChange(key, model.Ref{Kind: model.KindNamespace, Name: ns}, said)
	}
	if ns, account, ok := model.ProfileServiceAccount(name); ok {
		if u.Key.Kind == datastore.KeyProfileRules {
			return nil // a service account's profile never has rules
		}
		if labels != nil {
			said.Object = &model.ServiceAccount{Namespace: ns, Name: account, Labels: unprefixed(labels, model.PrefixServiceAccount)}
		}
		return t.storeChange(key, model.Ref{Kind: model.KindServiceAccount, Namespace: ns, Name: account}, said)
	}
	return t.ownProfile(u, said)
}

// ownProfile joins the two keys of one of Calico's own profiles.
func (t *translator) ownProfile(u datastore.Update, said event.Change) []event.Change {
	name := u.Key.Name
	p := t.profiles[name]
	if p == nil {
		p = &profile{}
		t.profiles[name] = p
	}
	if u.Key.Kind == datastore.KeyProfileLabels {
		p.labels, _ = u.Value.(datastore.Labels)
	} else {
		p.rules, _ = u.Value.(*model.ProfileRules)
	}
	if p.labels == nil && p.rules == nil {
		delete(t.profiles, name)
	} else {
		said.Object = &model.Profile{Name: name, Labels: p.labels, Rules: p.rules}
	}
	rules := datastore.Key{Kind: datastore.KeyProfileRules, Name: name}.String()
	return t.storeChange(rules, model.Ref{Kind: model.KindProfile, Name: name}, said)
}

// unprefixed returns the labels of the object that a profile was made of.
func unprefixed(labels datastore.Labels, prefix string) map[string]string {
	var out map[string]string
	for k, v := range labels {
		own, ok := strings.CutPrefix(k, prefix)
		if !ok || own == model.LabelName {
			continue
		}
		if out == nil {
			out = map[string]string{}
		}
		out[own] = v
	}
	return out
}

// serviceCIDR reads the key by which this program's servers send a ServiceCIDR.
func serviceCIDR(name string, value []byte) event.Change {
	if value == nil {
		return event.Change{}
	}
	key := datastore.ServiceCIDRPrefix + name
	var v datastore.ServiceCIDR
	if err := json.Unmarshal(value, &v); err != nil {
		return event.Change{Err: fmt.Errorf("%s: %w", key, err)}
	}
	in := &networkingv1.ServiceCIDR{}
	in.Name, in.Spec.CIDRs = name, v.CIDRs
	o, err := convert.Object(in)
	if err != nil {
		return event.Change{Err: fmt.Errorf("%s: %w", key, err)}
	}
	return event.Change{Object: o}
}

// announced reads the cluster IP ranges that a BGPConfiguration announces to other routers.
func announced(key, name string, value []byte) event.Change {
	var v struct {
		Spec struct {
			ServiceClusterIPs []struct {
				CIDR string `json:"cidr"`
			} `json:"serviceClusterIPs"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(value, &v); err != nil {
		return event.Change{Err: fmt.Errorf("%s: %w", key, err)}
	}
	c := &model.ServiceCIDR{Name: "bgpconfiguration:" + name}
	for i, b := range v.Spec.ServiceClusterIPs {
		p, err := netip.ParsePrefix(b.CIDR)
		if err != nil {
			return event.Change{Err: fmt.Errorf("%s: spec.serviceClusterIPs[%d]: %w", key, i, err)}
		}
		c.CIDRs = append(c.CIDRs, p.Masked())
	}
	if c.CIDRs == nil {
		return event.Change{}
	}
	return event.Change{Object: c}
}
