package vpp

import (
	"context"
	"testing"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/nat44_ed"

	"github.com/contiv-agent/contiv-agent/vpp/digest"
)

// A brief call has the digest of a complete one and no details. A changed detail, one more, and another reply change it.
func TestDigests(t *testing.T) {
	f := newFake(t)
	more, port, text := 0, uint16(80), "x"
	f.handle = func(c *fakeConn, req api.Message) []api.Message {
		if _, is := req.(*nat44_ed.Nat44LbStaticMappingDump); is {
			out := []api.Message{&nat44_ed.Nat44LbStaticMappingDetails{Tag: "a", ExternalPort: port}}
			for range more {
				out = append(out, &nat44_ed.Nat44LbStaticMappingDetails{Tag: "b"})
			}
			return out
		}
		return handler(c, req)
	}
	c := up(t, f, Config{})
	ask := func(brief bool) (sums [2]digest.Sum) {
		t.Helper()
		shown := cli(text)
		for i, call := range []Call{dump, shown} {
			call.Digest, call.Brief = true, brief
			r := c.Do(context.Background(), call)[0]
			if r.Err != nil || r.Digest == (digest.Sum{}) || brief == (len(r.Details) > 0) && i == 0 {
				t.Errorf("brief %t: %+v", brief, r)
			}
			sums[i] = r.Digest
		}
		return sums
	}
	was := ask(false)
	if is := ask(true); is != was {
		t.Errorf("the same answers: %v, before %v", is, was)
	}
	for name, change := range map[string]func(){"another detail": func() { port++ }, "one more": func() { more++ }} {
		change()
		is := ask(true)
		if is[0] == was[0] || is[1] != was[1] {
			t.Errorf("%s: %v, before %v", name, is, was)
		}
		was = is
	}
	if text = "y"; ask(true)[1] == was[1] {
		t.Error("another reply has the same digest")
	}
	if r := c.Do(context.Background(), dump)[0]; r.Digest != (digest.Sum{}) {
		t.Errorf("a digest that nobody asked for: %v", r.Digest)
	}
}

// The guard keeps what it knows of VPP when it does not see the details of an answer.
func TestBriefAnswersDoNotReachTheGuard(t *testing.T) {
	f := newFake(t)
	interfaces := []api.Message{&nat44_ed.Nat44InterfaceDetails{SwIfIndex: 3, Flags: 0x20}}
	f.handle = func(c *fakeConn, req api.Message) []api.Message {
		if _, is := req.(*nat44_ed.Nat44InterfaceDump); is {
			return interfaces
		}
		return handler(c, req)
	}
	c := up(t, f, Config{})
	known := func() flags {
		c.Guard().mu.Lock()
		defer c.Guard().mu.Unlock()
		return c.Guard().roles.cells[3].acked
	}
	ask := Call{Msg: &nat44_ed.Nat44InterfaceDump{}, Dump: true}
	c.Do(context.Background(), ask)
	role := known()
	if role == 0 {
		t.Fatal("the guard has not learnt the interface's role")
	}
	ask.Brief = true
	if c.Do(context.Background(), ask); known() != role {
		t.Errorf("role %v, before %v", known(), role)
	}
}
