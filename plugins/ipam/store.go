package ipam

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/contiv-agent/contiv-agent/boltstore"
	"github.com/contiv-agent/contiv-agent/plugins/cni/protocol"
)

// addresses is the bucket of the file: address → stored as JSON, in the group pods.
const (
	addresses = "addresses/v1"
	pods      = "pods"
)

var schema = boltstore.Schema{Buckets: []string{addresses}}

// stored is the value of an address.
type stored struct {
	Container string `json:"container"`
	Interface string `json:"interface"`
	Released  bool   `json:"released,omitempty"`
}

// load reads the file.
func (p *Pool) load(now time.Time) error {
	err := p.file.Each(addresses, func(group, key string, value []byte) error {
		addr, s, err := parseRecord(group, key, value)
		if err != nil {
			return err
		}
		owner := protocol.Attachment{ContainerID: s.Container, IfName: s.Interface}
		rec := &record{owner: owner, released: s.Released}
		if s.Released {
			p.turn++
			rec.at, rec.turn = now, p.turn
		} else {
			p.held[owner] = append(p.held[owner], addr)
		}
		p.records[addr] = rec
		return nil
	})
	if err != nil {
		return err
	}
	for _, addrs := range p.held {
		slices.SortFunc(addrs, netip.Addr.Compare)
	}
	// Nobody may get an address that is not on disk: a file that can only be read is no file for a Pool.
	return p.file.Update(func(*boltstore.Tx) error { return nil })
}

// parseRecord decodes an entry of the file.
func parseRecord(group, key string, value []byte) (addr netip.Addr, s stored, err error) {
	addr, err = netip.ParseAddr(key)
	if err == nil && (group != pods || addr.Zone() != "" || addr.Is4In6() || addr.String() != key) {
		err = fmt.Errorf("%q is no address of a pod", key)
	}
	if err != nil {
		return addr, s, fmt.Errorf("record %q: %w", key, err)
	}
	dec := json.NewDecoder(bytes.NewReader(value))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&s); err != nil {
		return addr, s, fmt.Errorf("record of %s: %w", addr, err)
	}
	if err := (protocol.Attachment{ContainerID: s.Container, IfName: s.Interface}).Validate(); err != nil {
		return addr, s, fmt.Errorf("record of %s: %w", addr, err)
	}
	return addr, s, nil
}

// write writes the same value for each of some addresses, and removes stale records. It returns when both are on disk.
func (p *Pool) write(addrs []netip.Addr, s stored) error {
	value, err := json.Marshal(s)
	if err != nil {
		return err
	}
	err = p.update(func(tx *boltstore.Tx) error {
		for addr := range p.stale {
			if err := tx.Delete(addresses, pods, addr.String()); err != nil {
				return err
			}
		}
		for _, addr := range addrs {
			if err := tx.Put(addresses, pods, addr.String(), value); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("ipam: %w", err)
	}
	clear(p.stale)
	return nil
}
