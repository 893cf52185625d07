package vppagent_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	vppacl "go.fd.io/govpp/binapi/acl"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/kv"
	"github.com/contiv-agent/contiv-agent/proto/ligato/vpp/acl"
	"github.com/contiv-agent/contiv-agent/vpp"
	"github.com/contiv-agent/contiv-agent/vppagent"
)

// recorder records the requests to a VPP that accepts everything, and the pauses between them. Its clock moves with pauses, and
// with requests by slow each.
type recorder struct {
	granter
	now   time.Time
	slow  time.Duration
	story []string // names of requests; "pause"
	rest  time.Duration
}

func (r *recorder) Do(ctx context.Context, calls ...vpp.Call) []vpp.Reply {
	for _, c := range calls {
		r.now = r.now.Add(r.slow)
		if c.Dump {
			continue
		}
		name := c.Msg.GetMessageName()
		if m, ok := c.Msg.(*vppacl.ACLAddReplace); ok && m.ACLIndex != ^uint32(0) {
			name = "in place"
		}
		r.story = append(r.story, name)
	}
	return r.granter.Do(ctx, calls...)
}

func (r *recorder) pause(_ context.Context, d time.Duration) {
	r.now, r.rest = r.now.Add(d), r.rest+d
	r.story = append(r.story, "pause")
}

func (r *recorder) config() vppagent.Config {
	return vppagent.Config{Caller: r, Pause: r.pause, Now: func() time.Time { return r.now }}
}

// count returns the number of times that each entry is in the story.
func (r *recorder) count() map[string]int {
	out := map[string]int{}
	for _, s := range r.story {
		out[s]++
	}
	return out
}

// bigSet are access lists of so many rules each that pods share; turn is the last address of the first.
func bigSet(pods, count, rules, turn int) kv.Values {
	v := kv.Values{}
	var all []string
	for n := range count {
		m := accessList(fmt.Sprintf("set-%d", n))
		for i := range rules {
			last := 0
			if n == 0 && i == rules-1 {
				last = turn
			}
			m.Rules = append(m.Rules, rule(acl.ACL_Rule_REFLECT, "tcp", fmt.Sprintf("10.%d.%d.%d/32", n, i/256, i%256), "", 80+uint32(last)))
		}
		v.Put(m)
		all = append(all, m.GetName())
	}
	for pod := range pods {
		v.Put(lists(fmt.Sprintf("tap%d", 1+pod), nil, all))
	}
	return v
}

func (r *recorder) commit(t *testing.T, a *vppagent.Agent, kind event.ResyncKind, v kv.Values) *event.Committed {
	t.Helper()
	r.story, r.rest = nil, 0
	c := a.Commit(t.Context(), &event.Txn{Resync: kind, Values: v})
	if c.Err != nil {
		t.Fatal(c.Err)
	}
	return c
}

// TestChangeThatStallsGoesBeside: an access list changes in place if VPP soon forwards again. Otherwise a second one is made, and
// each interface is switched to it.
func TestChangeThatStallsGoesBeside(t *testing.T) {
	for _, tc := range []struct {
		pods, lists, rules int
		want               map[string]int
	}{
		{pods: 3, lists: 2, rules: 100, want: map[string]int{"in place": 1}},
		{pods: 1, lists: 8, rules: 1000, want: map[string]int{"in place": 1}},
		{pods: 100, lists: 8, rules: 1000, want: map[string]int{"acl_add_replace": 1, "acl_interface_set_acl_list": 100, "acl_del": 1}},
	} {
		t.Run(fmt.Sprintf("%d pods %d lists of %d", tc.pods, tc.lists, tc.rules), func(t *testing.T) {
			r := &recorder{}
			a := vppagent.New(r.config())
			r.commit(t, a, event.Full, bigSet(tc.pods, tc.lists, tc.rules, 0))
			r.commit(t, a, event.NoResync, bigSet(tc.pods, tc.lists, tc.rules, 1))
			got := r.count()
			delete(got, "pause")
			if fmt.Sprint(got) != fmt.Sprint(tc.want) {
				t.Errorf("%v, want %v", got, tc.want)
			}
		})
	}
}

// TestForwardingBetweenRequests: a pause follows each long request, as long as all of them together took; small changes have no
// pauses.
func TestForwardingBetweenRequests(t *testing.T) {
	r := &recorder{slow: 10 * time.Microsecond}
	a := vppagent.New(r.config())
	r.commit(t, a, event.Full, bigSet(100, 8, 1500, 0))
	story := strings.Join(r.story, " ")
	if two := strings.Repeat("acl_interface_set_acl_list ", 4); strings.Contains(story, two) {
		t.Errorf("interfaces without a pause: %s", story)
	}
	if n := r.count()["pause"]; n < 30 {
		t.Errorf("%d pauses for 100 interfaces of 12,000 rules", n)
	}
	if r.rest > 2*time.Second {
		t.Errorf("pauses of %s", r.rest)
	}
	r.now = r.now.Add(time.Second)
	small := kv.Values{}
	small.Put(accessList("other", rule(acl.ACL_Rule_REFLECT, "tcp", "", "", 80)))
	r.commit(t, a, event.NoResync, small)
	if n := r.count()["pause"]; n > 0 {
		t.Errorf("%d pauses for one small access list", n)
	}
}

// TestSlowVPPGetsSmallerGroups: if VPP takes longer than estimated, groups have fewer requests.
func TestSlowVPPGetsSmallerGroups(t *testing.T) {
	pauses := map[bool]int{}
	for _, slow := range []bool{false, true} {
		r := &recorder{}
		if slow {
			r.slow = 200 * time.Microsecond
		}
		a := vppagent.New(r.config())
		r.commit(t, a, event.Full, services(3000, 3))
		pauses[slow] = r.count()["pause"]
	}
	if pauses[true] < 20*pauses[false] || pauses[false] == 0 {
		t.Errorf("%d pauses where VPP is quick, %d where it is slow", pauses[false], pauses[true])
	}
}

// TestNoPausesBetweenServices: VPP forwards between the requests of many Services by itself. So the agent pauses only until it has measured them.
func TestNoPausesBetweenServices(t *testing.T) {
	r := &recorder{slow: 5 * time.Microsecond}
	a := vppagent.New(r.config())
	r.commit(t, a, event.Full, services(3000, 10))
	requests, last := 0, 0
	for _, s := range r.story {
		if requests++; s == "pause" {
			last = requests
		}
	}
	if requests < 3000 || last == 0 || last > 500 {
		t.Errorf("%d requests, %d pauses, the last before request %d", requests, r.count()["pause"], last)
	}
}

// TestRemovalsBeginWithFew: the time of removing a mapping depends on its number of NAT sessions. A removal that was quick may take long
// later, so the first group is small.
func TestRemovalsBeginWithFew(t *testing.T) {
	r := &recorder{}
	a := vppagent.New(r.config())
	all := services(1000, 3)
	r.commit(t, a, event.Full, all)
	r.now, r.slow = r.now.Add(time.Minute), time.Millisecond
	gone := kv.Values{}
	for key := range services(1000, 3) {
		if strings.Contains(key, "dnat44") {
			gone[key] = nil
		}
	}
	r.commit(t, a, event.NoResync, gone)
	longest, run, removals := 0, 0, 0
	for _, s := range r.story {
		if run++; s == "pause" {
			run = 0
		} else {
			removals++
		}
		longest = max(longest, run)
	}
	if removals != 1000 || longest > 20 {
		t.Errorf("%d removals, up to %d without a pause", removals, longest)
	}
}
