package intent

import (
	"fmt"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/space"
	"github.com/contiv-agent/contiv-agent/verify/intent/ask"
	"github.com/contiv-agent/contiv-agent/verify/intent/class"
)

// side is what one side of an assertion selects.
type side struct {
	picks []pick
	pods  space.Set // headers from, or to, the selected addresses of pods, with the selected ports
	hosts space.Set // the same of other addresses
	may   space.Set // headers that policies let the selected pods send, or receive, and all headers of hosts
	doubt string
}

// pick is the selected addresses of a class: for each index the members that have it selected.
type pick struct {
	class *Class
	at    [][]int
}

// find resolves a side. The error says that it selects nothing.
func (c *Cluster) find(a ask.Side, destination bool) (*side, error) {
	d := &side{}
	switch a.Form {
	case ask.Any, ask.Outside:
		d.hosts = c.Outside(destination)
	case ask.CIDR:
		d.hosts = c.hostsIn(a.Prefix, destination)
	case ask.Service:
		if err := c.findService(d, a, destination); err != nil {
			return nil, err
		}
	}
	if a.Form != ask.Service {
		d.picks = c.pick(func(m *class.Member, addr netip.Addr) bool { return c.selects(&a, m, addr) })
		var nets []netip.Prefix
		for _, p := range d.picks {
			nets = append(nets, p.nets()...)
		}
		d.pods = c.at(destination, nets)
		if ports := c.ports(a.Ports); len(a.Ports) > 0 {
			d.pods, d.hosts = c.Space.Intersect(d.pods, ports), c.Space.Intersect(d.hosts, ports)
		}
	}
	if len(d.picks) == 0 && d.hosts.Empty() {
		return nil, fmt.Errorf("%s selects no pod and no address of these manifests (templates of pods, as in Deployments, are not read)", a.Text)
	}
	for _, p := range d.picks {
		if _, doubt := c.Allowed(p.class, !destination); doubt != "" {
			d.doubt = doubt
		}
	}
	key := fmt.Sprint(destination, a.Form, a.Namespace, "/", a.Name, a.Labels, a.Prefix)
	if a.Form == ask.Service {
		key = fmt.Sprint(destination, a.Text) // its ports select endpoints
	}
	may, known := c.may[key]
	if !known {
		may = c.permitted(d.picks, destination)
		c.may[key] = may
	}
	d.may = c.Space.Union(may, d.hosts)
	return d, nil
}

// permitted is what policies let the selected pods send, or receive. Classes with equal rights are joined first: they are few.
func (c *Cluster) permitted(picks []pick, destination bool) space.Set {
	nets := map[space.Set][]netip.Prefix{}
	var order []space.Set
	for _, p := range picks {
		set, _ := c.Allowed(p.class, !destination)
		if nets[set] == nil {
			order = append(order, set)
		}
		nets[set] = append(nets[set], p.nets()...)
	}
	var sets []space.Set
	for _, set := range order {
		sets = append(sets, c.Space.Intersect(c.at(destination, nets[set]), set))
	}
	return c.Space.Union(sets...)
}

func (p *pick) nets() (nets []netip.Prefix) {
	for i, members := range p.at {
		if len(members) > 0 {
			nets = append(nets, single(p.class.Addrs()[i])...)
		}
	}
	return nets
}

// pick returns the classes with a selected address.
func (c *Cluster) pick(selects func(*class.Member, netip.Addr) bool) (list []pick) {
	for _, k := range c.Classes {
		p, any := pick{k, make([][]int, len(k.Addrs()))}, false
		for m := range k.Members {
			for i, a := range k.Members[m].Addrs {
				if selects(&k.Members[m], a) {
					p.at[i], any = append(p.at[i], m), true
				}
			}
		}
		if any {
			list = append(list, p)
		}
	}
	return list
}

// namespaceLabels is the prefix of the labels that a pod inherits from its namespace.
const namespaceLabels = "pcns."

