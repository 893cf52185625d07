package config

import (
	"slices"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/renderer/acl"
	"github.com/contiv-agent/contiv-agent/verify"
	"github.com/contiv-agent/contiv-agent/verify/serving"
)

// mostEdges bounds the memory of a proof to about 250 MB.
const mostEdges = 1 << 22

// Proof returns what the agent is configured with, as far as VPP's state depends on it. Located may be nil.
func (c *Config) Proof(located *event.Located) verify.Config {
	nat := &c.Services.Renderer.NAT44
	out := verify.Config{
		Socket: c.VPP.Socket, Dial: c.VPP.Dial, Node: c.NodeName, HostAddresses: slices.Clone(c.Override.HostIPs), MostEdges: mostEdges,
		NoSourceCheck: c.Policies.ACL.SourceCheck == acl.SourceOff,
		Services: serving.Config{
			Renderer: string(c.Services.Renderer.Choice), ProxyName: c.Services.ProxyName, KeepTerminating: c.Services.KeepTerminating,
			LocalWeight: int(nat.LocalEndpointWeight), NoExternalIPs: c.Services.NoExternalIPs,
			ExternalIPCIDRs: c.Services.ExternalIPCIDRs, NodePorts: c.Services.NodePorts.CIDRs, NodePortsPrimary: c.Services.NodePorts.Primary,
			ServiceCIDRs: c.Services.ServiceCIDRs, APIServers: c.Services.APIServers, NoSNAT: nat.DisableSNAT, VXLANPort: nat.VXLANPort,
			Timeouts: serving.Timeouts{UDP: nat.TimeoutUDP, TCPEstablished: nat.TimeoutTCPEstablished, TCPTransitory: nat.TimeoutTCPTransitory, ICMP: nat.TimeoutICMP},
		},
	}
	if located != nil {
		out.HostAddresses = append(out.HostAddresses, located.HostIPs...)
	}
	switch {
	case c.Policies.Off:
		out.NoPolicies = "this agent enforces none"
	case c.Policies.Felix != nil:
		out.NoPolicies = "those of a Felix are messages, not objects"
	case c.Policies.Driver != nil:
		out.NoPolicies = "a dataplane driver enforces them"
	}
	if c.Services.Off {
		out.NoServices = "this agent serves none"
	}
	for _, src := range c.External {
		if c.Pods == nil || src != c.Pods.Network {
			out.Shared = src.String()
		}
	}
	return out
}
