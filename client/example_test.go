package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/interfaces"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/nat"
)

// An agent with --grpc-socket /run/contiv-agent/grpc.sock has the address "unix:/run/contiv-agent/grpc.sock". An agent with
// --grpc-listen 0.0.0.0:9111 has the address "node-1:9111", with TLS from LoadTLS.
func Example() {
	client, end := exampleNode() // client, err := New(Config{Addr: "unix:/run/contiv-agent/grpc.sock"})
	defer end()
	ctx := context.Background()

	err := client.DataChange().Put().
		Interface(&interfaces.Interface{Name: "loop1", Type: interfaces.Interface_SOFTWARE_LOOPBACK, Enabled: true}).
		DNat44(&nat.DNat44{Label: "dns", StMappings: []*nat.DNat44_StaticMapping{{
			ExternalIp: "203.0.113.1", ExternalPort: 53, Protocol: nat.DNat44_UDP,
			LocalIps: []*nat.DNat44_StaticMapping_LocalIP{{LocalIp: "10.1.1.2", LocalPort: 5353}},
		}}}).
		Send(ctx)
	fmt.Println("put:", err)

	// Adds an address to an interface that another owner configures, or changes nothing. If others add the same address, it
	// is still configured once.
	err = client.DataChange().AllOrNothing().Put().
		Interface(&interfaces.Interface{Name: "tap1", Mtu: 666, IpAddresses: []string{"10.0.0.7/32"}}).Merge(event.Merge{Once: true}).
		Delete().DNat44("dns").
		Send(ctx)
	var failed *Error
	if errors.As(err, &failed) {
		for _, item := range failed.Items {
			fmt.Println(item)
		}
	}

	items, err := client.Config(ctx, Filter{})
	for _, item := range items {
		fmt.Println(item.State, item.Key)
	}
	fmt.Println("config:", err)
	// Output:
	// put: <nil>
	// config/vpp/v2/interfaces/tap1 (create): RETRYING: no memory
	// CONFIGURED config/vpp/nat/v2/dnat44/dns
	// CONFIGURED config/vpp/v2/interfaces/loop1
	// config: <nil>
}
