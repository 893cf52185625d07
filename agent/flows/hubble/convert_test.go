package hubble

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/flows"
	"github.com/contiv-agent/contiv-agent/proto/hubble/flow"
)

// A flow of each kind in Hubble's form. The identities of pods are those of all agents: they must not change.
func TestConvert(t *testing.T) {
	const (
		theClient = `{identity: 13542208 namespace: "prod" pod_name: "cli-0" cluster_name: "default" workloads {name: "cli"}
			labels: "k8s:io.kubernetes.pod.namespace=prod" labels: "k8s:app=cli" labels: "k8s:app.kubernetes.io/name=x"}`
		theWeb = `{identity: 12189007 namespace: "shop" pod_name: "web-0" cluster_name: "default" workloads {name: "web"}
			labels: "k8s:io.kubernetes.pod.namespace=shop" labels: "k8s:app=web" labels: "k8s:app.kubernetes.io/name=x"}`
		theWorld = `{identity: 2 labels: "reserved:world"}`
	)
	for i, want := range []string{
		`verdict: FORWARDED IP {source: "10.1.1.2" destination: "10.96.0.1" ipVersion: IPv4} l4 {TCP {source_port: 40000 destination_port: 80}}
			source ` + theClient + ` destination ` + theWorld + ` destination_service {name: "front" namespace: "shop"} traffic_direction: EGRESS
			event_type {type: 5} policy_match_type: 2 is_reply {}
			egress_allowed_by {name: "out" namespace: "prod" kind: "NetworkPolicy" labels: "contiv:tier=default" labels: "contiv:rule=egress rule 2"}
			Summary: "TCP, allowed by NetworkPolicy prod/out egress rule 2; 1 connections"`,
		`verdict: DROPPED drop_reason: 133 drop_reason_desc: POLICY_DENIED IP {source: "192.0.2.7" destination: "10.1.1.2" ipVersion: IPv4}
			l4 {TCP {source_port: 40000 destination_port: 80}} source ` + theWorld + ` destination ` + theClient + ` traffic_direction: INGRESS
			event_type {type: 1 sub_type: 133} ingress_denied_by {name: "guard" kind: "AdminNetworkPolicy" labels: "contiv:rule=ingress rule 1"}
			Summary: "TCP, denied by AdminNetworkPolicy guard ingress rule 1; 2 packets, 80 bytes"`,
		`verdict: FORWARDED IP {source: "10.1.1.2" source_xlated: "10.1.1.254" destination: "10.1.2.3" ipVersion: IPv4}
			l4 {TCP {source_port: 40000 destination_port: 8080}} source ` + theClient + ` destination ` + theWeb + `
			destination_service {name: "front" namespace: "shop"} event_type {type: 4 sub_type: 5} trace_observation_point: FROM_ENDPOINT is_reply {}
			Summary: "TCP; 1 connections"`,
		`verdict: DROPPED IP {source: "10.0.0.1" destination: "10.1.1.2" ipVersion: IPv4} l4 {ICMPv4 {}}
			source {identity: 1 cluster_name: "default" labels: "reserved:host"} destination ` + theClient + ` event_type {type: 1}
			Summary: "ICMP, ip4-input: bad checksum; 1 connections"`,
		`verdict: FORWARDED IP {source: "10.0.0.2" destination: "10.1.1.2" ipVersion: IPv4} l4 {UDP {source_port: 40000 destination_port: 53}}
			source {identity: 6 cluster_name: "default" labels: "reserved:remote-node"} destination ` + theClient + ` traffic_direction: INGRESS
			event_type {type: 4} trace_observation_point: TO_ENDPOINT is_reply {} Summary: "UDP; 1 connections"`,
		`verdict: FORWARDED IP {source: "fd00::7" destination: "fd00::8" ipVersion: IPv6} l4 {SCTP {source_port: 40000 destination_port: 80}}
			source ` + theWorld + ` destination ` + theWorld + ` event_type {type: 4 sub_type: 10} trace_observation_point: FROM_NETWORK is_reply {}
			Summary: "SCTP; 1 connections"`,
	} {
		f := sample()[i]
		got := converter{}.flow(&f)
		if !got.GetTime().AsTime().Equal(f.Last) || got.GetNodeName() != "node-1" || got.GetType() != flow.FlowType_L3_L4 || len(got.GetUuid()) != 36 {
			t.Errorf("flow %d: %v", i, got)
		}
		got.Time, got.NodeName, got.Type, got.Uuid = nil, "", 0, ""
		expected := &flow.Flow{}
		if err := prototext.Unmarshal([]byte(want), expected); err != nil {
			t.Fatal(i, err)
		}
		if diff := cmp.Diff(prototext.Format(expected), prototext.Format(got)); !proto.Equal(expected, got) {
			t.Errorf("flow %d (-want +got):\n%s", i, diff)
		}
	}
}

