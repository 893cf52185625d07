package kubelet

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Config is what a kubelet needs to know. All paths are absolute.
type Config struct {
	Node       string // name of its Node, which exists
	Address    string // the node's own
	Kubeconfig string
	Dir        string  // of Pods, network namespaces and libcni's cache; libcni's is used again by the next life
	Lists      string  // folder of network configuration lists
	Plugins    string  // folder of CNI plugins
	DNS        string  // address of the cluster's DNS
	Cert, Key  string  // of the server; "": no server
	ClientCA   string  // who may use the server
	Images     []Image // all that exist
	Version    string  // reported to the API server
}

// Image is a program of the machine.
type Image struct {
	Names      []string // without tags
	Program    string   // its file; "": Entrypoint is a program of the machine
	Path       string   // the program's place in a container
	Entrypoint []string
	Args       []string // unless the container has a command or arguments
}

// Port is where the server of a kubelet listens.
const Port = 10250

// Load reads a configuration.
func Load(file string) (cfg Config, err error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return cfg, err
	}
	if err := json.Unmarshal(b, &cfg); err != nil {
		return cfg, fmt.Errorf("%s: %w", file, err)
	}
	if cfg.Node == "" || cfg.Dir == "" || cfg.Kubeconfig == "" {
		return cfg, errors.New(file + ": node, folder and kubeconfig are needed")
	}
	return cfg, nil
}

// image returns the image of a reference: tag and digest do not count.
func (cfg *Config) image(reference string) (*Image, error) {
	name, _, _ := strings.Cut(reference, "@")
	if at := strings.LastIndexByte(name, ':'); at > strings.LastIndexByte(name, '/') {
		name = name[:at]
	}
	var have []string
	for i := range cfg.Images {
		if slices.Contains(cfg.Images[i].Names, name) {
			return &cfg.Images[i], nil
		}
		have = append(have, cfg.Images[i].Names...)
	}
	slices.Sort(have)
	return nil, fmt.Errorf("image %q: this kubelet has no containers and pulls no images; it has %s", reference, strings.Join(have, ", "))
}

// argv returns the command line of a container, before variables are expanded.
func (i *Image) argv(c *corev1.Container) []string {
	switch {
	case len(c.Command) > 0:
		return slices.Concat(c.Command, c.Args)
	case len(c.Args) > 0:
		return slices.Concat(i.Entrypoint, c.Args)
	}
	return slices.Concat(i.Entrypoint, i.Args)
}

// onMachine replaces the image's program, by its path or name, by its file: a container that sees the machine has no other path to it.
func (i *Image) onMachine(args []string) []string {
	if len(args) > 0 && i.Program != "" && (args[0] == i.Path || args[0] == filepath.Base(i.Path)) {
		return slices.Concat([]string{i.Program}, args[1:])
	}
	return args
}
