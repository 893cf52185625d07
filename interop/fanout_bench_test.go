package interop

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/contiv-agent/contiv-agent/calico/wire"
)

// The load of a large cluster: so many keys, then so many updates each second for so long.
const (
	loadKeys    = 100_000
	loadRate    = 1000
	loadSeconds = 10
	loadAgain   = 25 // herds after the first
)

// BenchmarkFanout puts our fan-out and the real Typha's sync server under the same load, each in a separate process that is
// fed by lines. One run of each row is one herd of clients that come together, the same herd loadAgain times more, and then a
// stream of updates:
//
//	first-p50-ms, first-max-ms   time from a client's dial to in-sync, of a herd at a server that has had no client
//	again-p50-ms, again-max-ms   of the later herds, the medians
//	snapshot-B                   bytes of the compressed snapshot
//	snap-cpu-s, update-cpu-s     processor time of the server for all herds, and for the updates
//	late-p50-ms, late-max-ms     time from an update's line to its arrival at a client that decodes everything
//	peak-MB                      most resident memory of the server, from the first herd on
func BenchmarkFanout(b *testing.B) {
	sizes := map[string]int{}
	for _, clients := range []int{1, 10, 100, 400} {
		for _, server := range []string{"typha", "ours"} {
			b.Run(fmt.Sprintf("server=%s/clients=%d", server, clients), func(b *testing.B) {
				for b.Loop() {
					loadOnce(b, server, clients, sizes)
				}
			})
		}
	}
}

// BenchmarkFanoutIdle is the cost of 2,000 clients of our server with all keys while nothing changes: most resident memory
// from their first connection on, and processor time for half a minute of it, three pings for each. Then with mutual TLS.
func BenchmarkFanoutIdle(b *testing.B) {
	b.Run("plain", func(b *testing.B) { loadIdle(b, nil) })
	b.Run("tls", func(b *testing.B) {
		dir := b.TempDir()
		a := newAuthority(b, dir, "authority")
		cert, key := a.issue("server", "", time.Hour)
		args := []string{"--cert", cert, "--key", key, "--ca", a.file, "--client-cn", "client"}
		cert, key = a.issue("client", "", time.Hour)
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			b.Fatal(err)
		}
		// who the server is does not matter here, what it needs for a client does
		loadIdle(b, &tls.Config{Certificates: []tls.Certificate{pair}, InsecureSkipVerify: true}, args...)
	})
}

func loadIdle(b *testing.B, secure *tls.Config, args ...string) {
	const clients, crowd = 2000, 50
	for b.Loop() {
		p, addr := startLoaded(b, "ours", args...)
		pid := p.cmd.Process.Pid
		resetPeak(b, pid)
		dial := func() (net.Conn, error) {
			if secure == nil {
				return net.Dial("tcp", addr)
			}
			return tls.Dial("tcp", addr, secure)
		}
		size, err := snapshotSize(dial)
		if err != nil {
			b.Fatal(err)
		}
		var all []net.Conn
		for range clients / crowd {
			_, conns := loadHerd(b, dial, crowd, size)
			for _, conn := range conns {
				go func() { _, _ = io.Copy(io.Discard, conn) }() // ends when the connection is closed; pongs may be owed for a minute
			}
			all = append(all, conns...)
		}
		before := loadCPU(b, pid)
		time.Sleep(30 * time.Second)
		b.ReportMetric(loadCPU(b, pid)-before, "idle-cpu-s")
		b.ReportMetric(peakMB(b, pid), "peak-MB")
		b.ReportMetric(0, "ns/op")
		loadClose(all)
		p.Kill()
	}
}

func dialTo(addr string) func() (net.Conn, error) {
	return func() (net.Conn, error) { return net.Dial("tcp", addr) }
}

