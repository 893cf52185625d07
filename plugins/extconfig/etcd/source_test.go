package etcd

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/proto"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	contivl3 "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/l3"
	"github.com/contiv-agent/contiv-agent/proto/ligato/kvscheduler"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/interfaces"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/l3"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/punt"
)

const loop = "config/vpp/v2/interfaces/loop"

func loopKey(n int) string { return fmt.Sprintf("%s%d", loop, n) }

func loopJSON(n int, mtu int) string {
	return fmt.Sprintf(`{"name":"loop%d","type":"SOFTWARE_LOOPBACK","mtu":%d}`, n, mtu)
}

// mtus returns the interfaces in VPP, by name.
func (n *node) mtus() map[string]uint32 {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := map[string]uint32{}
	for key, msg := range n.has {
		out[strings.TrimPrefix(key, loop)] = msg.(*interfaces.Interface).Mtu
	}
	return out
}

func want(t *testing.T, n *node, mtus map[string]uint32) {
	t.Helper()
	if d := cmp.Diff(mtus, n.mtus()); d != "" {
		t.Errorf("VPP (-want +has):\n%s", d)
	}
}

// settle runs everything that needs no time, and then the writes of statuses.
func settle() {
	synctest.Wait()
	time.Sleep(5 * writePause)
	synctest.Wait()
}

// One revision is one transaction with all of its keys and no others.
func TestOneRevisionIsOneTransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.put(map[string]string{loopKey(1): loopJSON(1, 1500)})
		n := start(t, f, config(), nil)
		settle()
		if txns := n.transactions(); len(txns) != 1 || txns[0].Resync != event.Full {
			t.Fatalf("at the start: %+v", txns)
		}
		f.put(map[string]string{loopKey(1): loopJSON(1, 1400), loopKey(2): loopJSON(2, 9000)})
		settle()
		f.put(map[string]string{loopKey(1): "", loopKey(3): loopJSON(3, 1)})
		settle()
		var got [][]string
		for _, txn := range n.transactions() {
			got = append(got, slices.Sorted(maps.Keys(txn.Values)))
		}
		if d := cmp.Diff([][]string{{loopKey(1), loopKey(2)}, {loopKey(1), loopKey(3)}}, got); d != "" {
			t.Error(d)
		}
		want(t, n, map[string]uint32{"2": 9000, "3": 1})
	})
}

// A refused value changes nothing; its status names it and the reason. Valid values beside it are applied. A valid value ends the
// refusal.
func TestRefusedChangesNothing(t *testing.T) {
	long := `{"name":"loop4","physAddress":"` + strings.Repeat("x", 10<<20) + `"}`
	for name, tc := range map[string]struct{ key, value, err string }{
		"no JSON":         {loopKey(1), `{"name":`, "not the JSON of a ligato.vpp.interfaces.Interface"},
		"unknown field":   {loopKey(1), `{"name":"loop1","colour":"red"}`, "colour"},
		"wrong type":      {loopKey(1), `{"name":"loop1","mtu":"many"}`, "many"},
		"another's value": {loopKey(1), loopJSON(2, 1), "key does not belong to the value: its key is \"" + loopKey(2) + "\""},
		"empty":           {loopKey(1), " ", "not the JSON"},
		"no model":        {"config/vpp/v9/warp/1", `{}`, "no model"},
		"out of its room": {"config/vpp/nat/v2/dnat44/x", `{"label":"../nat44-global"}`, "does not belong"},
		"ten megabytes":   {loopKey(4), long, "at most 2097152 bytes, this one has 10485"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				f.put(map[string]string{loopKey(1): loopJSON(1, 1500)})
				n := start(t, f, config(), nil)
				settle()
				f.put(map[string]string{tc.key: tc.value, loopKey(2): loopJSON(2, 9000)})
				settle()
				want(t, n, map[string]uint32{"1": 1500, "2": 9000})
				st := f.status(tc.key)
				if st.GetState() != kvscheduler.ValueState_INVALID || !strings.Contains(st.GetError(), tc.err) || st.GetKey() != tc.key {
					t.Errorf("status: %v, want an error with %q", st, tc.err)
				}
				if stays := strings.HasSuffix(st.GetError(), "the earlier value stays"); stays != (tc.key == loopKey(1)) {
					t.Errorf("status: %v", st)
				}
				if got := n.note(); got.Status != event.InSync || !strings.Contains(got.Note, tc.key+": ") || !strings.Contains(got.Note, tc.err) {
					t.Errorf("source: %+v", got)
				}
				n.transactions()
				f.put(map[string]string{tc.key: "", loopKey(1): loopJSON(1, 1501)})
				settle()
				want(t, n, map[string]uint32{"1": 1501, "2": 9000})
				if st := f.status(tc.key); tc.key != loopKey(1) && st != nil {
					t.Errorf("status of a key that is gone: %v", st)
				}
				if got := n.note(); got.Note != "" {
					t.Errorf("nothing is refused any more: %+v", got)
				}
			})
		})
	}
}

