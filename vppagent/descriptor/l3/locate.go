package l3

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"

	"go.fd.io/govpp/binapi/fib_types"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip"
	"go.fd.io/govpp/binapi/ip_neighbor"
	"go.fd.io/govpp/binapi/ip_types"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

// Locate finds where addresses are in VPP, whichever CNI configured them, by lookups in VPP's FIB (ip_route_lookup, VPP 24.06).
// It sends all lookups in one batch, and those that depend on their answers in another.
//
// A pod is behind the interface that its /32 route leads to, or behind the interface whose tag is or contains "namespace/name".
// The uplink has the node's address, or the default route. The overlay is the interface to the other nodes' pods, if it is not
// the uplink. The host interface is neither, also if these routes lead to it: the node's network stack then has the address, or forwards
// what leaves the node.
func Locate(ctx context.Context, do func(context.Context, ...vpp.Call) []vpp.Reply, w *descriptor.World, l *event.Locate) (*event.Located, error) {
	f := &finder{w: w, do: do, host: w.Canonical(l.Override.Host), out: &event.Located{Pods: make(map[netip.Addr]string, len(l.Pods))}}
	if err := f.lookups(ctx, l); err != nil {
		return nil, err
	}
	f.names(l.Names)
	override(&f.out.Uplink, l.Override.Uplink)
	override(&f.out.Overlay, l.Override.Overlay)
	override(&f.out.Host, l.Override.Host)
	f.out.ByHost = f.out.Uplink == "" && f.host != "" && slices.Contains(f.out.Node, f.host)
	for addr, name := range l.Override.Pods {
		f.out.Pods[addr] = name
	}
	if f.out.Overlay == "" {
		f.out.Overlay = f.out.Uplink
	}
	if err := f.uplinkAddresses(ctx); err != nil {
		return f.out, err
	}
	if f.out.HostIPs = l.Override.HostIPs; len(f.out.HostIPs) > 0 {
		return f.out, nil
	}
	return f.out, f.hostAddresses(ctx)
}

// hostAddresses returns the neighbours on the host interface: the node's network stack is the only neighbour there.
func (f *finder) hostAddresses(ctx context.Context) error {
	i, ok := f.w.Interface(f.out.Host)
	if !ok {
		return nil
	}
	dump := func(af ip_types.AddressFamily) vpp.Call {
		return vpp.Call{Dump: true, Msg: &ip_neighbor.IPNeighborDump{SwIfIndex: interface_types.InterfaceIndex(i.Index), Af: af}}
	}
	for _, r := range f.do(ctx, dump(ip_types.ADDRESS_IP4), dump(ip_types.ADDRESS_IP6)) {
		if r.Err != nil {
			return r.Err
		}
		for _, m := range r.Details {
			if a := descriptor.FromAddress(m.(*ip_neighbor.IPNeighborDetails).Neighbor.IPAddress); a.Is4() || !a.IsLinkLocalUnicast() {
				f.out.HostIPs = append(f.out.HostIPs, a)
			}
		}
	}
	slices.SortFunc(f.out.HostIPs, netip.Addr.Compare)
	return nil
}

func override(found *string, given string) {
	if given != "" {
		*found = given
	}
}

type finder struct {
	w    *descriptor.World
	do   func(context.Context, ...vpp.Call) []vpp.Reply
	host string // the host interface; "": none that VPP has
	out  *event.Located
}

func lookup(p netip.Prefix, exact bool) vpp.Call {
	m := &ip.IPRouteLookup{Prefix: descriptor.ToPrefix(p)}
	if exact {
		m.Exact = 1
	}
	return vpp.Call{Msg: m}
}

