package flags

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/agent/nattable"
	"github.com/contiv-agent/contiv-agent/renderer/nat44"
)

// NAT set the size and the timeouts of VPP's NAT44 session table.
type NAT struct {
	share                              uint8
	sessions                           uint32
	udp, tcpEstablished, tcpTransitory time.Duration
	icmp                               time.Duration
}

func (f *NAT) addFlags(fs *pflag.FlagSet) {
	fs.Uint32Var(&f.sessions, "nat-sessions", 0, fmt.Sprintf("size of VPP's NAT session table per worker; each session takes about 400 bytes of VPP's main heap, on every thread. VPP sets the size when NAT44 is enabled, and keeps it until it restarts: the status reports a VPP with another size; 0: VPP's size if NAT44 is already enabled, else %d", nat44.DefaultSessions))
	fs.Uint8Var(&f.share, "nat-pod-share", nattable.DefaultPodShare, "part of the NAT session table, in percent, that a pod of this node keeps when 80 % of the table is in use and not enough sessions have expired: the agent frees the pod's longest idle sessions above its share; 100: none")
	for _, t := range f.timeouts() {
		fs.DurationVar(t.value, t.flag, t.zero*time.Second, t.usage)
	}
}

// timeout is the flag of one timeout.
type timeout struct {
	flag, usage string
	zero        time.Duration // the default, in seconds
	value       *time.Duration
}

func (f *NAT) timeouts() []timeout {
	return []timeout{
		{"nat-timeout-udp", "how long VPP keeps an idle NAT session of UDP, on every port (VPP has no separate timeout for DNS), in whole seconds", nat44.DefaultTimeoutUDP, &f.udp},
		{"nat-timeout-tcp-established", "how long VPP keeps an idle NAT session of established TCP; later packets of the connection are dropped", nat44.DefaultTimeoutTCPEstablished, &f.tcpEstablished},
		{"nat-timeout-tcp-transitory", "how long VPP keeps an idle NAT session of opening or closing TCP", nat44.DefaultTimeoutTCPTransitory, &f.tcpTransitory},
		{"nat-timeout-icmp", "how long VPP keeps an idle NAT session of ICMP", nat44.DefaultTimeoutICMP, &f.icmp},
	}
}

// applyTo writes the flags into the configuration. The error names all wrong flags.
func (f *NAT) applyTo(all *agent.Config) error {
	cfg := &all.Services.Renderer.NAT44
	cfg.Sessions, all.NATTable.PodShare = f.sessions, f.share
	var errs []error
	if f.share < 1 || f.share > 100 {
		errs = append(errs, fmt.Errorf("--nat-pod-share %d: must be 1 to 100", f.share))
	}
	into := []*uint32{&cfg.TimeoutUDP, &cfg.TimeoutTCPEstablished, &cfg.TimeoutTCPTransitory, &cfg.TimeoutICMP}
	for i, t := range f.timeouts() {
		if d := *t.value; d < time.Second || d > nat44.MaxTimeout*time.Second || d%time.Second != 0 {
			errs = append(errs, fmt.Errorf("--%s %s: must be whole seconds, from 1s to %s", t.flag, d, nat44.MaxTimeout*time.Second))
			continue
		}
		*into[i] = uint32(*t.value / time.Second)
	}
	return errors.Join(errs...)
}
