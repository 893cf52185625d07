package acl

import (
	"context"
	"errors"
	"strings"

	"go.fd.io/govpp/binapi/vlib"

	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

// Reclassify is whether VPP evaluates established flows again when access lists change. Zero value: VPP did not report it.
type Reclassify uint8

// The values of Reclassify.
const (
	ReclassifyUnknown Reclassify = iota
	ReclassifyOn
	ReclassifyOff
)

// String is "unknown", "on" or "off".
func (r Reclassify) String() string { return [...]string{"unknown", "on", "off"}[r] }

// Consequence returns the effect on policies, with the remedy; "" if policies are not affected or the setting is unknown.
func (r Reclassify) Consequence() string {
	if r != ReclassifyOff {
		return ""
	}
	return "VPP does not judge established flows again: a flow that a changed access list denies goes on until it is idle " +
		"(TCP: 24 h, UDP: 10 min), and where the lists of an interface change, replies are dropped until the next packet " +
		"of the one who began. Put 'acl-plugin { reclassify sessions 1 }' into VPP's startup.conf, or say " +
		"'vppctl set acl-plugin reclassify-sessions 1' until its next start"
}

// Reclassification asks VPP for the setting. No message has it, only one line of 'show acl-plugin sessions' (VPP 24.06 to 25.10:
// "Reclassify sessions: 1"). A VPP without the ACL plugin does not know that command. The error says that VPP cannot be reached.
func Reclassification(ctx context.Context, do func(context.Context, ...vpp.Call) []vpp.Reply) (Reclassify, error) {
	r := do(ctx, vpp.Call{Msg: &vlib.CliInband{Cmd: "show acl-plugin sessions"}})[0]
	if errors.Is(r.Err, vpp.ErrDisconnected) || errors.Is(r.Err, context.Canceled) || errors.Is(r.Err, context.DeadlineExceeded) {
		return ReclassifyUnknown, r.Err
	}
	m, ok := r.Msg.(*vlib.CliInbandReply)
	if r.Err != nil || !ok {
		return ReclassifyUnknown, nil
	}
	return parseReclassify(m.Reply), nil
}

func parseReclassify(text string) Reclassify {
	for line := range strings.Lines(text) {
		if n, ok := strings.CutPrefix(strings.TrimSpace(line), "Reclassify sessions:"); ok {
			switch strings.TrimSpace(n) {
			case "1":
				return ReclassifyOn
			case "0":
				return ReclassifyOff
			}
		}
	}
	return ReclassifyUnknown
}

// SetReclassify makes VPP evaluate established flows again when access lists change; only a command can do that (VPP 24.06 to 26.06).
func SetReclassify(ctx context.Context, do func(context.Context, ...vpp.Call) []vpp.Reply) error {
	_, err := descriptor.CLIText(do(ctx, vpp.Call{Msg: &vlib.CliInband{Cmd: "set acl-plugin reclassify-sessions 1"}})[0])
	return err
}
