package realvpp

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// delays are datagrams that cross VPP every millisecond, and how long each took: VPP delays a datagram for as long as it does not forward,
// and loses it when the receive ring is full. The kernel notes when a datagram leaves VPP, so that a late reader counts nothing.
type delays struct {
	l        *lab
	from, to int // pairs
	src, dst netip.AddrPort
	raw      int // receives
	out      int

	mu    sync.Mutex
	sent  []int64 // by number: Unix time in nanoseconds
	took  []int64 // 0: not arrived
	since int     // first number of the present look
	quit  chan struct{}
	ended sync.WaitGroup
	late  atomic.Int64 // longest pause of the sender
}

// openDelays begins a flow from an interface to another one.
func openDelays(l *lab, from, to string, src, dst netip.AddrPort) (*delays, error) {
	d := &delays{l: l, from: l.pairs[from], to: l.pairs[to], src: src, dst: dst, quit: make(chan struct{}), out: l.frames.raw}
	var err error
	l.ns.do(func() {
		d.raw, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(htons(unix.ETH_P_IP)))
		if err != nil {
			return
		}
		err = unix.Bind(d.raw, &unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_IP), Ifindex: l.frames.peer[d.to]})
	})
	if err != nil {
		return nil, err
	}
	_ = unix.SetsockoptInt(d.raw, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20) // the default does, too
	if err := unix.SetsockoptInt(d.raw, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1); err != nil {
		return nil, err
	}
	if err := unix.SetsockoptTimeval(d.raw, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100_000}); err != nil {
		return nil, err
	}
	d.ended.Go(d.receive)
	d.ended.Go(d.send)
	return d, nil
}

func (d *delays) close() {
	close(d.quit)
	d.ended.Wait()
	_ = unix.Close(d.raw)
}

// frame is a datagram with a number.
func (d *delays) frame(n uint64) []byte {
	dst, src := vppMAC(d.from), hostMAC(d.from)
	b := binary.BigEndian.AppendUint16(append(append([]byte(nil), dst[:]...), src[:]...), unix.ETH_P_IP)
	ip := []byte{0x45, 0, 0, 36, 0, 0, 0, 0, 64, unix.IPPROTO_UDP, 0, 0}
	ip = append(append(ip, d.src.Addr().AsSlice()...), d.dst.Addr().AsSlice()...)
	sum := uint32(0)
	for i := 0; i < len(ip); i += 2 {
		sum += uint32(ip[i])<<8 | uint32(ip[i+1])
	}
	sum = sum&0xffff + sum>>16
	sum = sum&0xffff + sum>>16
	binary.BigEndian.PutUint16(ip[10:], ^uint16(sum))
	b = append(b, ip...)
	for _, v := range []uint16{d.src.Port(), d.dst.Port(), 16, 0} {
		b = binary.BigEndian.AppendUint16(b, v)
	}
	return binary.BigEndian.AppendUint64(b, n)
}

func (d *delays) send() {
	to := &unix.SockaddrLinklayer{Ifindex: d.l.frames.peer[d.from], Protocol: htons(unix.ETH_P_IP)}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for last := time.Now(); ; {
		select {
		case <-d.quit:
			return
		case <-tick.C:
		}
		now := time.Now()
		d.late.Store(max(d.late.Load(), int64(now.Sub(last))))
		last = now
		d.mu.Lock()
		n := len(d.sent)
		d.sent, d.took = append(d.sent, now.UnixNano()), append(d.took, 0)
		d.mu.Unlock()
		_ = unix.Sendto(d.out, d.frame(uint64(n)), 0, to) // it counts as lost
	}
}

func (d *delays) receive() {
	buf, oob := make([]byte, 2048), make([]byte, 128)
	const udp = ethernetLen + 20
	for {
		select {
		case <-d.quit:
			return
		default:
		}
		n, more, _, from, err := unix.Recvmsg(d.raw, buf, oob, 0)
		ll, _ := from.(*unix.SockaddrLinklayer)
		if err != nil || n < udp+16 || ll == nil || ll.Pkttype == unix.PACKET_OUTGOING || buf[ethernetLen+9] != unix.IPPROTO_UDP {
			continue
		}
		if binary.BigEndian.Uint16(buf[udp+2:]) != d.dst.Port() || [4]byte(buf[ethernetLen+12:]) != d.src.Addr().As4() {
			continue
		}
		at := time.Now().UnixNano()
		if list, err := unix.ParseSocketControlMessage(oob[:more]); err == nil {
			for _, m := range list {
				if m.Header.Type == unix.SO_TIMESTAMPNS && len(m.Data) >= int(unsafe.Sizeof(unix.Timespec{})) {
					at = (*unix.Timespec)(unsafe.Pointer(&m.Data[0])).Nano()
				}
			}
		}
		d.mu.Lock()
		if i := binary.BigEndian.Uint64(buf[udp+8:]); i < uint64(len(d.took)) {
			d.took[i] = max(at-d.sent[i], 1)
		}
		d.mu.Unlock()
	}
}

// delayed is what a flow met.
type delayed struct {
	packets, lost int
	longest       time.Duration
	later         int           // datagrams that took longer than 10 ms
	usual         time.Duration // the longest of 99 %
	gap           time.Duration // the longest time for which all datagrams are lost
}

func (d delayed) String() string {
	return fmt.Sprintf("%d of %d lost, longest delay %s, 99 %% below %s, %d above 10 ms", d.lost, d.packets, ms(d.longest), ms(d.usual), d.later)
}

func ms(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d)/1e6) }

// look returns what the flow met since the last look.
func (d *delays) look() (out delayed) {
	time.Sleep(50 * time.Millisecond) // VPP still has the last ones
	d.mu.Lock()
	defer d.mu.Unlock()
	took, sent := slices.Clone(d.took[d.since:]), d.sent[d.since:]
	d.since = len(d.took)
	if tail := len(took) - 20; tail > 0 {
		took = took[:tail]
	}
	out.packets = len(took)
	out.gap = longestGap(sent, took)
	slices.Sort(took)
	for _, t := range took {
		switch {
		case t == 0:
			out.lost++
		case time.Duration(t) > 10*time.Millisecond:
			out.later++
		}
	}
	if len(took) > 0 {
		out.longest, out.usual = time.Duration(took[len(took)-1]), time.Duration(took[len(took)*99/100])
	}
	return out
}

// longestGap is the longest time for which no datagram was sent that arrives; 0: none is lost.
func longestGap(sent, took []int64) time.Duration {
	longest, began := int64(0), int64(0)
	for i, t := range took {
		switch {
		case t > 0:
			began = 0
		case began == 0:
			began = sent[i]
		}
		if began > 0 {
			longest = max(longest, sent[i]-began+int64(time.Millisecond))
		}
	}
	return time.Duration(longest)
}

// steadyFor is for how long all datagrams arrive when a flow is steady.
const steadyFor = 500 * time.Millisecond

// steady waits until all datagrams of steadyFor have arrived.
func (d *delays) steady(limit time.Duration) bool {
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		now, lost, arrived := time.Now(), 0, 0
		d.mu.Lock()
		for i := len(d.sent) - 1; i >= 0 && d.sent[i] > now.Add(-steadyFor).UnixNano(); i-- {
			switch {
			case d.took[i] > 0:
				arrived++
			case d.sent[i] < now.Add(-steadyFor/10).UnixNano():
				lost++
			}
		}
		d.mu.Unlock()
		if lost == 0 && arrived > 0 {
			return true
		}
	}
	return false
}
