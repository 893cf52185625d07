package vpp

import (
	"context"
	"testing"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/memclnt"
	"go.fd.io/govpp/binapi/nat44_ed"
)

func TestDoAnswersInOrder(t *testing.T) {
	f := newFake(t)
	f.handle = func(c *fakeConn, req api.Message) []api.Message {
		switch m := req.(type) {
		case *memclnt.ControlPing:
			return []api.Message{&memclnt.ControlPingReply{VpePID: 42}}
		case *nat44_ed.Nat44SetSessionLimit:
			return []api.Message{&nat44_ed.Nat44SetSessionLimitReply{Retval: int32(m.SessionLimit)}}
		case *nat44_ed.Nat44LbStaticMappingDump:
			return []api.Message{&nat44_ed.Nat44LbStaticMappingDetails{Tag: "a"}, &nat44_ed.Nat44LbStaticMappingDetails{Tag: "b"}}
		}
		return c.plain(req)
	}
	c := up(t, f, Config{})
	replies := c.Do(context.Background(),
		Call{Msg: &nat44_ed.Nat44SetSessionLimit{SessionLimit: 3}},
		Call{Msg: &nat44_ed.Nat44LbStaticMappingDump{}, Dump: true},
		Call{Msg: &memclnt.ControlPing{}})
	t.Logf("%+v", replies)
	if len(replies[1].Details) != 2 || replies[1].Err != nil {
		t.Fatal(replies[1])
	}
	if replies[2].Msg.(*memclnt.ControlPingReply).VpePID != 42 {
		t.Fatal(replies[2])
	}
}