func loadOnce(b *testing.B, server string, clients int, sizes map[string]int) {
	p, addr := startLoaded(b, server)
	if sizes[server] == 0 {
		size, err := snapshotSize(dialTo(addr))
		if err != nil {
			b.Fatal(err)
		}
		sizes[server] = size
		p.Kill()
		p, addr = startLoaded(b, server) // that client was only to count
	}
	size, pid := sizes[server], p.cmd.Process.Pid
	resetPeak(b, pid)
	before := loadCPU(b, pid)
	dial := dialTo(addr)
	first, conns := loadHerd(b, dial, clients, size)
	var middle, last []time.Duration // of each later herd
	for range loadAgain {
		loadClose(conns)
		var again []time.Duration
		again, conns = loadHerd(b, dial, clients, size)
		slices.Sort(again)
		middle, last = append(middle, again[len(again)/2]), append(last, again[len(again)-1])
	}
	after := loadCPU(b, pid)
	late := loadUpdates(b, p, dial, conns)
	report := func(name string, p50, most time.Duration) {
		b.ReportMetric(float64(p50.Microseconds())/1000, name+"-p50-ms")
		b.ReportMetric(float64(most.Microseconds())/1000, name+"-max-ms")
	}
	for _, d := range [][]time.Duration{first, middle, last, late} {
		slices.Sort(d)
	}
	report("first", first[len(first)/2], first[len(first)-1])
	report("again", middle[loadAgain/2], last[loadAgain/2])
	report("late", late[len(late)/2], late[len(late)-1])
	b.ReportMetric(float64(size), "snapshot-B")
	b.ReportMetric(after-before, "snap-cpu-s")
	b.ReportMetric(loadCPU(b, pid)-after, "update-cpu-s")
	b.ReportMetric(peakMB(b, pid), "peak-MB")
	b.ReportMetric(0, "ns/op")
	loadClose(conns)
	p.Kill()
}

func loadClose(conns []net.Conn) {
	for _, c := range conns {
		_ = c.Close()
	}
}

// startLoaded starts a server and waits until it holds all keys and has come to rest.
func startLoaded(b *testing.B, server string, args ...string) (*Process, string) {
	b.Helper()
	var p *Process
	var addr string
	if server == "ours" {
		p = start(b, server, exec.Command(product(b), append([]string{
			"fanout", "--keys", "-", "--listen", "127.0.0.1:0", "--metrics", "", "--log-level", "error",
		}, args...)...))
		addr = p.Line()
	} else {
		p = start(b, server, exec.Command(peer(b, "typha")))
		addr = "127.0.0.1:" + p.Line()
	}
	w := bufio.NewWriterSize(p.in, 1<<20)
	fmt.Fprintln(w, `{"status":"resync"}`)
	for i := range loadKeys {
		loadLine(w, i, 0)
	}
	fmt.Fprintln(w, `{"key":"/calico/v1/Ready","value":"true"}`)
	fmt.Fprintln(w, `{"status":"in-sync"}`)
	if err := w.Flush(); err != nil {
		b.Fatal(err)
	}
	for busy := loadCPU(b, p.cmd.Process.Pid); ; { // at rest: half a second without work
		time.Sleep(500 * time.Millisecond)
		now := loadCPU(b, p.cmd.Process.Pid)
		if now-busy < 0.02 {
			return p, addr
		}
		busy = now
	}
}

