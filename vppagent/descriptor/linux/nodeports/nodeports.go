package nodeports

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/netip"

	"github.com/google/nftables"
	"go.fd.io/govpp/api"

	"github.com/contiv-agent/contiv-agent/kv"
	contivlinux "github.com/contiv-agent/contiv-agent/proto/contiv/linux"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/linux"
)

// nodePorts says how packets to node ports reach VPP.
type nodePorts struct {
	iface string // logical name of the link to VPP
	addrs []servedAddr
	backs []returned
	print string // fingerprint of all fields and of the rules they become
}

// servedAddr is an address of the node with node ports.
type servedAddr struct{ node, standIn, host netip.Addr }

// returned is an address from which the node itself sends, and what stands in for it in packets that VPP sends back.
type returned struct{ host, standIn netip.Addr }

// NodePorts describes our NodePorts: the table contiv-node-ports of the packet filter.
func NodePorts() *descriptor.Descriptor {
	return descriptor.Spec[*contivlinux.NodePorts, *nodePorts]{
		Name: "linux-node-ports", Prefix: kv.NodePortsKey,
		Compile: compileNodePorts, Message: (*nodePorts).nodePortsMessage,
		Equal: func(have, want *nodePorts) bool { return have.print == want.print },
		Dependencies: func(o *nodePorts) []descriptor.Dependency {
			return []descriptor.Dependency{{Key: kv.LinuxInterfaceKey(o.iface)}}
		},
		Create: func(w *descriptor.World, o *nodePorts) ([]descriptor.Op, error) { return o.putNodePorts(w) },
		Update: func(w *descriptor.World, _, want *nodePorts) ([]descriptor.Op, error) { return want.putNodePorts(w) },
		Delete: func(*descriptor.World, *nodePorts) ([]descriptor.Op, error) {
			return []descriptor.Op{{Call: vpp.Call{Msg: &DropNodePorts{}}}}, nil
		},
		Dumps: linux.DumpOne(&GetNodePorts{}),
		Retrieve: linux.RetrieveOne(&GetNodePorts{}, func(state any, m *GetNodePorts) any {
			got := *state.(*nodePorts)
			got.print = m.Print
			return &got
		}),
	}.Descriptor()
}

func compileNodePorts(_ string, m *contivlinux.NodePorts) (*nodePorts, error) {
	o := &nodePorts{iface: m.GetInterface()}
	if o.iface == "" {
		return nil, errors.New("interface: empty")
	}
	for i, a := range m.GetAddresses() {
		var s servedAddr
		if err := parseAddrs(fmt.Sprintf("addresses[%d]", i), field{"node_address", a.GetNodeAddress(), &s.node}, field{"stand_in", a.GetStandIn(), &s.standIn},
			field{"host_address", a.GetHostAddress(), &s.host}); err != nil {
			return nil, err
		}
		o.addrs = append(o.addrs, s)
	}
	for i, a := range m.GetReturns() {
		var r returned
		if err := parseAddrs(fmt.Sprintf("returns[%d]", i), field{"host_address", a.GetHostAddress(), &r.host}, field{"stand_in", a.GetStandIn(), &r.standIn}); err != nil {
			return nil, err
		}
		o.backs = append(o.backs, r)
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %s", nodePortsVersion, kv.Format(kv.NodePortsKey, o.nodePortsMessage())))
	o.print = fmt.Sprintf("%x", sum[:8])
	return o, nil
}

// field is the field of an address.
type field struct {
	name, text string
	out        *netip.Addr
}

// parseAddrs reads addresses of one family.
func parseAddrs(where string, fields ...field) error {
	for _, one := range fields {
		name := where + "." + one.name
		addr, err := descriptor.ParseAddr(name, one.text)
		if err != nil {
			return err
		}
		if *one.out = addr; addr.Is4() != fields[0].out.Is4() {
			return fmt.Errorf("%s: %s is of another family than %s", name, addr, fields[0].out)
		}
	}
	return nil
}

func (o *nodePorts) nodePortsMessage() *contivlinux.NodePorts {
	m := &contivlinux.NodePorts{Interface: o.iface}
	for _, a := range o.addrs {
		m.Addresses = append(m.Addresses, &contivlinux.NodePorts_Address{NodeAddress: a.node.String(), StandIn: a.standIn.String(), HostAddress: a.host.String()})
	}
	for _, r := range o.backs {
		m.Returns = append(m.Returns, &contivlinux.NodePorts_Return{HostAddress: r.host.String(), StandIn: r.standIn.String()})
	}
	return m
}

func (o *nodePorts) putNodePorts(w *descriptor.World) ([]descriptor.Op, error) {
	link, ok := linux.LinkName(w, o.iface)
	if !ok {
		return nil, fmt.Errorf("interface %q is not on the host", o.iface)
	}
	return []descriptor.Op{{Call: vpp.Call{Msg: &PutNodePorts{Link: link, Rules: o}}}}, nil
}

// PutNodePorts replaces the rules of node ports, all at once. The ports stay.
type PutNodePorts struct {
	linux.Message
	Link  string `binapi:"string,name=link"`
	Rules *nodePorts
}

// GetMessageName is "node_ports_put".
func (*PutNodePorts) GetMessageName() string { return "node_ports_put" }

// Filter implements linux.FilterRequest.
func (r *PutNodePorts) Filter(c *nftables.Conn) ([]api.Message, error) {
	had, err := portSetsOf(c)
	if err != nil {
		return nil, err
	}
	dropTable(c)
	t := c.AddTable(&nftables.Table{Name: Table, Family: nftables.TableFamilyINet})
	for _, name := range portSets {
		if err := c.AddSet(portSet(t, name), had[name]); err != nil {
			return nil, linux.Wrap("make the set "+name+" of the packet filter", err)
		}
	}
	r.Rules.addRules(c, t, r.Link)
	return nil, linux.Wrap("replace the table "+Table+" of the packet filter", c.Flush())
}

// DropNodePorts removes rules and ports.
type DropNodePorts struct{ linux.Message }

// GetMessageName is "node_ports_drop".
func (*DropNodePorts) GetMessageName() string { return "node_ports_drop" }

// Filter implements linux.FilterRequest.
func (*DropNodePorts) Filter(c *nftables.Conn) ([]api.Message, error) {
	dropTable(c)
	return nil, linux.Wrap("remove the table "+Table+" of the packet filter", c.Flush())
}

// GetNodePorts asks for the fingerprint of the rules. There is no answer without the table.
type GetNodePorts struct {
	linux.Message
	Print string // "": the table is not as the agent made it
}

// GetMessageName is "node_ports_get".
func (*GetNodePorts) GetMessageName() string { return "node_ports_get" }

// Filter implements linux.FilterRequest.
func (*GetNodePorts) Filter(c *nftables.Conn) ([]api.Message, error) {
	print, exists, err := linux.Fingerprint(c, nftables.TableFamilyINet, Table)
	if err != nil || !exists {
		return nil, err
	}
	return []api.Message{&GetNodePorts{Print: print}}, nil
}
