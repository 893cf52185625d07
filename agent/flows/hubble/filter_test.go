package hubble

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/contiv-agent/contiv-agent/proto/hubble/flow"
	"github.com/contiv-agent/contiv-agent/proto/hubble/observer"
)

func filterOf(t *testing.T, text string) *flow.FlowFilter {
	t.Helper()
	out := &flow.FlowFilter{}
	if err := prototext.Unmarshal([]byte(text), out); err != nil {
		t.Fatal(text, err)
	}
	return out
}

func converted() (out []*flow.Flow) {
	for _, f := range sample() {
		out = append(out, converter{}.flow(&f))
	}
	return out
}

// Each field of a filter selects flows of the sample, by their numbers.
func TestFilterFields(t *testing.T) {
	all := converted()
	for filter, want := range map[string][]int{
		``:                        {1, 2, 3, 4, 5, 6},
		`source_ip: "10.1.1.2"`:   {1, 3},
		`source_ip: "10.0.0.0/8"`: {1, 3, 4, 5},
		`source_ip: "fd00::0007" source_ip: "192.0.2.0/24"`:               {2, 6},
		`destination_ip: "10.96.0.1"`:                                     {1},
		`source_ip_xlated: "10.1.1.254"`:                                  {3},
		`source_pod: "prod/"`:                                             {1, 3},
		`source_pod: "prod/cli"`:                                          {1, 3},
		`source_pod: "/cli-0"`:                                            {1, 3},
		`source_pod: "cli-0"`:                                             nil, // of the namespace default
		`source_pod: "prod/li"`:                                           nil,
		`destination_pod: "shop/web" destination_pod: "x/"`:               {3},
		`destination_pod: "/"`:                                            {2, 3, 4, 5},
		`destination_service: "shop/"`:                                    {1, 3},
		`destination_service: "front"`:                                    nil,
		`source_service: "shop/"`:                                         nil,
		`source_label: "app=cli"`:                                         {1, 3},
		`source_label: "k8s:app in (cli, x), k8s:app.kubernetes.io/name"`: {1, 3},
		`source_label: "reserved:world"`:                                  {2, 6},
		`source_label: "k8s:world"`:                                       nil,
		`source_label: "!app"`:                                            {2, 4, 5, 6},
		`destination_label: "app!=cli"`:                                   {1, 3, 6},
		`destination_label: "io.kubernetes.pod.namespace=shop"`:           {3},
		`verdict: DROPPED`:                                                {2, 4},
		`drop_reason_desc: POLICY_DENIED`:                                 {2},
		`drop_reason_desc: DROP_REASON_UNKNOWN`:                           {4},
		`event_type {type: 1}`:                                            {2, 4},
		`event_type {type: 1 match_sub_type: true}`:                       {4},
		`event_type {match_sub_type: true sub_type: 5}`:                   {3},
		`protocol: "TCP"`:                                                 {1, 2, 3},
		`protocol: "icmp" protocol: "sctp"`:                               {4, 6},
		`protocol: "icmpv6"`:                                              nil,
		`source_port: "40000"`:                                            {1, 2, 3, 5, 6},
		`destination_port: "80" destination_port: "53"`:                   {1, 2, 5, 6},
		`destination_port: "0"`:                                           nil,
		`reply: false`:                                                    {1, 2, 3, 4, 5, 6},
		`reply: true`:                                                     nil,
		`source_identity: 1`:                                              {4},
		`destination_identity: 2`:                                         {1, 6},
		`node_name: "node-1"`:                                             {1, 2, 3, 4, 5, 6},
		`node_name: "default/n*1"`:                                        {1, 2, 3, 4, 5, 6},
		`node_name: "else/"`:                                              nil,
		`node_name: "node"`:                                               nil,
		`ip_version: IPv6`:                                                {6},
		`source_workload {name: "cli"}`:                                   {1, 3},
		`destination_workload {}`:                                         {2, 3, 4, 5},
		`traffic_direction: INGRESS`:                                      {2, 5},
		`source_cluster_name: "default"`:                                  {1, 3, 4, 5},
		`uuid: "x"`:                                                       nil,
		`source_pod: "prod/" destination_service: "shop/"`:                {1, 3}, // all fields must match
		`source_pod: "prod/" traffic_direction: EGRESS`:                   {1},
	} {
		m, err := compileFilter(filterOf(t, filter))
		if err != nil {
			t.Errorf("%s: %v", filter, err)
			continue
		}
		var got []int
		for i, f := range all {
			if m(f) {
				got = append(got, i+1)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", filter, diff)
		}
	}
	one, err := compileFilter(&flow.FlowFilter{Uuid: []string{all[1].GetUuid()}})
	if err != nil || one(all[0]) || !one(all[1]) {
		t.Errorf("by UUID: %v", err)
	}
}

// A field that an agent cannot evaluate, and a value that is none, is an error that names the field.
func TestFilterRefuses(t *testing.T) {
	for filter, want := range map[string]string{
		`http_method: "GET"`:                `whitelist[1].http_method: flows of this agent do not have it`,
		`source_fqdn: "x"`:                  `whitelist[1].source_fqdn: `,
		`node_labels: "x"`:                  `whitelist[1].node_labels: `,
		`encrypted: false`:                  `whitelist[1].encrypted: `,
		`experimental {}`:                   `whitelist[1].experimental: `,
		`tcp_flags {}`:                      `whitelist[1].tcp_flags: `,
		`source_ip: "10.1.1"`:               `whitelist[1].source_ip: "10.1.1": must be an address or a prefix`,
		`destination_pod: ""`:               `whitelist[1].destination_pod: a name must not be empty`,
		`source_cluster_name: ""`:           `whitelist[1].source_cluster_name: a name must not be empty`,
		`source_label: "a in"`:              `whitelist[1].source_label: selector "a in": `,
		`destination_port: "65536"`:         `whitelist[1].destination_port: port "65536": must be`,
		`protocol: "http"`:                  `whitelist[1].protocol: protocol "http": must be`,
		`source_workload {kind: "Job"}`:     `whitelist[1].source_workload: kind "Job": `,
		`node_name: "a/b/c"`:                `whitelist[1].node_name: pattern "a/b/c": must be`,
		`node_name: ""`:                     `whitelist[1].node_name: pattern "": must be`,
		`verdict: DROPPED dns_query: "a.*"`: `whitelist[1].dns_query: `,
	} {
		_, err := compileLists([]*flow.FlowFilter{{}, filterOf(t, filter)}, nil)
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", filter, err, want)
		}
	}
	newer := &flow.FlowFilter{}
	newer.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 77, protowire.VarintType), 1))
	if _, err := compileLists(nil, []*flow.FlowFilter{newer}); err == nil || !strings.HasPrefix(err.Error(), "blacklist[0].field that is newer") {
		t.Errorf("a field that the agent does not know: %v", err)
	}
}

