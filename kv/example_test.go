package kv_test

import (
	"fmt"

	"github.com/contiv-agent/contiv-agent/kv"
	contivl3 "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/l3"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/l3"
)

// A set of values prints as text in a fixed order.
func Example() {
	values := kv.Values{}
	values.Put(&l3.Route{DstNetwork: "10.1.2.3/24", NextHopAddr: "192.168.16.2"})
	values.Put(&contivl3.RejectRoute{DstNetwork: "10.96.0.10/32"})
	for _, key := range values.Keys() {
		fmt.Println(kv.Format(key, values[key]))
	}
	// Output:
	// config/contiv/vpp/v1/reject-route/vrf/0/dst/10.96.0.10/32 {"dstNetwork":"10.96.0.10/32"}
	// config/vpp/v2/route/vrf/0/dst/10.1.2.0/24/gw/192.168.16.2 {"dstNetwork":"10.1.2.3/24","nextHopAddr":"192.168.16.2"}
}
