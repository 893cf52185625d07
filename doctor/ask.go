package doctor

import (
	"context"
	"errors"
	"fmt"
	"path"
	"reflect"
	"slices"
	"strings"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/cnat"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/nat44_ed"
	"go.fd.io/govpp/binapi/vlib"

	newer "github.com/contiv-agent/contiv-agent/vpp/binapi/cnat"
	"github.com/contiv-agent/contiv-agent/vpp/stats"

	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vpp/visit"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/all"
)

// Names of the questions. A question's answer is stored in facts.replies under its name.
const (
	askWorkers    = "workers"
	askInterfaces = "interfaces"
	askNAT        = "nat"
	askRoles      = "roles"
	askBalanced   = "balanced"
	askStatic     = "static"
	askIdentity   = "identity"
	askACLs       = "acls"
	askACLLimit   = "acl limit"
	askNATUse     = "show nat44 summary"
	askACLUse     = "show acl-plugin sessions"
	askCNATUse    = "show cnat session"
	askHeap       = "show memory main-heap"
	askStatseg    = "show memory stats-segment"
	askTrace      = "show api trace-status"
)

// question is one request. All questions only read.
type question struct {
	name string
	call vpp.Call
}

// questions returns the requests that are sent as one batch. A request whose message VPP does not have fails alone.
func questions() []question {
	dump := func(name string, m api.Message) question { return question{name, vpp.Call{Msg: m, Dump: true}} }
	qs := []question{
		{askNAT, vpp.Call{Msg: &nat44_ed.Nat44ShowRunningConfig{}}},
		{askACLLimit, vpp.Call{Msg: &acl.ACLPluginGetConnTableMaxEntries{}}},
		dump(askWorkers, &nat44_ed.NatWorkerDump{}),
		dump(askInterfaces, &interfaces.SwInterfaceDump{SwIfIndex: ^interface_types.InterfaceIndex(0)}),
		dump(askRoles, &nat44_ed.Nat44InterfaceDump{}),
		dump(askBalanced, &nat44_ed.Nat44LbStaticMappingDump{}),
		dump(askStatic, &nat44_ed.Nat44StaticMappingDump{}),
		dump(askIdentity, &nat44_ed.Nat44IdentityMappingDump{}),
		dump(askACLs, &acl.ACLDump{ACLIndex: ^uint32(0)}),
	}
	for _, cli := range []string{askNATUse, askACLUse, askCNATUse, askHeap, askStatseg, askTrace} {
		qs = append(qs, question{cli, vpp.Call{Msg: &vlib.CliInband{Cmd: cli}}})
	}
	return qs
}

// facts are VPP's answers.
type facts struct {
	cfg     Config
	state   vpp.State
	replies map[string]vpp.Reply
	stats   error // error of the stats socket; nil if it was not examined
	host    hostFacts
	node    *podFacts // nil: not examined
	maps    string    // files that VPP's process has mapped; "": it is not visible
}

func ask(ctx context.Context, cfg Config) (*facts, error) {
	conn, stop, err := visit.Open(ctx, vpp.Config{Socket: cfg.Socket, Dial: cfg.Dial, ClientName: "contiv-doctor", Needs: needs()})
	if err != nil {
		return nil, err
	}
	defer stop()
	qs := questions()
	calls := make([]vpp.Call, len(qs))
	for i := range qs {
		calls[i] = qs[i].call
	}
	f := &facts{cfg: cfg, state: conn.State(), replies: map[string]vpp.Reply{}}
	f.maps = readMaps(f.state.PID)
	for i, r := range conn.Do(ctx, calls...) {
		if errors.Is(r.Err, vpp.ErrDisconnected) || ctx.Err() != nil && errors.Is(r.Err, ctx.Err()) {
			return nil, fmt.Errorf("ask vpp %s: %w", qs[i].name, r.Err)
		}
		f.replies[qs[i].name] = r
	}
	if err := askNodes(ctx, f, conn.Do); err != nil {
		return nil, err
	}
	f.askHost(ctx, conn.Do)
	if cfg.Pods != nil {
		f.node = askPods(ctx, cfg.Pods, f.state.PID)
	}
	if cfg.Stats != "" {
		_, f.stats = stats.Reader{Socket: cfg.Stats}.ACLMatches(ctx, nil)
	}
	return f, nil
}

