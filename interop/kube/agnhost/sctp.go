package main

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"time"
)

// ipSCTP is the network of SCTP packets. Its name would need a file that the image does not have.
const ipSCTP = "ip4:132"

// Types of chunks (RFC 9260, chapter 3.2).
const (
	chunkData       = 0
	chunkInit       = 1
	chunkInitAck    = 2
	chunkSack       = 3
	chunkAbort      = 6
	chunkCookieEcho = 10
	chunkCookieAck  = 11
)

// whole is the flag of data that fits into one chunk.
const whole = 3

// cookieParameter is the type of the parameter that gives a client its cookie.
const cookieParameter = 7

// chunk is a chunk without its padding.
type chunk struct {
	kind, flags byte
	value       []byte
}

// packet is an SCTP packet behind the IP header.
type packet struct {
	from, to uint16
	tag      uint32
	chunks   []chunk
}

const headerSize, chunkHeader = 12, 4

// marshal returns the packet's bytes, with the checksum.
func (p *packet) marshal() []byte {
	b := binary.BigEndian.AppendUint16(nil, p.from)
	b = binary.BigEndian.AppendUint16(b, p.to)
	b = binary.BigEndian.AppendUint32(b, p.tag)
	b = append(b, 0, 0, 0, 0)
	for _, c := range p.chunks {
		b = append(b, c.kind, c.flags)
		b = binary.BigEndian.AppendUint16(b, uint16(chunkHeader+len(c.value)))
		b = append(b, c.value...)
		for len(b)%4 != 0 {
			b = append(b, 0)
		}
	}
	binary.LittleEndian.PutUint32(b[8:], checksum(b))
	return b
}

// checksum is CRC-32C of a packet whose field of the checksum counts as 0.
func checksum(b []byte) uint32 {
	table := crc32.MakeTable(crc32.Castagnoli)
	sum := crc32.Update(0, table, b[:8])
	sum = crc32.Update(sum, table, make([]byte, 4))
	return crc32.Update(sum, table, b[headerSize:])
}

// parse reads a packet; false: it is none, or its checksum is wrong.
func parse(b []byte) (p packet, ok bool) {
	if len(b) < headerSize || binary.LittleEndian.Uint32(b[8:]) != checksum(b) {
		return p, false
	}
	p.from, p.to, p.tag = binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:]), binary.BigEndian.Uint32(b[4:])
	for b = b[headerSize:]; len(b) >= chunkHeader; {
		size := int(binary.BigEndian.Uint16(b[2:]))
		if size < chunkHeader || size > len(b) {
			return p, false
		}
		p.chunks = append(p.chunks, chunk{b[0], b[1], b[chunkHeader:size]})
		b = b[min((size+3)/4*4, len(b)):]
	}
	return p, true
}

// find is the value of the packet's first chunk of a type.
func (p *packet) find(kind byte) ([]byte, bool) {
	for _, c := range p.chunks {
		if c.kind == kind {
			return c.value, true
		}
	}
	return nil, false
}

// initSize is that of the fields of INIT and INIT ACK: tag, window, numbers of streams, first TSN.
const initSize = 16

// initiation is the value of INIT and INIT ACK, without parameters.
func initiation(tag, tsn uint32) []byte {
	b := binary.BigEndian.AppendUint32(nil, tag)
	b = binary.BigEndian.AppendUint32(b, 64<<10)
	b = append(b, 0, 1, 0, 1)
	return binary.BigEndian.AppendUint32(b, tsn)
}

// data is the value of a DATA chunk with these bytes, on stream 0.
func data(tsn uint32, text string) []byte {
	b := binary.BigEndian.AppendUint32(nil, tsn)
	return append(append(b, make([]byte, 8)...), text...)
}

// serverTSN is the first of every server's associations.
const serverTSN = 1

