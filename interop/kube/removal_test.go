package kube

import (
	"context"
	"errors"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/contiv-agent/contiv-agent/source/kube"
	"github.com/contiv-agent/contiv-agent/source/kube/removal"
)

// TestRemoval deletes the roles, the ServiceAccount and the DaemonSet of an agent, as kubectl delete -k does. The agent's watches outlive its rights, so it sees that. If
// it lacks one of the rights in the role, it does not: each of them is needed. The API server does not stream lists, as older ones do not.
func TestRemoval(t *testing.T) {
	t.Parallel()
	d := &deployed{cluster: newCluster(t, "--feature-gates=WatchList=false")}
	d.namespaces()
	const role = "contiv-removal"
	all := []right{{system, role, "apps", "daemonsets", "list"}, {system, role, "apps", "daemonsets", "watch"}, {system, role, "", "serviceaccounts", "list"}, {system, role, "", "serviceaccounts", "watch"}}
	for i, lacking := range append([]right{{}}, all...) {
		name := "all rights"
		if i > 0 {
			name = "without " + lacking.String()
		}
		t.Run(name, func(t *testing.T) {
			d.keep(kustomize(t, "standalone"))
			d.become("contiv-agent")
			d.kubectl(nil, "delete", "clusterrolebinding", "contiv-agent") // the reader may list all ServiceAccounts
			d.may(t, "contiv-agent", right{"", "", "", "serviceaccounts", "list"}, false)
			other := all[(i+1)%len(all)]
			if i > 0 {
				d.changeRole(t, system, role, func(rules []rbacv1.PolicyRule) []rbacv1.PolicyRule { return without(rules, lacking) })
				d.may(t, "contiv-agent", other, true) // without names
			}
			_, client, err := (&kube.Config{Kubeconfig: d.path("contiv-agent.kubeconfig")}).Clients()
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			w := removal.New(removal.Names{Namespace: system, DaemonSet: "contiv-vswitch", ServiceAccount: "contiv-agent"}, client)
			go w.Run(ctx)
			if lacking.verb != "list" {
				eventually(t, "both objects are seen", func() error {
					if !w.Seen() {
						return errors.New("not yet")
					}
					return nil
				}, d.api)
			}
			if w.Removed(ctx) {
				t.Error("nothing is deleted")
			}
			d.kubectl(nil, "-n", system, "delete", "role", role)
			d.may(t, "contiv-agent", other, false)
			d.kubectl(nil, "-n", system, "delete", "serviceaccount", "contiv-agent")
			d.kubectl(nil, "-n", system, "delete", "daemonset", "contiv-vswitch")
			if got := w.Removed(ctx); got != (i == 0) {
				t.Errorf("removed: %t", got)
			}
		})
	}
}