// After a lost connection, with or without compaction, the source sends the differences only; equal values are not touched.
func TestReconnectSendsDifferences(t *testing.T) {
	for name, compact := range map[string]bool{"history is there": false, "compacted": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				f.put(map[string]string{loopKey(1): loopJSON(1, 1500), loopKey(2): loopJSON(2, 1500), loopKey(3): loopJSON(3, 1500)})
				n := start(t, f, config(), nil)
				settle()
				n.transactions()
				f.disconnect(errors.New("no route"))
				time.Sleep(time.Minute)
				if got := n.note(); got.Status != event.InSync || !strings.Contains(got.Note, "no route") {
					t.Errorf("while etcd is away: %+v", got)
				}
				f.put(map[string]string{loopKey(1): "", loopKey(4): loopJSON(4, 1)})
				f.put(map[string]string{loopKey(2): loopJSON(2, 1400)})
				f.put(map[string]string{loopKey(3): `{"mtu": 1500, "type":"SOFTWARE_LOOPBACK", "name":"loop3"}`}) // the same value in another notation
				if compact {
					f.compact()
				}
				f.reconnect()
				time.Sleep(time.Minute)
				settle()
				txns := n.transactions()
				if len(txns) != 1 {
					t.Fatalf("%d transactions", len(txns))
				}
				if d := cmp.Diff([]string{loopKey(1), loopKey(2), loopKey(4)}, slices.Sorted(maps.Keys(txns[0].Values))); d != "" || txns[0].Resync != event.NoResync {
					t.Errorf("%v: %s", txns[0].Resync, d)
				}
				if got := n.note(); got.Note != "" {
					t.Errorf("etcd is back: %+v", got)
				}
				f.disconnect(nil)
				time.Sleep(time.Minute)
				f.put(map[string]string{loopKey(2): loopJSON(2, 1300)})
				settle()
				want(t, n, map[string]uint32{"2": 1300, "3": 1500, "4": 1})
				if txns := n.transactions(); len(txns) != 1 {
					t.Errorf("%d transactions, one of them for nothing", len(txns))
				}
			})
		})
	}
}

// The content of an etcd that was emptied and refilled behind the same address is compared with the earlier content.
func TestAnotherEtcdInItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		for i := range 50 {
			f.put(map[string]string{loopKey(1): loopJSON(1, 1500+i), loopKey(2): loopJSON(2, 1500)})
		}
		n := start(t, f, config(), nil)
		settle()
		n.transactions()
		f.disconnect(nil) // first, so that no watch starts at a revision of the old one
		f.mu.Lock()
		f.rev, f.history, f.values = 0, nil, map[string]string{}
		f.mu.Unlock()
		f.put(map[string]string{loopKey(1): loopJSON(1, 1549), loopKey(3): loopJSON(3, 9000)})
		time.Sleep(time.Minute)
		settle()
		want(t, n, map[string]uint32{"1": 1549, "3": 9000})
		if txns := n.transactions(); len(txns) != 1 || len(txns[0].Values) != 2 {
			t.Errorf("%+v", txns)
		}
	})
}

