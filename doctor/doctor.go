package doctor

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/contiv-agent/contiv-agent/vpp"
)

// Verdict is how a finding is to be taken. The zero value is none of them.
type Verdict string

// The verdicts, from harmless to urgent.
const (
	OK        Verdict = "ok"
	Note      Verdict = "note"      // worth knowing; nothing has to be done
	Unknown   Verdict = "unknown"   // VPP did not say
	Missing   Verdict = "missing"   // something the agent needs is not there
	Wrong     Verdict = "wrong"     // it works, and not as it should
	Dangerous Verdict = "dangerous" // traffic is lost, let through, or VPP may end
)

// rank orders verdicts.
func (v Verdict) rank() int {
	for i, o := range [...]Verdict{OK, Note, Unknown, Missing, Wrong, Dangerous} {
		if v == o {
			return i
		}
	}
	return 0
}

// Config says which VPP to look at and what will be wanted of it. The zero value is /run/vpp/api.sock for an agent with all
// that it does by default, without a look at the stats segment.
type Config struct {
	// Socket is the path of VPP's binary-API socket; empty: /run/vpp/api.sock. Not used if Dial is set.
	Socket string
	// Dial makes the connection instead of dialling Socket.
	Dial func(context.Context) (net.Conn, error)
	// Stats is the path of VPP's stats socket; empty: it is not looked at.
	Stats string
	// NAT44 and CNAT tell that Services will be served by that plugin alone; neither: IPv4 by NAT44, IPv6 by CNAT where there
	// is any.
	NAT44, CNAT bool
	// NoPolicies reports that policies will not be enforced.
	NoPolicies bool
	// Locks are the files by which agents own parts of this VPP, by part.
	Locks map[string]string
	// HostAddresses and HostInterface are what run is given: IPv4 addresses that the node's own processes send from to pods, and the VPP
	// interface to the node's kernel. Empty: it is given none.
	HostAddresses []netip.Addr
	HostInterface string
	// Timeout is how long VPP may take for all answers; 0: 10 s.
	Timeout time.Duration
}

// Check is one finding.
type Check struct {
	// Name of what was looked at, e.g. "acl sessions". Unique within a report.
	Name string `json:"name"`
	// Verdict on it.
	Verdict Verdict `json:"verdict"`
	// Found is what VPP said.
	Found string `json:"found"`
	// Consequence is what follows from it; empty: nothing.
	Consequence string `json:"consequence,omitempty"`
	// Startup is the line of VPP's startup.conf that mends it; empty: there is none.
	Startup string `json:"startup,omitempty"`
	// Command mends it until VPP's next start: a CLI command, or a flag of the agent's; empty: there is none.
	Command string `json:"command,omitempty"`
}

// Report is all findings of one VPP.
type Report struct {
	// Version is VPP's own name for itself.
	Version string `json:"version"`
	// PID is VPP's process id.
	PID uint32 `json:"pid"`
	// Worst is the most urgent verdict.
	Worst Verdict `json:"worst"`
	// Checks in the order they were made.
	Checks []Check `json:"checks"`
}

// Well reports that nothing is missing, wrong or dangerous.
func (r *Report) Well() bool { return r.Worst.rank() < Missing.rank() }

const defaultTimeout = 10 * time.Second

// Examine connects to a VPP, reads, and judges. The error is that VPP could not be reached or went away.
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

// owners are who holds the locks. VPP may well have none: its agent has not started yet.
func owners(locks map[string]string) (out []Check) {
	for _, part := range slices.Sorted(maps.Keys(locks)) {
		c := Check{Name: "owner of " + part, Verdict: OK, Found: "none"}
		if o, owned := vpp.FindOwner(locks[part]); owned {
			c.Found = o.String()
		}
		out = append(out, c)
	}
	return out
}

// connect gives a connection that is up, and what ends it.
func connect(ctx context.Context, cfg Config) (*vpp.Conn, func(), error) {
	states := make(chan vpp.State, 1)
	conn := vpp.New(vpp.Config{
		Socket: cfg.Socket, Dial: cfg.Dial, ClientName: "contiv-doctor", Needs: needs(),
		OnState: func(st vpp.State) {
			select {
			case states <- st:
			default: // only the first counts
			}
		},
	})
	running, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = conn.Run(running) // ends by cancel
	}()
	stop := func() {
		cancel()
		<-ended
	}
	select {
	case st := <-states:
		if st.Connected {
			return conn, stop, nil
		}
		stop()
		return nil, nil, fmt.Errorf("connect to vpp: %w", st.Err)
	case <-ctx.Done():
		stop()
		return nil, nil, fmt.Errorf("connect to vpp: %w", ctx.Err())
	}
}
