package podnet

import (
	"math"

	"github.com/contiv-agent/contiv-agent/plugins/cni/protocol"
	"github.com/contiv-agent/contiv-agent/proto/contiv/vpp/policer"
)

const (
	bitsPerKbit = 1000
	// noBurst is what container runtimes pass for a burst that nobody chose, or more: a bucket of that size limits nothing for minutes.
	noBurst = math.MaxInt32
	// quarter of a second: the burst that nobody chose. TCP keeps the rate with it over round trips of that time.
	quarter = 4
	// leastBurst lets some packets of the largest size pass.
	leastBurst = 10 * 9000
)

// limits are policers of a pod's interface. VPP sees the pod's ingress as its output.
func (b *builder) limits(p *Attachment) {
	if p.Bandwidth == nil {
		return
	}
	for _, l := range []struct {
		rate, burst uint64
		direction   policer.Policer_Direction
	}{{p.Bandwidth.IngressRate, p.Bandwidth.IngressBurst, policer.Policer_OUTPUT}, {p.Bandwidth.EgressRate, p.Bandwidth.EgressBurst, policer.Policer_INPUT}} {
		if l.rate > 0 {
			b.put(&policer.Policer{Interface: p.iface(), Direction: l.direction, Rate: kbits(l.rate), Burst: burst(l.rate, l.burst)})
		}
	}
}

// kbits rounds bits up to kbits.
func kbits(bits uint64) uint32 {
	return uint32(min(bits/bitsPerKbit+min(bits%bitsPerKbit, 1), math.MaxUint32))
}

// burst is the size of a bucket in bytes, for a rate and a burst in bits.
func burst(rate, bits uint64) uint64 {
	if bits == 0 || bits >= noBurst {
		bits = rate / quarter
	}
	return min(max(bits/8, leastBurst), math.MaxUint32)
}

// limitsOf returns a request's limits; nil: it has none.
func limitsOf(r *protocol.Request) *protocol.Bandwidth {
	if b := r.Bandwidth; b != nil && (b.IngressRate > 0 || b.EgressRate > 0) {
		return b
	}
	return nil
}