// loadLine writes pod i as the datastore has it, with a label that has the time of writing.
func loadLine(w io.Writer, i int, at int64) {
	node, name := i%1000, fmt.Sprintf("prod-%d%%2fweb-%d-7d9c5b8f4-x%d", i%50, i%700, i)
	value, err := json.Marshal(struct { // in the order and with the words in which Calico writes it
		State    string            `json:"state"`
		Name     string            `json:"name"`
		Instance string            `json:"active_instance_id"`
		MAC      *string           `json:"mac"`
		Profiles []string          `json:"profile_ids"`
		V4       []string          `json:"ipv4_nets"`
		V6       []string          `json:"ipv6_nets"`
		Labels   map[string]string `json:"labels"`
	}{
		State: "active", Name: fmt.Sprintf("cali%011x", i*2654435761%(1<<44)),
		Profiles: []string{fmt.Sprintf("kns.prod-%d", i%50), fmt.Sprintf("ksa.prod-%d.default", i%50)},
		V4:       []string{fmt.Sprintf("10.%d.%d.%d/32", i>>16, i>>8&255, i&255)}, V6: []string{},
		Labels: map[string]string{
			"app": fmt.Sprintf("web-%d", i%700), "pod-template-hash": "7d9c5b8f4", "at": strconv.FormatInt(at, 10),
			"projectcalico.org/namespace": fmt.Sprintf("prod-%d", i%50), "projectcalico.org/orchestrator": "k8s",
			"projectcalico.org/serviceaccount": "default",
		},
	})
	if err != nil {
		panic(err)
	}
	line, err := json.Marshal(map[string]string{
		"key": fmt.Sprintf("/calico/v1/host/node-%d/workload/k8s/%s/endpoint/eth0", node, name), "value": string(value),
		"revision": "1", // the real Typha's stand-in gives this one to all
	})
	if err != nil {
		panic(err)
	}
	_, _ = w.Write(append(line, '\n')) // the flush at the end reports an error
}

// loadDial makes a connection after both hellos and the first restart: what comes next is the snapshot.
func loadDial(dial func() (net.Conn, error)) (net.Conn, *wire.Encoder, error) {
	conn, err := dial()
	if err != nil {
		return nil, nil, err
	}
	enc, dec := wire.NewEncoder(conn), wire.NewDecoder(conn, 1<<20)
	err = enc.Encode(wire.ClientHello{
		Hostname: "load", Version: "v3.31.0", SyncerType: wire.Felix, SupportsDecoderRestart: true,
		SupportedCompressionAlgorithms: []string{wire.Snappy},
	})
	for err == nil {
		var m wire.Message
		if m, err = dec.Decode(); err != nil {
			break
		}
		if _, ok := m.(wire.DecoderRestart); ok {
			return conn, enc, enc.Encode(wire.ACK{})
		}
	}
	_ = conn.Close()
	return nil, nil, err
}

// loadCounter counts what is read.
type loadCounter struct {
	io.Reader
	n int
}

func (c *loadCounter) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	c.n += n
	return n, err
}

// snapshotSize is the number of compressed bytes until the snapshot's end.
func snapshotSize(dial func() (net.Conn, error)) (int, error) {
	conn, _, err := loadDial(dial)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	raw, keys := &loadCounter{Reader: conn}, 0
	dec := wire.NewDecoder(wire.NewSnappyReader(raw), 256<<20)
	for {
		m, err := dec.Decode()
		if err != nil {
			return 0, err
		}
		switch m := m.(type) {
		case wire.KVs:
			keys += len(m.KVs)
		case wire.DecoderRestart: // nothing follows before the ACK
			if keys != loadKeys+1 {
				return 0, fmt.Errorf("%d keys of %d", keys, loadKeys+1)
			}
			return raw.n, nil
		}
	}
}

// loadHerd lets clients come at once. They count bytes, which stay in the kernel: what is measured is the server.
func loadHerd(b *testing.B, dial func() (net.Conn, error), n, size int) ([]time.Duration, []net.Conn) {
	b.Helper()
	took, conns, errs := make([]time.Duration, n), make([]net.Conn, n), make([]error, n)
	var wg sync.WaitGroup
	gate := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-gate
			began := time.Now()
			conn, enc, err := loadDial(dial)
			if err == nil {
				conns[i] = conn
				err = loadDrop(conn, size)
			}
			if err == nil {
				err = enc.Encode(wire.ACK{})
			}
			if err == nil {
				_, err = io.ReadFull(conn, make([]byte, 10)) // the third stream begins: with the status
			}
			took[i], errs[i] = time.Since(began), err
		})
	}
	close(gate)
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			b.Fatal(err)
		}
	}
	return took, conns
}

