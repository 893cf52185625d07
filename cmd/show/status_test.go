package show

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/agent/nattable"
	"github.com/contiv-agent/contiv-agent/agent/status"
)

func TestStatusShowsTheNATTable(t *testing.T) {
	var out strings.Builder
	st := &status.Status{Node: "node-1", NAT: &nattable.Status{
		Used: 97, Limit: 100, Expired: 5, Evicted: 6, Drained: 12, Lost: 1, Problem: "too full",
		Holders: []nattable.Holder{{Addr: netip.MustParseAddr("10.1.1.2"), Pod: "shop/web", Sessions: 60}, {Addr: netip.MustParseAddr("192.0.2.1"), Sessions: 30}},
	}}
	Status(&out, st, false, false)
	for _, want := range []string{
		"nat     sessions   97 of 100; freed 5 expired, 6 of pods above their share: too full\n",
		"nat     drains     12, and 1 that failed: their connections ended\n",
		"holder  10.1.1.2   60 sessions: shop/web\n", "holder  192.0.2.1  30 sessions\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}
