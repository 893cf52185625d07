package config

import (
	"context"
	"net"
	"slices"
	"testing"

	"github.com/contiv-agent/contiv-agent/plugins/controller"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/all"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/l3"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/linux"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/linux/nodeports"
)

type silentVPP struct{}

func (silentVPP) Do(context.Context, ...vpp.Call) []vpp.Reply { return nil }

// The agent changes the host's network only for programs that request it, and never with a simulation.
func TestHostChangesOnlyOnRequest(t *testing.T) {
	asked := []controller.ExternalConfigSource{nil}
	dial := func(context.Context) (net.Conn, error) { return nil, net.ErrClosed }
	few := []*descriptor.Descriptor{l3.Route()}
	for _, c := range []struct {
		name  string
		cfg   Config
		kinds []*descriptor.Descriptor
		want  bool
		n     int
	}{
		{"nobody asks", Config{VPP: vpp.Config{Socket: "s"}}, nil, false, 0},
		{"a simulation", Config{VPP: vpp.Config{Dial: dial}, External: asked}, nil, false, len(all.All())},
		{"asked", Config{VPP: vpp.Config{Socket: "s"}, External: asked}, nil, true, len(all.All()) + len(linux.All()) + len(nodeports.All())},
		{"asked, beside another agent", Config{VPP: vpp.Config{Socket: "s"}, External: asked}, few, true, 1 + len(linux.All()) + len(nodeports.All())},
	} {
		caller, kinds := c.cfg.WithHost(silentVPP{}, c.kinds)
		_, plain := caller.(silentVPP)
		has := slices.ContainsFunc(kinds, func(d *descriptor.Descriptor) bool { return d.Name == "linux-interface" })
		if has != c.want || plain == c.want || len(kinds) != c.n {
			t.Errorf("%s: %d kinds, the host's among them: %t, caller %T", c.name, len(kinds), has, caller)
		}
	}
	var _ vppagent.Caller = silentVPP{}
}
