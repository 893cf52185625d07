package agent_test

import (
	"context"
	"fmt"

	"github.com/contiv-agent/contiv-agent/agent"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/plugins/controller"
	contivl3 "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/l3"
	"github.com/contiv-agent/contiv-agent/sim"
	"github.com/contiv-agent/contiv-agent/vpp"
)

// fixed is an external source with constant values: it prints their states, and ends.
type fixed struct {
	values kv.Values
	done   func()
}

func (*fixed) String() string { return "fixed" }

func (f *fixed) Run(ctx context.Context, emit func(event.Event)) error {
	defer f.done()
	result, err := event.Await(ctx, emit, event.ExternalConfigResync(f.String(), f.values))
	if err != nil {
		return err
	}
	for _, st := range result.Values {
		fmt.Println(st.Key, st.State)
	}
	return result.Err
}

// An external source beside etcd and gRPC, added through the agent's configuration.
func ExampleConfig_external() {
	v := sim.New(sim.Config{})
	defer v.Close()
	ctx, cancel := context.WithCancel(context.Background())
	source := &fixed{values: kv.Values{}, done: cancel}
	source.values.Put(&contivl3.RejectRoute{DstNetwork: "198.51.100.0/24"})
	a, err := agent.New(agent.Config{NodeName: "node-1", VPP: vpp.Config{Dial: v.Dial}, External: []controller.ExternalConfigSource{source}})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(a.Run(ctx))
	// Output:
	// config/contiv/vpp/v1/reject-route/vrf/0/dst/198.51.100.0/24 CONFIGURED
	// context canceled
}
