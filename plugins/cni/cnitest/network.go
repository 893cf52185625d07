package cnitest

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/contiv-agent/contiv-agent/plugins/cni/protocol"
)

// Network is an agent's connection of pods, until its World starts the next one.
type Network struct{ world *World }

// step runs part of a call, if the agent lives when it is reached.
func (n *Network) step(ctx context.Context, name string, a protocol.Attachment, do func() error) error {
	if before := n.world.Before; before != nil {
		if err := before(ctx, name, a); err != nil {
			return fmt.Errorf("%s of %s: %w", name, a, err)
		}
	}
	if err := ctx.Err(); err != nil && !n.world.Deaf {
		return fmt.Errorf("%s of %s: %w", name, a, context.Cause(ctx))
	}
	n.world.mu.Lock()
	defer n.world.mu.Unlock()
	if n.world.alive != n {
		return ErrDead
	}
	return do()
}

// Add implements cni.Network.
func (n *Network) Add(ctx context.Context, r protocol.Request) (*protocol.Result, error) {
	w, a := n.world, r.Attachment
	res := &protocol.Result{Interface: protocol.Interface{Name: r.IfName, MAC: "02:00:00:00:00:01", MTU: 1450, Sandbox: r.Netns}}
	for _, part := range Parts() {
		err := n.step(ctx, "add "+part, a, func() (err error) {
			switch part {
			case Veth:
				if !w.sandboxes[r.Netns] {
					return protocol.Errorf(protocol.CodeInvalidEnvironment, "CNI_NETNS %s does not exist", r.Netns)
				}
			case Address:
				res.IPs, err = w.addresses(r)
			}
			if err == nil {
				w.addPart(a, part)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	for _, ip := range res.IPs {
		res.Routes = append(res.Routes, protocol.Route{Destination: netip.PrefixFrom(ip.Address.Addr(), 0).Masked(), Gateway: ip.Gateway})
	}
	return res, n.step(ctx, "add end", a, func() error { return nil })
}

// addresses returns those of the request, or allocates them. The caller holds mu.
func (w *World) addresses(r protocol.Request) ([]protocol.IP, error) {
	for _, ip := range r.IPs {
		if owner, used := w.delegated[ip.Address.Addr()]; used && owner != r.Attachment {
			return nil, protocol.Errorf(protocol.CodeTryAgainLater, "%s still belongs to %s", ip.Address, owner)
		}
		w.delegated[ip.Address.Addr()] = r.Attachment
	}
	if len(r.IPs) > 0 {
		return r.IPs, nil
	}
	leases, err := w.pool.Allocate(time.Now(), r.Attachment)
	if err != nil {
		return nil, protocol.Errorf(protocol.CodeTryAgainLater, "%v", err)
	}
	var out []protocol.IP
	for _, l := range leases {
		out = append(out, protocol.IP{Address: netip.PrefixFrom(l.Addr, l.Addr.BitLen()), Gateway: l.Gateway})
	}
	return out, nil
}

// Delete implements cni.Network.
func (n *Network) Delete(ctx context.Context, r protocol.Request) error {
	parts := Parts()
	slices.Reverse(parts)
	for _, part := range parts {
		if err := n.step(ctx, "delete "+part, r.Attachment, func() error { return n.removePart(time.Now(), r.Attachment, part) }); err != nil {
			return err
		}
	}
	return nil
}

// removePart removes a part. The caller holds mu.
func (n *Network) removePart(now time.Time, a protocol.Attachment, part string) error {
	w := n.world
	if part == Address {
		released, err := w.pool.Release(now, a)
		if err != nil {
			return err
		}
		w.pool.Forget(released...) // the lists have gone before
		for addr, owner := range w.delegated {
			if owner == a {
				delete(w.delegated, addr)
			}
		}
	}
	w.removePart(a, part)
	return nil
}

// removeAll removes all parts. The caller holds mu.
func (n *Network) removeAll(now time.Time, a protocol.Attachment) error {
	parts := Parts()
	slices.Reverse(parts)
	for _, part := range parts {
		if err := n.removePart(now, a, part); err != nil {
			return err
		}
	}
	return nil
}

// Check implements cni.Network.
func (n *Network) Check(ctx context.Context, r protocol.Request, previous *protocol.Result) error {
	return n.step(ctx, "check", r.Attachment, func() error {
		if len(n.world.parts[r.Attachment]) != len(Parts()) {
			return protocol.Errorf(protocol.CodeUnknownContainer, "%s has only %v", r.Attachment, n.world.parts[r.Attachment])
		}
		for _, l := range n.world.pool.Leases(r.Attachment) {
			if previous != nil && !slices.ContainsFunc(previous.IPs, func(ip protocol.IP) bool { return ip.Address.Addr() == l.Addr }) {
				return protocol.Errorf(protocol.CodeInternal, "%s has %s, which its result lacks", r.Attachment, l.Addr)
			}
		}
		return nil
	})
}

// Status implements cni.Network.
func (n *Network) Status(ctx context.Context) error {
	return n.step(ctx, "status", protocol.Attachment{}, func() error { return n.world.unready })
}

// Collect implements cni.Network. It deletes step by step.
func (n *Network) Collect(ctx context.Context, valid []protocol.Attachment) error {
	var invalid []protocol.Attachment
	err := n.step(ctx, "collect", protocol.Attachment{}, func() error {
		list := n.world.pool.Attachments()
		for a := range n.world.parts {
			list = append(list, a)
		}
		invalid = slices.DeleteFunc(list, func(a protocol.Attachment) bool { return slices.Contains(valid, a) })
		return nil
	})
	for i := 0; i < len(invalid) && err == nil; i++ {
		err = n.Delete(ctx, protocol.Request{Attachment: invalid[i]})
	}
	return err
}
