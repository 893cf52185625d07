package realvpp

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
)

// readList reads the configuration of the plugin from the list that the agent of a node writes.
func (c *podCluster) readList(n *podNode) (plugin map[string]any) {
	c.t.Helper()
	c.until("the network configuration list", func() error {
		text, err := os.ReadFile(filepath.Join(n.lists(), "10-contiv.conflist"))
		if err != nil {
			return err
		}
		var list struct{ Plugins []map[string]any }
		if err := json.Unmarshal(text, &list); err != nil {
			return err
		}
		plugin = list.Plugins[0]
		plugin["name"], plugin["cniVersion"] = "contiv", "1.1.0"
		return nil
	})
	return plugin
}

// runtime is a call of the plugin, as a container runtime makes it. No ns: the sandbox no longer exists.
func (c *podCluster) runtime(n *podNode, verb, container, pod string, ns *netns, list map[string]any) *exec.Cmd {
	c.t.Helper()
	config, err := json.Marshal(list)
	c.check(err)
	path := ""
	if ns != nil {
		path = ns.path
	}
	cmd := exec.Command(filepath.Join(n.programs(), "contiv-cni"))
	cmd.Stdin = bytes.NewReader(config)
	cmd.Env = []string{
		"CNI_COMMAND=" + verb, "CNI_CONTAINERID=" + container, "CNI_IFNAME=eth0", "CNI_NETNS=" + path, "CNI_PATH=" + n.programs(),
		"CNI_ARGS=K8S_POD_NAME=" + pod + ";IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_UID=" + pod,
	}
	return cmd
}
