package doctor

import (
	"context"
	"maps"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/contiv-agent/contiv-agent/vpp"
)

// Verdict classifies a finding. The zero value is not a verdict.
type Verdict string

// The verdicts, from harmless to urgent.
const (
	OK        Verdict = "ok"
	Skipped   Verdict = "skipped"   // it means nothing for the simulated VPP
	Note      Verdict = "note"      // worth knowing; nothing to do
	Unknown   Verdict = "unknown"   // VPP did not report it
	Missing   Verdict = "missing"   // the agent needs it and VPP lacks it
	Wrong     Verdict = "wrong"     // it works, but not as it should
	Dangerous Verdict = "dangerous" // traffic is lost or let through, or VPP may end
)

// rank orders verdicts by urgency.
func (v Verdict) rank() int {
	for i, o := range [...]Verdict{OK, Skipped, Note, Unknown, Missing, Wrong, Dangerous} {
		if v == o {
			return i
		}
	}
	return 0
}

// Config selects the VPP to examine and what the agent will use. The zero value is /run/vpp/api.sock and an agent with
// default flags; the stats segment is not examined.
type Config struct {
	// Socket is the path of VPP's binary-API socket; "": /run/vpp/api.sock. Dial replaces it.
	Socket string
	// Dial makes the connection instead of dialling Socket.
	Dial func(context.Context) (net.Conn, error)
	// Stats is the path of VPP's stats socket; "": not examined.
	Stats string
	// NAT44 and CNAT mean that only this plugin serves Services. Neither: NAT44 serves IPv4, and CNAT serves IPv6 if VPP has
	// it.
	NAT44, CNAT bool
	// NoPolicies means that policies are not enforced.
	NoPolicies bool
	// Locks are the lock files of the parts of this VPP that an agent can own, by part.
	Locks map[string]string
	// HostAddresses and HostInterface are the flags of run with these names: IPv4 addresses that the node's own processes
	// send from to pods, and the VPP interface to the node's kernel. Empty: run has no such flag.
	HostAddresses []netip.Addr
	HostInterface string
	// Pods is set for a node with run --cni.
	Pods *Pods
	// Timeout is how long VPP may take for all answers; 0: 10 s.
	Timeout time.Duration
}

// Check is one finding.
type Check struct {
	// Name is the name of the check, e.g. "acl sessions". Unique within a report.
	Name string `json:"name"`
	// Verdict is the result.
	Verdict Verdict `json:"verdict"`
	// Found is what VPP reported, in words.
	Found string `json:"found"`
	// Facts are the numbers and names in Found; nil if VPP did not report it. docs/output.md lists them by check.
	Facts Facts `json:"facts,omitempty"`
	// Consequence is the effect on traffic or on the agent; "": none.
	Consequence string `json:"consequence,omitempty"`
	// Startup is the line of VPP's startup.conf that corrects it; "": none.
	Startup string `json:"startup,omitempty"`
	// Command corrects it until VPP's next start: a CLI command, or a flag of the agent; "": none.
	Command string `json:"command,omitempty"`
}

// Facts are what a check found, by the fields' names: numbers, bools, texts and lists of texts.
type Facts map[string]any

// Report is all findings of one VPP.
type Report struct {
	// Version is the version that VPP reports.
	Version string `json:"version"`
	// Simulated means that it is the simulated VPP, which has no memory segments, no stats socket and no startup.conf.
	Simulated bool `json:"simulated,omitempty"`
	// PID is VPP's process id.
	PID uint32 `json:"pid"`
	// Worst is the most urgent verdict.
	Worst Verdict `json:"worst"`
	// Checks are in the order of evaluation.
	Checks []Check `json:"checks"`
}

// Well reports whether no check is Missing, Wrong or Dangerous.
func (r *Report) Well() bool { return r.Worst.rank() < Missing.rank() }

const defaultTimeout = 10 * time.Second

// Examine connects to a VPP, reads, and returns the report. The error means that VPP could not be reached or went away.
func Examine(ctx context.Context, cfg Config) (*Report, error) {
	if cfg.Timeout <= 0 {
		cfg.Timeout = defaultTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, cfg.Timeout)
	defer cancel()
	f, err := ask(ctx, cfg)
	if err != nil {
		return nil, err
	}
	r := judge(f)
	r.Checks = append(r.Checks, owners(cfg.Locks)...)
	return r, nil
}

// owners returns the owners of the locks. No owner is OK: the agent has not started yet.
func owners(locks map[string]string) (out []Check) {
	for _, part := range slices.Sorted(maps.Keys(locks)) {
		c := Check{Name: "owner of " + part, Verdict: OK, Found: "none", Facts: Facts{"owned": false}}
		if o, owned := vpp.FindOwner(locks[part]); owned {
			c.Found, c.Facts = o.String(), Facts{"owned": true, "owner": o}
		}
		out = append(out, c)
	}
	return out
}

func unknown(name, found string) Check { return Check{Name: name, Verdict: Unknown, Found: found} }