// reply is a server's answer to a packet; false: none. Clients keep what a server knows of an association, in its cookie: the tag of the client.
func reply(p packet, text string) (out packet, ok bool) {
	out = packet{from: p.to, to: p.from}
	if value, ok := p.find(chunkInit); ok && len(value) >= initSize {
		out.tag = binary.BigEndian.Uint32(value)
		value = initiation(rand.Uint32()|1, serverTSN)
		value = append(value, 0, cookieParameter, 0, 8)
		out.chunks = []chunk{{kind: chunkInitAck, value: binary.BigEndian.AppendUint32(value, out.tag)}}
		return out, true
	}
	if value, ok := p.find(chunkCookieEcho); ok && len(value) == 4 {
		out.tag = binary.BigEndian.Uint32(value)
		out.chunks = []chunk{{kind: chunkCookieAck}, {kind: chunkData, flags: whole, value: data(serverTSN, text)}}
		return out, true
	}
	return out, false
}

// serve answers on these ports, each with its text. Other processes of the network namespace may serve other ports.
func serve(conn *net.IPConn, texts map[uint16]string) error {
	for buf := make([]byte, 64<<10); ; {
		n, from, err := conn.ReadFromIP(buf)
		if err != nil {
			return err
		}
		p, ok := parse(buf[:n])
		text, mine := texts[p.to]
		if !ok || !mine {
			continue
		}
		if out, ok := reply(p, text); ok {
			_, _ = conn.WriteToIP(out.marshal(), from) // a client that gets no answer repeats its packet
		}
	}
}

// errAborted says that the other side refuses an association.
var errAborted = errors.New("connection refused")

// again is how long a client waits for an answer before it repeats its packet.
const again = 300 * time.Millisecond

// dial makes an association with an address, receives data in it, and aborts it.
func dial(to netip.AddrPort, timeout time.Duration) error {
	conn, err := net.DialIP(ipSCTP, nil, &net.IPAddr{IP: to.Addr().AsSlice()})
	if err != nil {
		return err
	}
	defer conn.Close()
	end := time.Now().Add(timeout)
	a := association{conn: conn, from: uint16(49152 + rand.IntN(1<<14)), to: to.Port(), tag: rand.Uint32() | 1}
	answer, err := a.ask(end, chunk{kind: chunkInit, value: initiation(a.tag, 1)}, chunkInitAck)
	if err != nil {
		return err
	}
	if len(answer) < initSize+chunkHeader || answer[initSize+1] != cookieParameter {
		return errors.New("an INIT ACK without a cookie")
	}
	size := int(binary.BigEndian.Uint16(answer[initSize+2:]))
	if size < chunkHeader || initSize+size > len(answer) {
		return errors.New("an INIT ACK with a cookie that is cut off")
	}
	a.other = binary.BigEndian.Uint32(answer)
	cookie := answer[initSize+chunkHeader : initSize+size]
	answer, err = a.ask(end, chunk{kind: chunkCookieEcho, value: cookie}, chunkData)
	if err != nil {
		return err
	}
	if len(answer) < 4 {
		return errors.New("data without a number")
	}
	sack := append(append([]byte{}, answer[:4]...), 0, 1, 0, 0, 0, 0, 0, 0)
	return a.send(chunk{kind: chunkSack, value: sack}, chunk{kind: chunkAbort})
}

// association is a client's end.
type association struct {
	conn       *net.IPConn
	from, to   uint16
	tag, other uint32 // ours, and the other side's
}

func (a *association) send(chunks ...chunk) error {
	p := packet{from: a.from, to: a.to, tag: a.other, chunks: chunks}
	_, err := a.conn.Write(p.marshal())
	return err
}

// ask sends a chunk, again and again, until a packet with the other chunk arrives, and returns its value. Errors of ICMP are ignored, as SCTP does.
func (a *association) ask(end time.Time, question chunk, want byte) ([]byte, error) {
	buf := make([]byte, 64<<10)
	for next := time.Now(); ; {
		now := time.Now()
		if !now.Before(end) {
			return nil, os.ErrDeadlineExceeded
		}
		if !now.Before(next) {
			_ = a.send(question) // it is repeated
			next = now.Add(again)
		}
		if err := a.conn.SetReadDeadline(earlier(next, end)); err != nil {
			return nil, err
		}
		n, _, err := a.conn.ReadFromIP(buf) // Read would return the IP header, too
		p, ok := parse(buf[:n])
		if err != nil || !ok || p.from != a.to || p.to != a.from || p.tag != a.tag {
			continue
		}
		if _, refused := p.find(chunkAbort); refused {
			return nil, errAborted
		}
		if value, ok := p.find(want); ok {
			return value, nil
		}
	}
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