// What Hubble UI's page excludes in each request, without the host. No flow has a name of DNS, so excluding names excludes none; to ask for names is refused.
func TestExcludedNamesExcludeNothing(t *testing.T) {
	var page []*flow.FlowFilter
	for _, text := range []string{
		`source_label: "reserved:unknown" source_label: "k8s:k8s-app=kube-dns"`, `destination_label: "reserved:unknown"`,
		`destination_label: "k8s:k8s-app=kube-dns" destination_port: "53"`, `source_fqdn: "*.cluster.local*"`, `destination_fqdn: "*.cluster.local*"`,
	} {
		page = append(page, filterOf(t, text))
	}
	passes, err := compileLists([]*flow.FlowFilter{filterOf(t, `reply: false`)}, page)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range converted() {
		if !passes(f) {
			t.Errorf("the page does not get %v", f)
		}
	}
	for _, name := range []string{"source_fqdn", "destination_fqdn"} {
		if _, err := compileLists(nil, []*flow.FlowFilter{filterOf(t, name+`: "a" http_method: "GET"`)}); err == nil || !strings.HasPrefix(err.Error(), "blacklist[0].http_method: ") {
			t.Errorf("%s beside a field that cannot be evaluated: %v", name, err)
		}
		if _, err := compileLists([]*flow.FlowFilter{filterOf(t, name+`: "a"`)}, nil); err == nil || !strings.HasPrefix(err.Error(), "whitelist[0]."+name+": flows of this agent do not have it") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Every field of a filter is evaluated, or refused by its name: none is ignored.
func TestNoFieldIsIgnored(t *testing.T) {
	evaluated := 0
	fields := (&flow.FlowFilter{}).ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		f := &flow.FlowFilter{}
		field := fields.Get(i)
		if field.IsList() {
			list := f.ProtoReflect().Mutable(field).List()
			switch field.Kind() {
			case protoreflect.StringKind:
				list.Append(protoreflect.ValueOfString("nothing-has-this"))
			case protoreflect.EnumKind:
				list.Append(protoreflect.ValueOfEnum(99))
			case protoreflect.BoolKind:
				list.Append(protoreflect.ValueOfBool(true))
			case protoreflect.Uint32Kind:
				list.Append(protoreflect.ValueOfUint32(99))
			case protoreflect.Uint64Kind:
				list.Append(protoreflect.ValueOfUint64(99))
			default:
				list.Append(list.NewElement())
				if field.Name() == "event_type" {
					f.EventType[0].Type = 99
				} else if strings.HasSuffix(string(field.Name()), "_workload") {
					for _, w := range slices.Concat(f.GetSourceWorkload(), f.GetDestinationWorkload()) {
						w.Name = "nothing-has-this"
					}
				}
			}
		} else {
			f.ProtoReflect().Mutable(field)
		}
		m, err := compileFilter(f)
		if err != nil {
			if !strings.HasPrefix(err.Error(), string(field.Name())+": ") {
				t.Errorf("%s: %v", field.Name(), err)
			}
			continue
		}
		evaluated++
		for _, one := range converted() {
			if m(one) {
				t.Errorf("%s matches a flow that has another value: %v", field.Name(), one)
			}
		}
	}
	if evaluated < 20 {
		t.Errorf("%d fields are evaluated", evaluated)
	}
}

// Whitelists join, blacklists take away.
func TestLists(t *testing.T) {
	tcp, dropped, prod := filterOf(t, `protocol: "tcp"`), filterOf(t, `verdict: DROPPED`), filterOf(t, `source_pod: "prod/"`)
	lists := func(f ...*flow.FlowFilter) []*flow.FlowFilter { return f }
	for i, c := range []struct {
		white, black []*flow.FlowFilter
		want         []int
	}{
		{nil, nil, []int{1, 2, 3, 4, 5, 6}},
		{lists(tcp, dropped), nil, []int{1, 2, 3, 4}},
		{lists(tcp), lists(dropped), []int{1, 3}},
		{nil, lists(dropped, prod), []int{5, 6}},
	} {
		m, err := compileLists(c.white, c.black)
		if err != nil {
			t.Fatal(err)
		}
		var got []int
		for n, f := range converted() {
			if m(f) {
				got = append(got, n+1)
			}
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("case %d (-want +got):\n%s", i, diff)
		}
	}
}

// The number, the time and the end of a request select among the flows that match.
func TestChoose(t *testing.T) {
	at := func(second int) *timestamppb.Timestamp {
		return timestamppb.New(began.Add(time.Duration(second) * time.Second))
	}
	tcp := []*flow.FlowFilter{filterOf(t, `protocol: "tcp"`)}
	for i, c := range []struct {
		req  *observer.GetFlowsRequest
		want []int
	}{
		{&observer.GetFlowsRequest{}, []int{1, 2, 3, 4, 5, 6}},
		{&observer.GetFlowsRequest{Number: 2}, []int{5, 6}},
		{&observer.GetFlowsRequest{Number: ^uint64(0)}, []int{1, 2, 3, 4, 5, 6}},
		{&observer.GetFlowsRequest{Number: 2, First: true}, []int{1, 2}},
		{&observer.GetFlowsRequest{Number: 2, Whitelist: tcp}, []int{2, 3}},
		{&observer.GetFlowsRequest{Since: at(2)}, []int{3, 4, 5, 6}},
		{&observer.GetFlowsRequest{Since: at(2), Number: 2}, []int{3, 4}},
		{&observer.GetFlowsRequest{Since: at(2), Until: at(3)}, []int{3, 4}},
		{&observer.GetFlowsRequest{Until: at(0)}, []int{1}},
		{&observer.GetFlowsRequest{Follow: true}, nil},
		{&observer.GetFlowsRequest{Follow: true, Number: 1}, []int{6}},
		{&observer.GetFlowsRequest{Follow: true, Since: at(4), Number: 1}, []int{5, 6}},
	} {
		choice, err := newChoice(c.req)
		if err != nil {
			t.Fatal(err)
		}
		var got []int
		for _, f := range choice.choose(converted()) {
			got = append(got, int(f.GetTime().AsTime().Sub(began).Seconds())+1)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("case %d, %v (-want +got):\n%s", i, c.req, diff)
		}
	}
	for _, bad := range []*observer.GetFlowsRequest{
		{First: true, Follow: true}, {Since: &timestamppb.Timestamp{Nanos: -1}}, {Until: &timestamppb.Timestamp{Nanos: -1}}, {Blacklist: []*flow.FlowFilter{{HttpUrl: []string{"x"}}}},
	} {
		if _, err := newChoice(bad); err == nil {
			t.Errorf("%v is no error", bad)
		}
	}
}

// A mask keeps fields, whole or in part.
func TestMask(t *testing.T) {
	for _, c := range []struct {
		paths []string
		want  string
	}{
		{[]string{"verdict", "l7"}, `verdict: DROPPED`},
		{[]string{"destination.namespace", "destination.pod_name"}, `destination {namespace: "prod" pod_name: "cli-0"}`},
		{[]string{"source.identity", "source"}, `source {identity: 2 labels: "reserved:world"}`},
		{[]string{"source", "source.identity"}, `source {identity: 2 labels: "reserved:world"}`},
		{[]string{"l4.TCP.destination_port"}, `l4 {TCP {destination_port: 80}}`},
		{[]string{"nothing"}, ``},
	} {
		want := &flow.Flow{}
		if err := prototext.Unmarshal([]byte(c.want), want); err != nil {
			t.Fatal(err)
		}
		got := converted()[1]
		newMask(&fieldmaskpb.FieldMask{Paths: c.paths}).apply(got.ProtoReflect())
		if diff := cmp.Diff(prototext.Format(want), prototext.Format(got)); diff != "" {
			t.Errorf("%v (-want +got):\n%s", c.paths, diff)
		}
	}
	got := converted()[1]
	newMask(nil).apply(got.ProtoReflect())
	if got.GetSummary() == "" {
		t.Error("no mask must keep all")
	}
}