func host(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

func (f *finder) lookups(ctx context.Context, l *event.Locate) error {
	pods := make([]netip.Addr, 0, len(l.Pods))
	for a := range l.Pods {
		pods = append(pods, a)
	}
	slices.SortFunc(pods, netip.Addr.Compare)
	var calls []vpp.Call
	for _, a := range pods {
		calls = append(calls, lookup(host(a), true))
	}
	for _, a := range l.NodeIPs {
		calls = append(calls, lookup(host(a), true))
	}
	calls = append(calls, lookup(netip.PrefixFrom(netip.IPv4Unspecified(), 0), true))
	for _, p := range l.Remote {
		calls = append(calls, lookup(p.Masked(), false))
	}
	replies := f.do(ctx, calls...)
	for _, r := range replies {
		if _, refused := errors.AsType[*vpp.Retval](r.Err); r.Err != nil && !refused {
			return r.Err
		}
	}
	behind := make([]string, len(pods))
	for i := range pods {
		behind[i] = f.interfaceBehind(replies[i], false)
	}
	named := f.learnNames(behind, pods, l.Pods)
	for i, a := range pods {
		name := behind[i]
		if name == "" || named && f.ofAnother(name, l.Pods[a]) {
			name = f.tagged(l.Pods[a])
		}
		if name != "" {
			f.out.Pods[a] = name
		}
	}
	replies = replies[len(pods):]
	for i := range l.NodeIPs {
		name := f.interfaceBehind(replies[i], true)
		f.ofNode(name)
		if f.out.Uplink == "" && name != f.host {
			f.out.Uplink = name
		}
	}
	replies = replies[len(l.NodeIPs):]
	remote := slices.DeleteFunc(slices.Clone(replies[1:]), defaultRoute)
	if len(remote) == 0 {
		remote = replies[1:]
		f.out.NoOverlay = l.Override.Overlay == "" && len(remote) > 0
	}
	return f.gateways(ctx, replies[0], remote)
}

// defaultRoute reports that the best route of a lookup is the default route.
func defaultRoute(r vpp.Reply) bool {
	m, ok := r.Msg.(*ip.IPRouteLookupReply)
	return r.Err != nil || !ok || m.Route.Prefix.Len == 0
}

// gateways finds the interfaces of the default route and of the remote pods; a route may have only a next hop, which gateways
// then looks up.
func (f *finder) gateways(ctx context.Context, def vpp.Reply, remote []vpp.Reply) error {
	want := append([]vpp.Reply{def}, remote...)
	var again []int
	var calls []vpp.Call
	for i, r := range want {
		if via := recursive(r); via.IsValid() {
			again, calls = append(again, i), append(calls, lookup(host(via), false))
		}
	}
	if len(calls) > 0 {
		for i, r := range f.do(ctx, calls...) {
			if _, refused := errors.AsType[*vpp.Retval](r.Err); r.Err != nil && !refused {
				return r.Err
			}
			want[again[i]] = r
		}
	}
	if name := f.interfaceBehind(want[0], false); f.out.Uplink == "" && name != f.host {
		f.out.Uplink = name
	}
	for _, r := range want {
		f.ofNode(f.interfaceBehind(r, false))
	}
	for _, r := range want[1:] {
		if name := f.interfaceBehind(r, false); f.out.Overlay == "" && name != "" && name != f.host {
			f.out.Overlay = name
		}
	}
	return nil
}

// ofNode records an interface that is not a pod's; "": none.
func (f *finder) ofNode(name string) {
	if name != "" && !slices.Contains(f.out.Node, name) {
		f.out.Node = append(f.out.Node, name)
	}
}

// interfaceBehind returns the interface that a looked-up route leads to: that of its first path with one. local also accepts the receive
// route of one of VPP's addresses.
func (f *finder) interfaceBehind(r vpp.Reply, local bool) string {
	m, ok := r.Msg.(*ip.IPRouteLookupReply)
	if r.Err != nil || !ok {
		return ""
	}
	for _, p := range m.Route.Paths {
		usable := p.Type == fib_types.FIB_API_PATH_TYPE_NORMAL || local && p.Type == fib_types.FIB_API_PATH_TYPE_LOCAL
		if usable && p.SwIfIndex != descriptor.None {
			if name := f.w.Name(p.SwIfIndex); name != "" {
				return name
			}
		}
	}
	return ""
}

// recursive returns the next hop of a route that names no interface.
func recursive(r vpp.Reply) netip.Addr {
	m, ok := r.Msg.(*ip.IPRouteLookupReply)
	if r.Err != nil || !ok {
		return netip.Addr{}
	}
	for _, p := range m.Route.Paths {
		nh := descriptor.FromUnion(p.Nh.Address, p.Proto == fib_types.FIB_API_PATH_NH_PROTO_IP6)
		if p.Type == fib_types.FIB_API_PATH_TYPE_NORMAL && p.SwIfIndex == descriptor.None && !nh.IsUnspecified() {
			return nh
		}
	}
	return netip.Addr{}
}

// tagged returns the interface whose tag is "namespace/name" or contains it as a whole; "" if none or several match.
func (f *finder) tagged(pod string) string {
	if pod == "" {
		return ""
	}
	found := ""
	for _, i := range f.w.Interfaces() {
		if i.Tag == pod {
			return i.Name
		}
		if containsName(i.Tag, pod) {
			if found != "" {
				return ""
			}
			found = i.Name
		}
	}
	return found
}

// naming is whether the CNI names interfaces after their pods.
type naming struct{ afterPods bool }

// Clone implements descriptor.Facts.
func (n *naming) Clone() descriptor.Facts { c := *n; return &c }

// learnNames reports whether interfaces are named after their pods. If the only pod whose interface has a name has lost it to a new pod, earlier
// lookups decide.
func (f *finder) learnNames(behind []string, pods []netip.Addr, of map[netip.Addr]string) bool {
	n := descriptor.FactsOf(f.w, func() *naming { return &naming{} })
	others := map[string]bool{}
	for i, a := range pods {
		if f.isNamed(behind[i], of[a]) {
			n.afterPods = true
			return true
		}
		if f.podName(behind[i]) != "" {
			others[behind[i]] = true
		}
	}
	if len(others) > 1 {
		n.afterPods = false
	}
	return n.afterPods
}

// isNamed reports that an interface is named after a pod, by its tag or by the value that makes it.
func (f *finder) isNamed(iface, pod string) bool {
	return pod != "" && contains(f.podName(iface), pod, isAlphanumeric)
}

// ofAnother reports that an interface is named after another pod. That pod has the address of the former one, whose end the agent has not heard of.
func (f *finder) ofAnother(iface, pod string) bool {
	name := f.podName(iface)
	return pod != "" && name != "" && !contains(name, pod, isAlphanumeric) // CNIs add "-eth0"
}

// podName is what a pod's interface is named after its pod; "" if the name may be cut off or replaced by a hash, and of other interfaces.
func (f *finder) podName(iface string) string {
	i, ok := f.w.Interface(iface)
	switch {
	case !ok || !i.OfPod():
		return ""
	case i.Ours && strings.Contains(i.Name, "/"):
		return i.Name
	case !i.Ours && len(i.Tag) < descriptor.MaxTag:
		return i.Tag
	}
	return ""
}

// names finds interfaces without an address: by a pod, or by a name outside VPP, on the host.
func (f *finder) names(pods []string) {
	for _, pod := range pods {
		name := f.tagged(pod)
		if _, is := f.w.Interface(pod); is && name == "" {
			name = pod
		}
		if name != "" {
			if f.out.Names == nil {
				f.out.Names = map[string]string{}
			}
			f.out.Names[pod] = name
		}
	}
}

// containsName reports that s contains name, and not as a part of a longer name.
func containsName(s, name string) bool { return contains(s, name, nameByte) }

// contains reports that s contains name, and neither before nor after it a byte that belongs to the same word.
func contains(s, name string, sameWord func(byte) bool) bool {
	for at := 0; ; {
		i := strings.Index(s[at:], name)
		if i < 0 {
			return false
		}
		i += at
		before := i == 0 || !sameWord(s[i-1])
		end := i + len(name)
		if before && (end == len(s) || !sameWord(s[end])) {
			return true
		}
		at = i + 1
	}
}

// nameByte reports whether a byte may be part of a Kubernetes name.
func nameByte(b byte) bool { return isAlphanumeric(b) || b == '-' || b == '.' }

func isAlphanumeric(b byte) bool {
	return b >= 'a' && b <= 'z' || b >= '0' && b <= '9' || b >= 'A' && b <= 'Z'
}

func (f *finder) uplinkAddresses(ctx context.Context) error {
	i, ok := f.w.Interface(f.out.Uplink)
	if !ok {
		return nil
	}
	dump := func(v6 bool) vpp.Call {
		return vpp.Call{Dump: true, Msg: &ip.IPAddressDump{SwIfIndex: interface_types.InterfaceIndex(i.Index), IsIPv6: v6}}
	}
	for _, r := range f.do(ctx, dump(false), dump(true)) {
		if r.Err != nil {
			return r.Err
		}
		for _, m := range r.Details {
			f.out.UplinkIPs = append(f.out.UplinkIPs, descriptor.FromPrefix(ip_types.Prefix(m.(*ip.IPAddressDetails).Prefix)))
		}
	}
	slices.SortFunc(f.out.UplinkIPs, descriptor.ComparePrefixes)
	return nil
}