// Pods of a workload, also of two revisions of it, have one identity, as in Cilium: Hubble UI's map has a card for each identity.
func TestPodsOfAWorkloadShareAnIdentity(t *testing.T) {
	identity := func(labels ...string) (uint32, []string) {
		p := flows.Peer{Kind: flows.Pod, Namespace: "prod", Name: "web-0", Labels: map[string]string{"app": "web", "app.kubernetes.io/name": "web", "batch.kubernetes.io/job-name": "j"}}
		for i := 0; i < len(labels); i += 2 {
			p.Labels[labels[i]] = labels[i+1]
		}
		e := endpointOf(&flows.Flow{}, &p)
		return e.GetIdentity(), e.GetLabels()
	}
	want, labels := identity()
	for _, key := range []string{
		"pod-template-hash", "controller-revision-hash", "controller-uid", "pod-template-generation", "statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index",
		"batch.kubernetes.io/job-completion-index", "batch.kubernetes.io/controller-uid", "topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone", "io.kubernetes.x", "kubernetes.io/x",
		"k8s.io/x", "annotation.x", "etcd_node",
	} {
		if got, has := identity(key, "1"); got != want || !slices.Equal(has, labels) {
			t.Errorf("with %s: %d %v, want %d %v", key, got, has, want, labels)
		}
	}
	for _, key := range []string{"app", "tier", "app.kubernetes.io/name", "batch.kubernetes.io/job-name", "example.com/pod-template-hash"} {
		if got, _ := identity(key, "1"); got == want {
			t.Errorf("with another %s: the same identity", key)
		}
	}
}

// A policy is in the one field for the verdict and the direction.
func TestPolicyFields(t *testing.T) {
	for want, f := range map[string]flows.Flow{
		"egress_allowed_by":  {Verdict: flows.Allowed, Direction: "egress"},
		"ingress_allowed_by": {Verdict: flows.Allowed, Direction: "ingress"},
		"egress_denied_by":   {Verdict: flows.Dropped, Direction: "egress"},
		"ingress_denied_by":  {Verdict: flows.Dropped, Direction: "ingress"},
	} {
		f.Decision.Policy = "NetworkPolicy a/b"
		var got []string
		m := converter{}.flow(&f).ProtoReflect()
		for _, name := range []string{"egress_allowed_by", "ingress_allowed_by", "egress_denied_by", "ingress_denied_by"} {
			if m.Has(m.Descriptor().Fields().ByTextName(name)) {
				got = append(got, name)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s %s: policy in %v, want %s", f.Verdict, f.Direction, got, want)
		}
	}
}

// A default deny names the policy that isolates the pod; a default allow names none.
func TestPolicyOfDefaults(t *testing.T) {
	f := flows.Flow{Verdict: flows.Dropped, Direction: "ingress", Decision: flows.Decision{Tier: "default", Trigger: "NetworkPolicy a/b"}}
	if by := (converter{}).flow(&f).GetIngressDeniedBy(); len(by) != 1 || by[0].GetNamespace() != "a" || by[0].GetName() != "b" || len(by[0].GetLabels()) != 1 {
		t.Errorf("denied by %v", by)
	}
	f.Verdict = flows.Allowed
	if by := (converter{}).flow(&f).GetIngressAllowedBy(); len(by) != 0 {
		t.Errorf("allowed by %v", by)
	}
}

// A UUID is that of one change of a flow, on one node, in one run of the agent.
func TestUUIDsDiffer(t *testing.T) {
	f, later, elsewhere := flows.Flow{Node: "a", Number: 1}, flows.Flow{Node: "a", Number: 2}, flows.Flow{Node: "b", Number: 1}
	c := converter{era: "x"}
	seen := map[string]bool{c.uuid(&f): true, c.uuid(&later): true, c.uuid(&elsewhere): true, converter{era: "y"}.uuid(&f): true}
	if len(seen) != 4 || !seen[c.uuid(&f)] {
		t.Errorf("%v", seen)
	}
}