// If pages are compacted during the read, the source reads everything again and never uses half of it.
func TestCompactedWhileReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		values := map[string]string{}
		for i := range 2500 {
			values[loopKey(i)] = loopJSON(i, 1500)
		}
		f.put(values)
		pages := 0
		f.onPage = func() {
			if pages++; pages == 2 {
				f.put(map[string]string{loopKey(0): "", loopKey(9999): loopJSON(9999, 1)})
				f.compact()
			}
		}
		n := start(t, f, config(), nil)
		time.Sleep(time.Minute)
		settle()
		txns := n.transactions()
		if len(txns) != 1 || txns[0].Values[loopKey(0)] != nil || txns[0].Values[loopKey(9999)] == nil || len(txns[0].Values) != 2500 {
			t.Errorf("%d transactions, %d values", len(txns), len(txns[0].Values))
		}
	})
}

// Pages become smaller where values are long, and everything is read: the next page begins directly after the last key.
func TestPagesShrink(t *testing.T) {
	for _, longest := range []int64{1, 20} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			values := map[string]string{loop + "7.1": `{"name":"loop7.1"}`, loop + "7 ": `{"name":"loop7 "}`, loop + "7/1": `{"name":"loop7/1"}`}
			for i := range 200 {
				values[loopKey(i)] = loopJSON(i, 1500)
			}
			f.put(values)
			f.longest = longest
			n := start(t, f, config(), nil)
			settle()
			if len(n.mtus()) != 203 {
				t.Errorf("%d values; pages of %v", len(n.mtus()), f.pages)
			}
		})
	}
}

// An absent etcd delays the agent for StartWait and no longer; its content follows.
func TestStartWait(t *testing.T) {
	for _, wait := range []time.Duration{0, 30 * time.Second} {
		t.Run(wait.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				f.put(map[string]string{loopKey(1): loopJSON(1, 1500)})
				f.disconnect(errors.New("connection refused"))
				cfg := config()
				cfg.StartWait = wait
				n := start(t, f, cfg, kv.Values{"config/vpp/v2/interfaces/loop9": &interfaces.Interface{Name: "loop9", Mtu: 9}})
				time.Sleep(29 * time.Second)
				settle()
				if got := n.note(); len(n.transactions()) != 0 || got.Status != event.WaitForReady || got.Err == nil || !strings.Contains(got.Err.Error(), "connection refused") {
					t.Fatalf("while it waits: %+v", got)
				}
				time.Sleep(2 * time.Minute)
				if wait == 0 {
					if len(n.transactions()) != 0 {
						t.Error("did not wait")
					}
				} else {
					if txns := n.transactions(); len(txns) != 1 || len(txns[0].Values) != 1 {
						t.Errorf("after it: %+v", txns)
					}
					if got := n.note(); got.Status != event.InSync || got.Err != nil || !strings.Contains(got.Note, "without the values in etcd: connection refused") {
						t.Errorf("after it: %+v", got)
					}
				}
				f.reconnect()
				time.Sleep(time.Minute)
				want(t, n, map[string]uint32{"1": 1500, "9": 9})
				if got := n.note(); got.Status != event.InSync || got.Note != "" {
					t.Errorf("etcd is there: %+v", got)
				}
			})
		})
	}
}

