package probe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/contiv-agent/contiv-agent/sim/frame"
)

var podMAC, gatewayMAC = frame.MAC{2, 1, 1, 1, 1, 1}, frame.MAC{2, 2, 2, 2, 2, 2}

func questions() []question {
	return []question{
		{podMAC, netip.MustParseAddr("10.1.1.2"), netip.MustParseAddr("169.254.1.1")},
		{podMAC, netip.MustParseAddr("2001:db8::2"), netip.MustParseAddr("fd69:254:1::1")},
	}
}

// reply is the answer of a gateway to a frame; nil: the frame asks nothing.
func reply(b []byte) []byte {
	e, ok := frame.ParseEthernet(b)
	if !ok {
		return nil
	}
	out := frame.Ethernet{Dst: e.Src, Src: gatewayMAC, Type: e.Type}
	if a, ok := frame.ParseARP(e.Payload); ok && e.Type == frame.TypeARP && a.Op == frame.Request {
		out.Payload = (&frame.ARP{Op: frame.Answer, SenderMAC: gatewayMAC, TargetMAC: a.SenderMAC, Sender: a.Target, Target: a.Sender}).Bytes()
	} else if d, ok := frame.ParseDiscovery(e.Payload); ok && e.Type == frame.TypeIPv6 {
		out.Payload = (&frame.Discovery{Kind: advert, Src: d.Target, Dst: d.Src, Target: d.Target, Link: gatewayMAC, HasLink: true}).Bytes()
	} else {
		return nil
	}
	return out.Bytes()
}

// TestFrames: the questions are what another codec reads, and its answers are recognised; nothing else is.
func TestFrames(t *testing.T) {
	for _, q := range questions() {
		asked := q.frame()
		e, ok := frame.ParseEthernet(asked)
		if !ok || e.Src != podMAC {
			t.Fatalf("%s: %x", q.to, asked)
		}
		if q.to.Is6() {
			d, ok := frame.ParseDiscovery(e.Payload)
			if !ok || d.Target != q.to || d.Src != q.from || d.Link != podMAC || e.Dst != (frame.MAC{0x33, 0x33, 0xff, 0, 0, 1}) || !bytes.Equal(e.Payload, (&frame.Discovery{Kind: solicit, Src: d.Src, Dst: d.Dst, Target: d.Target, Link: d.Link, HasLink: true}).Bytes()) {
				t.Errorf("%+v, %t", d, ok)
			}
		} else if a, ok := frame.ParseARP(e.Payload); !ok || a.Target != q.to || a.Sender != q.from || a.SenderMAC != podMAC || e.Dst != frame.Broadcast() {
			t.Errorf("%+v, %t", a, ok)
		}
		answer := reply(asked)
		if !q.answeredBy(answer) {
			t.Errorf("%s: %x is no answer", q.to, answer)
		}
		for n := range answer {
			if q.answeredBy(answer[:n]) && n < headerLen+arpLen {
				t.Errorf("%s: %d bytes are an answer", q.to, n)
			}
		}
		for _, other := range questions() {
			if other.to != q.to && other.answeredBy(answer) {
				t.Errorf("%s answers for %s", q.to, other.to)
			}
		}
		other := q
		other.to = q.to.Next()
		if other.answeredBy(answer) || q.answeredBy(asked) {
			t.Errorf("%s: another's answer, or the question, is an answer", q.to)
		}
	}
}

// namespace runs f on a thread in a separate network namespace, with the link eth0 and its peer vpp.
func namespace(t *testing.T, f func(path string)) {
	missing := make(chan error, 1)
	go func() {
		defer close(missing)
		runtime.LockOSThread() // never unlocked: the namespace ends with the thread
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			missing <- fmt.Errorf("make a network namespace: %w", err)
			return
		}
		cmd := exec.Command("ip", "-batch", "-")
		cmd.Stdin = strings.NewReader("link add eth0 type veth peer name vpp\nlink set eth0 up\nlink set vpp up\n")
		if out, err := cmd.CombinedOutput(); err != nil {
			missing <- fmt.Errorf("ip: %w: %s", err, out)
			return
		}
		path, err := os.Readlink("/proc/thread-self")
		if err != nil {
			t.Error(err)
			return
		}
		f("/proc/" + path + "/ns/net")
	}()
	if err := <-missing; err != nil {
		t.Skipf("needs root and iproute2: %v", err)
	}
}

// TestAsk: the third question is answered, or none.
func TestAsk(t *testing.T) {
	for _, q := range questions() {
		for _, answers := range []bool{true, false} {
			namespace(t, func(path string) {
				far, err := open(Link{Netns: path, Name: "vpp"}, q.protocol())
				if err != nil {
					t.Error(err)
					return
				}
				defer far.Close()
				go func() {
					buf, asked := make([]byte, 2048), 0
					for {
						n, err := far.Read(buf)
						if err != nil {
							return
						}
						e, _ := frame.ParseEthernet(buf[:n])
						if answer := reply(buf[:n]); answer != nil && e.Src == podMAC {
							if asked++; asked == 3 && answers {
								_, _ = far.Write(answer) // the test fails without it
							}
						}
					}
				}()
				limit := 20 * time.Second
				if !answers {
					limit = 50 * time.Millisecond
				}
				ctx, stop := context.WithTimeout(t.Context(), limit)
				defer stop()
				err = Ask(ctx, Link{Netns: path, Name: "eth0", MAC: "02:01:01:01:01:01", Addr: q.from, Gateway: q.to})
				if answers && err != nil || !answers && (!errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "no answer from "+q.to.String())) {
					t.Errorf("%s, answered: %t: %v", q.to, answers, err)
				}
			})
		}
	}
	for _, l := range []Link{{Netns: "/nowhere", Name: "eth0", MAC: "02:01:01:01:01:01"}, {Netns: "/proc/self/ns/net", Name: "nothing", MAC: "02:01:01:01:01:01"}, {MAC: "x"}} {
		if err := Ask(t.Context(), l); err == nil {
			t.Errorf("%+v: no error", l)
		}
	}
}
