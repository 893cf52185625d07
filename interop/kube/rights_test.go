package kube

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	authv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
)

// right is one verb on one kind of object, as a role of deploy gives it.
type right struct {
	namespace, role       string // namespace "": a ClusterRole
	group, resource, verb string
}

// String is how one would say it to kubectl auth.
func (r right) String() string {
	if r.group == "" {
		return r.verb + " " + r.resource
	}
	return r.verb + " " + r.resource + "." + r.group
}

// Groups of kinds that are served in some clusters only, with these kinds.
const (
	groupPolicy    = "policy.networking.k8s.io"
	groupCalico    = "projectcalico.org"
	groupCalicoCRD = "crd.projectcalico.org"
)

// custom are the versions and kinds of those groups, as far as a role of deploy names their plurals.
var custom = map[string]map[string][]string{
	groupPolicy: {
		"v1alpha1": {"AdminNetworkPolicy", "BaselineAdminNetworkPolicy"},
		"v1alpha2": {"ClusterNetworkPolicy"},
	},
	groupCalico: {"v3": calicoKinds}, groupCalicoCRD: {"v1": append([]string{"IPAMBlock"}, calicoKinds...)},
}

var calicoKinds = []string{
	"GlobalNetworkPolicy", "GlobalNetworkSet", "HostEndpoint", "NetworkPolicy", "NetworkSet", "Profile", "StagedGlobalNetworkPolicy",
	"StagedKubernetesNetworkPolicy", "StagedNetworkPolicy", "Tier", "BGPConfiguration", "BGPFilter", "BGPPeer", "CalicoNodeStatus", "IPPool",
}

// serveGroup makes the API server serve a group, with more kinds.
func (c *cluster) serveGroup(group string, more ...string) {
	c.t.Helper()
	var text strings.Builder
	for version, kinds := range custom[group] {
		for _, kind := range slices.Concat(kinds, more) {
			plural := strings.TrimSuffix(strings.ToLower(kind)+"s", "ys") + map[bool]string{true: "ies"}[strings.HasSuffix(kind, "y")]
			plural = strings.Replace(plural, "statuss", "statuses", 1)
			fmt.Fprintf(&text, `---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: %[1]s.%[2]s
  annotations: {api-approved.kubernetes.io: unapproved}
spec:
  group: %[2]s
  scope: Cluster
  names: {kind: %[3]s, listKind: %[3]sList, plural: %[1]s, singular: %[4]s}
  versions:
    - {name: %[5]s, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`, plural, group, kind, strings.ToLower(kind), version)
		}
	}
	c.write("custom.yaml", text.String())
	c.customs(c.path("custom.yaml"))
	for version, kinds := range custom[group] {
		eventually(c.t, group+" is served", func() error { // a program that finds half of it looks again only after a while
			list, err := c.client.Discovery().ServerResourcesForGroupVersion(group + "/" + version)
			if err == nil && len(list.APIResources) < len(kinds)+len(more) {
				err = fmt.Errorf("%d kinds", len(list.APIResources))
			}
			return err
		}, c.api)
	}
}

// missing is the message of a program that lacks a right, and whether it continues without.
func (r right) missing() (words string, goesOn bool) {
	name, where := r.resource, ""
	if custom[r.group] != nil {
		name, where = name+"."+r.group, " in API group "+r.group
	}
	switch {
	case r.resource == "servicecidrs" || r.role == "contiv-fanout-keys":
		return "going on without " + name, true
	case r.namespace != "":
		return "cannot " + r.verb + " resource \\\"" + r.resource, false
	}
	return "no right to " + r.verb + " " + r.resource + where, false
}

// rights are all a role gives, each once.
func (c *cluster) rights(t testing.TB, namespace, role string) (out []right) {
	t.Helper()
	for _, rule := range c.rules(t, namespace, role) {
		if len(rule.ResourceNames)+len(rule.NonResourceURLs) > 0 {
			t.Fatalf("%s: a rule this test does not understand: %v", role, rule)
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					r := right{namespace, role, group, resource, verb}
					if slices.Contains(out, r) || slices.Contains([]string{group, resource, verb}, "*") {
						t.Errorf("%s: %s: twice, or everything", role, r)
					}
					out = append(out, r)
				}
			}
		}
	}
	if len(out) == 0 {
		t.Fatalf("role %s gives nothing", role)
	}
	return out
}