// askNodes asks for the graph nodes of the interfaces that are inside alone.
func askNodes(ctx context.Context, f *facts, do func(context.Context, ...vpp.Call) []vpp.Reply) error {
	names := insideAlone(f)
	calls := make([]vpp.Call, len(names))
	for i, name := range names {
		calls[i].Msg = descriptor.ShowFeatures(name)
	}
	for i, r := range do(ctx, calls...) {
		if errors.Is(r.Err, vpp.ErrDisconnected) {
			return fmt.Errorf("ask vpp for the features of %s: %w", names[i], r.Err)
		}
		f.replies[descriptor.ShowFeatures(names[i]).Cmd] = r
	}
	return nil
}

// cli returns the output of a show command; ok is false if VPP does not have the command, or printed nothing.
func (f *facts) cli(name string) (text string, ok bool) {
	r := f.replies[name]
	m, is := r.Msg.(*vlib.CliInbandReply)
	if r.Err != nil || !is || strings.TrimSpace(m.Reply) == "" {
		return "", false
	}
	return m.Reply, true
}

// needs returns all messages that the agent uses, for both versions of cnat's API.
func needs() []api.Message {
	return slices.Concat(all.Needs(), cnatNeeds(), olderCNAT(), newerCNAT())
}

// cnatNeeds returns the messages that both versions of cnat's API have.
func cnatNeeds() []api.Message {
	return []api.Message{
		&cnat.CnatTranslationUpdate{}, &cnat.CnatTranslationDel{}, &cnat.CnatTranslationDump{}, &cnat.CnatSetSnatAddresses{},
		&cnat.CnatSnatPolicyAddDelIf{}, &cnat.CnatSnatPolicyAddDelExcludePfx{},
	}
}

// olderCNAT returns the messages that only cnat's API 0.3.0 has. newerCNAT returns their replacements in API 1.0.0 (VPP
// 26.06).
func olderCNAT() []api.Message {
	return []api.Message{&cnat.CnatGetSnatAddresses{}, &cnat.CnatSetSnatPolicy{}}
}

func newerCNAT() []api.Message {
	return []api.Message{&newer.CnatSnatAddressesDump{}, &newer.CnatSetSnatPolicy{}, &newer.CnatSetSnatAddressesV2{}}
}

// Files of plugins.
const (
	natPlugin = "nat_plugin.so"
	aclPlugin = "acl_plugin.so"
	tapPlugin = "tap_plugin.so"
	// policerPlugin is a plugin in the releases that have taps in one.
	policerPlugin = "policer_plugin.so"
)

// pluginOf returns the file of the plugin that has a message; "": VPP itself. Taps depend on the version: see ofPlugin.
func pluginOf(m api.Message) string {
	switch name := path.Base(reflect.TypeOf(m).Elem().PkgPath()); name {
	case "nat44_ed":
		return natPlugin
	case "acl", "cnat", "af_packet", "memif", "vxlan", "abf":
		return name + "_plugin.so"
	case "policer":
		return policerPlugin
	case "tapv2":
		return tapPlugin
	}
	return ""
}

// concerns reports whether a key (name_crc) belongs to a request or to its replies.
func concerns(key string, m api.Message) bool {
	name := m.GetMessageName()
	stem := strings.TrimSuffix(strings.TrimSuffix(name, "_dump"), "_get")
	return key == name+"_"+m.GetCrcString() || strings.HasPrefix(key, name+"_reply") || strings.HasPrefix(key, stem+"_details")
}

// lacking returns the messages of the given requests that VPP does not have, and the number of requests that lack one.
func (f *facts) lacking(of []api.Message) (keys []string, requests int) {
	for _, m := range of {
		lacks := false
		for _, key := range f.state.Missing {
			if !concerns(key, m) {
				continue
			}
			lacks = true
			if !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
		if lacks {
			requests++
		}
	}
	return keys, requests
}
