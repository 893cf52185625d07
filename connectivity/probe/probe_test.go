package probe

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/contiv-agent/contiv-agent/test/poll"
	"github.com/contiv-agent/contiv-agent/test/port"
)

// limit is ample for what succeeds, and short is for what fails.
const (
	limit = 20 * time.Second
	short = 500 * time.Millisecond
)

// serve starts a server, and returns its port.
func serve(t *testing.T) int {
	t.Helper()
	s := Server{Name: "there", Ports: []int{port.Free(t)}}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	poll.Until(t, "the server listens", func() bool {
		c, err := net.Dial("tcp", at("127.0.0.1", s.Ports[0]))
		return err == nil && c.Close() == nil
	})
	return s.Ports[0]
}

// outcomes runs probes, and returns the last outcome of each.
func outcomes(t *testing.T, probes ...Probe) []Outcome {
	t.Helper()
	out := make([]Outcome, len(probes))
	for i := range probes {
		probes[i].ID = i
	}
	Run(t.Context(), probes, func(o Outcome) { out[o.ID] = o })
	return out
}

func at(ip string, port int) string { return net.JoinHostPort(ip, fmt.Sprint(port)) }

// A server answers TCP and UDP in both families, with its name, the client's address, and as many bytes as it got.
func TestServerAnswers(t *testing.T) {
	n := serve(t)
	for _, ip := range []string{"127.0.0.1", "::1"} {
		got := outcomes(t,
			Probe{Kind: TCP, To: at(ip, n), Times: 5, Limit: limit}, Probe{Kind: TCP, To: at(ip, n), Bytes: 1 << 20, Limit: limit},
			Probe{Kind: UDP, To: at(ip, n), Limit: limit}, Probe{Kind: MTU, To: at(ip, n), Limit: limit})
		for i, want := range []int{5, 1, 1, 0} {
			if got[i].Symptom != "" || len(got[i].Answers) != want {
				t.Errorf("%s: %+v", ip, got[i])
			}
			for _, a := range got[i].Answers {
				if diff := cmp.Diff(Answer{Server: "there", Client: ip}, a); diff != "" {
					t.Errorf("%s: %s", ip, diff)
				}
			}
		}
		if got[3].Passes != largestPacket || got[3].MTU != largestPacket {
			t.Errorf("%s: %+v", ip, got[3])
		}
	}
}

// The answer to a datagram leaves from the address that was asked, not from the first one of the node.
func TestDatagramIsAnsweredFromItsAddress(t *testing.T) {
	n := serve(t)
	conn, err := net.DialUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}, &net.UDPAddr{IP: net.IPv4(127, 0, 0, 77), Port: n})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if a, err := exchangeDatagram(t.Context(), conn, 64, time.Now().Add(5*time.Second), resendAfter); err != nil || a.Client != "127.0.0.1" {
		t.Errorf("%+v %v", a, err)
	}
}

// silent returns the address of a TCP listener that accepts, and does then as asked.
func silent(t *testing.T, then func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = conn.Close() })
			go then(conn)
		}
	}()
	return l.Addr().String()
}

// Each kind of failure has its symptom.
func TestSymptoms(t *testing.T) {
	free := at("127.0.0.1", port.Free(t))
	quiet, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer quiet.Close()
	stalls := silent(t, func(net.Conn) {})
	cuts := silent(t, func(c net.Conn) { _ = c.Close() })
	babbles := silent(t, func(c net.Conn) { _, _ = c.Write([]byte("HTTP/1.1 400\n")) })
	n := serve(t)
	for name, c := range map[string]struct {
		probe Probe
		want  Symptom
	}{
		"refused":            {Probe{Kind: TCP, To: free, Limit: short}, Refusal},
		"refused is wanted":  {Probe{Kind: Refused, To: free, Limit: short}, ""},
		"not refused":        {Probe{Kind: Refused, To: at("127.0.0.1", n), Limit: short}, Other},
		"stalled":            {Probe{Kind: TCP, To: stalls, Limit: short}, Stalled},
		"cut":                {Probe{Kind: TCP, To: cuts, Limit: short}, Cut},
		"another server":     {Probe{Kind: TCP, To: babbles, Limit: short}, Cut},
		"no TLS":             {Probe{Kind: TLS, To: stalls, Limit: short}, Stalled},
		"UDP silence":        {Probe{Kind: UDP, To: quiet.LocalAddr().String(), Limit: short}, Silence},
		"UDP refused":        {Probe{Kind: UDP, To: free, Limit: short}, Refusal},
		"MTU silence":        {Probe{Kind: MTU, To: quiet.LocalAddr().String(), Limit: short}, Silence},
		"DNS silence":        {Probe{Kind: DNS, To: "a.b", Server: quiet.LocalAddr().String(), Limit: short}, Silence},
		"held, then cut":     {Probe{Kind: Hold, To: cuts, Limit: limit}, Cut},
		"no route":           {Probe{Kind: TCP, To: "[fe80::1%nosuch]:80", Limit: short}, Other},
		"not an address":     {Probe{Kind: ICMP, To: "nowhere", Limit: short}, Other},
		"no such kind":       {Probe{Kind: "smoke", Limit: short}, Unsupported},
		"held to the end":    {Probe{Kind: Hold, To: at("127.0.0.1", n), Limit: short}, ""},
		"describes this pod": {Probe{Kind: Self, Limit: short}, ""},
	} {
		got := outcomes(t, c.probe)[0]
		if got.Symptom != c.want || (got.Error == "") != (c.want == "") {
			t.Errorf("%s: %+v, want symptom %q", name, got, c.want)
		}
	}
}

