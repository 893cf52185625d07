package l3

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"go.fd.io/govpp/binapi/arp"
	"go.fd.io/govpp/binapi/interface_types"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/l3"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

const (
	idProxyRanges = "proxy_arp_dump"
	idProxyIfaces = "proxy_arp_intfc_dump"
)

// proxyARP has the addresses that VPP answers for in place of others. The interfaces that it answers on are derived values.
type proxyARP struct {
	ranges []proxyRange // in the message's order
	ifaces []string
}

// proxyRange is a range of addresses, including both ends.
type proxyRange struct {
	vrf       uint32
	low, high netip.Addr
}

// proxyIface is an interface that VPP answers on.
type proxyIface struct{ name string }

// ProxyARP describes ligato's ProxyARP. Ranges and interfaces of other clients stay. The journal has the value, and so the
// ownership of an interface that an earlier agent process turned on.
func ProxyARP() *descriptor.Descriptor {
	return descriptor.Spec[*l3.ProxyARP, *proxyARP]{
		Name: "proxy-arp", Prefix: kv.ProxyARPKey,
		Compile: compileProxyARP, Message: (*proxyARP).proxyMessage,
		Equal: func(have, want *proxyARP) bool {
			return len(have.ranges) == len(want.ranges) && len(want.missing(have)) == 0
		},
		Dependencies: func(p *proxyARP) (deps []descriptor.Dependency) {
			for _, r := range p.ranges {
				if d := (descriptor.Dependency{Key: descriptor.VRFKey(r.vrf, false)}); r.vrf != 0 && !slices.Contains(deps, d) {
					deps = append(deps, d)
				}
			}
			return deps
		},
		Derived: func(p *proxyARP) (out []descriptor.Derived) {
			for _, i := range p.ifaces {
				out = append(out, descriptor.Derived{Key: kv.ProxyARPInterfaceKey(i), State: &proxyIface{i}})
			}
			return out
		},
		Create: func(_ *descriptor.World, p *proxyARP) ([]descriptor.Op, error) { return answerFor(p.ranges, true), nil },
		Update: func(_ *descriptor.World, have, want *proxyARP) ([]descriptor.Op, error) {
			return append(answerFor(want.missing(have), true), answerFor(have.missing(want), false)...), nil
		},
		Delete: func(_ *descriptor.World, p *proxyARP) ([]descriptor.Op, error) {
			return answerFor(p.ranges, false), nil
		},
		Dumps: func(*descriptor.World, descriptor.Candidates) []descriptor.Request {
			return []descriptor.Request{descriptor.DumpRequest(idProxyRanges, &arp.ProxyArpDump{})}
		},
		Retrieve: retrieveProxyARP,
	}.Descriptor()
}

func compileProxyARP(_ string, m *l3.ProxyARP) (*proxyARP, error) {
	p := &proxyARP{}
	for n, i := range m.GetInterfaces() {
		switch {
		case i.GetName() == "":
			return nil, fmt.Errorf("interfaces[%d].name: empty", n)
		case slices.Contains(p.ifaces, i.GetName()):
			return nil, fmt.Errorf("interfaces[%d].name: %q twice", n, i.GetName())
		}
		p.ifaces = append(p.ifaces, i.GetName())
	}
	for n, r := range m.GetRanges() {
		low, err := descriptor.Parse4(fmt.Sprintf("ranges[%d].first_ip_addr", n), r.GetFirstIpAddr())
		if err != nil {
			return nil, err
		}
		high, err := descriptor.Parse4(fmt.Sprintf("ranges[%d].last_ip_addr", n), r.GetLastIpAddr())
		if err != nil {
			return nil, err
		}
		if high.Less(low) {
			return nil, fmt.Errorf("ranges[%d].last_ip_addr: %s is before %s", n, high, low)
		}
		next := proxyRange{r.GetVrfId(), low, high}
		if slices.Contains(p.ranges, next) {
			return nil, fmt.Errorf("ranges[%d]: twice", n)
		}
		p.ranges = append(p.ranges, next)
	}
	if len(p.ranges)+len(p.ifaces) == 0 {
		return nil, errors.New("ranges: neither these nor interfaces are set")
	}
	return p, nil
}

func (p *proxyARP) proxyMessage() *l3.ProxyARP {
	m := &l3.ProxyARP{}
	for _, i := range p.ifaces {
		m.Interfaces = append(m.Interfaces, &l3.ProxyARP_Interface{Name: i})
	}
	for _, r := range p.ranges {
		m.Ranges = append(m.Ranges, &l3.ProxyARP_Range{FirstIpAddr: r.low.String(), LastIpAddr: r.high.String(), VrfId: r.vrf})
	}
	return m
}

// missing returns the ranges of p that o lacks.
func (p *proxyARP) missing(o *proxyARP) []proxyRange {
	return slices.DeleteFunc(slices.Clone(p.ranges), func(r proxyRange) bool { return slices.Contains(o.ranges, r) })
}

func answerFor(ranges []proxyRange, add bool) (ops []descriptor.Op) {
	for _, r := range ranges {
		ops = append(ops, descriptor.Op{Gone: !add, Call: descriptor.Write(&arp.ProxyArpAddDel{
			IsAdd: add, Proxy: arp.ProxyArp{TableID: r.vrf, Low: r.low.As4(), Hi: r.high.As4()},
		})})
	}
	return ops
}

