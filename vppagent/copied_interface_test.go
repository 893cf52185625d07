package vppagent_test

import (
	"strings"
	"testing"

	vppifs "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"

	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/interfaces"
	"github.com/contiv-agent/contiv-agent/vpp"
)

// tagged makes a loopback with a tag, beside the agent.
func (l *lab) tagged(tag string) interface_types.InterfaceIndex {
	l.t.Helper()
	r := l.conn.Do(l.t.(tb).Context(), vpp.Call{Msg: &vppifs.CreateLoopbackInstance{}})[0]
	if r.Err != nil {
		l.t.Fatal(r.Err)
	}
	index := r.Msg.(*vppifs.CreateLoopbackInstanceReply).SwIfIndex
	if r := l.conn.Do(l.t.(tb).Context(), vpp.Call{Msg: &vppifs.SwInterfaceTagAddDel{IsAdd: true, SwIfIndex: index, Tag: tag}})[0]; r.Err != nil {
		l.t.Fatal(r.Err)
	}
	return index
}

// If two interfaces in VPP have the tag of one value, the agent removes one of them: the one that it does not know, and a new agent the one with the
// larger index. An agent made such an interface again whose details a dump had lost.
func TestCopyOfAnInterfaceIsRemoved(t *testing.T) {
	for name, below := range map[string]bool{"above": false, "below": true} {
		for agent, isNew := range map[string]bool{"the running agent": false, "a new agent": true} {
			t.Run(name+", "+agent, func(t *testing.T) {
				c := newClocked(t)
				gap := c.tagged("another program's")
				c.allConfigured(c.put(&interfaces.Interface{
					Name: "ext", Type: interfaces.Interface_SOFTWARE_LOOPBACK, Enabled: true, Mtu: 1501, IpAddresses: []string{"10.9.0.1/24"},
				}))
				if below {
					if r := c.conn.Do(t.Context(), vpp.Call{Msg: &vppifs.DeleteLoopback{SwIfIndex: gap}})[0]; r.Err != nil {
						t.Fatal(r.Err)
					}
				}
				c.agent.Interfaces(t.Context())
				c.tagged("ca1:i:ext")
				c.writes()
				if isNew {
					c.restartAgent()
					c.allConfigured(c.resync())
				} else {
					c.round() // the first ends before the slice of interfaces
					c.round()
				}
				if dump := c.sim.Dump(); strings.Count(dump, "ca1:i:ext") != 1 || !strings.Contains(dump, "mtu 1501") || strings.Count(dump, "10.9.0.1") == 0 {
					t.Errorf("VPP has\n%s", dump)
				}
				if n := len(c.writes()); !isNew && n != 1 {
					t.Errorf("%d requests change VPP, want the removal alone", n)
				}
				c.round()
				c.allConfigured(c.resync())
				c.quiet("later")
			})
		}
	}
}
