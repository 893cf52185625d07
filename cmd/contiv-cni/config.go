package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/contiv-agent/contiv-agent/plugins/cni/protocol"
)

// config is the plugin's part of a network configuration.
type config struct {
	types.PluginConf
	Socket        string `json:"socket"` // of the agent
	Spool         string `json:"spool"`  // folder for DELs that find no agent
	MTU           int    `json:"mtu"`    // 0: the agent's
	RuntimeConfig struct {
		PortMappings []protocol.PortMapping `json:"portMappings"`
		Bandwidth    *protocol.Bandwidth    `json:"bandwidth"`
		Annotations  map[string]string      `json:"io.kubernetes.cri.pod-annotations"` // of the Pod, from containerd and CRI-O
	} `json:"runtimeConfig"`
}

// ownIPAM is the type of an "ipam" section that names the agent's addresses, as no section does.
const ownIPAM = "contiv"

// parseConfig reads a network configuration. The defaults are those of the plugin.
func (p *plugin) parseConfig(stdin []byte) (*config, error) {
	c := &config{Socket: p.socket, Spool: p.spool}
	if err := json.Unmarshal(stdin, c); err != nil {
		return nil, protocol.Errorf(protocol.CodeDecoding, "network configuration: %v", err)
	}
	if c.RawPrevResult != nil {
		if err := version.ParsePrevResult(&c.PluginConf); err != nil {
			return nil, protocol.Errorf(protocol.CodeDecoding, "prevResult: %v", err)
		}
	}
	if strings.ContainsAny(c.IPAM.Type, `/\`) || c.IPAM.Type == "." || c.IPAM.Type == ".." {
		return nil, protocol.Errorf(protocol.CodeInvalidConfig, "ipam.type: %q is not the name of a plugin", c.IPAM.Type)
	}
	for i := range c.RuntimeConfig.PortMappings {
		m := &c.RuntimeConfig.PortMappings[i]
		if m.Protocol = strings.ToUpper(m.Protocol); m.Protocol == "" {
			m.Protocol = "TCP"
		}
	}
	return c, nil
}

// delegates reports whether another IPAM plugin gives the addresses.
func (c *config) delegates() bool { return c.IPAM.Type != "" && c.IPAM.Type != ownIPAM }

// kubernetesArgs are the arguments of Kubernetes's runtimes in CNI_ARGS, in any order.
type kubernetesArgs struct {
	types.CommonArgs
	K8S_POD_NAMESPACE, K8S_POD_NAME, K8S_POD_UID, K8S_POD_INFRA_CONTAINER_ID types.UnmarshallableString //nolint:revive // the names of the arguments
}

// request returns the agent's request of a call.
func request(c *config, args *skel.CmdArgs) (protocol.Request, error) {
	var k kubernetesArgs
	if err := types.LoadArgs(args.Args, &k); err != nil {
		return protocol.Request{}, protocol.Errorf(protocol.CodeInvalidEnvironment, "CNI_ARGS: %v", err)
	}
	r := protocol.Request{
		Attachment: protocol.Attachment{ContainerID: args.ContainerID, IfName: args.IfName}, Network: c.Name, Netns: args.Netns,
		Pod:          protocol.Pod{Namespace: string(k.K8S_POD_NAMESPACE), Name: string(k.K8S_POD_NAME), UID: string(k.K8S_POD_UID)},
		MTU:          c.MTU,
		Interface:    c.RuntimeConfig.Annotations[protocol.AnnotationInterface],
		PortMappings: c.RuntimeConfig.PortMappings, Bandwidth: c.RuntimeConfig.Bandwidth,
	}
	return r, r.Validate()
}

// fromResult returns addresses and routes of another plugin's result.
func fromResult(res *types100.Result) (ips []protocol.IP, routes []protocol.Route, err error) {
	for _, ip := range res.IPs {
		prefix, err := toPrefix(ip.Address)
		if err != nil {
			return nil, nil, err
		}
		ips = append(ips, protocol.IP{Address: prefix, Gateway: toAddr(ip.Gateway)})
	}
	for _, r := range res.Routes {
		prefix, err := toPrefix(r.Dst)
		if err != nil {
			return nil, nil, err
		}
		routes = append(routes, protocol.Route{Destination: prefix, Gateway: toAddr(r.GW), MTU: r.MTU})
	}
	return ips, routes, nil
}

// toResult returns the plugin's result. An earlier plugin of the chain made previous; nil: none.
func toResult(res *protocol.Result, previous *types100.Result, dns types.DNS) *types100.Result {
	out := &types100.Result{CNIVersion: types100.ImplementedSpecVersion, DNS: dns}
	if previous != nil {
		out.Interfaces, out.IPs, out.Routes = previous.Interfaces, previous.IPs, previous.Routes
		if out.DNS.IsEmpty() {
			out.DNS = previous.DNS
		}
	}
	at := len(out.Interfaces)
	out.Interfaces = append(out.Interfaces, toInterface(res.Interface))
	if res.Host != nil {
		out.Interfaces = append(out.Interfaces, toInterface(*res.Host))
	}
	for _, ip := range res.IPs {
		out.IPs = append(out.IPs, &types100.IPConfig{Interface: types100.Int(at), Address: toIPNet(ip.Address), Gateway: toIP(ip.Gateway)})
	}
	for _, r := range res.Routes {
		out.Routes = append(out.Routes, &types.Route{Dst: toIPNet(r.Destination), GW: toIP(r.Gateway), MTU: r.MTU})
	}
	return out
}

// ownResult returns the part of a chain's result that an ADD of the plugin made; an error if it has none.
func ownResult(res *types100.Result, args *skel.CmdArgs) (*protocol.Result, error) {
	for i, in := range res.Interfaces {
		if in.Name != args.IfName || in.Sandbox == "" {
			continue
		}
		out := &protocol.Result{Interface: protocol.Interface{Name: in.Name, MAC: in.Mac, MTU: in.Mtu, Sandbox: in.Sandbox, Socket: in.SocketPath}}
		own := &types100.Result{Routes: res.Routes}
		for _, ip := range res.IPs {
			if ip.Interface != nil && *ip.Interface == i {
				own.IPs = append(own.IPs, ip)
			}
		}
		var err error
		out.IPs, out.Routes, err = fromResult(own)
		return out, err
	}
	return nil, protocol.Errorf(protocol.CodeInvalidConfig, "prevResult: no interface %s in a sandbox", args.IfName)
}

func toInterface(in protocol.Interface) *types100.Interface {
	return &types100.Interface{Name: in.Name, Mac: in.MAC, Mtu: in.MTU, Sandbox: in.Sandbox, SocketPath: in.Socket}
}

func toIPNet(p netip.Prefix) net.IPNet {
	return net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func toIP(a netip.Addr) net.IP { return a.AsSlice() }

// toAddr returns the zero address for none.
func toAddr(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap()
}

func toPrefix(n net.IPNet) (netip.Prefix, error) {
	ones, bits := n.Mask.Size()
	addr := toAddr(n.IP)
	if !addr.IsValid() || bits != addr.BitLen() {
		return netip.Prefix{}, protocol.Errorf(protocol.CodeDecoding, "%s is not an address with a length of prefix", fmt.Sprint(n.String()))
	}
	return netip.PrefixFrom(addr, ones), nil
}