// A busy loop receives the accumulated changes in few transactions, and the queue holds no more entries than keys.
func TestBusyLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.put(map[string]string{loopKey(0): loopJSON(0, 1)})
		n := start(t, f, config(), nil)
		settle()
		n.mu.Lock()
		n.busy = make(chan struct{})
		n.mu.Unlock()
		for i := range 20_000 {
			f.put(map[string]string{loopKey(i % 7): loopJSON(i%7, i+1)})
			if i%100 == 0 {
				synctest.Wait()
			}
		}
		synctest.Wait()
		n.source.queue.mu.Lock()
		queued := len(n.source.queue.events)
		n.source.queue.mu.Unlock()
		if queued == 0 || queued > maxQueued+1 {
			t.Errorf("%d events are queued", queued)
		}
		close(n.busy)
		settle()
		wants := map[string]uint32{}
		for i := range 20_000 {
			wants[fmt.Sprint(i%7)] = uint32(i + 1)
		}
		want(t, n, wants)
	})
}

// v2's and v3's spelling of a key are the same value; v3's decides, and v2's is next.
func TestBothSpellings(t *testing.T) {
	const v2, v3 = "config/vpp/v2/dhcp-proxy/IPv4", "config/vpp/v2/dhcp-proxy/IPv4/rx-vrf/3"
	value := func(server string) string {
		return `{"sourceIpAddress":"10.0.0.1","rxVrfId":3,"servers":[{"ipAddress":"` + server + `"}]}`
	}
	server := func(n *node) string {
		n.mu.Lock()
		defer n.mu.Unlock()
		m, _ := n.has[v3].(*l3.DHCPProxy)
		if len(n.has) != 1 {
			return fmt.Sprint(n.has)
		}
		return m.Servers[0].IpAddress
	}
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.put(map[string]string{v2: value("10.0.0.2")})
		n := start(t, f, config(), nil)
		settle()
		if got := server(n); got != "10.0.0.2" || f.status(v2).GetState() != kvscheduler.ValueState_CONFIGURED {
			t.Errorf("v2 alone: %s, %v", got, f.status(v2))
		}
		f.put(map[string]string{v3: value("10.0.0.3")})
		settle()
		if got := server(n); got != "10.0.0.3" || f.status(v3).GetState() != kvscheduler.ValueState_CONFIGURED ||
			f.status(v2).GetState() != kvscheduler.ValueState_INVALID || !strings.Contains(f.status(v2).GetError(), v3) {
			t.Errorf("both: %s, %v, %v", got, f.status(v2), f.status(v3))
		}
		f.put(map[string]string{v3: ""})
		settle()
		if got := server(n); got != "10.0.0.2" || f.status(v2).GetState() != kvscheduler.ValueState_CONFIGURED || f.status(v3) != nil {
			t.Errorf("v2 again: %s, %v, %v", got, f.status(v2), f.status(v3))
		}
		f.put(map[string]string{v2: strings.ReplaceAll(value("10.0.0.4"), "3,", "5,")})
		settle()
		if _, there := n.text()["config/vpp/v2/dhcp-proxy/IPv4/rx-vrf/5"]; !there || len(n.text()) != 1 {
			t.Errorf("in another VRF: %v", n.text())
		}
	})
}

