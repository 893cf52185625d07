package linux

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
)

// handover is what the node's network stack forwards for VPP, and what it must not take.
type handover struct {
	iface              string // logical name of the link to VPP
	refuse             string // logical name of the link with packets to be refused; "": none
	tunnels            []tunnel
	masquerade, exempt []netip.Prefix
	links              []string // beginnings of names
	devices            []string // names
	detours            []detour
	print              string // fingerprint of all fields and of the rules they become
}

// tunnel is one end of tunnels over UDP: packets for an address of the node, which the kernel passes to an address of VPP.
type tunnel struct {
	node, vpp netip.Addr
	port      uint16
}

// detour gives translated connections of some sources another source.
type detour struct {
	sources []netip.Prefix
	address netip.Addr
}

// Handover describes our Handover: the tables contiv of the packet filter. Other tables stay, and may drop what these let pass.
func Handover() *descriptor.Descriptor {
	return descriptor.Spec[*contivlinux.Handover, *handover]{
		Name: "linux-handover", Prefix: kv.HandoverKey,
		Compile: compileHandover, Message: (*handover).handoverMessage,
		Equal: func(have, want *handover) bool { return have.print == want.print },
		Dependencies: func(o *handover) []descriptor.Dependency {
			deps := []descriptor.Dependency{{Key: kv.LinuxInterfaceKey(o.iface)}}
			if o.refuse != "" {
				deps = append(deps, descriptor.Dependency{Key: kv.LinuxInterfaceKey(o.refuse)})
			}
			return deps
		},
		Create: func(w *descriptor.World, o *handover) ([]descriptor.Op, error) { return o.putHandover(w) },
		Update: func(w *descriptor.World, _, want *handover) ([]descriptor.Op, error) { return want.putHandover(w) },
		Delete: func(*descriptor.World, *handover) ([]descriptor.Op, error) {
			return []descriptor.Op{{Call: vpp.Call{Msg: &DropHandover{}}}}, nil
		},
		Dumps: DumpOne(&GetHandover{}),
		Retrieve: RetrieveOne(&GetHandover{}, func(state any, m *GetHandover) any {
			got := *state.(*handover)
			got.print = m.Print
			return &got
		}),
	}.Descriptor()
}

// DumpOne returns the dump of a kind with one key, if there is a candidate.
func DumpOne(ask api.Message) func(*descriptor.World, descriptor.Candidates) []descriptor.Request {
	return func(_ *descriptor.World, c descriptor.Candidates) (out []descriptor.Request) {
		c.Each(func(string, any, bool) {
			out = []descriptor.Request{{ID: ask.GetMessageName(), Call: vpp.Call{Dump: true, Msg: ask}}}
		})
		return out
	}
}

// RetrieveOne reads the answers to DumpOne. The argument got makes the state in the kernel of a candidate's state and the answer.
func RetrieveOne[M api.Message](ask M, got func(state any, m M) any) func(*descriptor.World, *descriptor.Dump, descriptor.Candidates) ([]descriptor.Found, error) {
	return func(_ *descriptor.World, d *descriptor.Dump, c descriptor.Candidates) (out []descriptor.Found, err error) {
		c.Each(func(key string, state any, wanted bool) {
			if !wanted && c.Wanted(key) != nil {
				return
			}
			all, failed := descriptor.Details[M](d, ask.GetMessageName())
			if failed != nil {
				err = failed
				return
			}
			for _, m := range all {
				out = append(out, descriptor.Found{Key: key, State: got(state, m)})
			}
		})
		return out, err
	}
}

func compileHandover(_ string, m *contivlinux.Handover) (*handover, error) {
	o := &handover{iface: m.GetInterface(), refuse: m.GetRefuse(), links: m.GetVppLinks(), devices: m.GetVppDevices()}
	if o.iface == "" {
		return nil, errors.New("interface: empty")
	}
	for i, t := range m.GetTunnels() {
		node, err := descriptor.ParseAddr(fmt.Sprintf("tunnels[%d].node_address", i), t.GetNodeAddress())
		if err != nil {
			return nil, err
		}
		own, err := descriptor.ParseAddr(fmt.Sprintf("tunnels[%d].vpp_address", i), t.GetVppAddress())
		if err != nil {
			return nil, err
		}
		if node.Is4() != own.Is4() {
			return nil, fmt.Errorf("tunnels[%d].vpp_address: %s is of another family than %s", i, own, node)
		}
		if t.GetPort() == 0 || t.GetPort() > 65535 {
			return nil, fmt.Errorf("tunnels[%d].port: %d is not a port (1 to 65535)", i, t.GetPort())
		}
		o.tunnels = append(o.tunnels, tunnel{node, own, uint16(t.GetPort())})
	}
	for _, list := range []struct {
		field string
		texts []string
		out   *[]netip.Prefix
	}{{"masquerade", m.GetMasquerade(), &o.masquerade}, {"exempt", m.GetExempt(), &o.exempt}} {
		for i, s := range list.texts {
			p, err := descriptor.ParsePrefix(fmt.Sprintf("%s[%d]", list.field, i), s)
			if err != nil {
				return nil, err
			}
			*list.out = append(*list.out, p.Masked())
		}
	}
	for i, s := range o.links {
		if s == "" || len(s) > maxName {
			return nil, fmt.Errorf("vpp_links[%d]: %q begins no name of a link", i, s)
		}
	}
	for i, s := range o.devices {
		if s == "" || len(s) > maxName {
			return nil, fmt.Errorf("vpp_devices[%d]: %q is not the name of a link", i, s)
		}
	}
	for i, d := range m.GetDetours() {
		c, err := compileDetour(fmt.Sprintf("detours[%d]", i), d)
		if err != nil {
			return nil, err
		}
		o.detours = append(o.detours, c)
	}
	o.print = o.fingerprint()
	return o, nil
}