func (c *cluster) rules(t testing.TB, namespace, role string) []rbacv1.PolicyRule {
	t.Helper()
	var rules []rbacv1.PolicyRule
	c.changeRole(t, namespace, role, func(is []rbacv1.PolicyRule) []rbacv1.PolicyRule { rules = is; return is })
	return rules
}

// changeRole replaces the rules of a role.
func (c *cluster) changeRole(t testing.TB, namespace, role string, change func([]rbacv1.PolicyRule) []rbacv1.PolicyRule) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context()) // also when the test ends
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		if namespace == "" {
			r, err := c.client.RbacV1().ClusterRoles().Get(ctx, role, metav1.GetOptions{})
			if err == nil {
				r.Rules = change(r.Rules)
				_, err = c.client.RbacV1().ClusterRoles().Update(ctx, r, metav1.UpdateOptions{})
			}
			return err
		}
		r, err := c.client.RbacV1().Roles(namespace).Get(ctx, role, metav1.GetOptions{})
		if err == nil {
			r.Rules = change(r.Rules)
			_, err = c.client.RbacV1().Roles(namespace).Update(ctx, r, metav1.UpdateOptions{})
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// without gives all these rules do, but for one right.
func without(rules []rbacv1.PolicyRule, r right) (out []rbacv1.PolicyRule) {
	for _, rule := range rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				verbs := slices.Clone(rule.Verbs)
				if group == r.group && resource == r.resource {
					verbs = slices.DeleteFunc(verbs, func(v string) bool { return v == r.verb })
				}
				if len(verbs) > 0 {
					out = append(out, rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs})
				}
			}
		}
	}
	return out
}

// may waits until the API server says so when it is asked whether a ServiceAccount has a right.
func (c *cluster) may(t testing.TB, account string, r right, want bool) {
	t.Helper()
	resource, sub, _ := strings.Cut(r.resource, "/")
	eventually(t, fmt.Sprintf("%s may %s: %v", account, r, want), func() error {
		review, err := c.client.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authv1.SubjectAccessReview{Spec: authv1.SubjectAccessReviewSpec{
			User: "system:serviceaccount:" + system + ":" + account,
			ResourceAttributes: &authv1.ResourceAttributes{
				Namespace: r.namespace, Group: r.group, Resource: resource, Subresource: sub, Verb: r.verb,
			},
		}}, metav1.CreateOptions{})
		if err == nil && review.Status.Allowed != want {
			err = fmt.Errorf("allowed: %v", review.Status.Allowed)
		}
		return err
	}, c.api)
}

// lacks runs programs of ServiceAccounts whose role lacks a right, until each has shown what that means.
func (d *deployed) lacks(t *testing.T, r right, run map[string]func(testing.TB) *program) {
	t.Helper()
	was := d.rules(t, r.namespace, r.role)
	d.changeRole(t, r.namespace, r.role, func([]rbacv1.PolicyRule) []rbacv1.PolicyRule { return without(was, r) })
	t.Cleanup(func() {
		d.changeRole(t, r.namespace, r.role, func([]rbacv1.PolicyRule) []rbacv1.PolicyRule { return was })
	})
	var all []*program
	for account, run := range run {
		d.may(t, account, r, false)
		all = append(all, run(t))
	}
	words, goesOn := r.missing()
	for _, p := range all {
		eventually(t, fmt.Sprintf("%s shows that it may not %s", p.name, r), func() error {
			if !p.wrote(words) {
				return fmt.Errorf("it does not say %q:\n%s", words, p.tail())
			}
			err := p.ready()
			switch {
			case goesOn:
				return err
			case strings.Contains(p.name, "fanout"): // it continues to serve its last state, if any
			case err == nil:
				return fmt.Errorf("it is ready, though %s", words)
			case !strings.Contains(err.Error(), words):
				return fmt.Errorf("/readyz does not say %q: %w", words, err)
			}
			return nil
		}, p.process)
	}
}