// A value may have terms for the merge over the agent's value; invalid terms are refused.
func TestMerge(t *testing.T) {
	internal := kv.Values{loopKey(1): &interfaces.Interface{Name: "loop1", Mtu: 1500, IpAddresses: []string{"10.0.0.1/24"}}}
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		n := start(t, f, config(), internal)
		check := func(step, want string) {
			t.Helper()
			settle()
			n.mu.Lock()
			defer n.mu.Unlock()
			if m := n.has[loopKey(1)].(*interfaces.Interface); fmt.Sprint(m.Mtu, m.IpAddresses) != want {
				t.Errorf("%s: %v, want %s", step, m, want)
			}
		}
		f.put(map[string]string{loopKey(1): `{"name":"loop1","ipAddresses":["10.0.0.1/24","10.0.0.2/24"]}`})
		check("proto.Merge", "1500 [10.0.0.1/24 10.0.0.1/24 10.0.0.2/24]")
		f.put(map[string]string{loopKey(1): `{"@merge":"once","name":"loop1","ipAddresses":["10.0.0.1/24","10.0.0.2/24"]}`})
		check("once", "1500 [10.0.0.1/24 10.0.0.2/24]")
		f.put(map[string]string{loopKey(1): `{"name":"loop1","ipAddresses":["10.0.0.3/24"],"@merge":"replace=ip_addresses,mtu"}`})
		check("replace", "0 [10.0.0.3/24]")
		for bad, why := range map[string]string{`"colour"`: "want replace", `"replace=colour"`: "has no field", `7`: "cannot unmarshal"} {
			f.put(map[string]string{loopKey(1): `{"name":"loop1","@merge":` + bad + `}`})
			check(bad, "0 [10.0.0.3/24]")
			if got := f.state(loopKey(1)); !strings.HasPrefix(got, "INVALID ") || !strings.Contains(got, why) {
				t.Error(got)
			}
		}
		f.put(map[string]string{loopKey(1): `{"name":"loop1","description":"@merge"}`})
		settle()
		if got := f.state(loopKey(1)); !strings.Contains(got, "description") {
			t.Errorf("a word of a value: %s", got)
		}
		f.put(map[string]string{loopKey(1): `{"name":"loop1","ipAddresses":["10.0.0.4/24"]}`})
		check("without it", "1500 [10.0.0.1/24 10.0.0.4/24]")
		f.put(map[string]string{loopKey(1): ""})
		check("gone", "1500 [10.0.0.1/24]")
	})
}

// When several changes are merged in the queue the last one counts, for merge terms, too.
func TestMergeOfTheLast(t *testing.T) {
	once := pair{key: loopKey(1), value: []byte(`{"name":"loop1","@merge":"once"}`)}
	plain := pair{key: loopKey(1), value: []byte(loopJSON(1, 1500))}
	table := newTable()
	for _, p := range []pair{once, plain} {
		table.setPair(p)
	}
	if c := table.takeChanges(); len(c.merge) != 0 {
		t.Errorf("%v", c.merge)
	}
	change := func(key string, m event.Merge) *event.External {
		ev := event.ExternalConfigChange(Name, map[string]proto.Message{key: &interfaces.Interface{}})
		if !m.Zero() {
			ev.Merge = map[string]event.Merge{key: m}
		}
		return ev
	}
	for name, tc := range map[string]struct {
		changes []*event.External
		want    map[string]event.Merge
	}{
		"it is new":          {[]*event.External{change("a", event.Merge{Once: true}), change("b", event.Merge{Once: true})}, map[string]event.Merge{"a": {Once: true}, "b": {Once: true}}},
		"first is plain":     {[]*event.External{change("a", event.Merge{}), change("b", event.Merge{Once: true})}, map[string]event.Merge{"b": {Once: true}}},
		"it is not any more": {[]*event.External{change("a", event.Merge{Once: true}), change("a", event.Merge{})}, map[string]event.Merge{}},
	} {
		q := newQueue()
		for i := range maxQueued - 1 {
			q.addChange(change(fmt.Sprint(i), event.Merge{}))
		}
		for _, ev := range tc.changes {
			q.addChange(ev)
		}
		for range maxQueued - 1 {
			q.nextEvent()
		}
		last := q.nextEvent().(*event.External)
		if d := cmp.Diff(tc.want, last.Merge, cmpopts.EquateEmpty()); d != "" || q.nextEvent() != nil {
			t.Errorf("%s: %s", name, d)
		}
	}
}

