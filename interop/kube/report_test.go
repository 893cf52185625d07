package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	reportSpace = "contiv-system" // where agents and Leases are
	ours        = "contiv-agent"
)

// reported is a cluster whose agents report to the API server.
type reported struct {
	*cluster
	agents []*process
	status string // socket of the first
}

// TestReports is what people see in Kubernetes of an agent: Events, conditions of policies, Leases and a condition of Nodes, written with
// the rights of deploy/standalone, each of which is needed.
func TestReports(t *testing.T) {
	t.Parallel()
	repeat(t)
	r := &reported{cluster: newCluster(t)}
	for _, name := range []string{reportSpace, shop} {
		r.kubectl(nil, "create", "namespace", name)
	}
	r.kubectl(nil, "-n", reportSpace, "create", "serviceaccount", ours)
	for _, file := range []string{"reader/role.yaml", "other-cni/binding.yaml"} {
		r.kubectl(nil, "apply", "-f", filepath.Join("../../deploy", file))
	}
	r.kubectl(nil, "apply", "-f", "testdata/policies.yaml")
	r.kubectl(nil, "wait", "--for=condition=Established", "--timeout=120s", "-f", "testdata/policies.yaml")
	for i, name := range nodes[:2] {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{PodCIDR: fmt.Sprintf("10.240.%d.0/24", i+1), PodCIDRs: []string{fmt.Sprintf("10.240.%d.0/24", i+1)}}}
		if _, err := r.client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	r.kubeconfigOf(ours, strings.TrimSpace(r.kubectl(nil, "-n", reportSpace, "create", "token", ours)))
	for _, name := range nodes[:2] {
		p, socket := r.reporter(ours, name, "--lease-namespace", reportSpace)
		if r.agents = append(r.agents, p); r.status == "" {
			r.status = socket
		}
	}
	for _, step := range []struct {
		name string
		do   func(*testing.T)
	}{
		{"one Event of two agents", r.oneEvent},
		{"conditions of a policy", r.conditions},
		{"repaired, after the API server was away", r.repaired},
		{"Leases", r.leases},
		{"condition of the Node", r.nodeCondition},
		{"each right is needed", r.eachRight},
	} {
		if !t.Run(step.name, step.do) {
			return // the next one builds on it
		}
	}
}

// reporter starts an agent with an embedded VPP, and returns the socket of its status.
func (r *reported) reporter(account, node string, more ...string) (*process, string) {
	socket := filepath.Join(shortDir(r.t), "status.sock")
	args := append([]string{
		"run", "--kubeconfig", r.path(account + ".kubeconfig"), "--sim", "--node", node, "--status-socket", socket, "--journal", "",
		"--health-check-addresses", "none", "--listen", fmt.Sprintf("127.0.0.1:%d", freePort(r.t)),
	}, more...)
	return start(r.t, "contiv-agent of "+node, exec.Command(built.agent, args...)), socket
}

// terminate ends an agent as a kubelet does.
func terminate(t testing.TB, p *process) {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.done:
	case <-time.After(patience):
		t.Fatalf("%s does not end", p.name)
	}
}

// phones makes a Service with a port that nat44 does not translate.
func (r *reported) phones(t *testing.T, name string, labels map[string]string) *corev1.Service {
	t.Helper()
	svc, err := r.client.CoreV1().Services(shop).Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "phone"}, Ports: []corev1.ServicePort{
			{Name: "sip", Port: 5060, Protocol: corev1.ProtocolTCP}, {Name: "media", Port: 5004, Protocol: corev1.ProtocolSCTP},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return svc
}

