package sim

import (
	"net/netip"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/model"
)

// six gives node's pods IPv6.
func six(t testing.TB, v *VPP) {
	t.Helper()
	for pod, addr := range map[string]string{"pod-a": "fd00:1::2/128", "pod-b": "fd00:1::3/128"} {
		addRoute(t, v, addr, Path{Interface: pod, Via: netip.MustParsePrefix(addr).Addr()})
	}
	addRoute(t, v, "::/0", Path{Interface: "uplink"})
}

func translation(vip, self string, backends ...string) Translation {
	t := Translation{VIP: netip.MustParseAddrPort(vip), Proto: model.TCP, Self: netip.MustParseAddr(self)}
	for _, b := range backends {
		t.Backends = append(t.Backends, netip.MustParseAddrPort(b))
	}
	return t
}

func TestTranslate(t *testing.T) {
	v := node(t, Config{})
	six(t, v)
	v.Translate(
		translation("10.96.0.10:80", "10.1.1.254", "10.1.1.3:8080"), translation("10.96.0.11:80", "10.1.1.254"),
		translation("[fd00:96::10]:80", "fd00:1::fe", "[fd00:1::3]:8080"),
	)
	for _, c := range []struct{ name, in, pkt, want string }{
		{"request", "pod-a", "tcp 10.1.1.2:4000 -> 10.96.0.10:80 [S]", "pod-b tcp 10.1.1.2:4000 -> 10.1.1.3:8080 [S]"},
		{"reply", "pod-b", "tcp 10.1.1.3:8080 -> 10.1.1.2:4000 [SA]", "pod-a tcp 10.96.0.10:80 -> 10.1.1.2:4000 [SA]"},
		{"not this flow", "pod-b", "tcp 10.1.1.3:8080 -> 10.1.1.2:4001 [A]", "pod-a tcp 10.1.1.3:8080 -> 10.1.1.2:4001 [A]"},
		{"no backends", "pod-a", "tcp 10.1.1.2:4000 -> 10.96.0.11:80 [S]", "dropped: cnat-input-ip4: drop: 10.96.0.11:80 has no backends"},
		{"other protocol", "pod-a", "udp 10.1.1.2:4000 -> 10.96.0.10:80", "uplink udp 10.1.1.2:4000 -> 10.96.0.10:80"},
		{"from outside", "uplink", "tcp 9.9.9.9:4000 -> 10.96.0.10:80 [S]", "pod-b tcp 9.9.9.9:4000 -> 10.1.1.3:8080 [S]"},
		{"back out", "pod-b", "tcp 10.1.1.3:8080 -> 9.9.9.9:4000 [SA]", "uplink tcp 10.96.0.10:80 -> 9.9.9.9:4000 [SA]"},
		{"to itself", "pod-b", "tcp 10.1.1.3:4000 -> 10.96.0.10:80 [S]", "pod-b tcp 10.1.1.254:4000 -> 10.1.1.3:8080 [S]"},
		{"from itself", "pod-b", "tcp 10.1.1.3:8080 -> 10.1.1.254:4000 [SA]", "pod-b tcp 10.96.0.10:80 -> 10.1.1.3:4000 [SA]"},
		{
			"complaint", "pod-b", "icmp 10.1.1.3 -> 10.1.1.2 type 3 code 3 about (tcp 10.1.1.2:4000 -> 10.1.1.3:8080 [S])",
			"pod-a icmp 10.1.1.3 -> 10.1.1.2 type 3 code 3 about (tcp 10.1.1.2:4000 -> 10.96.0.10:80 [S])",
		},
		{"IPv6 request", "pod-a", "tcp [fd00:1::2]:4000 -> [fd00:96::10]:80 [S]", "pod-b tcp [fd00:1::2]:4000 -> [fd00:1::3]:8080 [S]"},
		{"IPv6 reply", "pod-b", "tcp [fd00:1::3]:8080 -> [fd00:1::2]:4000 [SA]", "pod-a tcp [fd00:96::10]:80 -> [fd00:1::2]:4000 [SA]"},
		{"IPv6 to itself", "pod-b", "tcp [fd00:1::3]:4000 -> [fd00:96::10]:80 [S]", "pod-b tcp [fd00:1::fe]:4000 -> [fd00:1::3]:8080 [S]"},
	} {
		if got := send(t, v, c.in, c.pkt); got != c.want {
			t.Errorf("%s: got %s want %s", c.name, got, c.want)
		}
	}
}

func TestTranslatedFlowsKeepTheirBackend(t *testing.T) {
	v := node(t, Config{})
	v.Translate(translation("10.96.0.10:80", "10.1.1.254", "10.1.1.3:8080"))
	mark := v.Snapshot()
	const request = "tcp 10.1.1.2:4000 -> 10.96.0.10:80 [A]"
	old, fresh := "pod-b tcp 10.1.1.2:4000 -> 10.1.1.3:8080 [A]", "overlay tcp 10.1.1.2:4000 -> 10.1.2.9:8080 [A]"
	expect := func(when, want string) {
		t.Helper()
		if got := send(t, v, "pod-a", request); got != want {
			t.Errorf("%s: got %s want %s", when, got, want)
		}
	}
	expect("first", old)
	v.Translate(translation("10.96.0.10:80", "10.1.1.254", "10.1.2.9:8080"))
	expect("other backends", old)
	v.Advance(59 * time.Minute)
	expect("almost an hour later", old)
	v.Advance(time.Hour)
	expect("an hour later", fresh)
	v.Restore(mark)
	expect("as if nothing had been", fresh)
	v.Restart()
	expect("after a restart", fresh)
	v.Translate()
	v.Restart()
	expect("without translations", "uplink tcp 10.1.1.2:4000 -> 10.96.0.10:80 [A]")
}
