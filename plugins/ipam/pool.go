// Package ipam turns the podCIDRs of a Node into addresses of pods, and keeps in a file which address belongs to which interface.
//
// Invariant: an address belongs to at most one attachment. After its release nobody gets it before the quiet time has passed and the
// caller has said that nothing refers to its former pod. Both hold if the process is killed at any point. There is no clock inside.
package ipam

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/contiv-agent/contiv-agent/boltstore"
	"github.com/contiv-agent/contiv-agent/plugins/cni/protocol"
)

// DefaultQuiet is the quiet time of a Config without one. Flows and neighbour entries of the former pod end in that time.
const DefaultQuiet = 10 * time.Second

// Config is the configuration of a Pool.
type Config struct {
	File  string        // Bolt file; it is created with its folder
	Quiet time.Duration // least time between release and next use of an address; 0: DefaultQuiet
}

// Pool allocates addresses. It is safe for concurrent use.
type Pool struct {
	quiet time.Duration

	mu      sync.Mutex
	file    *boltstore.File
	update  func(func(*boltstore.Tx) error) error // that of file
	lost    bool                                  // the file lost records: nobody gets an address before Restore
	cidrs   []cidr
	records map[netip.Addr]*record
	held    map[protocol.Attachment][]netip.Addr // in the order of allocation
	stale   map[netip.Addr]bool                  // records in the file that mean nothing any more; the next write removes them
	turn    uint64                               // number of the last release
}

// record is an address that nobody else may get.
type record struct {
	owner    protocol.Attachment
	released bool
	at       time.Time // of the release; the start of the process if that was before
	turn     uint64    // of the release
	forgot   bool      // nothing refers to the former pod any more
}

// Lease is an address of an attachment.
type Lease struct {
	Addr    netip.Addr
	CIDR    netip.Prefix // of the Node; zero if the Node no longer has it
	Gateway netip.Addr   // the first address of CIDR; nobody gets it
}

// Released is an address that was released. It names one release: the same address may be released again later.
type Released struct {
	Addr netip.Addr
	Turn uint64
}

var (
	// ErrNoCIDR means that the Node has no podCIDR.
	ErrNoCIDR = errors.New("the Node has no spec.podCIDRs")
	// ErrExhausted is wrapped by an *ExhaustedError.
	ErrExhausted = errors.New("no free pod address")
	// ErrIncomplete means that the file was damaged, and that the caller has not said yet which addresses are in use.
	ErrIncomplete = errors.New("the file of addresses lost records, and the addresses in use are not known yet")
)

// Open opens the file. Addresses that were released before now count as released now, because nobody knows how much later now is. A file
// that cannot be written is an error.
func Open(now time.Time, cfg Config) (*Pool, error) {
	if cfg.Quiet < 0 {
		return nil, fmt.Errorf("ipam: quiet time %s is negative", cfg.Quiet)
	}
	if cfg.Quiet == 0 {
		cfg.Quiet = DefaultQuiet
	}
	file, err := boltstore.Open(cfg.File, schema)
	if err != nil {
		return nil, fmt.Errorf("ipam: %w", err)
	}
	p := &Pool{
		quiet: cfg.Quiet, file: file, update: file.Update, lost: file.Lost(),
		records: map[netip.Addr]*record{}, held: map[protocol.Attachment][]netip.Addr{}, stale: map[netip.Addr]bool{},
	}
	if err := p.load(now); err != nil {
		return nil, fmt.Errorf("ipam: %w", errors.Join(err, file.Close()))
	}
	return p, nil
}

// Close closes the file.
func (p *Pool) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.file.Close()
}

// Remark returns the problem with the file as text for users; "": none.
func (p *Pool) Remark() string { return p.file.Remark() }

// SetCIDRs sets the podCIDRs of the Node, of both families in any order. Addresses outside of them stay with their attachments. An error
// names each CIDR that holds no address for pods; the others are in use.
func (p *Pool) SetCIDRs(prefixes []netip.Prefix) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []cidr
	var all error
	for _, prefix := range prefixes {
		c, err := newCIDR(prefix)
		if err != nil {
			all = errors.Join(all, err)
			continue
		}
		at := slices.IndexFunc(p.cidrs, func(old cidr) bool { return old.Prefix == c.Prefix })
		if at >= 0 {
			c = p.cidrs[at] // with its cursor
		}
		if !slices.ContainsFunc(out, func(o cidr) bool { return o.Prefix == c.Prefix }) {
			out = append(out, c)
		}
	}
	p.cidrs = out
	return all
}

