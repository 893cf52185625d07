package simulate

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"time"

	"github.com/contiv-agent/contiv-agent/plugins/controller"
	"github.com/contiv-agent/contiv-agent/plugins/extconfig/etcd"
	"github.com/contiv-agent/contiv-agent/test/simulate/network"
)

// The kinds of actions of an etcd, which all nodes share.
const (
	PutEtcd     Kind = "client writes to etcd" // N draws it
	CutEtcd     Kind = "etcd unreachable"      // For, by a node
	HangEtcd    Kind = "etcd hangs"            // For, at a node
	SlowEtcd    Kind = "etcd is slow"          // For: N ms in each direction, at a node
	CompactEtcd Kind = "etcd forgets revisions"
	BackEtcd    Kind = "etcd is restored" // to one of the latest 16 revisions; N draws it
	LoseLease   Kind = "etcd loses leases"
	DeadEtcd    Kind = "etcd goes silent"             // For: connections of a node die without a reset, after N further bytes
	SlipEtcd    Kind = "etcd moves on before a watch" // For: a node connects again; keys change after it has read them and before it watches. N even: etcd compacts then
)

// etcdFaults are drawn beside faults, as apiFaults are.
var etcdFaults = []Kind{PutEtcd, PutEtcd, PutEtcd, CutEtcd, HangEtcd, SlowEtcd, CompactEtcd, BackEtcd, LoseLease}

// laterEtcdFaults are drawn beside etcdFaults, for the same reason.
var laterEtcdFaults = []Kind{DeadEtcd, SlipEtcd}

// joinEtcd connects a node to the etcd, which gets a value for it.
func (r *run) joinEtcd(n *node) {
	if r.etcd == nil {
		return
	}
	n.etcd = network.New()
	r.etcd.Start(n.etcd)
	r.etcd.Write(map[string]string{etcdRoot(n) + etcdConfig + etcdNames[0]: etcdValue(etcdNames[0], 1400)})
}

// Parts of keys, and the interfaces that they name.
const (
	etcdConfig = "config/vpp/v2/interfaces/"
	etcdStatus = "config-status/vpp/v2/interfaces/"
)

var etcdNames = []string{"ext-etcd-a", "ext-etcd-b", "ext-etcd-c"}

func etcdRoot(n *node) string { return etcd.DefaultPrefix + n.name + "/" }

func etcdValue(name string, mtu int) string {
	return fmt.Sprintf(`{"name": %q, "type": "SOFTWARE_LOOPBACK", "enabled": true, "mtu": %d}`, name, mtu)
}

// etcdSource returns the source of an agent, which does nothing after its end. None without an etcd.
func (r *run) etcdSource(n *node, l *life) ([]controller.ExternalConfigSource, error) {
	if n.etcd == nil {
		return nil, nil
	}
	s, err := etcd.New(etcd.Config{
		Endpoints: []string{"etcd:2379"}, Label: n.name, StartWait: 30 * time.Second, Logger: r.log, // as --etcd-wait
		Dial: func(ctx context.Context, _ string) (net.Conn, error) {
			if l.dead.Load() {
				return nil, errKilled
			}
			return n.etcd.Dial(ctx)
		},
	})
	return []controller.ExternalConfigSource{s}, err
}

// actEtcd begins an action of the etcd.
func (r *run) actEtcd(a Action, n *node, rng *rand.Rand) {
	if r.etcd == nil {
		return
	}
	begin := func(change func(f *network.Faults, by int)) {
		r.during(a, func() { n.etcd.Change(func(f *network.Faults) { change(f, 1) }) }, func() { n.etcd.Change(func(f *network.Faults) { change(f, -1) }) })
	}
	switch a.Kind {
	case PutEtcd:
		r.etcd.Write(drawEtcd(n, rng))
	case CutEtcd:
		begin(func(f *network.Faults, by int) { f.Cut += by })
	case HangEtcd:
		begin(func(f *network.Faults, by int) { f.Hung += by })
	case SlowEtcd:
		begin(func(f *network.Faults, by int) { f.Slow += time.Duration(by*a.N) * time.Millisecond })
	case CompactEtcd:
		r.etcd.ForgetHistory()
	case BackEtcd:
		now := r.etcd.Revision()
		r.etcd.Restore(max(1, now-int64(rng.IntN(16))))
		for _, n := range r.nodes {
			n.etcd.Sever()
		}
	case LoseLease:
		r.etcd.LoseLeases()
	case DeadEtcd:
		begin(func(f *network.Faults, by int) { f.Dead, f.Rest = f.Dead+by, a.N })
	case SlipEtcd:
		changes := []map[string]string{drawEtcd(n, rng), drawEtcd(n, rng)} // a watch begins at the first, and etcd keeps the last
		r.during(a, func() {
			r.etcd.AfterRead(etcdRoot(n)+"config/", changes, a.N%2 == 0)
			n.etcd.Sever()
		}, func() { r.etcd.AfterRead("", nil, false) })
	}
}

// drawEtcd draws a revision of a node's keys.
func drawEtcd(n *node, rng *rand.Rand) map[string]string {
	values := map[string]string{}
	for range 1 + rng.IntN(2) {
		name := etcdNames[rng.IntN(len(etcdNames))]
		value := etcdValue(name, 1300+rng.IntN(200))
		if rng.IntN(3) == 0 {
			value = ""
		}
		values[etcdRoot(n)+etcdConfig+name] = value
	}
	return values
}

// checkEtcd is an error unless VPP has the interfaces that etcd has for the node and no others, and etcd has their statuses.
func (r *run) checkEtcd(n *node, dump string) error {
	if r.etcd == nil {
		return nil
	}
	values, statuses := r.etcd.Values(etcdRoot(n)+etcdConfig), r.etcd.Values(etcdRoot(n)+etcdStatus)
	var errs []error
	for _, name := range etcdNames {
		value, stored := values[etcdRoot(n)+etcdConfig+name]
		status := statuses[etcdRoot(n)+etcdStatus+name]
		lines := externalLines(dump, name)
		if len(lines) > 1 {
			errs = append(errs, fmt.Errorf("VPP has %d interfaces for etcd's %s: %q", len(lines), name, lines))
		}
		line := strings.Join(lines, "")
		if mtu := strings.TrimSuffix(value[strings.LastIndexByte(value, ' ')+1:], "}"); stored != (line != "") || !strings.Contains(line, mtu) {
			errs = append(errs, fmt.Errorf("etcd has %q for %s, and VPP has %q", value, name, line))
		}
		if stored != strings.Contains(status, `"CONFIGURED"`) {
			errs = append(errs, fmt.Errorf("etcd has %q for %s, and its status is %q", value, name, status))
		}
	}
	return errors.Join(errs...)
}
