package vppagent_test

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/feature"
	vppifs "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/vlib"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/proto/contiv/vpp/cnat"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

// forgetful is a connection whose lists of interfaces lack those with a tag.
type forgetful struct {
	conn *vpp.Conn
	tag  string // "": none
}

func (f *forgetful) Do(ctx context.Context, calls ...vpp.Call) []vpp.Reply {
	calls = slices.Clone(calls)
	for i := range calls {
		calls[i].Done = nil // it would get the whole list
	}
	replies := f.conn.Do(ctx, calls...)
	for i, call := range calls {
		if _, is := call.Msg.(*vppifs.SwInterfaceDump); is && f.tag != "" {
			replies[i].Details = slices.DeleteFunc(slices.Clone(replies[i].Details), func(m api.Message) bool { return m.(*vppifs.SwInterfaceDetails).Tag == f.tag })
			replies[i].Digest = replies[i].Digest.With([]byte("another list"))
		}
	}
	return replies
}

// TestCnatOfAMissedInterface: VPP's list of interfaces lacks one, without an error, when the agent looks; then no value names the interface any more. When the list has it
// again, the agent removes cnat from it. So does an agent that began with the incomplete list. It looks once: what another program puts there later stays.
func TestCnatOfAMissedInterface(t *testing.T) {
	for n := range 4 {
		restarts, tables := n%2 == 1, n >= 2
		conn := newLab(t, vppagent.Config{}).conn
		ask := func(m api.Message) api.Message {
			t.Helper()
			r := conn.Do(t.Context(), vpp.Call{Msg: m})[0]
			if r.Err != nil {
				t.Fatal(r.Err)
			}
			return r.Msg
		}
		on := func() bool {
			t.Helper()
			return strings.Contains(ask(&vlib.CliInband{Cmd: "show interface features loop0"}).(*vlib.CliInbandReply).Reply, "cnat-input-ip6") ||
				strings.Contains(ask(&vlib.CliInband{Cmd: "show cnat snat-policy"}).(*vlib.CliInbandReply).Reply, "loop0")
		}
		add := func(tag string) interface_types.InterfaceIndex {
			index := ask(&vppifs.CreateLoopbackInstance{}).(*vppifs.CreateLoopbackInstanceReply).SwIfIndex
			ask(&vppifs.SwInterfaceTagAddDel{IsAdd: true, SwIfIndex: index, Tag: tag})
			return index
		}
		index := add("default/one")
		list := &forgetful{conn: conn}
		cfg := vppagent.Config{Caller: list, Journal: filepath.Join(t.TempDir(), "journal")}
		agent := vppagent.New(cfg)
		values := kv.Values{}
		values.Put(&cnat.Interface{Name: "default/one", Ipv6: true, Pod: tables, IncludeIpv6: tables})
		commit := func(values kv.Values) {
			t.Helper()
			agent.Commit(t.Context(), &event.Txn{Resync: event.Full, Values: values})
		}
		if commit(values); !on() {
			t.Fatal("no cnat on the interface")
		}
		list.tag = "default/one"
		if restarts {
			agent = vppagent.New(cfg)
		} else {
			agent.Commit(t.Context(), &event.Txn{Resync: event.Downstream})
		}
		if commit(kv.Values{}); !on() {
			t.Fatal("cnat left an interface that the agent cannot see")
		}
		list.tag = ""
		if agent.Interfaces(t.Context()); on() {
			t.Errorf("restarts: %t, tables: %t: cnat stays on the interface, which no value names", restarts, tables)
		}
		ask(&feature.FeatureEnableDisable{SwIfIndex: index, Enable: true, ArcName: "ip6-unicast", FeatureName: "cnat-input-ip6"})
		add("default/two")
		commit(kv.Values{})
		if agent.Interfaces(t.Context()); !on() {
			t.Errorf("restarts: %t, tables: %t: the agent took off what another program put on", restarts, tables)
		}
	}
}
