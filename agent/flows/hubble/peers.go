package hubble

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	agentflows "github.com/contiv-agent/contiv-agent/agent/flows"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/proto/hubble/peer"
)

// Node is a node of the cluster, with the address at which other nodes reach it.
type Node struct {
	Name    string
	Address netip.Addr
}

// nodesOf returns the nodes that have an address, sorted by name. All is called in the loop.
func nodesOf(l agentflows.Loop, all func() []*model.Node) func(context.Context) ([]Node, error) {
	return func(ctx context.Context) (out []Node, err error) {
		err = l.InLoop(ctx, func() {
			for _, n := range all() {
				if len(n.Addrs()) > 0 {
					out = append(out, Node{n.Name, n.Addrs()[0]})
				}
			}
		})
		slices.SortFunc(out, func(a, b Node) int { return strings.Compare(a.Name, b.Name) })
		return out, err
	}
}

// askNodes is how often a call that follows the nodes asks for them.
const askNodes = 5 * time.Second

// notify serves Notify.
func (s *Server) notify(_ *peer.NotifyRequest, to grpc.ServerStream) error {
	tick := time.NewTicker(askNodes)
	defer tick.Stop()
	was := map[string]*peer.ChangeNotification{}
	for {
		nodes, err := s.nodes(to.Context())
		if err != nil {
			return statusOf(err)
		}
		now := map[string]*peer.ChangeNotification{}
		for _, n := range s.peersOf(nodes) {
			now[n.GetName()] = n
			kind := peer.ChangeNotificationType_PEER_UPDATED
			switch before := was[n.GetName()]; {
			case before == nil:
				kind = peer.ChangeNotificationType_PEER_ADDED
			case proto.Equal(before, n):
				continue
			}
			if err := sendPeer(to, n, kind); err != nil {
				return err
			}
		}
		for _, name := range slices.Sorted(maps.Keys(was)) {
			if n := was[name]; now[name] == nil {
				if err := sendPeer(to, n, peer.ChangeNotificationType_PEER_DELETED); err != nil {
					return err
				}
			}
		}
		was = now
		select {
		case <-to.Context().Done():
			return status.FromContextError(to.Context().Err()).Err()
		case <-tick.C:
		}
	}
}

func sendPeer(to grpc.ServerStream, n *peer.ChangeNotification, kind peer.ChangeNotificationType) error {
	out := proto.CloneOf(n)
	out.Type = kind
	return to.SendMsg(out)
}

// peersOf returns the nodes with the addresses of their servers, which are taken to listen at the same port. A server that only its own node
// reaches lists only what that node reaches: itself, and nodes with addresses of loopback.
func (s *Server) peersOf(nodes []Node) []*peer.ChangeNotification {
	own := &peer.ChangeNotification{Name: s.cfg.Node, Address: s.address}
	out := []*peer.ChangeNotification{own}
	listens, err := netip.ParseAddrPort(s.address)
	for _, n := range nodes {
		at := netip.AddrPortFrom(n.Address, listens.Port()).String()
		switch {
		case err != nil: // a unix socket
		case n.Name == s.cfg.Node && listens.Addr().IsUnspecified():
			own.Address = at
		case n.Name != s.cfg.Node && (!listens.Addr().IsLoopback() || n.Address.IsLoopback()):
			out = append(out, &peer.ChangeNotification{Name: n.Name, Address: at})
		}
	}
	if s.cfg.TLS != nil {
		for _, n := range out {
			n.Tls = &peer.TLS{ServerName: serverName(n.GetName())}
		}
	}
	slices.SortFunc(out, func(a, b *peer.ChangeNotification) int { return strings.Compare(a.GetName(), b.GetName()) })
	return out
}

// serverName is the name that the certificate of a node's server must have: that of Cilium, so that its tools can make them.
func serverName(node string) string {
	return strings.ReplaceAll(node, ".", "-") + "." + cluster + ".hubble-grpc.cilium.io"
}
