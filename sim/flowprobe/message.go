package flowprobe

import (
	"encoding/binary"
	"net/netip"
	"time"

	probe "go.fd.io/govpp/binapi/flowprobe"

	"github.com/contiv-agent/contiv-agent/sim/packet"
)

// variant is what has one template: a setting, and a family.
type variant struct {
	which probe.FlowprobeWhich
	six   bool
}

// variantsOf returns the variants of a setting.
func variantsOf(which probe.FlowprobeWhich) []variant {
	switch which {
	case probe.FLOWPROBE_WHICH_IP4:
		return []variant{{which, false}}
	case probe.FLOWPROBE_WHICH_IP6:
		return []variant{{which, true}}
	}
	return []variant{{which, false}, {which, true}}
}

// stream is a template and the records that wait for its next message.
type stream struct {
	id        uint16
	fields    []field
	announced time.Time // when the exporter last sent the template; zero: it sends the template in the next round
	records   []byte
}

// field is a field of a template: its number in IPFIX, and its bytes.
type field struct{ kind, length uint16 }

// The fields of a record (RFC 7012), and what a message has around records (RFC 7011).
const (
	octetCount, packetCount, protocolNumber, tcpFlags = 1, 2, 4, 6
	sourcePort, source4, destinationPort, destination = 7, 8, 11, 12
	ingress, egress, direction                        = 10, 14, 61
	source6, destination6, flowStart, flowEnd         = 27, 28, 156, 157

	version, domain            = 10, 1
	messageHeader, setHeader   = 16, 4
	templateSet, firstTemplate = 2, 256
	aroundMessage              = 20 + 8 // IP and UDP
	longestWait                = 5 * time.Second
	since1900                  = 2208988800 // seconds until 1970
	life                       = 254
)

func (p *Probe) fieldsOf(v variant) []field {
	f := []field{{ingress, 4}, {egress, 4}, {direction, 1}, {packetCount, 8}, {flowStart, 8}, {flowEnd, 8}}
	if p.flags&probe.FLOWPROBE_RECORD_FLAG_L3 != 0 {
		if v.six {
			f = append(f, field{source6, 16}, field{destination6, 16}, field{protocolNumber, 1}, field{octetCount, 8})
		} else {
			f = append(f, field{source4, 4}, field{destination, 4}, field{protocolNumber, 1}, field{octetCount, 8})
		}
	}
	if p.flags&probe.FLOWPROBE_RECORD_FLAG_L4 != 0 {
		f = append(f, field{sourcePort, 2}, field{destinationPort, 2}, field{tcpFlags, 2})
	}
	return f
}

// beginStreams makes the templates of a setting that no interface had.
func (p *Probe) beginStreams(which probe.FlowprobeWhich) {
	for _, v := range variantsOf(which) {
		if p.streams[v] == nil && p.flags&(probe.FLOWPROBE_RECORD_FLAG_L3|probe.FLOWPROBE_RECORD_FLAG_L4) != 0 {
			p.streams[v] = &stream{id: firstTemplate + p.templates, fields: p.fieldsOf(v)}
			p.templates++
		}
	}
}

// endStreams sends the records of a setting that no interface has any more.
func (p *Probe) endStreams(which probe.FlowprobeWhich) {
	for _, s := range p.on {
		if s.which == which {
			return
		}
	}
	for _, v := range variantsOf(which) {
		if s := p.streams[v]; s != nil {
			p.flush(s, p.wake)
			delete(p.streams, v)
		}
	}
}

// export adds a record of what was counted since the last one. A message that is full is ready.
func (p *Probe) export(k key, v variant, e *entry, now time.Time) {
	s := p.streams[v]
	if s == nil {
		return
	}
	for _, f := range s.fields {
		s.records = append(s.records, valueOf(f, k, e)...)
	}
	e.packets, e.octets, e.flags, e.exported = 0, 0, 0, now
	if aroundMessage+messageHeader+setHeader+len(s.records)+2*setHeader+4*len(s.fields) > int(p.exporter.PathMtu) {
		p.flush(s, now)
	}
}

