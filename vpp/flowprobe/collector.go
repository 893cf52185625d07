package flowprobe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"
)

const (
	mostWaiting = 100_000 // records between two calls of Take
	socketBytes = 4 << 20 // the kernel gives less if net.core.rmem_max is less
	mostMessage = 65535
)

// Collector receives VPP's messages. Run owns the reader; Take may be called beside it.
type Collector struct {
	listen func() (net.PacketConn, error)
	from   netip.Addr
	taken  chan chan Received
	ended  chan struct{}
}

// Received is what arrived since the last call of Take.
type Received struct {
	Records []Record
	// Lost are messages that did not arrive or were no IPFIX, and parts of messages whose template VPP has not sent yet. Dropped are records
	// that had no room because nobody took them.
	Lost, Dropped uint64
	Err           error // why nothing arrives; nil: the collector listens
}

// Socket returns a function that opens the socket at an address of this host.
func Socket(at netip.AddrPort) func() (net.PacketConn, error) {
	return func() (net.PacketConn, error) {
		conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
		if err != nil {
			return nil, fmt.Errorf("collector of flowprobe: %w", err)
		}
		_ = conn.SetReadBuffer(socketBytes) // less is as good as long as messages are read at once
		return conn, nil
	}
}

// NewCollector returns a collector for what an exporter sends. Run calls listen until that opens a socket: the link to VPP may come later.
func NewCollector(listen func() (net.PacketConn, error), from netip.Addr) *Collector {
	return &Collector{listen: listen, from: from, taken: make(chan chan Received), ended: make(chan struct{})}
}

// Run receives until ctx ends. It is called once.
func (c *Collector) Run(ctx context.Context) error {
	defer close(c.ended)
	conn, err := c.openSocket(ctx)
	if err != nil {
		return err
	}
	messages, failed := make(chan []byte), make(chan error, 1)
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	go func() { defer close(messages); failed <- c.readDatagrams(ctx, conn, messages) }()
	var reader Reader
	var now Received
	for {
		select {
		case b, ok := <-messages:
			if !ok {
				return errors.Join(ctx.Err(), <-failed)
			}
			now.receive(&reader, b)
		case answer := <-c.taken:
			answer <- now
			now = Received{}
		}
	}
}

// openSocket opens the socket. Until then it answers why it is not open.
func (c *Collector) openSocket(ctx context.Context) (net.PacketConn, error) {
	again := time.NewTicker(time.Second)
	defer again.Stop()
	for {
		conn, err := c.listen()
		if err == nil {
			return conn, nil
		}
		for waits := true; waits; {
			select {
			case answer := <-c.taken:
				answer <- Received{Err: err}
			case <-again.C:
				waits = false
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
	}
}

func (now *Received) receive(reader *Reader, b []byte) {
	before := reader.Lost + reader.Unknown
	records, err := reader.Read(b)
	now.Lost += reader.Lost + reader.Unknown - before
	if err != nil {
		now.Lost++
	}
	room := min(len(records), mostWaiting-len(now.Records))
	now.Records = append(now.Records, records[:room]...)
	now.Dropped += uint64(len(records) - room)
}

// readDatagrams reads datagrams until the socket is closed.
func (c *Collector) readDatagrams(ctx context.Context, conn net.PacketConn, messages chan<- []byte) error {
	b := make([]byte, mostMessage)
	for {
		n, sender, err := conn.ReadFrom(b)
		switch from, isUDP := sender.(*net.UDPAddr); {
		case errors.Is(err, net.ErrClosed):
			return nil
		case err != nil:
			return fmt.Errorf("messages of flowprobe: %w", err)
		case isUDP && from.AddrPort().Addr().Unmap() != c.from: // another host's or program's
			continue
		}
		select {
		case messages <- append([]byte(nil), b[:n]...):
		case <-ctx.Done():
			return nil
		}
	}
}

// Take returns what arrived since the last call. It waits for Run to begin, and returns nothing after it has ended.
func (c *Collector) Take(ctx context.Context) Received {
	answer := make(chan Received, 1)
	select {
	case c.taken <- answer:
		return <-answer
	case <-ctx.Done():
	case <-c.ended:
	}
	return Received{}
}
