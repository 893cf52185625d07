package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/types/create"

	"github.com/contiv-agent/contiv-agent/plugins/cni/protocol"
)

// Delegation by the specification's section 4: the IPAM plugin is a program in CNI_PATH that gets the same configuration and environment.
// The reference's package invoke does the same, and pulls in a library for tracing.

// delegateAdd returns the addresses of the IPAM plugin.
func (p *plugin) delegateAdd(c *config, args *skel.CmdArgs) (*types100.Result, error) {
	out, err := p.run("ADD", c, args)
	if err != nil {
		return nil, err
	}
	res, err := create.CreateFromBytes(out)
	if err != nil {
		return nil, protocol.Errorf(protocol.CodeDecoding, "result of the IPAM plugin %s: %v", c.IPAM.Type, err)
	}
	lease, err := types100.NewResultFromResult(res)
	if err != nil {
		return nil, protocol.Errorf(protocol.CodeDecoding, "result of the IPAM plugin %s: %v", c.IPAM.Type, err)
	}
	if len(lease.IPs) == 0 {
		return nil, protocol.Errorf(protocol.CodeInvalidConfig, "the IPAM plugin %s returned no address", c.IPAM.Type)
	}
	return lease, nil
}

// delegate runs the IPAM plugin for a verb without a result.
func (p *plugin) delegate(verb string, c *config, args *skel.CmdArgs) error {
	_, err := p.run(verb, c, args)
	return err
}

// run runs the IPAM plugin and returns its output.
func (p *plugin) run(verb string, c *config, args *skel.CmdArgs) ([]byte, error) {
	path, err := find(c.IPAM.Type, args.Path)
	if err != nil {
		return nil, err
	}
	p.reach("ipam " + verb)
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, path)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(args.StdinData), &stdout, &stderr
	cmd.Env = append(os.Environ(), "CNI_COMMAND="+verb, "CNI_CONTAINERID="+args.ContainerID, "CNI_NETNS="+args.Netns,
		"CNI_IFNAME="+args.IfName, "CNI_ARGS="+args.Args, "CNI_PATH="+args.Path)
	err = cmd.Run()
	p.reach("ipam " + verb + " done")
	if err == nil {
		return stdout.Bytes(), nil
	}
	var e types.Error
	if json.Unmarshal(stdout.Bytes(), &e) == nil && e.Msg != "" {
		e.Msg = fmt.Sprintf("IPAM plugin %s: %s", c.IPAM.Type, e.Msg)
		return nil, &e
	}
	return nil, protocol.Errorf(protocol.CodeInternal, "IPAM plugin %s: %v: %s", c.IPAM.Type, err, strings.TrimSpace(stderr.String()))
}

// find returns the program of a plugin in CNI_PATH.
func find(name, paths string) (string, error) {
	for _, dir := range filepath.SplitList(paths) {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path, nil
		}
	}
	return "", protocol.Errorf(protocol.CodeInvalidConfig, "ipam.type: no program %q in CNI_PATH (%s)", name, paths)
}
