//go:build nodes

package kube

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/linux/ethtool"
)

// withNIC lets the agents of an install give their nodes' NICs to VPP.
const withNIC = `patches:
  - target: {kind: DaemonSet, name: contiv-vswitch}
    patch: |
      - {op: add, path: /spec/template/spec/containers/1/args/-, value: --node-to-node=direct}
      - {op: add, path: /spec/template/spec/containers/1/args/-, value: --node-nic=eth0}
`

// nicIs waits until a link of a node has the node's address.
func (s *realSite) nicIs(t *testing.T, what string, n *realNode, link, phase string) {
	t.Helper()
	eventually(t, what+": "+n.name+": "+link+" has the address", func() error {
		out, err := n.run("sh", "-c", "ip -o -4 addr show; cat /var/lib/contiv-agent/nic.json")
		if err == nil && (strings.Count(out, " "+n.address+"/24 ") != 1 || !strings.Contains(out, link+"    inet "+n.address+"/24 ") || !strings.Contains(out, `"phase":"`+phase+`"`)) {
			err = fmt.Errorf("want phase %q:\n%s", phase, out)
		}
		return err
	}, s.kubelets()...)
}

// nicsInstalled installs agents that give the NICs to VPP, and waits until VPP has them.
func (s *realSite) nicsInstalled(t *testing.T) {
	t.Helper()
	s.install(t, "standalone", withNIC)
	s.allReady(t)
	for _, n := range s.real {
		s.nicIs(t, "installed", n, "contiv-nic", "taken")
	}
	s.deployWeb(t)
	s.whole(t)
}

// nicsAreVPPs gives the nodes' only NICs to VPP. A rolling update ends VPP and agent of a node together: the kernel has the NIC meanwhile, so that the kubelet learns of the
// next pod. After kubectl delete, and with deploy/remove after an update that failed, each node is as it was.
func nicsAreVPPs(t *testing.T, s *realSite) {
	s.bare(t)
	for i, n := range s.real {
		s.kubectl(nil, "annotate", "node", n.name, fmt.Sprintf("contiv-agent.io/uplink-addresses=192.168.16.%d/24", 101+i))
		for _, link := range []string{bridge, fmt.Sprintf("%s-%d", bridge, i+1)} { // as NICs do, the far end finishes checksums
			if _, err := ethtool.Here(link, unix.ETHTOOL_STXCSUM, 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	s.nicsInstalled(t)
	s.kubectl(nil, "-n", system, "rollout", "restart", "daemonset/contiv-vswitch")
	s.kubectl(nil, "-n", system, "rollout", "status", "daemonset/contiv-vswitch", "--timeout=300s")
	for _, n := range s.real {
		s.nicIs(t, "after a rolling update", n, "contiv-nic", "taken")
	}
	s.whole(t)
	s.withoutPods(t)
	s.kubectl(nil, "delete", "-k", s.path("install"), "--wait")
	s.asBefore(t, false)

	s.nicsInstalled(t)
	stuck, other := s.upgradeFails(t)
	s.nicIs(t, "without an agent", stuck, "eth0", "")
	s.nicIs(t, "with its agent", other, "contiv-nic", "taken")
	s.withoutPods(t)
	s.kubectl(nil, "delete", "-k", s.path("install"), "--wait")
	eventually(t, other.name+" is as before", func() error { return same(s.before[other.name], other.answers(t), false) }, s.kubelets()...)
	s.clean(t)
	s.kubectl(nil, "-n", "contiv-remove", "rollout", "status", "daemonset/contiv-remove", "--timeout=300s")
	s.asBefore(t, false)
	s.kubectl(nil, "delete", "-k", s.path("clean"), "--wait")
	s.kubectl(nil, "annotate", "nodes", "--all", "contiv-agent.io/uplink-addresses-")
	s.installedAgain(t)
}
