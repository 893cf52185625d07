package interop

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Entries as Typha has them.
func podKey(name string) string {
	return "/calico/v1/host/" + node1 + "/workload/k8s/" + strings.ReplaceAll(name, "/", "%2f") + "/endpoint/eth0"
}

func podValue(addr string, labels map[string]string) map[string]any {
	all := map[string]string{"projectcalico.org/namespace": "prod", "projectcalico.org/orchestrator": "k8s"}
	for k, v := range labels {
		all[k] = v
	}
	return map[string]any{
		"state": "active", "name": "cali" + strings.ReplaceAll(addr, ".", ""), "profile_ids": []string{"kns.prod"},
		"ipv4_nets": []string{addr + "/32"}, "labels": all,
	}
}

func policyKeyOf(name string) string {
	return "/calico/v1/policy/tier/default/policy/" + strings.ReplaceAll(name, "/", "%2f")
}

type object map[string]any

// TestFelixWithAnotherDriver proves the stage itself: a real Felix with a driver that is none of ours.
func TestFelixWithAnotherDriver(t *testing.T) {
	s := newStage(t)
	log := filepath.Join(t.TempDir(), "messages")
	s.put("/calico/v1/policy/profile/kns.prod/rules", object{"inbound_rules": []object{{"action": "allow"}}, "outbound_rules": []object{{"action": "allow"}}})
	s.inSync()
	s.start(peer(t, "driver"), "PEER_DRIVER_LOG="+log)
	said := func(what string) {
		t.Helper()
		eventually(t, "the driver gets "+what, func() error {
			raw, err := os.ReadFile(log)
			if err == nil && !strings.Contains(string(raw), what) {
				err = errors.New("not yet:\n" + string(raw))
			}
			return err
		})
	}
	said(`"inSync":{}`)
	s.put(podKey("prod/web"), podValue("10.1.1.2", map[string]string{"app": "web"}))
	said(`"workloadEndpointUpdate"`)
	s.reported(fmt.Sprintf(podStatus, "prod%2fweb"), "up")
	eventually(t, "the process's status", func() error {
		all, err := s.status()
		if err == nil && all[processStatus] == "" {
			err = fmt.Errorf("not among %v", all)
		}
		return err
	})
	s.remove(podKey("prod/web"))
	said(`"workloadEndpointRemove"`)
	s.reported(fmt.Sprintf(podStatus, "prod%2fweb"), "")
}