// A transfer that makes progress is not stalled, however slow the path is, but it does not last for ever.
func TestSlowTransfer(t *testing.T) {
	for name, c := range map[string]struct {
		pause time.Duration // before each of eight parts
		want  error
	}{
		"at once":         {0, nil},
		"slow":            {limit / 2, nil},
		"stalls":          {limit + 1, errStalled},
		"slower than all": {limit * 9 / 10, errSlow},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, server := net.Pipe()
				var serving sync.WaitGroup
				defer serving.Wait()
				defer client.Close()
				serving.Go(func() {
					defer server.Close()
					in := bufio.NewReader(server)
					payload := make([]byte, 8<<10)
					if _, err := in.ReadString('\n'); err != nil {
						return
					}
					if _, err := io.ReadFull(in, payload); err != nil {
						return
					}
					_, _ = fmt.Fprintf(server, "there 127.0.0.1 %d\n", len(payload))
					for part := range slices.Chunk(payload, 1<<10) {
						time.Sleep(c.pause)
						if _, err := server.Write(part); err != nil {
							return
						}
					}
				})
				began := time.Now()
				a, err := transfer(client, 8<<10, limit)
				if !errors.Is(err, c.want) || (err == nil) != (a.Server == "there") {
					t.Errorf("%+v %v", a, err)
				}
				if time.Since(began) > slowest*limit {
					t.Errorf("it took %s", time.Since(began))
				}
			})
		})
	}
}

// A held connection has an outcome when it works, and one at its end.
func TestHold(t *testing.T) {
	n := 0
	to := silent(t, func(c net.Conn) {
		in := bufio.NewReader(c)
		for range 3 {
			if _, err := in.ReadString('\n'); err != nil {
				return
			}
			_, _ = fmt.Fprintf(c, "there 127.0.0.1 0\n")
		}
		_ = c.Close()
	})
	Run(t.Context(), []Probe{{Kind: Hold, To: to, Limit: limit}}, func(o Outcome) {
		if n++; o.Holds != (n == 1) || (o.Symptom == Cut) != (n == 2) {
			t.Errorf("outcome %d: %+v", n, o)
		}
	})
	if n != 2 {
		t.Errorf("%d outcomes", n)
	}
}

// A probe that is refused at first is tried again: the Service may be new.
func TestRefusalIsTriedAgain(t *testing.T) {
	n := port.Free(t)
	done := make(chan []Outcome)
	go func() { done <- outcomes(t, Probe{Kind: TCP, To: at("127.0.0.1", n), Limit: limit}) }()
	time.Sleep(2 * pause)
	s := Server{Name: "late", Ports: []int{n}}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx) }()
	if got := (<-done)[0]; got.Symptom != "" || got.Answers[0].Server != "late" {
		t.Errorf("%+v", got)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// No two probes have the same source port: VPP could not distinguish their answers.
func TestSourcePortsDiffer(t *testing.T) {
	seen := map[string]bool{}
	for range 200 {
		conn, err := dialFrom(t.Context(), "udp", "127.0.0.1:9", nil)
		if err != nil {
			t.Fatal(err)
		}
		if from := conn.LocalAddr().String(); seen[from] {
			t.Errorf("%s has been used", from)
		} else {
			seen[from] = true
		}
		_ = conn.Close()
	}
}

func TestPortInUse(t *testing.T) {
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s := Server{Name: "twice", Ports: []int{l.Addr().(*net.TCPAddr).Port}}
	if err := s.Serve(t.Context()); err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Error(err)
	}
}

func TestNameServers(t *testing.T) {
	got := nameServers("# nameserver 1.1.1.1\nsearch a b\nnameserver 10.96.0.10\nnameserver fd00::a\noptions ndots:5\nnameserver\n")
	if diff := cmp.Diff([]string{"10.96.0.10", "fd00::a"}, got); diff != "" {
		t.Error(diff)
	}
}

// The checksum is that of RFC 1071: a message with it sums up to zero.
func TestChecksum(t *testing.T) {
	m := []byte{8, 0, 0, 0, 0x12, 0x34, 0, 1, 'a', 'b', 'c', 'd'}
	sum := checksum(m)
	m[2], m[3] = byte(sum>>8), byte(sum)
	if got := checksum(m); got != 0 {
		t.Errorf("%#x", got)
	}
}

// Pings need a right that not every machine gives.
func TestPing(t *testing.T) {
	for _, ip := range []string{"127.0.0.1", "::1"} {
		if got := outcomes(t, Probe{Kind: ICMP, To: ip, Limit: limit})[0]; got.Symptom != "" && got.Symptom != Unsupported {
			t.Errorf("%s: %+v", ip, got)
		}
	}
}