// eventsOf returns the agents' Events about an object, oldest first. Others may report, too: a starting API server may find
// an address in use that it does not know yet.
func (r *reported) eventsOf(ctx context.Context, namespace string, uid types.UID) ([]eventsv1.Event, error) {
	list, err := r.client.EventsV1().Events(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	out := slices.DeleteFunc(list.Items, func(e eventsv1.Event) bool { return e.Regarding.UID != uid || e.ReportingController != ours })
	slices.SortFunc(out, func(a, b eventsv1.Event) int { return a.EventTime.Compare(b.EventTime.Time) })
	return out, nil
}

// expectEvents waits until an object has Events with exactly these reasons.
func (r *reported) expectEvents(t *testing.T, namespace string, uid types.UID, reasons ...string) []eventsv1.Event {
	t.Helper()
	var all []eventsv1.Event
	eventually(t, "Events "+strings.Join(reasons, ", "), func() error {
		var err error
		if all, err = r.eventsOf(t.Context(), namespace, uid); err != nil {
			return err
		}
		var are []string
		for _, e := range all {
			are = append(are, e.Reason)
		}
		if !slices.Equal(are, reasons) {
			return fmt.Errorf("there are %q", are)
		}
		return nil
	}, r.agents...)
	return all
}

// shows waits until the status command has a text among its reasons.
func (r *reported) shows(t *testing.T, text string) {
	t.Helper()
	eventually(t, "status shows "+text, func() error {
		out, err := exec.Command(built.agent, "status", "--status-socket", r.status, "-o", "json").CombinedOutput()
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == 3 {
			err = nil // not everything is as asked for, which is what the command shows
		}
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		quoted, _ := json.Marshal(text)
		if !strings.Contains(string(out), strings.Trim(string(quoted), `"`)) {
			return fmt.Errorf("it says\n%s", out)
		}
		return nil
	}, r.agents...)
}

func (r *reported) oneEvent(t *testing.T) {
	svc := r.phones(t, "phones", nil)
	e := r.expectEvents(t, shop, svc.UID, "NotSupported")[0]
	if e.Type != "Warning" || e.ReportingController != ours || !slices.Contains(nodes[:2], e.ReportingInstance) ||
		e.Regarding.Kind != "Service" || e.Regarding.APIVersion != "v1" || e.Regarding.Name != "phones" {
		t.Errorf("%+v", e)
	}
	r.shows(t, e.Note)
	if out := r.kubectl(nil, "-n", shop, "describe", "service", "phones"); !strings.Contains(out, e.Note) || !strings.Contains(out, "NotSupported") {
		t.Errorf("kubectl describe does not show it:\n%s", out)
	}
	if out := r.kubectl(nil, "get", "events", "-A", "--field-selector", "reportingComponent=contiv-agent"); strings.Count(out, "\n") != 2 || !strings.Contains(out, "service/phones") {
		t.Errorf("kubectl get events:\n%s", out)
	}
}

// guard is a policy, with a spec in JSON.
func (r *reported) policy(kind, version, name, spec string) {
	r.write(name+".yaml", fmt.Sprintf("apiVersion: policy.networking.k8s.io/%s\nkind: %s\nmetadata: {name: %s}\nspec: %s\n", version, kind, name, spec))
	r.kubectl(nil, "apply", "-f", r.path(name+".yaml"))
}

// said are the conditions of a policy, "type status reason" in order, and the first one's message.
func (r *reported) said(resource, name string) (out []string, message string, uid types.UID, err error) {
	text, err := exec.Command(built.cluster, "kubectl", "--kubeconfig", r.path("admin.kubeconfig"), "get", resource, name, "-o", "json").Output()
	if err != nil {
		return nil, "", "", err
	}
	var obj struct {
		Metadata metav1.ObjectMeta
		Status   struct{ Conditions []metav1.Condition }
	}
	if err := json.Unmarshal(text, &obj); err != nil {
		return nil, "", "", err
	}
	slices.SortFunc(obj.Status.Conditions, func(a, b metav1.Condition) int { return strings.Compare(a.Type, b.Type) })
	for i, c := range obj.Status.Conditions {
		if i == 0 {
			message = c.Message
		}
		out = append(out, fmt.Sprintf("%s %s %s", c.Type, c.Status, c.Reason))
	}
	return out, message, obj.Metadata.UID, nil
}

const understood = `{tier: Admin, priority: 10, subject: {namespaces: {}}, ingress: [{action: Deny, from: [{namespaces: {}}]}]}`

// conditions are written while something is wrong, taken back when it is not, and leave alone what others write. Those of nodes that are
// gone are taken back for them.
func (r *reported) conditions(t *testing.T) {
	r.policy("ClusterNetworkPolicy", "v1alpha2", "guard", "{tier: Admin, subject: {namespaces: {}}}")
	for manager, condition := range map[string]string{"somebody": "example.com/Seen", ours + "-gone": "contiv-agent.io/Programmed-gone"} {
		r.write("condition.yaml", fmt.Sprintf(`apiVersion: policy.networking.k8s.io/v1alpha2
kind: ClusterNetworkPolicy
metadata: {name: guard}
status: {conditions: [{type: %s, status: "False", reason: Because, message: why, lastTransitionTime: "2026-11-01T00:00:00Z"}]}
`, condition))
		r.kubectl(nil, "apply", "--server-side", "--subresource=status", "--field-manager="+manager, "-f", r.path("condition.yaml"))
	}
	expect := func(want ...string) (message string, uid types.UID) {
		t.Helper()
		eventually(t, "conditions of the policy", func() error {
			are, m, id, err := r.said("clusternetworkpolicy", "guard")
			if message, uid = m, id; err == nil && !slices.Equal(are, want) {
				err = fmt.Errorf("they are %q, not %q", are, want)
			}
			return err
		}, r.agents...)
		return message, uid
	}
	message, uid := expect("contiv-agent.io/Accepted False NotUnderstood", "example.com/Seen False Because")
	if e := r.expectEvents(t, "default", uid, "NotUnderstood")[0]; e.Note != message || e.Regarding.Kind != "ClusterNetworkPolicy" {
		t.Errorf("%q, but %+v", message, e)
	}
	r.shows(t, message)
	r.policy("ClusterNetworkPolicy", "v1alpha2", "guard", understood)
	expect("example.com/Seen False Because")
	r.expectEvents(t, "default", uid, "NotUnderstood", "Rendered")
	r.kubectl(nil, "delete", "clusternetworkpolicy", "guard")
}

// The repair is reported once after the API server was away meanwhile, and the agents continue with their state.
func (r *reported) repaired(t *testing.T) {
	svc, err := r.client.CoreV1().Services(shop).Get(t.Context(), "phones", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	second := r.second(t)
	r.api.kill()
	patch := `[{"op": "replace", "path": "/spec/ports/1/protocol", "value": "UDP"}]`
	if _, err := second.CoreV1().Services(shop).Patch(t.Context(), "phones", types.JSONPatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	r.serve()
	r.cluster.ready()
	all := r.expectEvents(t, shop, svc.UID, "NotSupported", "Rendered")
	if all[0].Series != nil || all[1].Series != nil || all[1].Type != "Normal" || all[1].ReportingController != ours {
		t.Errorf("%+v", all)
	}
	fixed := r.phones(t, "again", nil) // and the other way round: made while it is up
	r.expectEvents(t, shop, fixed.UID, "NotSupported")
	if err := r.client.CoreV1().Services(shop).Delete(t.Context(), "again", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (r *reported) leaseOf(ctx context.Context, node string) (*coordinationv1.Lease, error) {
	return r.client.CoordinationV1().Leases(reportSpace).Get(ctx, node, metav1.GetOptions{})
}

// leases are renewed, belong to the Node, and are given up by an agent that ends.
func (r *reported) leases(t *testing.T) {
	for i, name := range nodes[:2] {
		node, err := r.client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var first time.Time
		eventually(t, "Lease of "+name+" renewed", func() error {
			l, err := r.leaseOf(t.Context(), name)
			if err != nil {
				return err
			}
			if *l.Spec.HolderIdentity != name || len(l.OwnerReferences) != 1 || l.OwnerReferences[0].UID != node.UID {
				return fmt.Errorf("%+v", l)
			}
			if first.IsZero() {
				first = l.Spec.RenewTime.Time
			}
			if ready := l.Annotations["contiv-agent.io/ready"]; ready != "true" || !l.Spec.RenewTime.After(first) {
				return fmt.Errorf("ready %q, renewed at %s", ready, l.Spec.RenewTime)
			}
			return nil
		}, r.agents[i])
	}
	terminate(t, r.agents[1])
	l, err := r.leaseOf(t.Context(), nodes[1])
	if err != nil || *l.Spec.HolderIdentity != "" || l.Annotations["contiv-agent.io/ready"] != "false" {
		t.Errorf("%+v %v", l, err)
	}
	if r.agents[0].wrote("not reported") && !r.agents[0].wrote("reported again") {
		t.Errorf("a right is missing, or more:\n%s", r.agents[0].tail())
	}
	r.agents = r.agents[:1]
}

// grant gives an account rights, and writes its kubeconfig.
func (r *reported) grant(t *testing.T, account string, rules []rbacv1.PolicyRule) {
	t.Helper()
	r.kubectl(nil, "-n", reportSpace, "create", "serviceaccount", account)
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: account}, Rules: rules}
	if _, err := r.client.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{account, "contiv-reader"} {
		r.kubectl(nil, "create", "clusterrolebinding", account+"-"+name, "--clusterrole="+name, "--serviceaccount="+reportSpace+":"+account)
	}
	r.kubeconfigOf(account, strings.TrimSpace(r.kubectl(nil, "-n", reportSpace, "create", "token", account)))
}

// nodeCondition is beside the Node's others, and says that nobody knows when the agent has ended.
func (r *reported) nodeCondition(t *testing.T) {
	name := nodes[1]
	patch := `{"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "m"}]}}`
	if _, err := r.client.CoreV1().Nodes().PatchStatus(t.Context(), name, []byte(patch)); err != nil {
		t.Fatal(err)
	}
	r.grant(t, "contiv-agent-node", []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"nodes/status"}, Verbs: []string{"patch"}}})
	p, _ := r.reporter("contiv-agent-node", name, "--node-condition", "--events=false", "--policy-conditions=false")
	expect := func(want corev1.ConditionStatus) error {
		node, err := r.client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		is := map[corev1.NodeConditionType]corev1.ConditionStatus{}
		for _, c := range node.Status.Conditions {
			is[c.Type] = c.Status
		}
		if is["ContivAgentReady"] != want || is["Ready"] != "True" {
			return fmt.Errorf("%v", is)
		}
		return nil
	}
	eventually(t, "condition of the Node", func() error { return expect("True") }, p)
	terminate(t, p)
	if err := expect("Unknown"); err != nil {
		t.Error(err)
	}
}