// loadDrop reads n bytes of a connection without copying them out of the kernel: on a machine that both sides share, the copies
// of so many clients would be most of the time that is measured.
func loadDrop(conn net.Conn, n int) error {
	plain, ok := conn.(syscall.Conn)
	if !ok { // TLS
		_, err := io.CopyN(io.Discard, conn, int64(n))
		return err
	}
	raw, err := plain.SyscallConn()
	if err != nil {
		return err
	}
	for n > 0 && err == nil {
		got, failed := 0, error(nil)
		err = raw.Read(func(fd uintptr) bool {
			r, _, errno := syscall.Syscall6(syscall.SYS_RECVFROM, fd, 0, uintptr(n), syscall.MSG_TRUNC, 0, 0)
			switch {
			case errno == syscall.EAGAIN:
				return false
			case errno != 0:
				failed = errno
			case r == 0:
				failed = io.ErrUnexpectedEOF
			}
			got = int(r)
			return true
		})
		if err == nil {
			err = failed
		}
		n -= got
	}
	return err
}

// loadUpdates changes keys while all clients read, and returns how late each change was at one that decodes.
func loadUpdates(b *testing.B, p *Process, dial func() (net.Conn, error), conns []net.Conn) []time.Duration {
	b.Helper()
	for _, conn := range conns {
		go func() { _, _ = io.Copy(io.Discard, conn) }() // ends when the connection is closed
	}
	conn, enc, err := loadDial(dial)
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	late := make(chan []time.Duration, 1)
	go func() { late <- loadFollow(conn, enc) }()
	w := bufio.NewWriterSize(p.in, 1<<16)
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for sent := 0; sent < loadRate*loadSeconds; {
		<-ticker.C
		for range loadRate / 100 {
			loadLine(w, sent*7919%loadKeys, time.Now().UnixNano())
			sent++
		}
		if err := w.Flush(); err != nil {
			b.Fatal(err)
		}
	}
	fmt.Fprintln(w, `{"key":"/calico/v1/config/End","value":"1"}`)
	if err := w.Flush(); err != nil {
		b.Fatal(err)
	}
	select {
	case d := <-late:
		if len(d) != loadRate*loadSeconds {
			b.Fatalf("%d updates arrived of %d", len(d), loadRate*loadSeconds)
		}
		return d
	case <-time.After(patience):
		b.Fatal("the updates do not arrive")
	}
	return nil
}

// loadFollow decodes everything until the key that ends the load, and returns how late each update was.
func loadFollow(conn net.Conn, enc *wire.Encoder) (late []time.Duration) {
	br := bufio.NewReaderSize(conn, 1<<16)
	dec := wire.NewDecoder(wire.NewSnappyReader(br), 256<<20)
	for {
		m, err := dec.Decode()
		if err != nil {
			return late
		}
		now := time.Now().UnixNano()
		switch m := m.(type) {
		case wire.DecoderRestart:
			dec = wire.NewDecoder(wire.NewSnappyReader(br), 256<<20)
			if enc.Encode(wire.ACK{}) != nil {
				return late
			}
		case wire.Ping:
			if enc.Encode(wire.Pong{PingTimestamp: m.Timestamp}) != nil {
				return late
			}
		case wire.KVs:
			for _, kv := range m.KVs {
				if kv.Key == "/calico/v1/config/End" {
					return late
				}
				_, at, _ := strings.Cut(string(kv.Value), `"at":"`)
				at, _, _ = strings.Cut(at, `"`)
				if sent, err := strconv.ParseInt(at, 10, 64); err == nil && sent > 0 {
					late = append(late, time.Duration(now-sent))
				}
			}
		}
	}
}

// loadCPU is the processor time a process has used, in seconds.
func loadCPU(b testing.TB, pid int) float64 {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Fatal(err)
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	user, _ := strconv.ParseFloat(fields[11], 64)
	system, _ := strconv.ParseFloat(fields[12], 64)
	return (user + system) / 100 // USER_HZ is 100 on all Linux
}

// resetPeak makes the peak of resident memory begin now.
func resetPeak(b testing.TB, pid int) {
	b.Helper()
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0); err != nil {
		b.Fatal(err)
	}
}

func peakMB(b testing.TB, pid int) float64 {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	kb, _ := strconv.ParseFloat(strings.Fields(rest)[0], 64)
	return kb / 1024
}
