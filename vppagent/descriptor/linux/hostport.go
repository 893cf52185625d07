package linux

import (
	"fmt"
	"net/netip"
	"strings"

	"go.fd.io/govpp/api"

	"github.com/contiv-agent/contiv-agent/kv"
	contivlinux "github.com/contiv-agent/contiv-agent/proto/contiv/linux"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

// hostPort is a port of the node that leads to a pod.
type hostPort struct {
	protocol contivlinux.HostPort_Protocol
	at       netip.AddrPort // of the node; an unspecified address is every address of its family
	to       netip.AddrPort // of the pod
}

// HostPort describes our HostPort: rules in the table contiv-ports of the packet filter. The kernel translates the destination and keeps the source,
// so policies see the client. The table exists as long as it has rules.
func HostPort() *descriptor.Descriptor {
	return descriptor.Spec[*contivlinux.HostPort, *hostPort]{
		Name: "linux-host-port", Prefix: "config/contiv/linux/v1/host-port/",
		Compile: compileHostPort, Message: (*hostPort).hostPortMessage,
		Equal: func(have, want *hostPort) bool { return *have == *want },
		Create: func(_ *descriptor.World, o *hostPort) ([]descriptor.Op, error) {
			return changePort(&PutHostPort{o.text()}), nil
		},
		Update: func(_ *descriptor.World, have, want *hostPort) ([]descriptor.Op, error) {
			return descriptor.InTurn(append(changePort(&DropHostPort{have.text()}), changePort(&PutHostPort{want.text()})...)), nil
		},
		Delete: func(_ *descriptor.World, o *hostPort) ([]descriptor.Op, error) {
			return changePort(&DropHostPort{o.text()}), nil
		},
		Dumps: func(_ *descriptor.World, c descriptor.Candidates) (out []descriptor.Request) {
			c.Each(func(string, any, bool) { out = []descriptor.Request{hostPortsRequest()} })
			return out
		},
		Retrieve: retrieveHostPorts,
	}.Descriptor()
}

func changePort(m api.Message) []descriptor.Op { return []descriptor.Op{{Call: vpp.Call{Msg: m}}} }

func hostPortsRequest() descriptor.Request {
	return descriptor.Request{ID: "host_port_list", Call: vpp.Call{Dump: true, Msg: &ListHostPorts{}}}
}

func retrieveHostPorts(_ *descriptor.World, d *descriptor.Dump, c descriptor.Candidates) (out []descriptor.Found, err error) {
	var all []*ListHostPorts
	c.Each(func(string, any, bool) {
		if all == nil && err == nil {
			all, err = descriptor.Details[*ListHostPorts](d, hostPortsRequest().ID)
		}
	})
	for _, m := range all {
		if o, err := m.hostPort(); err == nil {
			out = append(out, descriptor.Found{Key: kv.Key(o.hostPortMessage()), State: o})
		}
	}
	return out, err
}

func compileHostPort(_ string, m *contivlinux.HostPort) (*hostPort, error) {
	o := &hostPort{protocol: m.GetProtocol()}
	if _, known := contivlinux.HostPort_Protocol_name[int32(o.protocol)]; !known {
		return nil, fmt.Errorf("protocol: unknown %d", o.protocol)
	}
	for _, f := range []struct {
		name, address string
		port          uint32
		out           *netip.AddrPort
	}{{"host_", m.GetHostAddress(), m.GetHostPort(), &o.at}, {"", m.GetAddress(), m.GetPort(), &o.to}} {
		a, err := descriptor.ParseAddr(f.name+"address", f.address)
		if err != nil {
			return nil, err
		}
		if f.port == 0 || f.port > 65535 {
			return nil, fmt.Errorf("%sport: %d is not a port (1 to 65535)", f.name, f.port)
		}
		*f.out = netip.AddrPortFrom(a, uint16(f.port))
	}
	if o.at.Addr().Is4() != o.to.Addr().Is4() {
		return nil, fmt.Errorf("address: %s is of another family than %s", o.to.Addr(), o.at.Addr())
	}
	return o, nil
}

func (o *hostPort) hostPortMessage() *contivlinux.HostPort {
	return &contivlinux.HostPort{
		Protocol: o.protocol, HostAddress: o.at.Addr().String(), HostPort: uint32(o.at.Port()), Address: o.to.Addr().String(), Port: uint32(o.to.Port()),
	}
}

// hostPortText is a host port in words: "TCP 0.0.0.0:80 10.1.1.2:8080". It is the comment of the port's rules.
type hostPortText struct {
	Message
	Text string `binapi:"string,name=port"`
}

func (o *hostPort) text() hostPortText {
	return hostPortText{Text: fmt.Sprintf("%s %s %s", o.protocol, o.at, o.to)}
}

func (t *hostPortText) hostPort() (*hostPort, error) {
	words := strings.Fields(t.Text)
	if len(words) != 3 {
		return nil, fmt.Errorf("%q is no host port", t.Text)
	}
	protocol, known := contivlinux.HostPort_Protocol_value[words[0]]
	at, err := netip.ParseAddrPort(words[1])
	to, err2 := netip.ParseAddrPort(words[2])
	if !known || err != nil || err2 != nil {
		return nil, fmt.Errorf("%q is no host port", t.Text)
	}
	return &hostPort{contivlinux.HostPort_Protocol(protocol), at, to}, nil
}

// PutHostPort makes the rules of a host port. Existing ones are replaced.
type PutHostPort struct{ hostPortText }

// GetMessageName is "host_port_put".
func (*PutHostPort) GetMessageName() string { return "host_port_put" }

func (r *PutHostPort) do(h *handles) ([]api.Message, error) {
	o, err := r.hostPort()
	if err != nil {
		return nil, err
	}
	if err := h.changePorts(r.Text, o); err != nil {
		return nil, err
	}
	if o.protocol != contivlinux.HostPort_UDP {
		return nil, nil
	}
	// A flow that began before would pass the rules: the kernel has decided about it.
	return nil, h.forgetFlows(o, func(f flow) bool { return f.client == f.back && f.at == f.server })
}

// DropHostPort removes the rules of a host port, and what the kernel remembers of its connections.
type DropHostPort struct{ hostPortText }

// GetMessageName is "host_port_drop".
func (*DropHostPort) GetMessageName() string { return "host_port_drop" }

func (r *DropHostPort) do(h *handles) ([]api.Message, error) {
	o, err := r.hostPort()
	if err != nil {
		return nil, err
	}
	if err := h.changePorts(r.Text, nil); err != nil {
		return nil, err
	}
	return nil, h.forgetFlows(o, func(f flow) bool { return f.server == o.to && f.at != f.server })
}

// ListHostPorts asks for the host ports of which the packet filter has all rules.
type ListHostPorts struct{ hostPortText }

// GetMessageName is "host_port_list".
func (*ListHostPorts) GetMessageName() string { return "host_port_list" }

func (*ListHostPorts) do(h *handles) (out []api.Message, err error) {
	c, err := h.filter()
	if err != nil {
		return nil, err
	}
	rules, err := portRules(c)
	if err != nil {
		return nil, err
	}
	count := map[string]int{}
	for _, r := range rules {
		text := commentOf(r)
		if count[text]++; count[text] == len(portHooks()) {
			out = append(out, &ListHostPorts{hostPortText{Text: text}})
		}
	}
	return out, nil
}