func TestDecode(t *testing.T) {
	for _, tc := range []struct {
		raw, value, key string
		want            proto.Message
	}{
		{"config/vpp/v2/tohost/l3/IPv4/l4/UDP/port/53", `{"l3Protocol":"IPv4","l4Protocol":"UDP","port":53}`, "config/vpp/v2/tohost/l3/IPV4/l4/UDP/port/53", &punt.ToHost{L3Protocol: punt.L3Protocol_IPV4, L4Protocol: punt.L4Protocol_UDP, Port: 53}},
		{"config/vpp/v2/tohost/l3/IPv4/l4/UDP/port/53", `{"l3_protocol":"IPV4","l4_protocol":17,"port":53}`, "config/vpp/v2/tohost/l3/IPV4/l4/UDP/port/53", &punt.ToHost{L3Protocol: punt.L3Protocol_IPV4, L4Protocol: punt.L4Protocol_UDP, Port: 53}},
		{"config/vpp/v2/ipredirect/l3/IPv6/tx/tap", `{"l3_protocol":"IPv6","tx_interface":"tap"}`, "config/vpp/v2/ipredirect/l3/IPV6/tx/tap", &punt.IPRedirect{L3Protocol: punt.L3Protocol_IPV6, TxInterface: "tap"}},
		{"config/vpp/v2/ipscanneigh-global", `{"mode":"IPv6","scanInterval":4294967295}`, "config/vpp/v2/ipscanneigh-global", &l3.IPScanNeighbor{Mode: l3.IPScanNeighbor_IPV6, ScanInterval: 4294967295}},
		{"config/vpp/v2/route/vrf/1/dst/10.1.2.0/24/", `{"vrf_id":1,"dst_network":"10.1.2.3/24"}`, "config/vpp/v2/route/vrf/1/dst/10.1.2.0/24", &l3.Route{VrfId: 1, DstNetwork: "10.1.2.3/24"}},
		{"config/contiv/vpp/v1/reject-route/vrf/0/dst/10.0.0.0/8", `{"dstNetwork":"10.0.0.0/8"}`, "config/contiv/vpp/v1/reject-route/vrf/0/dst/10.0.0.0/8", &contivl3.RejectRoute{DstNetwork: "10.0.0.0/8"}},
	} {
		key, msg, err := decode(tc.raw, []byte(tc.value))
		if err != nil || key != tc.key || !kv.Equal(msg, tc.want) {
			t.Errorf("decode(%s, %s) = %s, %v, %v", tc.raw, tc.value, key, msg, err)
		}
	}
}

// FuzzDecode: an accepted value belongs to its key, and is unchanged after encoding it again.
func FuzzDecode(f *testing.F) {
	f.Add("config/vpp/v2/dhcp-proxy/IPv4", []byte(`{"sourceIpAddress":"10.0.0.1","rxVrfId":3}`))
	f.Add("config/vpp/v2/tohost/l3/IPv4/l4/UDP/port/53", []byte(`{"l3Protocol":"IPv4","l4Protocol":"UDP","port":53}`))
	f.Add("config/vpp/nat/v2/dnat44/a//b/../c", []byte(`{"label":"a/c","stMappings":[{"externalIp":"10.96.0.1"}]}`))
	f.Add("config/vpp/v2/interfaces/loop1", []byte(loopJSON(1, 1500)))
	f.Add("config/vpp/v2/interfaces/loop1", []byte(`{"@merge":"once replace=mtu","name":"loop1"}`))
	f.Add("config/../config/vpp/v2/proxyarp-global", []byte(`null`))
	f.Fuzz(func(t *testing.T, raw string, value []byte) {
		key, msg, merge, err := decodeTerms(raw, value)
		if err != nil {
			if msg != nil || key != "" || !merge.Zero() {
				t.Fatalf("%v, and %s %v %v", err, key, msg, merge)
			}
			return
		}
		if err := errors.Join(kv.Check(key, msg), merge.Check(msg.ProtoReflect().Descriptor())); err != nil {
			t.Fatal(err)
		}
		again, same, err := decode(key, []byte(format(msg)))
		if err != nil || again != key || !kv.Equal(msg, same) {
			t.Fatalf("%s %v, and written again %s %v: %v", key, msg, again, same, err)
		}
	})
}
