package doctor

import (
	"fmt"
	"slices"
	"strings"

	"go.fd.io/govpp/api"

	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/all"
)

// The tested releases (see README), the first release that compares IPv6 prefixes by bits, and the first with taps in a
// plugin.
func tested() (first, last release) { return release{24, 6}, release{26, 6} }

func prefixesMended() release { return release{25, 6} }

func tapsApart() release { return release{26, 2} }

const (
	leastHeap    = 1 << 30  // VPP's own default
	leastStatseg = 64 << 20 // twice VPP's default
	slack        = 1 << 20  // VPP uses the head of a segment itself
)

// judge evaluates the facts. It is pure.
func judge(f *facts) *Report {
	r := &Report{Version: f.state.Version, Simulated: f.state.Simulated, PID: f.state.PID, Worst: OK}
	r.Checks = append(r.Checks, f.version(), f.core())
	r.Checks = append(r.Checks, f.plugins()...)
	r.Checks = append(r.Checks, hostInterfaces(f)...)
	r.Checks = append(r.Checks, f.heap(), f.statseg(), f.statsSocket(), f.trace())
	r.Checks = append(r.Checks, f.nat()...)
	r.Checks = append(r.Checks, f.hostLink()...)
	r.Checks = append(r.Checks, podChecks(f)...)
	r.Checks = append(r.Checks, f.acl()...)
	r.Checks = append(r.Checks, f.cnat()...)
	if r.Simulated {
		skip(r.Checks)
	}
	for _, c := range r.Checks {
		if c.Verdict.rank() > r.Worst.rank() {
			r.Worst = c.Verdict
		}
	}
	return r
}

// skip replaces the verdicts of checks about what the simulated VPP does not have.
func skip(checks []Check) {
	for i, c := range checks {
		if slices.Contains([]string{"main heap", "stats segment", "stats socket", "api trace", "acl sessions", "cnat sessions"}, c.Name) && (c.Verdict == Unknown || c.Verdict == Missing) {
			checks[i] = Check{Name: c.Name, Verdict: Skipped, Found: "the simulated VPP does not have it"}
		}
	}
}

func (f *facts) version() Check {
	c := Check{Name: "version", Verdict: OK, Found: f.state.Version, Facts: Facts{"version": f.state.Version}}
	first, last := tested()
	v, ok := parseRelease(f.state.Version)
	switch {
	case !ok:
		c.Verdict, c.Consequence = Unknown, fmt.Sprintf("not a known release; %s to %s are tested", first, last)
	case v.before(first):
		c.Verdict, c.Consequence = Wrong, fmt.Sprintf("%s to %s are tested, older ones are not", first, last)
	case last.before(v):
		c.Verdict, c.Consequence = Note, fmt.Sprintf("%s to %s are tested, newer ones are not", first, last)
	case v.before(prefixesMended()):
		c.Consequence = "the ACL plugin compares IPv6 prefixes by whole bytes (corrected in " + prefixesMended().String() +
			"): the agent expands other lengths, which takes up to 128 rules per prefix; nobody expands foreign access lists"
	}
	return c
}

// core checks the messages of VPP itself.
func (f *facts) core() Check {
	c := Check{Name: "messages", Verdict: OK, Found: "VPP has all, with the CRCs that the agent knows", Facts: Facts{"complete": true}}
	if keys, _ := f.lacking(f.ofPlugin("")); len(keys) > 0 {
		c.Verdict, c.Found, c.Facts = Wrong, "without "+strings.Join(keys, ", "), Facts{"complete": false, "missing": keys}
		c.Consequence = "values that need these messages stay unconfigured: the agent was not built for this version of VPP"
	}
	return c
}

// ofPlugin returns the requests that the agent sends to a plugin; cnat has separate lists.
func (f *facts) ofPlugin(plugin string) []api.Message {
	return slices.DeleteFunc(all.Needs(), func(m api.Message) bool {
		of := pluginOf(m)
		if f.inCore(of) {
			of = ""
		}
		return of != plugin
	})
}

// inCore reports that a VPP has something without the plugin that newer releases have it in.
func (f *facts) inCore(plugin string) bool {
	if v, ok := parseRelease(f.state.Version); ok && !v.before(tapsApart()) {
		return false
	}
	return plugin == tapPlugin || plugin == policerPlugin
}

// plugin is one plugin, whether the agent needs it, and the effect if VPP lacks it.
type plugin struct {
	file   string
	needed bool
	effect string // if it is not loaded
}

func (f *facts) plugins() (out []Check) {
	for _, p := range []plugin{
		{natPlugin, !f.cfg.CNAT, "no IPv4 Service is served, unless by cnat (--service-renderer cnat)"},
		{aclPlugin, !f.cfg.NoPolicies, "no policy is enforced, and all values of policies fail"},
		{"cnat_plugin.so", f.cfg.CNAT, "no IPv6 Service is served"},
		{"af_packet_plugin.so", f.cfg.Pods != nil, "the agent cannot make host interfaces (af_packet) for other programs' configuration"},
		{"memif_plugin.so", false, "the agent cannot make memif interfaces"},
		{"vxlan_plugin.so", f.cfg.Pods != nil, "the agent cannot make VXLAN tunnels"},
		{"abf_plugin.so", false, "the agent cannot forward by access lists (ABF)"},
		{tapPlugin, false, "the agent cannot make tap interfaces"},
		{policerPlugin, false, "the agent cannot limit the bandwidth of pods: with --cni, pods with limits do not start"},
	} {
		if !f.inCore(p.file) {
			out = append(out, f.plugin(p))
		}
	}
	return out
}