// lacking is an agent that has all rights but one, and what shows it.
type lacking struct {
	verb, resource string
	flags          []string
}

// eachRight removes one right after the other, each from a separate agent that no other can replace.
func (r *reported) eachRight(t *testing.T) {
	terminate(t, r.agents[0])
	r.agents = nil
	const group, none = ".policy.networking.k8s.io", "--policy-conditions=false"
	alone := func(kinds ...string) []string {
		return []string{"--events=false", "--ignore-policy-kinds", strings.Join(kinds, group+",") + group}
	}
	all := []lacking{
		{"create", "events", []string{none, "--proxy-name", "create"}},
		{"get", "events", []string{none, "--proxy-name", "get"}},
		{"patch", "events", []string{none, "--proxy-name", "patch"}},
		{"patch", "adminnetworkpolicies/status", alone("baselineadminnetworkpolicies", "clusternetworkpolicies")},
		{"patch", "baselineadminnetworkpolicies/status", alone("adminnetworkpolicies", "clusternetworkpolicies")},
		{"patch", "clusternetworkpolicies/status", alone("adminnetworkpolicies", "baselineadminnetworkpolicies")},
		{"create", "leases", []string{none, "--events=false", "--lease-namespace", reportSpace}},
		{"patch", "leases", []string{none, "--events=false", "--lease-namespace", reportSpace}},
	}
	// The initial state: reported Events, one of them old.
	r.phones(t, "new", map[string]string{"service.kubernetes.io/service-proxy-name": "create"})
	before := map[string]*corev1.Service{}
	var tellers []*process
	for _, name := range []string{"get", "patch"} {
		before[name] = r.phones(t, name, map[string]string{"service.kubernetes.io/service-proxy-name": name})
		p, _ := r.reporter(ours, nodes[0], "--proxy-name", name)
		tellers = append(tellers, p)
	}
	r.expectEvents(t, shop, before["get"].UID, "NotSupported")
	e := r.expectEvents(t, shop, before["patch"].UID, "NotSupported")[0]
	for _, p := range tellers {
		terminate(t, p)
	}
	if err := r.client.EventsV1().Events(shop).Delete(t.Context(), e.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	e.ResourceVersion, e.UID, e.EventTime = "", "", metav1.NewMicroTime(time.Now().Add(-time.Hour))
	if _, err := r.client.EventsV1().Events(shop).Create(t.Context(), &e, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	r.policy("AdminNetworkPolicy", "v1alpha1", "admin", "{subject: {namespaces: {}}}")
	r.policy("BaselineAdminNetworkPolicy", "v1alpha1", "default", "{subject: {}}")
	r.policy("ClusterNetworkPolicy", "v1alpha2", "cluster", "{subject: {namespaces: {}}}")

	rules := r.granted(t)
	var programs []*process
	for i, l := range all {
		account := fmt.Sprintf("lacking-%d", i)
		r.grant(t, account, lessOne(t, rules, l.verb, l.resource))
		p, _ := r.reporter(account, account, l.flags...)
		programs = append(programs, p)
	}
	count := 0
	for _, rule := range rules {
		count += len(rule.Resources) * len(rule.Verbs)
	}
	if count != len(all) {
		t.Errorf("the roles give %d rights, of which %d are tried", count, len(all))
	}
	for i, l := range all {
		words := fmt.Sprintf(`cannot %s resource \"%s\"`, l.verb, l.resource)
		eventually(t, "an agent shows that it may not "+l.verb+" "+l.resource, func() error {
			if !programs[i].wrote("not reported") || !programs[i].wrote(words) {
				return errors.New(programs[i].tail())
			}
			return nil
		}, programs[i])
	}
}

// granted are the rules of deploy's reporter.
func (r *reported) granted(t *testing.T) []rbacv1.PolicyRule {
	t.Helper()
	everywhere, err := r.client.RbacV1().ClusterRoles().Get(t.Context(), "contiv-reporter", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	here, err := r.client.RbacV1().Roles(reportSpace).Get(t.Context(), "contiv-reporter", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return slices.Concat(everywhere.Rules, here.Rules)
}

// lessOne are rules without one right, which has to be in them.
func lessOne(t *testing.T, rules []rbacv1.PolicyRule, verb, resource string) (out []rbacv1.PolicyRule) {
	t.Helper()
	found := false
	for _, rule := range rules {
		for _, res := range rule.Resources {
			verbs := slices.Clone(rule.Verbs)
			if res == resource {
				verbs = slices.DeleteFunc(verbs, func(v string) bool { return v == verb })
				found = found || len(verbs) < len(rule.Verbs)
			}
			if len(verbs) > 0 {
				out = append(out, rbacv1.PolicyRule{APIGroups: rule.APIGroups, Resources: []string{res}, Verbs: verbs})
			}
		}
	}
	if !found {
		t.Errorf("no role gives %s %s", verb, resource)
	}
	return out
}
