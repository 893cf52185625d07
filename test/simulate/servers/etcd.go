package servers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"strings"
	"time"

	"github.com/contiv-agent/contiv-agent/plugins/controller"
	"github.com/contiv-agent/contiv-agent/plugins/extconfig/etcd"
	"github.com/contiv-agent/contiv-agent/test/simulate/etcdserver"
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

// Etcd is the etcd of one node's agents.
type Etcd struct {
	Server *etcdserver.Server
	Net    *network.Network // from the node
	Node   string
	TTL    time.Duration // of the agent's statuses; 0: the default
}

// JoinEtcd connects a node to an etcd, which gets a value for it.
func JoinEtcd(s *etcdserver.Server, node string) *Etcd {
	e := &Etcd{Server: s, Net: network.New(), Node: node}
	s.Start(e.Net)
	s.Write(map[string]string{e.root() + etcdConfig + etcdNames[0]: etcdValue(etcdNames[0], 1400)})
	return e
}

// Parts of keys, and the interfaces that they name.
const (
	etcdConfig = "config/vpp/v2/interfaces/"
	etcdStatus = "config-status/vpp/v2/interfaces/"
)

var etcdNames = []string{"ext-etcd-a", "ext-etcd-b", "ext-etcd-c"}

func (e *Etcd) root() string { return etcd.DefaultPrefix + e.Node + "/" }

func etcdValue(name string, mtu int) string {
	return fmt.Sprintf(`{"name": %q, "type": "SOFTWARE_LOOPBACK", "enabled": true, "mtu": %d}`, name, mtu)
}

// errKilled is the error of a connection of a killed agent.
var errKilled = errors.New("the agent is killed")

// Source returns the source of an agent, which does nothing after its end.
func (e *Etcd) Source(dead func() bool, log *slog.Logger) (controller.ExternalConfigSource, error) {
	return etcd.New(etcd.Config{
		Endpoints: []string{"etcd:2379"}, Label: e.Node, StartWait: 30 * time.Second, StatusTTL: e.TTL, Logger: log, // as --etcd-wait
		Dial: func(ctx context.Context, _ string) (net.Conn, error) {
			if dead() {
				return nil, errKilled
			}
			return e.Net.Dial(ctx)
		},
	})
}

// Begin begins an action. end ends it; nil: it has no duration. After BackEtcd the caller loses the connections of the other nodes.
func (e *Etcd) Begin(a Fault, rng *rand.Rand) (end func()) {
	begin := func(change func(f *network.Faults, by int)) func() {
		e.Net.Change(func(f *network.Faults) { change(f, 1) })
		return func() { e.Net.Change(func(f *network.Faults) { change(f, -1) }) }
	}
	switch a.Kind {
	case PutEtcd:
		e.Server.Write(e.draw(rng))
	case CutEtcd:
		end = begin(func(f *network.Faults, by int) { f.Cut += by })
	case HangEtcd:
		end = begin(func(f *network.Faults, by int) { f.Hung += by })
	case SlowEtcd:
		end = begin(func(f *network.Faults, by int) { f.Slow += time.Duration(by*a.N) * time.Millisecond })
	case CompactEtcd:
		e.Server.ForgetHistory()
	case BackEtcd:
		now := e.Server.Revision()
		e.Server.Restore(max(1, now-int64(rng.IntN(16))))
		e.Net.Sever()
	case LoseLease:
		e.Server.LoseLeases()
	case DeadEtcd:
		end = begin(func(f *network.Faults, by int) { f.Dead, f.Rest = f.Dead+by, a.N })
	case SlipEtcd:
		changes := []map[string]string{e.draw(rng), e.draw(rng)} // a watch begins at the first, and etcd keeps the last
		e.Server.AfterRead(e.root()+"config/", changes, a.N%2 == 0)
		e.Net.Sever()
		end = func() { e.Server.AfterRead("", nil, false) }
	}
	return end
}

// draw draws a revision of the node's keys.
func (e *Etcd) draw(rng *rand.Rand) map[string]string {
	values := map[string]string{}
	for range 1 + rng.IntN(2) {
		name := etcdNames[rng.IntN(len(etcdNames))]
		value := etcdValue(name, 1300+rng.IntN(200))
		if rng.IntN(3) == 0 {
			value = ""
		}
		values[e.root()+etcdConfig+name] = value
	}
	return values
}

// Check is an error unless VPP has the interfaces that etcd has for the node and no others, and etcd has their statuses.
func (e *Etcd) Check(dump string) error {
	values, statuses := e.Server.Values(e.root()+etcdConfig), e.Server.Values(e.root()+etcdStatus)
	var errs []error
	for _, name := range etcdNames {
		value, stored := values[e.root()+etcdConfig+name]
		status := statuses[e.root()+etcdStatus+name]
		lines := Interfaces(dump, name)
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

// Interfaces are the lines of a dump of VPP about interfaces with a name.
func Interfaces(dump, name string) (out []string) {
	for line := range strings.Lines(dump) {
		if strings.HasPrefix(line, "interface ") && strings.Contains(line, name) {
			out = append(out, line)
		}
	}
	return out
}