func compileDetour(field string, m *contivlinux.Handover_Detour) (d detour, err error) {
	if d.address, err = descriptor.ParseAddr(field+".address", m.GetAddress()); err != nil {
		return d, err
	}
	for i, s := range m.GetSources() {
		p, err := descriptor.ParsePrefix(fmt.Sprintf("%s.sources[%d]", field, i), s)
		if err != nil {
			return d, err
		}
		if p.Addr().Is4() != d.address.Is4() {
			return d, fmt.Errorf("%s.sources[%d]: %s is of another family than %s", field, i, p, d.address)
		}
		d.sources = append(d.sources, p.Masked())
	}
	return d, nil
}

func (o *handover) handoverMessage() *contivlinux.Handover {
	m := &contivlinux.Handover{Interface: o.iface, Refuse: o.refuse, VppLinks: o.links, VppDevices: o.devices}
	for _, t := range o.tunnels {
		m.Tunnels = append(m.Tunnels, &contivlinux.Handover_Tunnel{NodeAddress: t.node.String(), VppAddress: t.vpp.String(), Port: uint32(t.port)})
	}
	for _, p := range o.masquerade {
		m.Masquerade = append(m.Masquerade, p.String())
	}
	for _, p := range o.exempt {
		m.Exempt = append(m.Exempt, p.String())
	}
	for _, d := range o.detours {
		to := &contivlinux.Handover_Detour{Address: d.address.String()}
		for _, p := range d.sources {
			to.Sources = append(to.Sources, p.String())
		}
		m.Detours = append(m.Detours, to)
	}
	return m
}

// rulesVersion changes whenever equal values become other rules.
const rulesVersion = 2

// fingerprint is the same in every process: a restarted agent recognises the rules.
func (o *handover) fingerprint() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %s", rulesVersion, kv.Format(kv.HandoverKey, o.handoverMessage())))
	return fmt.Sprintf("%x", sum[:8])
}

func (o *handover) putHandover(w *descriptor.World) ([]descriptor.Op, error) {
	l, ok := hostLinksOf(w)[o.iface]
	if !ok {
		return nil, fmt.Errorf("interface %q is not on the host", o.iface)
	}
	refuse, ok := LinkName(w, o.refuse)
	if !ok && o.refuse != "" {
		return nil, fmt.Errorf("interface %q is not on the host", o.refuse)
	}
	return []descriptor.Op{{Call: vpp.Call{Msg: &PutHandover{Link: l.name, Refuse: refuse, Rules: o}}}}, nil
}

// PutHandover replaces our tables of the packet filter, all at once.
type PutHandover struct {
	Message
	Link   string `binapi:"string,name=link"`
	Refuse string `binapi:"string,name=refuse"`
	Rules  *handover
}

// GetMessageName is "handover_put".
func (*PutHandover) GetMessageName() string { return "handover_put" }

func (r *PutHandover) do(h *handles) ([]api.Message, error) {
	c, err := h.filter()
	if err != nil {
		return nil, err
	}
	dropTables(c)
	for _, t := range r.Rules.tables(r.Link, r.Refuse) {
		t.addTo(c)
	}
	return nil, Wrap("replace the tables "+Table+" of the packet filter", c.Flush())
}

// DropHandover removes our tables.
type DropHandover struct{ Message }

// GetMessageName is "handover_drop".
func (*DropHandover) GetMessageName() string { return "handover_drop" }

func (*DropHandover) do(h *handles) ([]api.Message, error) {
	c, err := h.filter()
	if err != nil {
		return nil, err
	}
	dropTables(c)
	return nil, Wrap("remove the tables "+Table+" of the packet filter", c.Flush())
}

// dropTables removes the tables whether they exist or not: an addition of an existing table changes nothing.
func dropTables(c *nftables.Conn) {
	for _, family := range []nftables.TableFamily{nftables.TableFamilyINet, nftables.TableFamilyARP} {
		c.DelTable(c.AddTable(&nftables.Table{Name: Table, Family: family}))
	}
}

// GetHandover asks for the fingerprint of our tables. There is no answer without tables.
type GetHandover struct {
	Message
	Print string // "": the tables are not as the agent made them
}

// GetMessageName is "handover_get".
func (*GetHandover) GetMessageName() string { return "handover_get" }

func (*GetHandover) do(h *handles) ([]api.Message, error) {
	c, err := h.filter()
	if err != nil {
		return nil, err
	}
	inet, exists, err := Fingerprint(c, nftables.TableFamilyINet, Table)
	if err != nil {
		return nil, err
	}
	arp, alsoARP, err := Fingerprint(c, nftables.TableFamilyARP, Table)
	switch {
	case err != nil || !exists && !alsoARP:
		return nil, err
	case inet != arp:
		inet = ""
	}
	return []api.Message{&GetHandover{Print: inet}}, nil
}

// filter opens the packet filter of the agent's namespace.
func (h *handles) filter() (*nftables.Conn, error) {
	own, err := h.handleOf("")
	if err != nil {
		return nil, err
	}
	c, err := nftables.New(nftables.WithNetNSFd(int(own.ns)))
	return c, Wrap("open the packet filter", err)
}
