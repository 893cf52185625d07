package nodeports

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/google/nftables"
	"go.fd.io/govpp/api"
	"golang.org/x/sys/unix"

	"github.com/contiv-agent/contiv-agent/kv"
	contivlinux "github.com/contiv-agent/contiv-agent/proto/contiv/linux"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/linux"
)

// nodePort is a port, and the sets of the packet filter that have it. It is comparable.
type nodePort struct {
	protocol contivlinux.NodePort_Protocol
	port     uint16
	in       [len(portSets)]bool
}

// Sets of the table of node ports. portSets has their names by these numbers.
const (
	served4 = iota
	served6
	closed4
	closed6
)

// portSets are the names of the sets: ports whose packets VPP gets, and those of them that are closed for other hosts.
var portSets = [...]string{served4: "served-ipv4", served6: "served-ipv6", closed4: "closed-ipv4", closed6: "closed-ipv6"}

// NodePort describes our NodePort: an element of the sets of NodePorts.
func NodePort() *descriptor.Descriptor {
	d := descriptor.Spec[*contivlinux.NodePort, *nodePort]{
		Name: "linux-node-port", Prefix: kv.NodePortPrefix,
		Compile: compileNodePort, Message: (*nodePort).nodePortMessage,
		Equal: func(have, want *nodePort) bool { return *have == *want },
		Dependencies: func(*nodePort) []descriptor.Dependency {
			return []descriptor.Dependency{{Key: kv.NodePortsKey}}
		},
		Create: func(_ *descriptor.World, o *nodePort) ([]descriptor.Op, error) { return o.put(), nil },
		Update: func(_ *descriptor.World, _, want *nodePort) ([]descriptor.Op, error) { return want.put(), nil },
		Delete: func(_ *descriptor.World, o *nodePort) ([]descriptor.Op, error) {
			return (&nodePort{protocol: o.protocol, port: o.port}).put(), nil
		},
		Dumps: func(_ *descriptor.World, c descriptor.Candidates) (out []descriptor.Request) {
			c.Each(func(string, any, bool) { out = []descriptor.Request{nodePortRequest()} })
			return out
		},
		Retrieve: retrieveNodePorts,
	}.Descriptor()
	d.Many = true
	return d
}

func nodePortRequest() descriptor.Request {
	return descriptor.Request{ID: "node_port_list", Call: vpp.Call{Dump: true, Msg: &ListNodePorts{}}}
}

func retrieveNodePorts(_ *descriptor.World, d *descriptor.Dump, c descriptor.Candidates) (out []descriptor.Found, err error) {
	all, err := descriptor.Details[*ListNodePorts](d, nodePortRequest().ID)
	if err != nil {
		return nil, err
	}
	c.Each(func(key string, state any, wanted bool) {
		if !wanted && c.Wanted(key) != nil {
			return
		}
		got := *state.(*nodePort)
		got.in = [len(portSets)]bool{}
		for _, m := range all {
			got.in = m.in[string(got.key())]
		}
		if got.in != [len(portSets)]bool{} {
			out = append(out, descriptor.Found{Key: key, State: &got})
		}
	})
	return out, nil
}

func compileNodePort(_ string, m *contivlinux.NodePort) (*nodePort, error) {
	if m.GetPort() == 0 || m.GetPort() > 65535 {
		return nil, fmt.Errorf("port: %d is not a port (1 to 65535)", m.GetPort())
	}
	if _, known := protocols[m.GetProtocol()]; !known {
		return nil, fmt.Errorf("protocol: unknown %d", m.GetProtocol())
	}
	o := &nodePort{protocol: m.GetProtocol(), port: uint16(m.GetPort())}
	for _, f := range []struct {
		name           string
		clients        contivlinux.NodePort_Clients
		served, closed int
	}{{"ipv4", m.GetIpv4(), served4, closed4}, {"ipv6", m.GetIpv6(), served6, closed6}} {
		if f.clients < contivlinux.NodePort_NOBODY || f.clients > contivlinux.NodePort_NODE {
			return nil, fmt.Errorf("%s: unknown %d", f.name, f.clients)
		}
		o.in[f.served], o.in[f.closed] = f.clients != contivlinux.NodePort_NOBODY, f.clients == contivlinux.NodePort_NODE
	}
	if o.in == [len(portSets)]bool{} {
		return nil, errors.New("ipv4, ipv6: nobody's packets reach VPP")
	}
	return o, nil
}

