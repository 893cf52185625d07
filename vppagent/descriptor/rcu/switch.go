package rcu

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"

	"go.fd.io/govpp/binapi/af_packet"
	"go.fd.io/govpp/binapi/tapv2"

	"github.com/contiv-agent/contiv-agent/vpp"
)

// SwitchPath is the kernel's switch for the whole machine: with 1, waits for RCU grace periods interrupt all processors and end in some 100 µs; with 0,
// the default, they last until each processor has passed through a scheduling point, 10 to 20 ms.
const SwitchPath = "/sys/kernel/rcu_expedited"

// Expedite shortens the kernel's waits in those requests for which VPP's main thread waits for RCU grace periods. An af_packet interface takes three of
// them to be made, and three to be removed: packet_set_ring and bind call synchronize_net, which waits shortly only under the lock of netlink's requests
// (net/core/dev.c, Linux 6.18). VPP forwards nothing meanwhile. The zero value shortens nothing.
type Expedite struct {
	// Switch is usually SwitchPath; "": nothing is shortened.
	Switch string
	// Mark is the path of a file that exists while the switch is 1 because of this agent.
	Mark string
}

// Recover switches off what an agent that was killed left on. The error means that the switch cannot be used.
func (e Expedite) Recover() error {
	if e.Switch == "" {
		return nil
	}
	_, err := os.Stat(e.Mark)
	switch {
	case err == nil:
		return e.off()
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	f, err := os.OpenFile(e.Switch, os.O_WRONLY, 0) // opening does not change it
	if err != nil {
		return err
	}
	return f.Close()
}

// around switches on if a call needs it, and returns what switches off again. Failures only mean that the kernel takes its time.
func (e Expedite) around(calls []vpp.Call) (off func()) {
	if e.Switch == "" || !waitsForRCU(calls) {
		return func() {}
	}
	return e.on()
}

// on switches on, and returns what switches off again.
func (e Expedite) on() (off func()) {
	none := func() {}
	if was, err := os.ReadFile(e.Switch); err != nil || !bytes.Equal(bytes.TrimSpace(was), []byte("0")) {
		return none // on already: it is the administrator's
	}
	if err := os.WriteFile(e.Mark, nil, 0o600); err != nil {
		return none
	}
	if err := os.WriteFile(e.Switch, []byte("1\n"), 0); err != nil {
		_ = os.Remove(e.Mark) // the switch is off: a mark that stays writes 0 once more
		return none
	}
	return func() { _ = e.off() } // the mark stays, and the next agent tries again
}

func (e Expedite) off() error {
	if err := os.WriteFile(e.Switch, []byte("0\n"), 0); err != nil {
		return err
	}
	return os.Remove(e.Mark)
}

// waitsForRCU reports that VPP's main thread waits for grace periods in a call.
func waitsForRCU(calls []vpp.Call) bool {
	for _, c := range calls {
		switch c.Msg.(type) {
		case *af_packet.AfPacketCreateV3, *af_packet.AfPacketDelete, *tapv2.TapDeleteV2: // vhost_net_release calls synchronize_rcu
			return true
		}
	}
	return false
}

// Caller sends requests to VPP with short waits of the kernel. Only the agent's goroutine may use it.
type Caller struct {
	VPP interface {
		Do(ctx context.Context, calls ...vpp.Call) []vpp.Reply
	}
	Expedite
}

// Do returns one reply per call.
func (c *Caller) Do(ctx context.Context, calls ...vpp.Call) []vpp.Reply {
	defer c.around(calls)()
	return c.VPP.Do(ctx, calls...)
}
