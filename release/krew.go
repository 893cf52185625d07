package release

import (
	"fmt"

	"sigs.k8s.io/yaml"
)

// krewPlugin is the part of krew's Plugin that a manifest needs (https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest).
type krewPlugin struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   map[string]string `json:"metadata"`
	Spec       krewSpec          `json:"spec"`
}

type krewSpec struct {
	Version          string         `json:"version"`
	Homepage         string         `json:"homepage"`
	ShortDescription string         `json:"shortDescription"`
	Description      string         `json:"description"`
	Platforms        []krewPlatform `json:"platforms"`
}

type krewPlatform struct {
	Selector krewSelector `json:"selector"`
	URI      string       `json:"uri"`
	SHA256   string       `json:"sha256"`
	Bin      string       `json:"bin"`
	Files    []krewFile   `json:"files"`
}

type krewSelector struct {
	MatchLabels map[string]string `json:"matchLabels"`
}

type krewFile struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// krew returns the manifest for kubectl's plugin manager. Its link to the program is named kubectl-contiv, and the program follows its name.
func (c *Config) krew(archives []archive) ([]byte, error) {
	p := krewPlugin{
		APIVersion: "krew.googlecontainertools.github.com/v1alpha2", Kind: "Plugin", Metadata: map[string]string{"name": "contiv"},
		Spec: krewSpec{
			Version: c.Version, Homepage: "https://github.com/contiv-agent/contiv-agent", ShortDescription: "Query the contiv-agents of a cluster",
			Description: "Shows the state of the agents that bring Services and network policies to VPP, what happens to a packet, and\n" +
				"whether the cluster's network works: kubectl contiv status, trace, policy, plan, and connectivity test.\n",
		},
	}
	for _, a := range archives {
		p.Spec.Platforms = append(p.Spec.Platforms, krewPlatform{
			Selector: krewSelector{MatchLabels: map[string]string{"os": "linux", "arch": a.arch}},
			URI:      c.URL + "/" + a.name, SHA256: fmt.Sprintf("%x", a.sum), Bin: agentProgram,
			Files: []krewFile{{agentProgram, "."}, {"LICENSE", "."}},
		})
	}
	return yaml.Marshal(p)
}
