package vppagent_test

import (
	"testing"

	contivacl "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/acl"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/acl"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

func accessList(name string, rules ...*acl.ACL_Rule) *acl.ACL {
	return &acl.ACL{Name: name, Rules: rules}
}

// attach is m with interfaces.
func attach(m *acl.ACL, ingress, egress []string) *acl.ACL {
	m.Interfaces = &acl.ACL_Interfaces{Ingress: ingress, Egress: egress}
	return m
}

// rule matches TCP or UDP to ports (none: all), or everything if proto is "".
func rule(action acl.ACL_Rule_Action, proto, src, dst string, ports ...uint32) *acl.ACL_Rule {
	ip := &acl.ACL_Rule_IpRule{Ip: &acl.ACL_Rule_IpRule_Ip{SourceNetwork: src, DestinationNetwork: dst}}
	from, to := &acl.ACL_Rule_IpRule_PortRange{UpperPort: 65535}, &acl.ACL_Rule_IpRule_PortRange{UpperPort: 65535}
	if len(ports) > 0 {
		to.LowerPort, to.UpperPort = ports[0], ports[len(ports)-1]
	}
	switch proto {
	case "tcp":
		ip.Tcp = &acl.ACL_Rule_IpRule_Tcp{SourcePortRange: from, DestinationPortRange: to}
	case "udp":
		ip.Udp = &acl.ACL_Rule_IpRule_Udp{SourcePortRange: from, DestinationPortRange: to}
	}
	return &acl.ACL_Rule{Action: action, IpRule: ip}
}

func lists(iface string, input, output []string) *contivacl.InterfaceACLs {
	return &contivacl.InterfaceACLs{Interface: iface, Input: input, Output: output}
}

func TestFirstACLs(t *testing.T) {
	l := newLab(t, vppagent.Config{})
	addPod(l, "tap1", "10.1.1.2")
	l.writes()
	web := accessList("web", rule(acl.ACL_Rule_REFLECT, "tcp", "", "10.1.1.2/32", 80), rule(acl.ACL_Rule_DENY, "", "", ""))
	l.allConfigured(l.put(web, lists("tap1", nil, []string{"web"})))
	for _, w := range l.writes() {
		t.Log(w)
	}
	t.Log(l.sim.Dump())
}