// given waits until an account has all rights of a role: an API server applies a change of roles a little later.
func (d *deployed) given(t testing.TB, account, namespace, role string) {
	t.Helper()
	for _, r := range d.rights(t, namespace, role) {
		d.may(t, account, r, true)
	}
}

// TestRights shows that the roles of deploy are enough for its programs, and that none of their rights is too much: one after the other
// is taken away. The API server does not stream lists, as older ones do not; with one that does, list is asked for by nobody.
func TestRights(t *testing.T) {
	t.Parallel()
	repeat(t)
	d := &deployed{cluster: newCluster(t, "--feature-gates=WatchList=false"), fanout: freePort(t)}
	if _, err := d.client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodes[0]}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	d.serveGroup(groupPolicy)
	d.serveGroup(groupCalicoCRD)
	d.namespaces()
	t.Run("fanout", d.behind("fanout", "contiv-fanout", system, "contiv-agent-fanout"))
	t.Run("calico-typha", d.behind("calico-typha", "typha-server", "calico-system", "contiv-agent-typha"))

	standalone, server := kustomize(t, "standalone"), kustomize(t, "fanout")
	d.keep(standalone)
	for _, account := range []string{"contiv-agent", "contiv-fanout"} {
		d.become(account)
	}
	d.given(t, "contiv-agent", "", "contiv-reader")
	d.given(t, "contiv-agent", "", "contiv-reporter")
	d.given(t, "contiv-agent", system, "contiv-reporter")
	run := map[string]func(testing.TB) *program{
		"contiv-agent":  func(t testing.TB) *program { return d.agent(t, standalone) },
		"contiv-fanout": func(t testing.TB) *program { return d.server(t, server) },
	}
	each := func(t *testing.T, read func(group string) bool) {
		t.Run("enough", func(t *testing.T) {
			for _, run := range run {
				run(t).isReady(t)
			}
		})
		for _, role := range []string{"contiv-reader", "contiv-fanout-keys"} {
			for _, r := range d.rights(t, "", role) {
				if !read(r.group) {
					continue
				}
				who := map[string]func(testing.TB) *program{"contiv-fanout": run["contiv-fanout"]}
				if role == "contiv-reader" {
					who = run
				}
				t.Run(role+" without "+r.String(), func(t *testing.T) { d.lacks(t, r, who) })
				for account := range who {
					d.may(t, account, r, true)
				}
			}
		}
	}
	t.Run("Calico's CRDs", func(t *testing.T) { each(t, func(group string) bool { return group != groupCalico }) })
	d.serveGroup(groupCalico) // from now on programs read these, and the others no more
	t.Run("Calico's API server", func(t *testing.T) { each(t, func(group string) bool { return group == groupCalico }) })
}

// behind is the agent of a folder behind a fan-out server with this name, with all rights and with none.
func (d *deployed) behind(folder, server, namespace, role string) func(*testing.T) {
	return func(t *testing.T) {
		all, servers := kustomize(t, folder), kustomize(t, "fanout")
		d.keep(servers)
		d.keep(all)
		d.become("contiv-fanout")
		d.become("contiv-agent")
		d.given(t, "contiv-agent", namespace, role)
		d.given(t, "contiv-agent", "", "contiv-events")
		d.given(t, "contiv-agent", system, "contiv-lease")
		d.given(t, "contiv-fanout", "", "contiv-reader")
		d.given(t, "contiv-fanout", "", "contiv-fanout-keys")
		d.certificates(server)
		d.server(t, servers).isReady(t)
		d.endpoint(namespace, map[string]string{"fanout": "contiv-fanout", "calico-typha": "calico-typha"}[folder])
		t.Run("enough", func(t *testing.T) { d.agent(t, all).isReady(t) })
		run := map[string]func(testing.TB) *program{"contiv-agent": func(t testing.TB) *program { return d.agent(t, all) }}
		for _, r := range d.rights(t, namespace, role) {
			t.Run("without "+r.String(), func(t *testing.T) { d.lacks(t, r, run) })
			d.may(t, "contiv-agent", r, true)
		}
		if folder == "fanout" { // the other one has the same
			t.Run("reports", func(t *testing.T) { d.reports(t, run["contiv-agent"]) })
		}
	}
}
