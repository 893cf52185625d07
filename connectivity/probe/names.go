package probe

import (
	"context"
	"net"
	"os"
	"slices"
	"strings"
)

// lookUp looks a name up, as programs of the pod do or at one server. It asks again until there is an answer.
func (p *Probe) lookUp(ctx context.Context) (o Outcome) {
	ctx, cancel := context.WithTimeout(ctx, p.Limit)
	defer cancel()
	r := &net.Resolver{PreferGo: true}
	if p.Server != "" {
		r.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, network, p.Server)
		}
	}
	network := "ip"
	if p.Family != 0 {
		network = map[int]string{4: "ip4", 6: "ip6"}[p.Family]
	}
	for {
		addrs, err := r.LookupNetIP(ctx, network, p.To)
		if err == nil {
			for _, a := range addrs {
				o.Addresses = append(o.Addresses, a.Unmap().String())
			}
			slices.Sort(o.Addresses)
			return Outcome{Addresses: o.Addresses}
		}
		if ctx.Err() != nil {
			if o.Symptom == "" {
				o.fail(err)
			}
			return o
		}
		o = Outcome{}
		o.fail(err)
		sleep(ctx, pause)
	}
}

// resolvConf is where a pod's name servers are.
const resolvConf = "/etc/resolv.conf"

// describeSelf returns the links of this pod but loopback, and its name servers.
func describeSelf() (o Outcome) {
	links, err := net.Interfaces()
	if err != nil {
		o.fail(err)
		return o
	}
	for _, l := range links {
		if l.Flags&net.FlagLoopback != 0 {
			continue
		}
		link := Link{Name: l.Name, Up: l.Flags&net.FlagUp != 0 && l.Flags&net.FlagRunning != 0, MTU: l.MTU}
		addrs, _ := l.Addrs() // a link that is just removed has none
		for _, a := range addrs {
			link.Addresses = append(link.Addresses, a.String())
		}
		o.Links = append(o.Links, link)
	}
	text, _ := os.ReadFile(resolvConf) // a pod without one has no name server
	o.Servers = nameServers(string(text))
	return o
}

// nameServers reads a resolv.conf.
func nameServers(text string) (out []string) {
	for line := range strings.Lines(text) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "nameserver" {
			out = append(out, fields[1])
		}
	}
	return out
}