// shownAs reports whether a dump shows r as o: VPP 24.06 returns the table's memory index in place of its ID, and only table 0's
// index is known (proxy_arp_dump; 25.10 returns the ID).
func (r proxyRange) shownAs(o proxyRange) bool {
	return r.low == o.low && r.high == o.high && (r.vrf == 0) == (o.vrf == 0)
}

// retrieveProxyARP finds the ranges of each candidate in VPP; a candidate without ranges exists as far as its interfaces do.
func retrieveProxyARP(w *descriptor.World, d *descriptor.Dump, c descriptor.Candidates) ([]descriptor.Found, error) {
	all, err := descriptor.Details[*arp.ProxyArpDetails](d, idProxyRanges)
	if err != nil {
		return nil, err
	}
	var inVPP []proxyRange
	for _, m := range all {
		inVPP = append(inVPP, proxyRange{m.Proxy.TableID, netip.AddrFrom4(m.Proxy.Low), netip.AddrFrom4(m.Proxy.Hi)})
	}
	clear(proxiedOf(w))
	got, known := &proxyARP{}, false
	c.Each(func(_ string, state any, _ bool) {
		p := state.(*proxyARP)
		known = known || len(p.ranges) == 0
		got.ifaces = p.ifaces
		for _, i := range p.ifaces {
			proxiedOf(w)[i] = true
		}
		for _, r := range p.ranges {
			n := slices.Index(inVPP, r)
			if n < 0 {
				n = slices.IndexFunc(inVPP, r.shownAs)
			}
			if n >= 0 && !slices.Contains(got.ranges, r) {
				got.ranges, inVPP = append(got.ranges, r), slices.Delete(inVPP, n, n+1)
			}
		}
	})
	if !known && len(got.ranges) == 0 {
		return nil, nil
	}
	return []descriptor.Found{{Key: kv.ProxyARPKey, State: got}}, nil
}

// ProxyARPInterface describes the value that a ProxyARP derives for each of its interfaces.
func ProxyARPInterface() *descriptor.Descriptor {
	return descriptor.Spec[*l3.ProxyARP, *proxyIface]{
		Name: "proxy-arp-interface", Prefix: "vpp/proxyarp/interface/", Tagged: true,
		Compile: descriptor.NoMessage[*l3.ProxyARP, *proxyIface], Message: func(*proxyIface) *l3.ProxyARP { return nil },
		Equal: func(have, want *proxyIface) bool { return *have == *want },
		Dependencies: func(i *proxyIface) []descriptor.Dependency {
			return []descriptor.Dependency{{Key: kv.InterfaceKey(i.name), Bond: descriptor.Dies}}
		},
		Create: createProxyIface,
		Delete: func(w *descriptor.World, i *proxyIface) ([]descriptor.Op, error) { return i.sendEnable(w, false) },
		Dumps: func(*descriptor.World, descriptor.Candidates) []descriptor.Request {
			return []descriptor.Request{descriptor.DumpRequest(idProxyIfaces, &arp.ProxyArpIntfcDump{})}
		},
		Retrieve: retrieveProxyIfaces,
	}.Descriptor()
}

// createProxyIface first turns proxy ARP off: VPP keeps the setting of a deleted interface. The next interface of that index then
// shows as answering, does not answer, and cannot be turned on (proxy_arp_intfc_enable_disable, VPP 24.06).
func createProxyIface(w *descriptor.World, i *proxyIface) ([]descriptor.Op, error) {
	off, err := i.sendEnable(w, false)
	if err != nil {
		return nil, err
	}
	on, err := i.sendEnable(w, true)
	return append(off, on...), err
}

func (i *proxyIface) sendEnable(w *descriptor.World, on bool) ([]descriptor.Op, error) {
	idx, err := w.Index(i.name)
	if err != nil {
		return nil, err
	}
	return []descriptor.Op{{Gone: !on, Call: descriptor.Write(&arp.ProxyArpIntfcEnableDisable{SwIfIndex: idx, Enable: on})}}, nil
}

// retrieveProxyIfaces looks up the names of candidates, and the interfaces that ProxyARP found to be ours.
func retrieveProxyIfaces(w *descriptor.World, d *descriptor.Dump, c descriptor.Candidates) ([]descriptor.Found, error) {
	all, err := descriptor.Details[*arp.ProxyArpIntfcDetails](d, idProxyIfaces)
	if err != nil {
		return nil, err
	}
	on := map[interface_types.InterfaceIndex]bool{}
	for _, m := range all {
		on[interface_types.InterfaceIndex(m.SwIfIndex)] = true
	}
	names := map[string]bool{}
	for n := range proxiedOf(w) {
		names[n] = true
	}
	c.Each(func(_ string, state any, _ bool) { names[state.(*proxyIface).name] = true })
	var out []descriptor.Found
	for n := range names {
		if idx, err := w.Index(n); err == nil && on[idx] {
			out = append(out, descriptor.Found{Key: kv.ProxyARPInterfaceKey(n), Base: kv.ProxyARPKey, State: &proxyIface{n}, Ours: true})
		}
	}
	slices.SortFunc(out, func(a, b descriptor.Found) int { return strings.Compare(a.Key, b.Key) })
	return out, nil
}

// proxied has the interfaces on which the agent owns the setting of proxy ARP and may turn it off.
type proxied map[string]bool

func proxiedOf(w *descriptor.World) proxied {
	return descriptor.FactsOf(w, func() proxied { return proxied{} })
}

// Clone implements Facts.
func (p proxied) Clone() descriptor.Facts { return maps.Clone(p) }