// Allocate returns an address of each family that the Node has CIDRs of, in the order of the CIDRs. An attachment that has addresses
// keeps them. The addresses are in the file when Allocate returns.
func (p *Pool) Allocate(now time.Time, a protocol.Attachment) ([]Lease, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	have := p.held[a]
	if len(p.cidrs) == 0 && len(have) == 0 {
		return nil, ErrNoCIDR
	}
	if p.lost && len(have) == 0 {
		return nil, ErrIncomplete
	}
	p.sweep(now)
	cursors := slices.Clone(p.cidrs)
	var fresh []netip.Addr
	for _, v6 := range p.families() {
		if p.lost || slices.ContainsFunc(have, func(addr netip.Addr) bool { return addr.Is6() == v6 }) {
			continue
		}
		addr, err := p.pick(cursors, v6)
		if err != nil {
			return nil, err
		}
		fresh = append(fresh, addr)
	}
	if len(fresh) > 0 {
		if err := p.write(fresh, stored{Container: a.ContainerID, Interface: a.IfName}); err != nil {
			return nil, err
		}
		p.cidrs = cursors
		for _, addr := range fresh {
			p.records[addr] = &record{owner: a}
		}
		p.held[a] = append(slices.Clone(have), fresh...)
	}
	return p.leases(a), nil
}

// Release releases the addresses of an attachment; none if it has none. They are quiet from now on. The caller calls Forget when nothing
// refers to them any more.
func (p *Pool) Release(now time.Time, a protocol.Attachment) ([]Released, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.release(now, a)
}

func (p *Pool) release(now time.Time, a protocol.Attachment) ([]Released, error) {
	addrs := p.held[a]
	if len(addrs) == 0 {
		return nil, nil
	}
	if err := p.write(addrs, stored{Container: a.ContainerID, Interface: a.IfName, Released: true}); err != nil {
		return nil, err
	}
	delete(p.held, a)
	var out []Released
	for _, addr := range addrs {
		p.turn++
		p.records[addr] = &record{owner: a, released: true, at: now, turn: p.turn}
		out = append(out, Released{addr, p.turn})
	}
	return out, nil
}

// Forget says that nothing refers to the former pod of a released address: no route, no neighbour entry, no access list of any interface,
// and no request to VPP that is not acknowledged. An address that was released again since then is not affected.
func (p *Pool) Forget(list ...Released) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range list {
		if rec := p.records[r.Addr]; rec != nil && rec.released && rec.turn == r.Turn {
			rec.forgot = true
		}
	}
}

// Waiting returns the released addresses that wait for Forget. After a restart these are all released addresses of the file.
func (p *Pool) Waiting() []Released {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []Released
	for addr, rec := range p.records {
		if rec.released && !rec.forgot {
			out = append(out, Released{addr, rec.turn})
		}
	}
	slices.SortFunc(out, func(a, b Released) int { return a.Addr.Compare(b.Addr) })
	return out
}

// Collect releases the addresses of all attachments that are not valid.
func (p *Pool) Collect(now time.Time, valid []protocol.Attachment) ([]Released, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	keep := map[protocol.Attachment]bool{}
	for _, a := range valid {
		keep[a] = true
	}
	var out []Released
	for _, a := range p.attachments() {
		if keep[a] {
			continue
		}
		list, err := p.release(now, a)
		if err != nil {
			return out, err
		}
		out = append(out, list...)
	}
	return out, nil
}

// Restore adds addresses that are in use according to the caller's records, and that a damaged file may have lost. Afterwards Allocate
// works again. An error names each address that belongs to another attachment; the others are added.
func (p *Pool) Restore(in map[protocol.Attachment][]netip.Addr) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all error
	for _, a := range sortedAttachments(in) {
		var fresh []netip.Addr
		for _, addr := range in[a] {
			switch rec := p.records[addr]; {
			case rec == nil || rec.released:
				fresh = append(fresh, addr)
			case rec.owner != a:
				all = errors.Join(all, fmt.Errorf("address %s belongs to %s, not to %s", addr, rec.owner, a))
			}
		}
		if len(fresh) == 0 {
			continue
		}
		if err := p.write(fresh, stored{Container: a.ContainerID, Interface: a.IfName}); err != nil {
			return errors.Join(all, err)
		}
		for _, addr := range fresh {
			p.records[addr] = &record{owner: a}
			p.held[a] = append(p.held[a], addr)
		}
	}
	p.lost = false
	return all
}

// Leases returns the addresses of an attachment.
func (p *Pool) Leases(a protocol.Attachment) []Lease {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.leases(a)
}

func (p *Pool) leases(a protocol.Attachment) (out []Lease) {
	for _, addr := range p.held[a] {
		l := Lease{Addr: addr}
		for _, c := range p.cidrs {
			if c.Contains(addr) {
				l.CIDR, l.Gateway = c.Prefix, c.gateway()
				break
			}
		}
		out = append(out, l)
	}
	return out
}

// Attachments returns all attachments that have addresses.
func (p *Pool) Attachments() []protocol.Attachment {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.attachments()
}

func (p *Pool) attachments() []protocol.Attachment { return sortedAttachments(p.held) }

// sweep frees the addresses whose quiet time has passed and that nothing refers to.
func (p *Pool) sweep(now time.Time) {
	for addr, rec := range p.records {
		if rec.released && rec.forgot && now.Sub(rec.at) >= p.quiet {
			delete(p.records, addr)
			p.stale[addr] = true
		}
	}
}