func (c *Cluster) selects(a *ask.Side, m *class.Member, addr netip.Addr) bool {
	switch a.Form {
	case ask.Any:
		return true
	case ask.CIDR:
		return a.Prefix.Contains(addr)
	case ask.Pod:
		return m.ID == model.PodID{Namespace: a.Namespace, Name: a.Name}
	case ask.Workload:
		return m.ID.Namespace == a.Namespace && class.Workload(m.Pod.Pod) == a.Name
	case ask.Namespace:
		return m.ID.Namespace == a.Namespace && (a.Labels == nil || a.Labels.Matches(labels.Set(m.Pod.Pod.Labels)))
	case ask.Pods:
		return a.Labels.Matches(labels.Set(m.Pod.Pod.Labels))
	case ask.Namespaces:
		return a.Labels.Matches(inherited(m.Labels()))
	}
	return false
}

// inherited is the labels of a pod's namespace.
type inherited map[string]string

func (l inherited) Has(key string) bool   { _, has := l[namespaceLabels+key]; return has }
func (l inherited) Get(key string) string { return l[namespaceLabels+key] }
func (l inherited) Lookup(key string) (string, bool) {
	v, has := l[namespaceLabels+key]
	return v, has
}

// hostsIn is the headers from, or to, addresses of a prefix that no pod has. Packets of nodes are left out: those to the node's own pods pass.
func (c *Cluster) hostsIn(prefix netip.Prefix, destination bool) space.Set {
	var taken []netip.Prefix
	for a := range c.byAddr {
		if prefix.Contains(a) {
			taken = append(taken, single(a)...)
		}
	}
	if !destination {
		taken = append(taken, c.nodes...)
	}
	return c.Space.Minus(c.at(destination, []netip.Prefix{prefix}), c.at(destination, taken))
}

// findService selects the endpoints of a Service: as receivers at the ports behind the selected ports of the Service.
func (c *Cluster) findService(d *side, a ask.Side, destination bool) error {
	id := model.ServiceID{Namespace: a.Namespace, Name: a.Name}
	at := slices.IndexFunc(c.Full.Services, func(o *model.Service) bool { return o.ID == id })
	if at < 0 {
		return fmt.Errorf("the manifests have no Service %s", id)
	}
	selected := map[netip.Addr]bool{}
	dials := false // the Service has a selected port
	for _, port := range c.Full.Services[at].Ports {
		if len(a.Ports) > 0 && !slices.ContainsFunc(a.Ports, func(p ask.Port) bool {
			return p.Protocol == uint16(port.Protocol) && p.First <= port.Port && port.Port <= p.Last
		}) {
			continue
		}
		dials = true
		for _, slice := range c.Full.Slices {
			for _, target := range slice.Ports {
				if slice.Service == id && target.Name == port.Name && target.Protocol == port.Protocol {
					c.addEndpoints(d, slice, target, destination, selected)
				}
			}
		}
	}
	if !dials {
		return fmt.Errorf("the Service %s has no port of %s", id, a.Text)
	}
	d.picks = c.pick(func(_ *class.Member, addr netip.Addr) bool { return selected[addr] })
	return nil
}

// addEndpoints adds the headers of one port of a slice's endpoints.
func (c *Cluster) addEndpoints(d *side, slice *model.EndpointSlice, port model.EndpointPort, destination bool, selected map[netip.Addr]bool) {
	s := c.Space
	for _, e := range slice.Endpoints {
		place, isPod := c.byAddr[e.Addr]
		addr := e.Addr
		if isPod {
			addr = place.class.Addrs()[place.index]
		}
		set := c.at(destination, single(addr))
		if destination {
			set = s.Intersect(set, c.ports([]ask.Port{{Protocol: uint16(port.Protocol), First: port.Port, Last: port.Port}}))
		}
		if selected[e.Addr] = true; isPod {
			d.pods = s.Union(d.pods, set)
		} else if destination || !slices.Contains(c.nodes, single(addr)[0]) {
			d.hosts = s.Union(d.hosts, set)
		}
	}
}

// ports is the headers to one of these ports. ICMP is all its messages in both families.
func (c *Cluster) ports(list []ask.Port) (set space.Set) {
	for _, p := range list {
		for _, b := range []space.Box{space.All4(), space.All6()} {
			switch b.Protocols, b.DstPorts = space.One(p.Protocol), (space.Span{First: p.First, Last: p.Last}); {
			case p.Protocol == space.ICMP && b.Src.Addr().Is6():
				b.Protocols, b.DstPorts = space.One(space.ICMPv6), space.Full()
			case p.Protocol == space.ICMP:
				b.DstPorts = space.Full()
			}
			set = c.Space.Union(set, c.Space.Box(b))
		}
	}
	return set
}
