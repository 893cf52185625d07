package punt

import (
	"errors"
	"fmt"
	"net/netip"

	"go.fd.io/govpp/binapi/fib_types"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip_types"

	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/punt"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

// redirect sends packets that VPP would pass to the host to a neighbour instead.
type redirect struct {
	rx, tx string // rx "": any input interface
	next   netip.Addr
}

// IPRedirect describes ligato's IPRedirect. VPP has one for each family and input interface: it is a claim. Like a route it stays
// dead after its output interface was deleted and added again.
func IPRedirect() *descriptor.Descriptor {
	return descriptor.Spec[*punt.IPRedirect, *redirect]{
		Name: "punt-redirect", Prefix: "config/vpp/v2/ipredirect/",
		Compile: compileRedirect, Message: (*redirect).redirectMessage,
		Equal: func(have, want *redirect) bool { return *have == *want },
		Dependencies: func(r *redirect) []descriptor.Dependency {
			deps := []descriptor.Dependency{{Key: kv.InterfaceKey(r.tx), Bond: descriptor.Dies}}
			if r.rx != "" && r.rx != r.tx {
				deps = append(deps, descriptor.Dependency{Key: kv.InterfaceKey(r.rx), Bond: descriptor.Dies})
			}
			return deps
		},
		Claims: func(r *redirect) []string { return []string{fmt.Sprintf("punt redirect %d %s", r.family(), r.rx)} },
		Create: func(w *descriptor.World, r *redirect) ([]descriptor.Op, error) { return r.sendRedirect(w, true) },
		Delete: func(w *descriptor.World, r *redirect) ([]descriptor.Op, error) { return r.sendRedirect(w, false) },
		Dumps: func(*descriptor.World, descriptor.Candidates) []descriptor.Request {
			return []descriptor.Request{redirectRequest(0), redirectRequest(1)}
		},
		Retrieve: retrieveRedirects,
	}.Descriptor()
}

func redirectRequest(af ip_types.AddressFamily) descriptor.Request {
	return descriptor.DumpRequest("ip_punt_redirect_v2_dump "+af.String(), &ip.IPPuntRedirectV2Dump{SwIfIndex: interface_types.InterfaceIndex(descriptor.None), Af: af})
}

func compileRedirect(_ string, m *punt.IPRedirect) (*redirect, error) {
	r := &redirect{rx: m.GetRxInterface(), tx: m.GetTxInterface()}
	if r.tx == "" {
		return nil, errors.New("tx_interface: empty")
	}
	var err error
	if r.next, err = descriptor.ParseAddr("next_hop", m.GetNextHop()); err != nil {
		return nil, err
	}
	switch want := m.GetL3Protocol(); {
	case want != punt.L3Protocol_IPV4 && want != punt.L3Protocol_IPV6:
		return nil, fmt.Errorf("l3_protocol: %s is not one family, as next_hop is", want)
	case (want == punt.L3Protocol_IPV4) != r.next.Is4():
		return nil, fmt.Errorf("next_hop: %s is not %s", r.next, want)
	}
	return r, nil
}

func (r *redirect) redirectMessage() *punt.IPRedirect {
	m := &punt.IPRedirect{L3Protocol: punt.L3Protocol_IPV4, RxInterface: r.rx, TxInterface: r.tx, NextHop: r.next.String()}
	if r.next.Is6() {
		m.L3Protocol = punt.L3Protocol_IPV6
	}
	return m
}

func (r *redirect) family() ip_types.AddressFamily {
	if r.next.Is6() {
		return ip_types.ADDRESS_IP6
	}
	return ip_types.ADDRESS_IP4
}

// place is VPP's index of the redirect.
func (r *redirect) place(w *descriptor.World) (interface_types.InterfaceIndex, error) {
	if r.rx == "" {
		return interface_types.InterfaceIndex(descriptor.None), nil
	}
	return w.Index(r.rx)
}

func (r *redirect) sendRedirect(w *descriptor.World, add bool) ([]descriptor.Op, error) {
	rx, err := r.place(w)
	if err != nil {
		return nil, err
	}
	m := &ip.AddDelIPPuntRedirectV2{IsAdd: add, Punt: ip.PuntRedirectV2{RxSwIfIndex: rx, Af: r.family()}}
	if add {
		tx, err := w.Index(r.tx)
		if err != nil {
			return nil, err
		}
		p := fib_types.FibPath{SwIfIndex: uint32(tx), Weight: 1, Proto: fib_types.FibPathNhProto(r.family())}
		p.Nh.Address = descriptor.ToUnion(r.next)
		m.Punt.Paths = []fib_types.FibPath{p}
	}
	return []descriptor.Op{{Call: descriptor.Write(m), Gone: !add}}, nil
}

// retrieveRedirects looks up the candidates.
func retrieveRedirects(w *descriptor.World, d *descriptor.Dump, c descriptor.Candidates) ([]descriptor.Found, error) {
	type place struct {
		af ip_types.AddressFamily
		rx interface_types.InterfaceIndex
	}
	inVPP := map[place]fib_types.FibPath{}
	for af := ip_types.ADDRESS_IP4; af <= ip_types.ADDRESS_IP6; af++ {
		all, err := descriptor.Details[*ip.IPPuntRedirectV2Details](d, redirectRequest(af).ID)
		if err != nil {
			return nil, err
		}
		for _, m := range all {
			if len(m.Punt.Paths) == 1 {
				inVPP[place{af, m.Punt.RxSwIfIndex}] = m.Punt.Paths[0]
			}
		}
	}
	var out []descriptor.Found
	c.Each(func(key string, state any, wanted bool) {
		r := state.(*redirect)
		rx, err := r.place(w)
		if err != nil || !wanted && c.Wanted(key) != nil {
			return
		}
		if p, ok := inVPP[place{r.family(), rx}]; ok && w.Canonical(r.tx) == w.Name(p.SwIfIndex) && w.Canonical(r.tx) != "" {
			out = append(out, descriptor.Found{Key: key, State: &redirect{rx: r.rx, tx: r.tx, next: descriptor.FromUnion(p.Nh.Address, r.next.Is6())}})
		}
	})
	return out, nil
}
