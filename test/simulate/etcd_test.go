package simulate

import (
	"math/rand/v2"

	"github.com/contiv-agent/contiv-agent/plugins/controller"
	"github.com/contiv-agent/contiv-agent/test/simulate/servers"
)

// The kinds of actions of an etcd, which all nodes share.
const (
	PutEtcd     = servers.PutEtcd
	CutEtcd     = servers.CutEtcd
	HangEtcd    = servers.HangEtcd
	SlowEtcd    = servers.SlowEtcd
	CompactEtcd = servers.CompactEtcd
	BackEtcd    = servers.BackEtcd
	LoseLease   = servers.LoseLease
	DeadEtcd    = servers.DeadEtcd
	SlipEtcd    = servers.SlipEtcd
)

// etcdFaults are drawn beside faults, as apiFaults are.
var etcdFaults = []Kind{PutEtcd, PutEtcd, PutEtcd, CutEtcd, HangEtcd, SlowEtcd, CompactEtcd, BackEtcd, LoseLease}

// laterEtcdFaults are drawn beside etcdFaults, for the same reason.
var laterEtcdFaults = []Kind{DeadEtcd, SlipEtcd}

// etcdSource returns the source of an agent, which does nothing after its end. None without an etcd.
func (r *run) etcdSource(n *node, l *life) ([]controller.ExternalConfigSource, error) {
	if n.etcd == nil {
		return nil, nil
	}
	if r.IsDay() {
		n.etcd.TTL = dayTTL
	}
	s, err := n.etcd.Source(l.dead.Load, r.log)
	return []controller.ExternalConfigSource{s}, err
}

// actEtcd begins an action of the etcd.
func (r *run) actEtcd(a Action, n *node, rng *rand.Rand) {
	if r.etcd == nil {
		return
	}
	r.actServer(a, func(f servers.Fault) func() { return n.etcd.Begin(f, rng) })
	if a.Kind == BackEtcd {
		for _, n := range r.nodes {
			n.etcd.Net.Sever()
		}
	}
}
