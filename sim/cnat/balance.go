package cnat

import (
	"cmp"
	"encoding/binary"
	"math/bits"
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/sim/packet"
)

// The fields in a hash of a flow (ip_flow_hash_config_v2).
const (
	HashSrc uint32 = 1 << iota
	HashDst
	HashSrcPort
	HashDstPort
	HashProto
	HashReverse
	HashSymmetric
	HashFlowLabel

	hashDefault = HashSrc | HashDst | HashSrcPort | HashDstPort | HashProto | HashFlowLabel
)

// maglevLen is startup.conf's default.
const maglevLen = 1009

// balance is cnat_load_balance for a translation that has an active path.
func (e *Engine) balance(t *translation, p *packet.Packet) Path {
	if e.pick != nil {
		return t.active[e.pick(len(t.active))]
	}
	config := t.hash
	if config == 0 {
		config = hashDefault
	}
	hash := flowHash(p, config)
	if t.lb == Maglev {
		return t.active[min(t.maglev[hash%maglevLen], len(t.active)-1)] // a table that was kept may name more paths than exist: VPP reads beyond them
	}
	return t.active[hash%uint32(len(t.active))]
}

// flowHash is ip4_compute_flow_hash and ip6_compute_flow_hash, of packets in wire format.
func flowHash(p *packet.Packet, config uint32) uint32 {
	var sport, dport uint32
	if p.Proto == model.TCP || p.Proto == model.UDP {
		sport, dport = only(config, HashSrcPort, uint32(bits.ReverseBytes16(p.SrcPort))), only(config, HashDstPort, uint32(bits.ReverseBytes16(p.DstPort)))
	}
	a, b := only(config, HashSrc, word(p.Src)), only(config, HashDst, word(p.Dst))
	if config&HashReverse != 0 {
		a, b = b, a
	}
	if config&HashSymmetric != 0 {
		a, b = min(a, b), max(a, b)
		sport, dport = min(sport, dport), max(sport, dport)
	}
	b ^= uint64(only(config, HashProto, uint32(p.Proto)))
	c := dport<<16 | sport
	if config&HashReverse != 0 {
		c = sport<<16 | dport
	}
	if p.Src.Is6() {
		_, _, hash := mix64(a, b, uint64(c))
		return uint32(hash)
	}
	_, _, hash := mix32(uint32(a), uint32(b), c)
	return hash
}

func only[T uint32 | uint64](config, field uint32, v T) T {
	if config&field == 0 {
		return 0
	}
	return v
}

// word returns an address as a number: of an IPv6 one both halves.
func word(a netip.Addr) uint64 {
	if a.Is4() {
		b := a.As4()
		return uint64(binary.LittleEndian.Uint32(b[:]))
	}
	b := a.As16()
	return binary.LittleEndian.Uint64(b[:8]) ^ binary.LittleEndian.Uint64(b[8:])
}

// mix32 is the mixing and final function of Bob Jenkins's lookup3.
func mix32(a, b, c uint32) (x, y, z uint32) {
	rot := bits.RotateLeft32
	for _, r := range [2][3]int{{4, 6, 8}, {16, 19, 4}} {
		a = a - c ^ rot(c, r[0])
		c += b
		b = b - a ^ rot(a, r[1])
		a += c
		c = c - b ^ rot(b, r[2])
		b += a
	}
	c = (c ^ b) - rot(b, 14)
	a = (a ^ c) - rot(c, 11)
	b = (b ^ a) - rot(a, 25)
	c = (c ^ b) - rot(b, 16)
	a = (a ^ c) - rot(c, 4)
	b = (b ^ a) - rot(a, 14)
	c = (c ^ b) - rot(b, 24)
	return a, b, c
}

// mix64 is his older function, for 64 bits.
func mix64(a, b, c uint64) (x, y, z uint64) {
	for _, s := range [4][3]int{{43, 9, 8}, {38, 23, 5}, {35, 49, 11}, {12, 18, 22}} {
		a = a - (b + c) ^ c>>s[0]
		b = b - (c + a) ^ a<<s[1]
		c = c - (a + b) ^ b>>s[2]
	}
	return a, b, c
}

// MaglevTable returns, for each place of the hash table, which of some backends has it.
func MaglevTable(backends []netip.AddrPort) []int {
	var paths []Path
	for _, b := range backends {
		paths = append(paths, Path{Dst: Endpoint{Addr: b.Addr(), Port: b.Port(), SwIf: None}})
	}
	return maglevTable(paths, nil)
}

// maglevTable is cnat_translation_init_maglev: backends take places in turns, each in a separate order. A table without eligible
// backends is not changed.
func maglevTable(paths []Path, old []int) []int {
	type permutation struct {
		offset, skip, next uint32
		index              int
	}
	var all []permutation
	for i, p := range paths {
		if p.Flags&PathDisabled == 0 {
			h1, h2 := maglevHash(p.Dst.Addr, p.Dst.Port)
			all = append(all, permutation{offset: h1 % maglevLen, skip: h2%(maglevLen-1) + 1, index: i})
		}
	}
	if old == nil {
		old = make([]int, maglevLen)
	}
	if len(all) == 0 {
		return old
	}
	slices.SortStableFunc(all, func(a, b permutation) int { return cmp.Compare(b.offset, a.offset) })
	table := make([]int, maglevLen)
	for i := range table {
		table[i] = -1
	}
	for done := 0; ; {
		for i := range all {
			p := &all[i]
			for table[(p.offset+p.next*p.skip)%maglevLen] >= 0 {
				p.next++
			}
			table[(p.offset+p.next*p.skip)%maglevLen] = p.index
			p.next++
			if done++; done == maglevLen {
				return table
			}
		}
	}
}

func maglevHash(a netip.Addr, port uint16) (h1, h2 uint32) {
	if a.Is4() {
		_, b, c := mix32(uint32(word(a)), uint32(port), 0)
		return c, b
	}
	x := a.As16()
	_, b, c := mix64(binary.LittleEndian.Uint64(x[:8]), binary.LittleEndian.Uint64(x[8:]), uint64(port))
	return uint32(c), uint32(b)
}