// valueOf returns the bytes of a field.
func valueOf(f field, k key, e *entry) []byte {
	n := uint64(0)
	switch f.kind {
	case source4, source6:
		return k.src.AsSlice()
	case destination, destination6:
		return k.dst.AsSlice()
	case ingress:
		n = uint64(k.in)
	case egress:
		n = uint64(k.out)
	case direction:
		n = uint64(probe.FLOWPROBE_DIRECTION_TX)
	case packetCount:
		n = e.packets
	case octetCount:
		n = e.octets
	case flowStart:
		n = timeOf(e.begin)
	case flowEnd:
		n = timeOf(e.end)
	case protocolNumber:
		n = uint64(k.protocol)
	case sourcePort:
		n = uint64(k.srcPort)
	case destinationPort:
		n = uint64(k.dstPort)
	case tcpFlags:
		n = uint64(e.flags)
	}
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], n)
	return b[8-f.length:]
}

// timeOf is a time as VPP writes it: seconds since 1900, and nanoseconds.
func timeOf(t time.Time) uint64 { return uint64(t.Unix()+since1900)<<32 | uint64(t.Nanosecond()) }

// flush makes a message of the records that wait.
func (p *Probe) flush(s *stream, now time.Time) {
	if len(s.records) > 0 {
		p.ready = append(p.ready, p.message(s.id, s.records, now))
		p.number++
		s.records = nil
	}
}

// message is a message of one set.
func (p *Probe) message(set uint16, body []byte, now time.Time) []byte {
	b := binary.BigEndian.AppendUint16(nil, version)
	b = binary.BigEndian.AppendUint16(b, uint16(messageHeader+setHeader+len(body)))
	b = binary.BigEndian.AppendUint32(b, uint32(now.Unix()))
	b = binary.BigEndian.AppendUint32(b, p.number)
	b = binary.BigEndian.AppendUint32(b, domain)
	b = binary.BigEndian.AppendUint16(b, set)
	return append(binary.BigEndian.AppendUint16(b, uint16(setHeader+len(body))), body...)
}

// Messages lets the timers of VPP run, and returns the header of the exporter's packets, the table in which they are routed, and the messages that leave now, each with its
// header of UDP. Without a collector there are none.
func (p *Probe) Messages(now time.Time) (head packet.Packet, table uint32, messages [][]byte) {
	collector, source := p.ends()
	if collector.IsUnspecified() {
		return packet.Packet{}, 0, nil
	}
	p.endSilent(now)
	if !now.Before(p.wake) {
		p.sendDue(now)
	}
	if table = p.exporter.VrfID; table == anyTable {
		table = 0
	}
	head = packet.NewUDP(netip.AddrPortFrom(source, ipfixPort), netip.AddrPortFrom(collector, p.exporter.CollectorPort))
	head.TTL = life
	messages, p.ready = p.ready, nil
	return head, table, messages
}

// endSilent is flowprobe_walker_process for the timers that have ended: it reports what was counted, and forgets what had no packet for the passive time.
func (p *Probe) endSilent(now time.Time) {
	for k, e := range p.entries {
		if now.Before(e.next) {
			continue
		}
		if e.packets > 0 && now.After(e.exported.Add(seconds(p.active))) {
			p.export(k, variant{k.which, k.dst.Is6()}, e, now)
		}
		if passive := seconds(p.passive); now.Sub(e.end) < passive*9/10 {
			e.next = e.end.Add(passive)
		} else {
			delete(p.entries, k) // with packets that were not reported, if the active time is longer
		}
	}
}

// sendDue is a round of flow-report-process: templates that are due, and all records.
func (p *Probe) sendDue(now time.Time) {
	wait, interval := longestWait, seconds(p.exporter.TemplateInterval)
	for _, s := range p.streams {
		if s.announced.IsZero() || now.After(s.announced.Add(interval)) {
			body := binary.BigEndian.AppendUint16(nil, s.id)
			body = binary.BigEndian.AppendUint16(body, uint16(len(s.fields)))
			for _, f := range s.fields {
				body = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(body, f.kind), f.length)
			}
			p.ready = append(p.ready, p.message(templateSet, body, now))
			s.announced = now
		}
		wait = min(wait, s.announced.Add(interval).Sub(now))
		p.flush(s, now)
	}
	p.wake = now.Add(wait)
}