func (f *facts) plugin(p plugin) Check {
	c := Check{Name: p.file, Verdict: OK, Found: "loaded", Facts: Facts{"loaded": true}}
	of := f.ofPlugin(p.file)
	cnat := p.file == "cnat_plugin.so"
	if cnat {
		of = cnatNeeds()
	}
	keys, requests := f.lacking(of)
	if cnat && requests == 0 {
		older, a := f.lacking(olderCNAT())
		if _, b := f.lacking(newerCNAT()); a > 0 && b > 0 {
			keys, requests = older, a
		}
	}
	switch {
	case requests == 0 && cnat:
		return f.faultyCNAT(c)
	case requests == 0:
		return c
	case requests < len(of):
		c.Verdict, c.Found, c.Facts = Wrong, "without "+strings.Join(keys, ", "), Facts{"loaded": true, "missing": keys}
		c.Consequence = "values that need these messages stay unconfigured: the agent was not built for this version of the plugin"
		return c
	}
	c.Found, c.Facts, c.Consequence, c.Startup = "not loaded", Facts{"loaded": false}, p.effect, "plugins { plugin "+p.file+" { enable } }"
	if c.Verdict = Note; p.needed {
		c.Verdict = Missing
	}
	return c
}

// faultyCNAT adds the known faults of the plugin with API 1.0.0.
func (f *facts) faultyCNAT(c Check) Check {
	if _, missing := f.lacking(newerCNAT()); missing == 0 {
		c.Verdict, c.Found, c.Facts = Note, "loaded, with the API of VPP 26.06", Facts{"loaded": true, "api": "26.06"}
		c.Consequence = "this version of cnat replaces the source of an IPv6 flow by the node's address if the last 32 bits of both addresses are equal, " +
			"and corrupts ICMP errors of VPP itself, so clients of a Service without endpoints wait instead of being refused (executed " +
			"on 26.06; up to 25.10 it does neither)"
	}
	return c
}

func (f *facts) heap() Check {
	c := Check{Name: "main heap", Verdict: OK}
	text, ok := f.cli(askHeap)
	u, parsed := parseMemory(text)
	if !ok || !parsed {
		return unknown(c.Name, "VPP does not report the size of its main heap")
	}
	c.Found, c.Facts = fmt.Sprintf("%s of %s used", mebibytes(u.used), mebibytes(u.total)), Facts{"usedBytes": uint64(u.used), "totalBytes": uint64(u.total)}
	const line = "memory { main-heap-size 2G }"
	switch {
	case u.share() > much:
		c.Verdict, c.Startup = Dangerous, line
		c.Consequence = "VPP ends when its heap is full; the heap holds access lists, NAT and cnat sessions and routes"
	case u.total < leastHeap-slack:
		c.Verdict, c.Startup = Wrong, line
		c.Consequence = "less than VPP's default of 1G; sessions and large access lists may fill it, and VPP ends when it is full"
	}
	return c
}

func (f *facts) statseg() Check {
	c := Check{Name: "stats segment", Verdict: OK}
	text, ok := f.cli(askStatseg)
	u, parsed := parseMemory(text)
	if !ok || !parsed {
		return unknown(c.Name, "VPP does not report the size of its stats segment")
	}
	c.Found, c.Facts = fmt.Sprintf("%s of %s used", mebibytes(u.used), mebibytes(u.total)), Facts{"usedBytes": uint64(u.used), "totalBytes": uint64(u.total)}
	const line = "statseg { size 128M }"
	switch {
	case u.share() > much:
		c.Verdict, c.Startup = Dangerous, line
		c.Consequence = "VPP ends when it is full; each rule of an access list and each interface has counters in it"
	case u.total < leastStatseg-slack:
		c.Verdict, c.Startup = Wrong, line
		c.Consequence = "little room for the counters of rules; VPP ends when it is full"
	}
	return c
}

func (f *facts) statsSocket() Check {
	c := Check{Name: "stats socket", Verdict: OK, Found: f.cfg.Stats + " answers", Facts: Facts{"path": f.cfg.Stats, "answers": f.stats == nil}}
	switch {
	case f.cfg.Stats == "":
		return unknown(c.Name, "not examined")
	case f.stats != nil:
		c.Verdict, c.Found = Missing, f.stats.Error()
		c.Consequence = "the agent cannot report how many packets each rule of a policy matched"
		c.Startup = "statseg { socket-name " + f.cfg.Stats + " }"
	}
	return c
}

func (f *facts) trace() Check {
	c := Check{Name: "api trace", Verdict: OK, Found: "off", Facts: Facts{"on": false}}
	text, ok := f.cli(askTrace)
	switch {
	case !ok || !strings.Contains(text, "RX Trace"):
		return unknown(c.Name, "VPP does not report whether it records API messages")
	case strings.Contains(text, "RX Trace enabled"):
		c.Verdict, c.Found, c.Facts = Note, "on", Facts{"on": true}
		c.Consequence = "VPP keeps the latest requests for a post-mortem in its main heap, by default 262144; with large access " +
			"lists they take much memory"
		c.Startup, c.Command = "api-trace { on nitems 4096 }", "vppctl api trace off"
	}
	return c
}
