package stream

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"testing"
)

// messages are the frames of messages with so many bytes each.
func messages(sizes ...int) (out []byte) {
	for i, n := range sizes {
		var header [frameHeader]byte
		binary.BigEndian.PutUint32(header[8:], uint32(n))
		out = append(out, header[:]...)
		for range n {
			out = append(out, byte(i))
		}
	}
	return out
}

// Messages that arrive in one write come together up to 4,096 bytes, and those in two writes one after the other, wherever the first write ends.
func TestReadTogether(t *testing.T) {
	const head = frameHeader
	for name, k := range map[string]struct {
		writes [][]byte
		want   [][]int // sizes of the messages of each call
	}{
		"one":                     {[][]byte{messages(10)}, [][]int{{10}}},
		"three in a write":        {[][]byte{messages(10, 0, 30)}, [][]int{{10, 0, 30}}},
		"exactly at once":         {[][]byte{messages(1000, atOnce-1000-2*head)}, [][]int{{1000, atOnce - 1000 - 2*head}}},
		"a byte more":             {[][]byte{messages(1000, atOnce-1000-2*head+1, 5)}, [][]int{{1000}, {atOnce - 1000 - 2*head + 1, 5}}},
		"a long one":              {[][]byte{messages(20, 3*bufferSize, 7)}, [][]int{{20}, {3 * bufferSize}, {7}}},
		"longer than at once":     {[][]byte{messages(2*atOnce, 3)}, [][]int{{2 * atOnce}, {3}}},
		"a part of the next body": {[][]byte{messages(10, 20)[:2*head+15], messages(10, 20, 30)[2*head+15:]}, [][]int{{10}, {20, 30}}},
		"a part of its header":    {[][]byte{messages(10, 20)[:head+15], messages(10, 20)[head+15:]}, [][]int{{10}, {20}}},
		"a part of the first":     {[][]byte{messages(10)[:3], messages(10, 4)[3:]}, [][]int{{10, 4}}},
	} {
		client, server := net.Pipe()
		go func() {
			for _, b := range k.writes {
				_, _ = client.Write(b) // Read fails if this does
			}
			_ = client.Close()
		}()
		var got [][]int
		n := byte(0)
		err := New(server).Read(func(bodies [][]byte) error {
			var sizes []int
			for _, b := range bodies {
				if slices.ContainsFunc(b, func(x byte) bool { return x != n }) {
					t.Errorf("%s: message %d has other bytes", name, n)
				}
				n, sizes = n+1, append(sizes, len(b))
			}
			got = append(got, sizes)
			return nil
		})
		if !errors.Is(err, io.EOF) || !slices.EqualFunc(got, k.want, slices.Equal) {
			t.Errorf("%s: %v, %v; want %v", name, got, err, k.want)
		}
	}
}

// A message that is too long, or that receive does not accept, ends the connection.
func TestReadEnds(t *testing.T) {
	long := make([]byte, frameHeader)
	binary.BigEndian.PutUint32(long[8:], maxFrame+1)
	refusal := errors.New("not accepted")
	for _, b := range [][]byte{long, messages(1, 2)} {
		client, server := net.Pipe()
		go func() {
			_, _ = client.Write(b)
			_ = client.Close()
		}()
		calls := 0
		err := New(server).Read(func([][]byte) error { calls++; return refusal })
		if accepted := len(b) > frameHeader; accepted != (calls == 1) || errors.Is(err, refusal) != accepted || errors.Is(err, io.EOF) {
			t.Errorf("%d bytes: %v, %d calls", len(b), err, calls)
		}
	}
}
