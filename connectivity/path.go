package connectivity

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/contiv-agent/contiv-agent/agent/status"
	"github.com/contiv-agent/contiv-agent/connectivity/probe"
)

// The roles of test pods.
const (
	rolePod  = "pod"
	rolePeer = "peer"
	roleHost = "host"
)

// endpoint is a test pod.
type endpoint struct {
	name, role, node string
	addresses        []netip.Addr
	links            []probe.Link
	servers          []string // its name servers
}

// inFamily returns the endpoint's address of a family; invalid: it has none.
func (e *endpoint) inFamily(family int) netip.Addr { return ofFamily(e.addresses, family) }

func ofFamily(addrs []netip.Addr, family int) netip.Addr {
	for _, a := range addrs {
		if a.Is4() == (family == 4) {
			return a
		}
	}
	return netip.Addr{}
}

// machine is a node of the cluster.
type machine struct {
	name        string
	addresses   []netip.Addr
	direct      bool           // paths to other nodes without tunnels
	agent       string         // its agent's pod; "": none
	trouble     []string       // what the agent says, or why it says nothing
	status      *status.Status // nil: no answer
	differences []string       // of its VPP
}

// class is what a check is about.
type class int

const (
	sameNode class = iota
	otherNode
	hostToPod
	podToHost
	nodeToNode
	toAPIServer
	toClusterIP
	toNodePort
	toEmpty
	lookup    // by the name servers of the pod
	askServer // at each endpoint of the DNS Service
	policy
)

// check is a check with its paths.
type check struct {
	Result
	class  class
	family int
	paths  []*path
}

// path is one measurement of a check.
type path struct {
	check   *check
	from    *endpoint
	pod     *endpoint // where it leads; nil: to no single pod
	node    string    // whose address or pod it leads to; "": none
	to      string    // the same in words
	service string    // name of the Service that it leads through; "": none
	ask     Question  // for trace; zero: trace does not know
	probe   probe.Probe
	verify  func(*probe.Outcome) string // returns what is wrong with an outcome without Symptom; nil: nothing
	denied  bool                        // a policy denies it: it has to fail

	outcome probe.Outcome
	broken  error  // why it was not measured
	reason  string // why it failed; "": it did not
	skipped string
	causes  []string
}

// String is "node-1/pod-node-1 → pod-node-2".
func (p *path) String() string { return p.from.name + " → " + p.to }

// evaluate sets reason from the outcome.
func (p *path) evaluate() {
	o := &p.outcome
	p.reason, p.skipped = "", ""
	switch {
	case p.broken != nil:
		p.reason = "not measured, no program could be run in the pod: " + p.broken.Error()
	case p.denied && o.Symptom == "":
		p.reason = "it is answered, and a policy denies it"
	case p.denied:
	case o.Symptom == probe.Unsupported && p.probe.Kind == probe.ICMP:
		p.skipped = "pods may neither ping nor open raw sockets: " + o.Error
	case o.Symptom == probe.Silence:
		p.reason = "no answer within " + p.probe.Limit.String()
	case o.Symptom != "":
		p.reason = o.Error
	case p.verify != nil:
		p.reason = p.verify(o)
	}
	if p.reason != "" && o.Failed > 0 && len(o.Answers) > 0 {
		p.reason = fmt.Sprintf("%d of %d connections: %s", o.Failed, o.Failed+len(o.Answers), p.reason)
	}
}

// failed returns the paths of a check that failed.
func (c *check) failed() (out []*path) {
	for _, p := range c.paths {
		if p.reason != "" {
			out = append(out, p)
		}
	}
	return out
}

// conclude sets the check's result from its paths.
func (c *check) conclude() {
	c.State = OK
	skipped := map[string]bool{}
	for _, p := range c.paths {
		c.Took = max(c.Took, p.outcome.Took)
		if p.skipped != "" {
			skipped[p.skipped] = true
			c.Found = p.skipped
		}
		if p.reason == "" {
			continue
		}
		c.State = Failed
		c.Failures = append(c.Failures, Failure{
			From: p.from.name, To: p.to, Node: p.node, Service: p.service, Kind: p.probe.Kind, Address: p.probe.To,
			Symptom: p.outcome.Symptom, Answered: len(p.outcome.Answers), Failed: p.outcome.Failed, Reason: p.reason,
		})
		for _, cause := range p.causes {
			if !slices.Contains(c.Causes, cause) {
				c.Causes = append(c.Causes, cause)
			}
		}
	}
	switch {
	case c.State == Failed:
		c.Found = fmt.Sprintf("%d of %s", len(c.Failures), counted(len(c.paths), "path"))
	case len(skipped) > 0:
		c.State = Skipped
	case len(c.paths) == 0:
		c.State, c.Found = Skipped, cmp.Or(c.Found, "no such path in this cluster")
	default:
		c.Found = counted(len(c.paths), "path")
	}
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// family as people write it.
func familyName(family int) string { return "IPv" + strconv.Itoa(family) }

func hostPort(a netip.Addr, port int) string { return net.JoinHostPort(a.String(), strconv.Itoa(port)) }

// from another server than expected.
func answeredBy(names ...string) func(*probe.Outcome) string {
	return func(o *probe.Outcome) string {
		for _, a := range o.Answers {
			if !slices.Contains(names, a.Server) {
				return fmt.Sprintf("%s answered, want %s", a.Server, strings.Join(names, " or "))
			}
		}
		return ""
	}
}

// plan is all checks of a test, in their order.
type plan struct {
	limit  time.Duration
	checks []*check
}

// check returns the check of that name, which it adds if it is new.
func (p *plan) check(group string, of class, family int, name string) *check {
	if family != 0 {
		name += ", " + familyName(family)
	}
	for _, c := range p.checks {
		if c.Group == group && c.Check == name {
			return c
		}
	}
	c := &check{Result: Result{Group: group, Check: name}, class: of, family: family}
	p.checks = append(p.checks, c)
	return c
}

// addPath adds a path to a check.
func (p *plan) addPath(c *check, w *path) *path {
	w.check = c
	if w.probe.Limit == 0 {
		w.probe.Limit = p.limit
	}
	c.paths = append(c.paths, w)
	return w
}
