package sim

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.fd.io/govpp/binapi/fib_types"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip_types"
	vpppunt "go.fd.io/govpp/binapi/punt"

	"github.com/contiv-agent/contiv-agent/sim/frame"
	"github.com/contiv-agent/contiv-agent/sim/punt"
)

// punts is the punt configuration. Only packets with bytes are redirected; the sim assumes that startup.conf configures a punt socket.
type punts struct {
	redirects map[redirectKey][]fib_types.FibPath
	counts    [2]int // of redirects by family, in VPP's counting, which ignores their existence
	sockets   punt.Sockets
	parts     frame.Parts // of datagrams to VPP itself
}

type redirectKey struct {
	af ip_types.AddressFamily
	rx uint32 // 0: any
}

func (p *punts) init() {
	*p = punts{redirects: map[redirectKey][]fib_types.FibPath{}, sockets: punt.Sockets{}}
}

func puntMessages(t *apiTable) {
	onWrite(t, func(q *call, m *ip.AddDelIPPuntRedirectV2) *ip.AddDelIPPuntRedirectV2Reply {
		return &ip.AddDelIPPuntRedirectV2Reply{Retval: q.puntRedirect(m)}
	})
	t.handlers[nameCRC(&ip.AddDelIPPuntRedirectV2{})].fits = arrayFits(1+4+1, 55+16*7)
	onDump(t, func(q *call, m *ip.IPPuntRedirectV2Dump, send func(*ip.IPPuntRedirectV2Details)) {
		for _, k := range q.punt.places() {
			rx := interface_types.InterfaceIndex(k.rx)
			if rx == 0 {
				rx = ^rx
			}
			if k.af == m.Af && (uint32(m.SwIfIndex) == noIndex || rx == m.SwIfIndex) {
				paths := q.punt.redirects[k]
				send(&ip.IPPuntRedirectV2Details{Punt: ip.PuntRedirectV2{RxSwIfIndex: rx, Af: k.af, NPaths: uint32(len(paths)), Paths: paths}})
			}
		}
	})
	onWrite(t, func(q *call, m *vpppunt.PuntSocketRegister) *vpppunt.PuntSocketRegisterReply {
		return &vpppunt.PuntSocketRegisterReply{Retval: q.punt.sockets.Register(m), Pathname: "/run/vpp/punt.sock"}
	})
	onWrite(t, func(q *call, m *vpppunt.PuntSocketDeregister) *vpppunt.PuntSocketDeregisterReply {
		delete(q.punt.sockets, m.Punt)
		return &vpppunt.PuntSocketDeregisterReply{}
	})
	onDump(t, func(q *call, m *vpppunt.PuntSocketDump, send func(*vpppunt.PuntSocketDetails)) {
		for _, p := range q.punt.sockets.Registered() {
			if p.Type == m.Type {
				send(&vpppunt.PuntSocketDetails{Punt: p, Pathname: q.punt.sockets[p]})
			}
		}
	})
	onDump(t, func(_ *call, m *vpppunt.PuntReasonDump, send func(*vpppunt.PuntReasonDetails)) {
		for _, r := range punt.Reasons(m.Reason.Name) {
			send(&vpppunt.PuntReasonDetails{Reason: r})
		}
	})
}

func (p *punts) places() []redirectKey {
	return slices.SortedFunc(maps.Keys(p.redirects), func(a, b redirectKey) int {
		return cmp.Or(cmp.Compare(a.af, b.af), cmp.Compare(a.rx, b.rx))
	})
}

// puntRedirect overwrites an existing redirect, removes even a missing one, and counts both.
func (v *VPP) puntRedirect(m *ip.AddDelIPPuntRedirectV2) int32 {
	if m.Punt.Af > ip_types.ADDRESS_IP6 {
		return rvInvalidAddressFam
	}
	for i := range m.Punt.Paths {
		p := &m.Punt.Paths[i]
		if rv := v.checkPath(decodePath(p), fam6(p.Proto == fib_types.FIB_API_PATH_NH_PROTO_IP6)); rv != 0 {
			return rv
		}
	}
	k := redirectKey{m.Punt.Af, uint32(m.Punt.RxSwIfIndex)}
	if k.rx == noIndex {
		k.rx = 0
	}
	if m.IsAdd {
		v.punt.counts[k.af]++
		v.punt.redirects[k] = m.Punt.Paths
	} else {
		v.punt.counts[k.af]--
		delete(v.punt.redirects, k)
	}
	return 0
}

func (v *VPP) dumpPunt(b *strings.Builder) {
	for _, k := range v.punt.places() {
		rx := "any"
		if k.rx != 0 {
			rx = v.ifs.name(k.rx)
		}
		fmt.Fprintf(b, "punt-redirect %s rx %s", k.af, rx)
		for i := range v.punt.redirects[k] {
			b.WriteString(" " + decodePath(&v.punt.redirects[k][i]).normalText(v.ifs.name))
		}
		b.WriteByte('\n')
	}
	for af, n := range v.punt.counts {
		on := len(slices.DeleteFunc(v.punt.places(), func(k redirectKey) bool { return int(k.af) != af }))
		if n != on {
			fmt.Fprintf(b, "punt-redirect family %d counted %d of %d\n", af, n, on)
		}
	}
	b.WriteString(v.punt.sockets.Text())
}