func (o *nodePort) nodePortMessage() *contivlinux.NodePort {
	clients := func(served, closed int) contivlinux.NodePort_Clients {
		switch {
		case o.in[closed]:
			return contivlinux.NodePort_NODE
		case o.in[served]:
			return contivlinux.NodePort_ALL
		}
		return contivlinux.NodePort_NOBODY
	}
	return &contivlinux.NodePort{Protocol: o.protocol, Port: uint32(o.port), Ipv4: clients(served4, closed4), Ipv6: clients(served6, closed6)}
}

// protocols are the numbers of protocols in IP's headers.
var protocols = map[contivlinux.NodePort_Protocol]byte{
	contivlinux.NodePort_TCP: unix.IPPROTO_TCP, contivlinux.NodePort_UDP: unix.IPPROTO_UDP, contivlinux.NodePort_SCTP: unix.IPPROTO_SCTP,
}

// key is the element of a set: protocol and port, each in four bytes.
func (o *nodePort) key() []byte {
	return append(binary.BigEndian.AppendUint16([]byte{protocols[o.protocol], 0, 0, 0}, o.port), 0, 0)
}

// portSet is a set of protocols and ports.
func portSet(t *nftables.Table, name string) *nftables.Set {
	return &nftables.Set{Table: t, Name: name, KeyType: nftables.MustConcatSetType(nftables.TypeInetProto, nftables.TypeInetService), Concatenation: true}
}

func (o *nodePort) put() []descriptor.Op {
	return []descriptor.Op{{Call: vpp.Call{Msg: &PutNodePort{Port: o}}}}
}

// PutNodePort adds a port to some sets, and removes it from the others.
type PutNodePort struct {
	linux.Message
	Port *nodePort
}

// GetMessageName is "node_port_put".
func (*PutNodePort) GetMessageName() string { return "node_port_put" }

// Filter implements linux.FilterRequest.
func (r *PutNodePort) Filter(c *nftables.Conn) ([]api.Message, error) {
	var err error
	t := &nftables.Table{Name: Table, Family: nftables.TableFamilyINet}
	element := []nftables.SetElement{{Key: r.Port.key()}}
	// Closed before served: at no time do other hosts reach a port that is closed afterwards.
	for i := len(portSets) - 1; i >= 0; i-- {
		if r.Port.in[i] {
			err = errors.Join(err, c.SetAddElements(portSet(t, portSets[i]), element))
		}
	}
	if err = errors.Join(err, c.Flush()); err != nil {
		return nil, linux.Wrap("add a node port to the packet filter", err)
	}
	for i, in := range r.Port.in {
		if in {
			continue
		}
		if err := errors.Join(c.SetDeleteElements(portSet(t, portSets[i]), element), c.Flush()); err != nil && !errors.Is(err, unix.ENOENT) {
			return nil, linux.Wrap("remove a node port from the packet filter", err)
		}
	}
	return nil, nil
}

// ListNodePorts asks for the elements of all sets. There is no answer without the table.
type ListNodePorts struct {
	linux.Message
	in map[string][len(portSets)]bool // by element
}

// GetMessageName is "node_port_list".
func (*ListNodePorts) GetMessageName() string { return "node_port_list" }

// Filter implements linux.FilterRequest.
func (*ListNodePorts) Filter(c *nftables.Conn) ([]api.Message, error) {
	sets, err := portSetsOf(c)
	if err != nil {
		return nil, err
	}
	out := &ListNodePorts{in: map[string][len(portSets)]bool{}}
	for i, name := range portSets {
		for _, e := range sets[name] {
			in := out.in[string(e.Key)]
			in[i] = true
			out.in[string(e.Key)] = in
		}
	}
	return []api.Message{out}, nil
}

// portSetsOf returns the elements of the sets that the table has, by name.
func portSetsOf(c *nftables.Conn) (map[string][]nftables.SetElement, error) {
	tables, err := c.ListTablesOfFamily(nftables.TableFamilyINet)
	if err != nil {
		return nil, linux.Wrap("list the tables of the packet filter", err)
	}
	at := slices.IndexFunc(tables, func(t *nftables.Table) bool { return t.Name == Table })
	if at < 0 {
		return nil, nil
	}
	sets, err := c.GetSets(tables[at])
	if err != nil {
		return nil, linux.Wrap("list the sets of the packet filter", err)
	}
	out := map[string][]nftables.SetElement{}
	for _, s := range sets {
		if !slices.Contains(portSets[:], s.Name) {
			continue
		}
		elements, err := c.GetSetElements(s)
		if err != nil {
			return nil, linux.Wrap("list the node ports of the packet filter", err)
		}
		slices.SortFunc(elements, func(a, b nftables.SetElement) int { return bytes.Compare(a.Key, b.Key) })
		out[s.Name] = elements
	}
	return out, nil
}
